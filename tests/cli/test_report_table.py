"""The table and the sentences: what fits, what is marked, how numbers are written."""

import tracemalloc

import pytest
from rich.console import Console

from otel_straggler.cli.report_table import (
    ScoreTable,
    missing_sentence,
    straggler_sentences,
    worst_first,
)
from otel_straggler.cli.text import digits, duration, rank_ranges
from otel_straggler.collector.views.report_json import window_json
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.simulate.scenarios import Plan, simulate


@pytest.fixture
def window() -> dict:
    scorer = Scorer(ScoreSettings(window_steps=None))
    scorer.observe(simulate("one_slow_rank", Plan(ranks=6, steps=10, slow_rank=2)).batch, 0)
    (scored,) = scorer.close_all()
    return window_json(scored)


def drawn(window: dict, width: int, max_ranks: int = 64) -> str:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(ScoreTable(window, max_ranks))
    return capture.get()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_the_table_fits_the_terminal_and_keeps_the_worst_section(window, width) -> None:
    """Where there is no room, the sections that look healthy go first, and that is said."""
    text = drawn(window, width)
    assert max(map(len, text.splitlines())) <= width
    assert "forward" in text.splitlines()[1]
    if width < 80:
        assert "sections without room: " in text


def test_only_the_worst_ranks_are_shown(window) -> None:
    """The first line is the slow rank; the rest is counted."""
    text = drawn(window, 120, max_ranks=2)
    assert text.splitlines()[4].split()[0] == "2"
    assert "4 more ranks, none of them slower than these" in text


def test_a_rank_without_data_in_a_section_says_so(window) -> None:
    """No data is a state, not a number."""
    window["section_medians_s"]["forward"]["0"] = None
    window["section_relative_scores"]["forward"]["0"] = None
    assert "no data" in drawn(window, 120)


def test_ranks_are_ordered_by_their_lowest_score(window) -> None:
    """A listed rank comes before all others."""
    assert worst_first(window)[0] == "2"
    assert sorted(worst_first(window)) == list("012345")


def test_two_kinds_of_score_of_one_section_are_one_sentence(window) -> None:
    """Slower than its peers, and slower than it was: one fact for a person."""
    individual = {**window["stragglers"][0], "kind_of_score": "section_individual", "score": 0.5}
    window["stragglers"].append(individual)
    (sentence,) = straggler_sentences(window)
    assert "takes 1.5" in sentence
    assert " the fastest rank (" in sentence
    assert " and 2.00x its own best (" in sentence


def test_a_rank_with_a_huge_number_costs_no_memory(window) -> None:
    """What is missing below it is counted, not listed."""
    window["ranks"]["5000000"] = window["ranks"].pop("5")
    window |= {"missing_ranks": [], "world_size": 0}
    tracemalloc.start()
    sentence = missing_sentence(window)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sentence == (
        "no data from rank 5-1004 and 4,998,995 more, to judge by the numbers of the others"
    )
    assert peak_bytes < 1_000_000


def test_missing_ranks_are_told_in_ranges(window) -> None:
    """And how many more there are than are named."""
    window |= {"missing_ranks": [6, 7, 8, 12], "missing_count": 4, "world_size": 13}
    assert missing_sentence(window) == "no data from rank 6-8, 12 (13 ranks expected)"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(123.0, "123 s"), (1.0, "1.00 s"), (0.0999, "99.9 ms"), (9.996e-3, "10.0 ms"),
     (5e-6, "5.00 us"), (3e-9, "3.00 ns")],
)  # fmt: skip
def test_durations_have_three_digits_and_a_unit(seconds: float, text: str) -> None:
    """As people say them."""
    assert duration(seconds) == text


def test_digits_never_show_an_exponent() -> None:
    """Also for large numbers."""
    assert digits(123456.0) == "123456"


def test_a_single_rank_is_a_range_of_its_own() -> None:
    """No dash where there is nothing between."""
    assert rank_ranges([4]) == "4"
    assert rank_ranges([]) == ""
