"""Layer 2 as series: who is called slow, what stands, and what a budget leaves out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from otel_straggler import semconv
from otel_straggler.collector.metrics.families import Families
from otel_straggler.collector.metrics.series_choice import QUANTILES
from otel_straggler.collector.metrics.verdict_series import (
    MAX_VERDICTS,
    RunLabels,
    heat_families,
    straggling_ranks,
    verdict_families,
)
from otel_straggler.model.rank import Source
from otel_straggler.model.verdict import RunVerdicts, WorldSummary

NAN = float("nan")
RUN = RunLabels(run_id="run", jobs={"": "job"}, constant='collector="c"')
OF_THE_RUN = {"run_id": "run", "job_name": "job", "group": "", "collector": "c"}
SOURCES = [Source(run_id="run", rank=r, job="job", node=f"node-{r // 4}") for r in range(8)]
Page = dict[str, list[tuple[dict[str, str], float]]]


def page_of(families: Families) -> Page:
    """Samples by name, as Prometheus' own parser reads them."""
    result: Page = {}
    for family in text_string_to_metric_families(families.render().decode()):
        for sample in family.samples:
            result.setdefault(sample.name, []).append((sample.labels, sample.value))
    return result


def shown(run_verdicts: RunVerdicts, sources: list[Source] | None = None) -> Page:
    return page_of(verdict_families(run_verdicts, SOURCES if sources is None else sources, RUN))


def heat(*worlds: WorldSummary, budget: int) -> Page:
    return page_of(heat_families(worlds, RUN, budget))


def of(page: Page, metric: semconv.Metric) -> list[tuple[dict[str, str], float]]:
    return page.get(metric.prometheus_name, [])


@pytest.mark.parametrize(
    ("state", "is_slow"),
    [("ok", False), ("suspect", False), ("confirmed", True), ("flapping", True),
     ("recovered", False)],
)  # fmt: skip
def test_only_who_is_confirmed_or_flapping_is_called_slow(
    by_hand: Any, state: Any, is_slow: bool
) -> None:
    """A rank, and in the same way a node."""
    rank = by_hand.verdict(state)
    node = by_hand.verdict(state, scope="host", subject_id="host:node-1", rank=None)
    run_verdicts = by_hand.run_verdicts(rank, node)
    assert straggling_ranks(run_verdicts) == (frozenset({("", 5)}) if is_slow else frozenset())
    hosts = {labels["node"]: v for labels, v in of(shown(run_verdicts), semconv.HOST_STRAGGLING)}
    assert hosts == {"node-0": 0.0, "node-1": float(is_slow)}


def test_the_newest_verdict_of_a_subject_counts(by_hand: Any) -> None:
    """Who has recovered is no longer called slow."""
    run_verdicts = by_hand.run_verdicts(by_hand.verdict(), by_hand.verdict("recovered"))
    assert straggling_ranks(run_verdicts) == frozenset()
    assert of(shown(run_verdicts), semconv.VERDICT_INFO) == []


def test_a_slow_node_is_shown_though_its_ranks_are_silent(by_hand: Any) -> None:
    """An alert on it must not end because scores have."""
    node = by_hand.verdict(scope="host", rank=None)
    result = of(shown(by_hand.run_verdicts(node), sources=[]), semconv.HOST_STRAGGLING)
    assert result == [({**OF_THE_RUN, "node": "node-1"}, 1.0)]


def test_a_verdict_that_somebody_has_silenced_says_so(by_hand: Any) -> None:
    """The others say that nobody has."""
    run_verdicts = by_hand.run_verdicts(
        by_hand.verdict(), by_hand.verdict(subject_id="other", rank=2)
    )
    run_verdicts = replace(run_verdicts, silenced=frozenset({"other"}))
    result = of(shown(run_verdicts), semconv.VERDICT_SILENCED)
    assert {labels["rank"]: value for labels, value in result} == {"5": 0.0, "2": 1.0}


def test_the_cause_of_a_verdict_stands_in_its_labels(by_hand: Any) -> None:
    """Its figures carry the same labels, without what changes."""
    verdict = by_hand.verdict(pages=True, since_ns=1_790_000_000_123_456_789)
    page = shown(by_hand.run_verdicts(verdict))
    subject = {
        "subject_id": "gpu:GPU-5", "scope": "rank", "rank": "5", "node": "node-1",
        "role": "default", "section": "forward", **OF_THE_RUN,
    }  # fmt: skip
    why = {"cause": "slow_gpu", "state": "confirmed", "evidence": "events"}
    assert of(page, semconv.VERDICT_INFO) == [({**subject, **why}, 1.0)]
    assert of(page, semconv.VERDICT_SLOWDOWN) == [(subject, 1.52)]
    assert of(page, semconv.VERDICT_LOSS) == [(subject, 2.4)]
    assert of(page, semconv.VERDICT_PAGES) == [(subject, 1.0)]
    assert of(page, semconv.VERDICT_SINCE) == [(subject, 1_790_000_000.0)]


def test_a_suspect_has_a_cause_but_no_figures(by_hand: Any) -> None:
    """Nobody should alert on a suspicion."""
    page = shown(by_hand.run_verdicts(by_hand.verdict("suspect")))
    assert [labels["state"] for labels, _ in of(page, semconv.VERDICT_INFO)] == ["suspect"]
    assert of(page, semconv.VERDICT_SLOWDOWN) == of(page, semconv.VERDICT_PAGES) == []


def test_what_is_not_known_has_no_series(by_hand: Any) -> None:
    """Never NaN in a page."""
    world = by_hand.world(slowdown=NAN, waste=NAN, m_w=NAN, m_s=NAN, resolvable_slowdown=NAN)
    page = shown(by_hand.run_verdicts(by_hand.verdict(slowdown=NAN, since_ns=0), worlds=(world,)))
    assert of(page, semconv.VERDICT_SINCE) == []
    assert of(page, semconv.VERDICT_SLOWDOWN) == of(page, semconv.RUN_SLOWDOWN) == []
    assert of(page, semconv.RUN_M_W) == []
    assert of(page, semconv.RUN_GPU_TIME_LOST) == [(OF_THE_RUN, 43_200.0)]


def test_what_a_run_loses_is_shown_by_group(by_hand: Any) -> None:
    """With what each section adds to the step."""
    page = shown(by_hand.run_verdicts(worlds=(by_hand.world(), by_hand.world(group="critic"))))
    for metric, value in (
        (semconv.RUN_SLOWDOWN, 1.18),
        (semconv.RUN_M_S, 1.2),
        (semconv.RUN_RESOLVABLE, 1.03),
    ):
        assert {labels["group"]: v for labels, v in of(page, metric)} == {
            "": value,
            "critic": value,
        }
    [exposed, _] = of(page, semconv.SECTION_EXPOSED)
    assert exposed == ({**OF_THE_RUN, "section": "forward"}, 0.2)


def test_waits_are_counters_of_a_rank(by_hand: Any) -> None:
    """Culprits cause waits, victims suffer them."""
    page = shown(by_hand.run_verdicts(worlds=(by_hand.world(),)))
    who = {**OF_THE_RUN, "rank": "5", "node": "node-1", "role": "default"}
    assert (who, 60.0) in of(page, semconv.CAUSED_WAIT)
    assert {labels["rank"]: v for labels, v in of(page, semconv.SUFFERED_WAIT)} == {
        "5": 0.0, "0": 58.0,
    }  # fmt: skip
    assert semconv.CAUSED_WAIT.prometheus_name == "straggler_caused_wait_seconds_total"


def test_the_dearest_verdicts_are_shown_and_the_others_counted(by_hand: Any) -> None:
    """Suspects go first."""
    many = [
        by_hand.verdict("suspect", subject_id=f"s{n}", rank=n, gpu_seconds_lost_per_hour=1e9)
        for n in range(MAX_VERDICTS)
    ]
    called = by_hand.verdict("flapping", gpu_seconds_lost_per_hour=1.0)
    page = shown(by_hand.run_verdicts(*many, called))
    subjects = [labels["subject_id"] for labels, _ in of(page, semconv.VERDICT_INFO)]
    assert len(subjects) == MAX_VERDICTS
    assert subjects[0] == called.subject_id
    folded = {labels["family"]: v for labels, v in of(page, semconv.COLLECTOR_SERIES_FOLDED)}
    assert folded == {"straggler_verdict_info": 1.0}


def test_workers_are_a_map_of_stages_and_data_ranks(by_hand: Any) -> None:
    """One series a cell, while they fit."""
    page = heat(by_hand.world(), budget=9)
    result = {
        (labels["pipeline_stage"], labels["data_rank"]): v
        for labels, v in of(page, semconv.WORKER_SLOWDOWN)
    }
    assert len(result) == 8
    assert result["1", "3"] == 1.13
    [(labels, folded)] = of(page, semconv.COLLECTOR_SERIES_FOLDED)
    assert (labels["family"], folded) == ("straggler_worker_slowdown", 0)


@pytest.mark.parametrize("budget", [-5, 0, 8, 12, 200])
def test_the_slowest_workers_are_shown_and_the_others_counted(by_hand: Any, budget: int) -> None:
    """Quantiles stand for those without room; nothing is missing in silence."""
    cells = tuple((0, d, 1.0 + d / 1000) for d in range(1000))
    page = heat(by_hand.world(heat=(*cells, (1, 0, NAN))), budget=budget)
    kept = [int(labels["data_rank"]) for labels, _ in of(page, semconv.WORKER_SLOWDOWN)]
    assert kept == list(range(999, 999 - len(kept), -1))
    assert len(kept) == max(0, budget - 1 - len(QUANTILES))
    [(_, folded)] = of(page, semconv.COLLECTOR_SERIES_FOLDED)
    assert folded == 1000 - len(kept)
    over = of(page, semconv.OVER_RANKS[semconv.WORKER_SLOWDOWN.name])
    assert [value for _, value in over][:: len(QUANTILES) - 1] == [1.0, 1.999]


def test_a_run_that_nobody_has_judged_shows_its_nodes_as_healthy() -> None:
    """Zero, rather than nothing: an alert on absence would be wrong."""
    page = shown(RunVerdicts())
    assert [value for _, value in of(page, semconv.HOST_STRAGGLING)] == [0.0, 0.0]
    assert {value for _, value in of(page, semconv.RUN_GPU_TIME_LOST)} == {0.0}
    names = {"straggler_host_straggling", "straggler_collector_series_folded"}
    assert set(page) == {*names, semconv.RUN_GPU_TIME_LOST.prometheus_name}
