"""Section histograms in the collector: scored in rounds, once, and only where no spans come."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from otel_straggler import semconv
from otel_straggler.client.heartbeats import BOUNDS_S
from otel_straggler.collector.ingest.intake import ByteBudget
from otel_straggler.collector.runs import section_histograms
from otel_straggler.collector.settings import CollectorSettings, ScoringSettings
from otel_straggler.collector.worker import Worker
from otel_straggler.model.observation import Section
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Buckets, SectionTimes
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.encode_metrics import SectionHistogram, encode_histograms

from .conftest import rank, resource_of, spans_of
from .ways import WAYS, Way

START_S = 1_790_000_000.0
SECTIONS = {"forward": 0.2, "exchange": 0.1}
KINDS = {"forward": "compute", "exchange": "wait"}
SLOW, RANKS = 2, 4


def histograms_of(
    number: int, runs: int, at_s: float, times_s: dict[str, float] | None = None, **who: Any
) -> bytes:
    """The cumulative histograms of one rank: all runs of a section take the same time."""
    result = []
    for section, seconds in (times_s or SECTIONS).items():
        taken_s = seconds * (1.7 if number == SLOW else 1.0)
        counts = [0] * (len(BOUNDS_S) + 1)
        counts[sum(bound < taken_s for bound in BOUNDS_S)] = runs
        result.append(
            SectionHistogram(
                section=section, kind=KINDS[section], bounds_s=BOUNDS_S, counts=counts,
                sum_s=taken_s * runs,
            )
        )  # fmt: skip
    source = rank(number, **{"world_size": RANKS, **who})
    return encode_histograms(
        result, resource=resource_of(source), started_at_s=START_S, now_s=START_S + at_s
    )


def check(window: dict[str, Any]) -> None:
    """The slow rank is listed for what it computes, not for what it waits."""
    scores = window["section_relative_scores"]["forward"]
    assert scores == pytest.approx({str(n): 1 / 1.7 if n == SLOW else 1.0 for n in range(RANKS)})
    assert [(s["rank"], s["section"]) for s in window["stragglers"]] == [(SLOW, "forward")]
    assert window["missing_ranks"] == []


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_histograms_alone_list_the_slow_rank(start: Callable[..., Any], kit: Any, way: Way) -> None:
    """Over every way; a point that comes twice counts once."""
    live = start(scoring__window_s=0.3)
    for number in (*range(RANKS), 0):
        assert way.send(live, histograms_of(number, 40, 60.0), "metrics").what == "ok"
    check(kit.eventually(live.windows)[0])
    assert live.value(semconv.COLLECTOR_POINTS, use="section_times") == 2 * (RANKS + 1)
    assert live.value(semconv.COLLECTOR_SECTION_TIMES, outcome="scored") == 2 * RANKS
    assert live.value(semconv.COLLECTOR_SECTION_TIMES, outcome="repeated") == 2
    assert live.value(semconv.COLLECTOR_ROWS, outcome="scored") == 40 * 2 * RANKS


class Bench:
    """A worker without its thread, on a clock of the test's own."""

    def __init__(self, **scoring: Any) -> None:
        self.now_s = 1000.0
        settings = CollectorSettings(scoring=ScoringSettings(**scoring))
        self.worker = Worker(
            settings, ByteBudget(10**9), lambda: int(self.now_s * 1e9), lambda: START_S + self.now_s
        )
        self._metrics, self._spans = MetricDecoder(), SpanDecoder()

    def metrics(self, body: bytes) -> None:
        self.worker.ingest(self._metrics.decode(body), 0)
        self.worker.process_queued()

    def spans(self, body: bytes) -> None:
        self.worker.ingest(self._spans.decode(body), 0)
        self.worker.process_queued()

    def wait(self, seconds: float) -> None:
        """Let time pass, with a tick every second."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s = min(self.now_s + 1.0, until_s)
            self.worker.tick()

    def windows(self) -> list[dict[str, Any]]:
        report = json.loads(self.worker.snapshot.report())
        result: list[dict[str, Any]] = report["runs"].get("run", {}).get("windows", [])
        return result

    @property
    def rows(self) -> dict[str, int]:
        return self.worker.counts().rows

    @property
    def times(self) -> dict[str, int]:
        return {outcome: n for outcome, n in self.worker.counts().section_times.items() if n}


def test_ranks_that_export_at_different_times_are_scored_together() -> None:
    """Each once a minute, up to 45 s apart: nothing comes too late, no window lacks a rank."""
    bench = Bench()
    for minute in range(1, 5):
        for number in range(RANKS):
            at_s = minute * 60.0 + number * 15.0
            bench.metrics(histograms_of(number, 30 * minute, at_s))
            bench.wait(15.0)
        for window in bench.windows():
            check(window)
    bench.worker.finish()
    check(bench.windows()[-1])
    assert bench.rows["late"] == 0
    assert bench.rows["scored"] == 4 * RANKS * 2 * 30


def test_a_rank_that_fell_silent_is_waited_for_once() -> None:
    """Then the others go on without it, in every later round at once."""
    bench = Bench()
    for minute in range(1, 5):
        for number in range(RANKS):
            if minute < 3 or number != 0:
                bench.metrics(histograms_of(number, 30 * minute, minute * 60.0))
        bench.wait(60.0)
        if minute == 3:
            assert bench.rows["scored"] == 2 * RANKS * 2 * 30  # still held
    bench.worker.finish()
    assert bench.windows()[-1]["missing_ranks"] == [0]
    assert bench.rows["scored"] == (2 * RANKS + 2 * (RANKS - 1)) * 2 * 30


def test_a_section_that_comes_as_spans_is_scored_from_them_alone() -> None:
    """Our client sends both as long as nobody has told it that this is a scorer: a sample of the
    spans, and histograms of all runs. No run counts twice."""
    bench = Bench(window_steps=4)
    for number in range(RANKS):
        bench.spans(spans_of(rank(number, RANKS), range(8), {"forward": 0.2}))
        bench.metrics(histograms_of(number, 40, 60.0))
    bench.worker.finish()
    assert bench.times == {"spans_win": RANKS, "scored": RANKS}
    assert bench.rows["scored"] == RANKS * (8 + 40)


def test_spans_that_begin_later_win_from_then_on() -> None:
    """What was counted before is not counted again."""
    bench = Bench(window_steps=4)
    only = {"forward": 0.2}
    for minute in (1, 2, 3):
        for number in range(RANKS):
            bench.metrics(histograms_of(number, 40 * minute, 60.0 * minute, only))
            if minute == 2:
                bench.spans(spans_of(rank(number, RANKS), range(4), only))
        bench.wait(60.0)
    bench.worker.finish()
    assert bench.times == {"scored": 2 * RANKS, "spans_win": RANKS}
    assert bench.rows["scored"] == RANKS * (2 * 40 + 4)


def test_another_process_of_the_rank_is_not_kept_out_by_spans_of_the_first() -> None:
    """A restarted rank has a new session: what it sends is looked at anew."""
    bench = Bench(window_steps=4)
    bench.spans(spans_of(rank(0, 1), range(4), {"forward": 0.2}))
    bench.metrics(histograms_of(0, 40, 60.0, {"forward": 0.2}, session_id="f" * 16, world_size=1))
    assert bench.times == {"scored": 1}


def test_the_last_words_of_a_restarted_rank_are_no_clash() -> None:
    """They may come together with the first ones of the new process."""
    bench = Bench()
    for number in (0, 1):
        bench.metrics(histograms_of(number, 40, 60.0))
    for number in (0, 1):
        bench.wait(10.0)
        bench.metrics(histograms_of(number, 20, 80.0, session_id=f"{number + 9:016x}"))
    bench.worker.finish()
    assert bench.times == {"scored": 2 * 2 * 2}
    assert bench.rows["late"] == 0
    assert json.loads(bench.worker.snapshot.report())["runs"]["run"]["clashes"] == []


def test_a_rank_that_ran_nothing_makes_no_progress() -> None:
    """Its exporter lives on and repeats the same counts: that is what a hang looks like."""
    bench = Bench()
    bench.metrics(histograms_of(0, 40, 60.0))
    bench.wait(60.0)
    [world] = bench.worker._store.runs["run"].worlds.values()

    def progress_at_s() -> float | None:
        assert world.liveness.status is not None
        return world.liveness.status.ranks[0].progress_at_s

    before_s = progress_at_s()
    bench.metrics(histograms_of(0, 40, 120.0))
    assert bench.times == {"scored": 2, "empty": 2}
    assert progress_at_s() == before_s


def test_who_sends_spans_is_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many names or processes cost a second look, never the memory."""
    monkeypatch.setattr(section_histograms, "_MAX_NAMES", 8)
    monkeypatch.setattr(section_histograms, "_MAX_PROCESSES", 5)
    its, decoder = section_histograms.SectionHistograms(0.0), SpanDecoder()
    worlds = {group: section_histograms.WorldHistograms() for group in ("a", "b")}

    def has(source: Source, section: str) -> bool:
        times = SectionTimes(
            source=source, section=Section(section), start_ns=1, end_ns=2, is_cumulative=False,
            buckets=Buckets(counts=np.zeros(1, np.int64), bounds=np.empty(0)),
        )  # fmt: skip
        won = its.counts()["spans_win"]
        its.observe(worlds[source.group], times, 0)
        return its.counts()["spans_win"] > won

    for number in range(23):
        source, section = rank(number, 99, group="ab"[number % 2]), f"s{number % 11}"
        batch = decoder.decode(spans_of(source, [1], {section: 0.1})).batch
        its.observe_spans(batch, lambda each: worlds[each.group])
        assert has(source, section)
        assert not has(source, "another")
        assert len(its._bits) <= 8
        kept = [len(world.in_spans) for world in worlds.values()]
        assert its._processes <= min(5, sum(kept))


def test_nothing_of_a_forgotten_run_is_kept() -> None:
    """Neither counts nor rounds nor who sends spans."""
    bench = Bench(evict_run_s=100.0)
    bench.spans(spans_of(rank(0, 1), range(4), {"backward": 0.2}))
    bench.metrics(histograms_of(0, 40, 60.0))
    bench.wait(200.0)
    held = bench.worker._store.histograms
    assert bench.worker.snapshot.runs == bench.worker._store.runs == {}
    assert (held._deltas.n_series, held._processes) == (0, 0)


def test_a_bad_point_is_rejected_and_the_others_taken(live: Any, kit: Any) -> None:
    """A partial success says how many, over every way."""
    message = ExportMetricsServiceRequest.FromString(histograms_of(0, 40, 60.0))
    message.resource_metrics[0].scope_metrics[0].metrics[0].histogram.data_points[0].count = 41
    for way in WAYS:
        outcome = way.send(live, message.SerializeToString(), "metrics")
        assert (outcome.what, outcome.rejected) == ("ok", 1)
        assert outcome.message == "malformed data points: malformed: 1"
    kit.eventually(lambda: live.value(semconv.COLLECTOR_POINTS, use="malformed") == len(WAYS))
