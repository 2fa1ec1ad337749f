"""Scores as series: what is shown, for how long, and what a budget folds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from otel_straggler import semconv
from otel_straggler.collector.metrics.score_series import FOLDABLE, RunScores
from otel_straggler.collector.metrics.series_choice import QUANTILES
from otel_straggler.model.observation import Section
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import Straggler, WindowScores

CONSTANT = 'collector="c"'
KEEP_S = 900.0
ALWAYS_OVER = {
    semconv.OVER_RANKS[metric.name].prometheus_name
    for metric in (semconv.SECTION_RELATIVE, semconv.SECTION_INDIVIDUAL, semconv.SECTION_MEDIAN)
}
"""Quantiles that are no matter of folding."""


def window(
    ranks: list[int],
    sections: tuple[str, ...] = ("forward",),
    *,
    attempt: int = 0,
    group: str = "",
    relative: Any = None,
    flagged: tuple[int, ...] = (),
    has_steps: bool = True,
    world_size: int = 0,
) -> WindowScores:
    shape = (len(ranks), len(sections))
    table = np.full(shape, 0.9) if relative is None else np.array(relative, float).reshape(shape)
    nothing = np.full(len(ranks), np.nan)
    sources = tuple(
        Source(run_id="run", rank=r, job="job", group=group, attempt=attempt, node=f"n{r}")
        for r in ranks
    )
    return WindowScores(
        run_id="run",
        job="job",
        group=group,
        attempt=attempt,
        first_step=0 if has_steps else None,
        last_step=3 if has_steps else None,
        start_ns=1,
        end_ns=2,
        n_steps=4,
        sources=sources,
        sections=tuple(Section(name) for name in sections),
        section_median_s=np.full(shape, 0.1),
        section_step_s=np.full(shape, 0.1),
        section_own_s=np.full(shape, 0.1),
        section_count=np.full(shape, 4),
        section_relative=table,
        section_individual=np.full(shape, 1.0),
        section_slowdown=np.full(shape, 1.0),
        gpu_relative=nothing,
        gpu_individual=nothing,
        gpu_section_relative=np.full(shape, np.nan),
        gpu_section_individual=np.full(shape, np.nan),
        stragglers=tuple(
            Straggler(
                source=sources[ranks.index(r)],
                section=sections[0],
                kind_of_score="section_relative",
                score=float(table[ranks.index(r), 0]),
            )
            for r in flagged
        ),
        largest_excess=None,
        world_size=world_size or len(ranks),
        missing_ranks=(),
        duplicates=0,
        superseded=0,
        closed_by="complete",
    )


def never_folded(scores: RunScores) -> int:
    """Series about whole ranks, the run, and the folding itself."""
    names = {metric.prometheus_name for metric in FOLDABLE}
    return sum(len(lines) for name, lines in shown(scores).items() if name not in names)


def shown(
    scores: RunScores, budget: int = 50_000, straggling: tuple[int, ...] = ()
) -> dict[str, list[tuple[dict[str, str], float]]]:
    slow = frozenset(("", rank) for rank in straggling)
    text = scores.families(CONSTANT, budget, slow).render().decode()
    result: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            result.setdefault(sample.name, []).append((sample.labels, sample.value))
    return result


def ranks_of(
    page: dict[str, list[tuple[dict[str, str], float]]], metric: semconv.Metric
) -> list[int]:
    samples = page.get(metric.prometheus_name, [])
    return sorted({int(labels["rank"]) for labels, _ in samples})


def run_scores(*windows: WindowScores) -> RunScores:
    scores = RunScores("run", keep_s=KEEP_S)
    for one in windows:
        scores.observe(one, 1000.0)
    return scores


def test_what_is_not_known_is_absent() -> None:
    """No NaN in a page: a missing score is a missing line."""
    page = shown(run_scores(window([0, 1], relative=[0.5, np.nan], world_size=3)))
    assert ranks_of(page, semconv.SECTION_RELATIVE) == [0]
    assert semconv.GPU_RELATIVE.prometheus_name not in page
    assert page[semconv.RUN_RANKS_REPORTING.prometheus_name][0][1] == 2
    assert page[semconv.RUN_COVERAGE.prometheus_name][0][1] == pytest.approx(2 / 3)


def test_a_rank_keeps_its_scores_until_its_next_window() -> None:
    """A rank that misses a window is not forgotten at once, but no longer says straggling."""
    scores = run_scores(window([0, 1], relative=[0.5, 0.6], flagged=(1,)))
    scores.observe(window([0], relative=[0.7]), 1020.0)
    page = shown(scores)
    values = {int(labels["rank"]): v for labels, v in page["straggler_section_relative_score"]}
    assert values == {0: 0.7, 1: 0.6}
    assert ranks_of(page, semconv.RANK_STRAGGLING) == [0]


def test_scores_end_fifteen_minutes_after_the_last_span() -> None:
    """Then the rank has no data."""
    scores = run_scores(window([0, 1]))
    scores.observe(window([0]), 1500.0)
    assert not scores.expire(1000.0 + KEEP_S)
    assert scores.expire(1001.0 + KEEP_S)
    assert ranks_of(shown(scores), semconv.SECTION_RELATIVE) == [0]


def test_a_newer_attempt_replaces_all_ranks() -> None:
    """And windows of the older one, closed late, change nothing."""
    scores = run_scores(window([0, 1, 2]), window([0], attempt=1), window([0, 1, 2]))
    assert ranks_of(shown(scores), semconv.SECTION_RELATIVE) == [0]


def test_ranks_outside_the_world_vanish() -> None:
    """``keep_only`` follows liveness."""
    scores = run_scores(window([0, 1, 2]))
    assert scores.keep_only("", 0, [0, 1])
    assert ranks_of(shown(scores), semconv.SECTION_RELATIVE) == [0, 1]
    assert not scores.keep_only("", 0, [0, 1])
    assert scores.keep_only("", 1, [0, 1])
    assert ranks_of(shown(scores), semconv.SECTION_RELATIVE) == []


def test_sections_with_and_without_steps_are_shown_once() -> None:
    """Windows by step win where a section has both."""
    scores = run_scores(
        window([0], ("forward",), relative=[0.5]),
        window([0], ("forward", "save"), relative=[0.1, 0.2], has_steps=False),
    )
    page = shown(scores)["straggler_section_relative_score"]
    assert {labels["section"]: value for labels, value in page} == {"forward": 0.5, "save": 0.2}
    [newest] = scores.newest_windows()
    assert newest.first_step == 0


def test_the_kind_of_every_section_is_shown() -> None:
    """Once for a run, whichever window has it."""
    by_time = replace(window([0], ("load",), has_steps=False), sections=(Section("load", "data"),))
    page = shown(run_scores(by_time, window([0, 1])))
    result = page[semconv.SECTION_INFO.prometheus_name]
    kinds = {labels["section"]: labels["kind"] for labels, _ in result}
    assert (kinds, len(result)) == ({"load": "data", "forward": "compute"}, 2)


def test_within_the_budget_nothing_is_folded() -> None:
    """And the page says 0, rather than nothing."""
    scores = run_scores(window([0, 1]))
    page = shown(scores, budget=8 + never_folded(scores))
    folded = page["straggler_collector_series_folded"]
    assert {labels["family"] for labels, _ in folded} == {m.prometheus_name for m in FOLDABLE}
    assert {value for _, value in folded} == {0}
    assert {name for name in page if "over_ranks" in name} == ALWAYS_OVER


def test_the_rest_is_folded_before_scores_are() -> None:
    """Medians and slowdowns go first; the worst ranks keep theirs."""
    relative = np.linspace(0.99, 0.5, 100)
    scores = run_scores(window(list(range(100)), relative=relative, flagged=(99,)))
    page = shown(scores, budget=300 + never_folded(scores))
    assert len(ranks_of(page, semconv.SECTION_RELATIVE)) == 100
    kept = ranks_of(page, semconv.SECTION_MEDIAN)
    assert kept == list(range(100 - len(kept), 100))
    assert 0 < len(kept) < 100
    folded = {labels["family"]: v for labels, v in page["straggler_collector_series_folded"]}
    assert folded["straggler_section_median_seconds"] == 100 - len(kept)
    assert folded["straggler_section_relative_score"] == 0
    quantiles = page["straggler_section_median_over_ranks_seconds"]
    assert [labels["ranks_below"] for labels, _ in quantiles] == [str(q) for q in QUANTILES]


def test_flagged_ranks_keep_their_scores_before_all_others() -> None:
    """Even if another rank has a lower score in a kind that is not listed."""
    relative = np.linspace(0.99, 0.5, 1000)
    scores = run_scores(window(list(range(1000)), relative=relative, flagged=(3, 4)))
    page = shown(scores, budget=60 + never_folded(scores), straggling=(7,))
    kept = ranks_of(page, semconv.SECTION_RELATIVE)
    assert {3, 4, 7, 999}.issubset(kept)
    assert ranks_of(page, semconv.RANK_STRAGGLING) == list(range(1000))
    relative_quantiles = [v for _, v in page["straggler_section_relative_score_over_ranks"]]
    assert relative_quantiles[0] == pytest.approx(0.5)
    assert relative_quantiles[-1] == pytest.approx(0.99)


@given(st.integers(1, 60), st.integers(1, 4), st.integers(0, 700), st.data())
def test_a_page_never_exceeds_its_budget_and_says_what_is_missing(
    n_ranks: int, n_sections: int, budget: int, data: st.DataObject
) -> None:
    """Shown + folded = all there is; shown + quantiles fit the budget where they can."""
    names = tuple(f"s{i}" for i in range(n_sections))
    relative = data.draw(
        st.lists(
            st.floats(0.1, 1.0) | st.just(float("nan")),
            min_size=n_ranks * n_sections,
            max_size=n_ranks * n_sections,
        )
    )
    scores = run_scores(window(list(range(n_ranks)), names, relative=relative))
    everything = shown(scores, budget=10**9)
    page = shown(scores, budget=budget + never_folded(scores))
    folded = {labels["family"]: v for labels, v in page["straggler_collector_series_folded"]}
    for metric in FOLDABLE:
        name = metric.prometheus_name
        assert len(page.get(name, [])) + folded[name] == len(everything.get(name, []))
    further = {name for name in page if "over_ranks" in name} - ALWAYS_OVER
    quantiles = sum(len(page[name]) for name in further)
    lines = sum(len(page.get(metric.prometheus_name, [])) for metric in FOLDABLE)
    assert lines + quantiles <= max(budget, len(QUANTILES) * (4 * n_sections + 2))


def test_flagged_ranks_are_shown_even_if_nothing_fits() -> None:
    """What pages somebody must be there to look at."""
    scores = run_scores(window(list(range(50)), flagged=(7,)))
    assert ranks_of(shown(scores, budget=0), semconv.SECTION_RELATIVE) == [7]


def test_a_listed_rank_is_not_called_slow_and_a_confirmed_one_is() -> None:
    """Layer 2 decides who straggles; a score under the threshold is only a score."""
    scores = run_scores(window([0, 1, 2], flagged=(1,)))
    page = shown(scores, straggling=(2,))
    result = {int(labels["rank"]): v for labels, v in page["straggler_rank_straggling"]}
    assert result == {0: 0.0, 1: 0.0, 2: 1.0}


def test_a_confirmed_rank_stays_flagged_when_it_misses_a_window() -> None:
    """An alert must not end because the rank is late."""
    scores = run_scores(window([0, 1]))
    scores.observe(window([0]), 1020.0)
    result = shown(scores, straggling=(1,))["straggler_rank_straggling"]
    assert {int(labels["rank"]): v for labels, v in result} == {0: 0.0, 1: 1.0}


def test_confirmed_ranks_keep_their_series_before_listed_ones() -> None:
    """Where there is room for some of them only."""
    scores = run_scores(window(list(range(300)), flagged=tuple(range(200))))
    kept = ranks_of(shown(scores, budget=0, straggling=(299,)), semconv.SECTION_RELATIVE)
    assert 299 in kept
    assert len(kept) == 100
