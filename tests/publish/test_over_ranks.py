"""What is told of all ranks together is what their own series would have given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from otel_straggler import semconv
from otel_straggler.collector.metrics.series_choice import MAX_WORST, QUANTILES
from otel_straggler.dashboards.queries import MAX_LINES
from otel_straggler.model.observation import Section
from otel_straggler.model.scores import WindowScores

from .test_score_series import run_scores, shown, window

WORST = semconv.SECTION_WORST.prometheus_name
RELATIVE = semconv.SECTION_RELATIVE.prometheus_name
RANDOM = np.random.default_rng(7)


def of_kinds(made: WindowScores, **kinds: str) -> WindowScores:
    sections = tuple(Section(s.name, kinds.get(s.name, "compute")) for s in made.sections)  # type: ignore[arg-type]
    return replace(made, sections=sections)


def test_the_worst_of_every_section_are_told_but_not_of_waits() -> None:
    """So a section can be chosen and still has its worst; who is slow at a wait is a victim."""
    relative = RANDOM.uniform(0.1, 1.0, (100, 3))
    made = window(list(range(100)), ("forward", "load", "barrier"), relative=relative)
    page = shown(run_scores(of_kinds(made, load="data", barrier="wait")))[WORST]
    for column, name in enumerate(("forward", "load")):
        result = [(int(reported["rank"]), v) for reported, v in page if reported["section"] == name]
        lowest = np.argsort(relative[:, column])[:MAX_WORST]
        assert result == [(rank, relative[rank, column]) for rank in lowest.tolist()]
    assert {reported["section"] for reported, _ in page} == {"forward", "load"}
    assert page[0][0].keys() == shown(run_scores(made))[RELATIVE][0][0].keys()


def test_who_is_worst_at_any_time_is_told_at_that_time() -> None:
    """So as many as a page draws can be chosen over any range from what is told: the same as from
    all series, with the same lowest score."""
    assert MAX_WORST >= MAX_LINES
    all_ranks = list(range(200))
    lowest: dict[str, dict[int, float]] = {WORST: {}, RELATIVE: {}}
    for _ in range(12):
        relative = np.where(RANDOM.random(200) < 0.1, np.nan, RANDOM.uniform(0.1, 1.0, 200))
        page = shown(run_scores(window(all_ranks, relative=relative)))
        for name, ranks in lowest.items():
            for reported, value in page[name]:
                rank = int(reported["rank"])
                ranks[rank] = min(value, ranks.get(rank, 2.0))
    worst = {name: sorted(r, key=r.__getitem__)[:MAX_LINES] for name, r in lowest.items()}
    assert worst[WORST] == worst[RELATIVE]
    assert all(lowest[WORST][rank] == lowest[RELATIVE][rank] for rank in worst[WORST])


def test_the_worst_are_told_whatever_is_folded() -> None:
    """Also where signs of life alone fill the budget."""
    scores = run_scores(window(list(range(100)), ("forward", "backward")))
    assert [len(shown(scores, budget=n)[WORST]) for n in (0, 100, 10_000)] == [40, 40, 40]


@pytest.mark.parametrize(("sections", "maximum"), [(50, 20), (100, 10), (1_500, 1)])
def test_of_very_many_sections_each_has_fewer(sections: int, maximum: int) -> None:
    """So that names made at run time do not become series without end."""
    names = tuple(f"section {n}" for n in range(sections))
    page = shown(run_scores(window(list(range(25)), names)))
    assert len(page[WORST]) == sections * maximum


def test_quantiles_are_those_of_the_series_of_ranks() -> None:
    """Whether these are folded or not; windows by time add their sections."""
    relative = RANDOM.uniform(0.1, 1.0, (50, 2))
    relative[3, 0] = np.nan
    timed = window([1, 2], ("forward", "save"), relative=[0.1, 0.2, 0.3, 0.4], has_steps=False)
    scores = run_scores(timed, window(list(range(50)), ("forward", "load"), relative=relative))
    everything = shown(scores)
    over = semconv.OVER_RANKS[semconv.SECTION_RELATIVE.name].prometheus_name
    for budget in (0, 50_000):
        page = shown(scores, budget=budget)[over]
        for section in ("forward", "load", "save"):
            series = [v for reported, v in everything[RELATIVE] if reported["section"] == section]
            result = {t["ranks_below"]: v for t, v in page if t["section"] == section}
            expected = np.quantile(series, QUANTILES)
            assert result == {
                str(q): pytest.approx(v) for q, v in zip(QUANTILES, expected, strict=True)
            }
