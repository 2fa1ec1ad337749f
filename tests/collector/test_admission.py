"""A job with a new name for each process or step: others are watched as before, memory and pages
stay bounded, and the user is told which mistake it was."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.collector.ingest.intake import ByteBudget
from otel_straggler.collector.runs.admission import AdmissionControl, Eviction
from otel_straggler.collector.runs.places import LIVE_S
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.collector.settings import ScoringSettings
from otel_straggler.collector.worker import Worker
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.span_rules import DecodedSpans

from .watched_world import WatchedWorld
from .ways import WAYS, Way

Start = Callable[..., Any]


class Crowd:
    """Who is let in, and what is evicted, where of nobody anything else is known."""

    def __init__(self, **limits: int) -> None:
        settings = ScoringSettings(**{"max_runs": 2, "max_groups": 2, **limits})
        self.store = RunStore()
        self.control = AdmissionControl(settings, self.store)
        self._eviction = Eviction(settings, 1e9)

    def evict(self, now_s: float) -> None:
        self.control.drop_old(now_s)
        for run in list(self.store.runs.values()):
            for group in self._eviction.due_worlds(run, now_s):
                self.store.evict_world(run.run_id, group)
        for run_id in self._eviction.due_runs(self.store.runs.values(), lambda _: False, now_s):
            self.store.evict(run_id)


def beat(run_id: str, group: str = "", rank: int = 0) -> DecodedMetrics:
    source = Source(run_id=run_id, group=group, rank=rank)
    return DecodedMetrics(heartbeats=(Heartbeat(source=source),), points={})


def is_let_in(its: Crowd, run_id: str, now_s: float, group: str = "") -> bool:
    left = its.control.admitted(beat(run_id, group), now_s)
    assert isinstance(left, DecodedMetrics)
    return len(left.heartbeats) == 1


def test_runs_that_send_keep_their_places() -> None:
    """10,000 others come and are turned away; what is remembered of them is bounded."""
    its = Crowd()
    assert is_let_in(its, "a", 0.0)
    assert is_let_in(its, "b", 0.0)
    for n in range(10_000):
        assert not is_let_in(its, f"run-{n}", 1.0)
    assert is_let_in(its, "a", 2.0)
    assert its.control.counts["run"] == 10_000
    assert len(its.control._rejected) == 1_000
    (reported,) = its.control.problems({})
    assert "at least 1,000" in reported
    assert "OTEL_STRAGGLER_RUN_ID" in reported


def test_a_silent_run_gives_way_and_so_does_one_that_has_ended() -> None:
    """A job that is started again and again, each time with another run id, is watched."""
    its = Crowd()
    for n in range(10):
        assert is_let_in(its, f"restart-{n}", float(n))
        its.control.end(Source(run_id=f"restart-{n}", rank=0), float(n))
        its.evict(float(n))
    assert is_let_in(its, "a", 20.0)
    assert is_let_in(its, "b", 20.0)
    assert not is_let_in(its, "c", 20.0 + LIVE_S - 1)
    assert is_let_in(its, "c", 20.0 + LIVE_S)


def test_what_was_turned_away_is_told_while_it_goes_on() -> None:
    its = Crowd(max_runs=1)
    is_let_in(its, "a", 0.0)
    is_let_in(its, "b", 0.0)
    is_let_in(its, "a", LIVE_S)
    its.evict(LIVE_S)
    assert len(its.control.problems({})) == 1
    its.evict(LIVE_S + 1.0)
    assert its.control.problems({}) == ()


def test_groups_of_a_run_are_bounded_and_other_runs_have_theirs() -> None:
    its = Crowd()
    assert [is_let_in(its, "a", 0.0, f"g{n}") for n in range(4)] == [True, True, False, False]
    assert is_let_in(its, "b", 0.0, "g9")
    assert is_let_in(its, "a", 0.0, "g1")


def test_a_group_that_has_ended_or_is_silent_gives_its_place_to_one_that_was_turned_away() -> None:
    """A run of weeks in which an evaluation of its own name begins again and again: the trainer
    keeps its place, and every evaluation has one."""
    its = Crowd()
    for n in range(10):
        now_s = float(n)
        assert is_let_in(its, "run", now_s, "trainer")
        assert is_let_in(its, "run", now_s, f"eval-{n}")
        assert not is_let_in(its, "run", now_s, f"eval-{n + 1}")
        its.control.end(Source(run_id="run", group=f"eval-{n}", rank=0), now_s)
        its.evict(now_s)
    assert is_let_in(its, "run", 10.0, "silent")
    assert is_let_in(its, "run", 10.0 + LIVE_S - 1, "trainer")
    assert not is_let_in(its, "run", 10.0 + LIVE_S - 1, "new")
    assert is_let_in(its, "run", 10.0 + LIVE_S, "new")


class Days:
    """A worker whose clock a test moves, and heartbeats for it."""

    def __init__(self, kit: Any, **limits: int) -> None:
        self.now_s = 1.79e9
        settings = kit.settings(**{f"scoring__{name}": maximum for name, maximum in limits.items()})
        self.worker = Worker(
            settings,
            ByteBudget(1 << 30),
            monotonic_ns=lambda: int(self.now_s * 1e9),
            wall_s=lambda: self.now_s,
        )
        self.worker.sign("c")
        self._kit = kit
        self._decoder = SpanDecoder()

    def hear(self, run_id: str, group: str = "", *, is_end: bool = False) -> None:
        """A step of one rank, and its sign of life, a second later."""
        self.now_s += 1.0
        source = self._kit.rank(0, 1, run_id=run_id, group=group)
        spans = self._decoder.decode(self._kit.spans_of(source, [int(self.now_s)]))
        beat = Heartbeat(
            source=source, sent_at_s=self.now_s, finished_at_s=self.now_s if is_end else None
        )
        for content in (spans, DecodedMetrics(heartbeats=(beat,), points={})):
            self.worker.ingest(content, 0)
        self.worker.process_queued()
        self.worker.tick()

    def scored(self) -> set[tuple[str, str]]:
        """The worlds of which the scorer has anything."""
        runs = self.worker._scorer._runs
        return {(run_id, group) for run_id, worlds in runs.items() for group in worlds}

    def watched(self) -> set[tuple[str, str]]:
        """Those that are shown."""
        return {(each.run_id, each.group) for each in self.worker.snapshot.watched.runs}


def test_run_101_takes_the_place_of_one_that_has_ended_not_of_one_that_trains(kit: Any) -> None:
    """Though the one that trains was heard of less recently. In the scorer too: what it has learnt
    of a run would be gone."""
    its = Days(kit, max_runs=2)
    its.hear("trains")
    for n in range(5):
        its.hear(f"short-{n}")
        its.hear(f"short-{n}", is_end=True)
        its.now_s += 2.0
        its.worker.tick()
        assert its.watched() == its.scored() == {("trains", ""), (f"short-{n}", "")}
    assert its.worker.counts().rejected["run"] == 0


def test_a_group_that_is_let_go_is_let_go_everywhere(kit: Any) -> None:
    """What is kept stays within the limit, and the groups that are heard of stay whole."""
    its = Days(kit, max_groups=2)
    its.hear("run", "trainer")
    for n in range(5):
        its.hear("run", f"eval-{n}")
        its.hear("run", f"eval-{n}", is_end=True)
        its.now_s += 2.0
        its.worker.tick()
        assert its.watched() == its.scored() == {("run", "trainer"), ("run", f"eval-{n}")}
    assert its.worker.counts().rejected["group"] == 0
    assert set(its.worker._store.runs["run"].worlds) == {"trainer", "eval-4"}


def test_of_one_request_only_what_is_turned_away_is_left_out(kit: Any) -> None:
    """Rows, progress, signs of life, histograms."""
    its = Crowd(max_runs=1)
    is_let_in(its, "run", 0.0)
    wanted, other = kit.rank(0), kit.rank(1, run_id="other")
    body = kit.spans_of(wanted, [1, 2]) + kit.spans_of(other, [1, 2, 3])  # messages are joined so
    left = its.control.admitted(SpanDecoder().decode(body), 0.0)
    assert isinstance(left, DecodedSpans)
    assert len(left.batch) == 2
    assert [source.run_id for source in left.progress] == ["run"]
    assert {left.batch.sources[code].run_id for code in left.batch.source.tolist()} == {"run"}
    beats = kit.beat_of(wanted, sent_at_s=1.0) + kit.beat_of(other, sent_at_s=1.0)
    heartbeats = its.control.admitted(MetricDecoder().decode(beats), 0.0)
    assert isinstance(heartbeats, DecodedMetrics)
    assert [b.source.run_id for b in heartbeats.heartbeats] == ["run"]
    assert its.control.counts["run"] == 2


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_run_without_a_place_is_asked_to_wait_and_gets_one(
    start: Start, kit: Any, way: Way
) -> None:
    """Never an answer that it is taken, and then dropped: all is refused until the place is free,
    and is scored from then on."""
    live = start(scoring__max_runs=1)
    first, second = (kit.rank(0, 1, run_id=name) for name in ("first", "second"))
    assert way.send(live, kit.spans_of(first, range(8))).what == "ok"
    for signal, body in (
        ("traces", kit.spans_of(second, range(8))),
        ("metrics", kit.beat_of(second, sent_at_s=1.0)),
    ):
        refused = way.send(live, body, signal)
        assert refused.what == "limited"
        assert "1 runs are watched (scoring.max_runs), and 'second' is not" in refused.message
    assert way.send(live, kit.spans_of(first, range(8, 12))).what == "ok"
    ended = kit.beat_of(first, sent_at_s=1.0, finished_at_s=2.0, outcome="ok")
    assert way.send(live, ended, "metrics").what == "ok"
    spans = kit.spans_of(second, range(8))
    assert kit.eventually(lambda: way.send(live, spans).what == "ok")
    assert kit.eventually(lambda: live.windows("second"))
    requests = live.samples(semconv.COLLECTOR_REQUESTS.prometheus_name, answer="limited")
    answered = {dict(labels)["signal"] for labels, count in requests.items() if count}
    assert answered == {"traces", "metrics"}


def test_the_answer_says_when_to_ask_again(start: Start, kit: Any) -> None:
    """429, as OTLP has it for a client that may come later."""
    live = start(scoring__max_runs=1)
    bodies = [kit.beat_of(kit.rank(0, 1, run_id=name), sent_at_s=1.0) for name in "ab"]
    taken, refused = (live.post(body, "metrics") for body in bodies)
    assert (taken.status, refused.status) == (200, 429)
    assert refused.headers["retry-after"] == "30"


def test_of_a_request_of_several_runs_those_with_a_place_are_taken(start: Start, kit: Any) -> None:
    """As from an OpenTelemetry Collector: a partial success says how many spans are not, and why.
    Sending it again would count the others twice."""
    live = start(scoring__max_runs=1)
    first, second = (kit.rank(0, 1, run_id=name) for name in ("first", "second"))
    live.post(kit.spans_of(first, range(4)))
    body = kit.spans_of(first, range(4, 8)) + kit.spans_of(second, range(3))  # messages are joined
    answer = WAYS[0].send(live, body)
    assert (answer.what, answer.rejected) == ("ok", 3)
    assert "'second' is not one of them" in answer.message
    assert kit.eventually(lambda: live.windows("first"))
    assert live.value(semconv.COLLECTOR_REJECTED, what="run") == 1


def test_many_new_runs_at_once_get_as_many_places_as_there_are(start: Start, kit: Any) -> None:
    """Who was answered 200 is watched, whatever came between two looks of the scoring thread."""
    live = start(scoring__max_runs=5)
    bodies = [kit.beat_of(kit.rank(0, 1, run_id=f"r{n}"), sent_at_s=1.0) for n in range(40)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda body: live.post(body, "metrics").status, bodies))
    taken = {f"r{n}" for n, status in enumerate(answers) if status == 200}
    assert (len(taken), set(answers)) == (5, {200, 429})
    assert kit.eventually(lambda: live.value(semconv.COLLECTOR_RUNS) == 5)
    assert {run["run_id"] for run in live.get("/v1/runs").json()["runs"]} == taken


def test_the_mistake_is_told_where_people_look(
    start: Start, kit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log once, in /metrics, and in what the live page shows above the run."""
    live = start(scoring__max_runs=1, scoring__max_groups=1, scoring__max_section_names=2)
    good = kit.rank(0, 1)
    live.post(kit.beat_of(good, sent_at_s=1.0), "metrics")
    for step in range(6):
        live.post(kit.spans_of(good, [step], {"forward": 0.1, f"step {step}": 0.2}))
    for n in range(5):
        live.post(kit.beat_of(kit.rank(0, 1, run_id=f"1790000{n}"), sent_at_s=1.0), "metrics")
        live.post(kit.beat_of(kit.rank(0, 1, group=f"g{n}"), sent_at_s=1.0), "metrics")
    rejected = semconv.COLLECTOR_REJECTED
    kit.eventually(lambda: live.value(rejected, what="group") == 5)
    assert live.value(rejected, what="run") == 5
    assert live.value(semconv.COLLECTOR_NAMES_FOLDED) == 5
    mistakes = ["run id", "A group is", "'step 5'"]

    def are_reported() -> bool:  # each picture tells of what had come when it was made
        problems = live.get("/v1/runs").json()["problems"]
        result = [[word for word in mistakes if word in reported] for reported in problems]
        return result == [[word] for word in mistakes]

    assert kit.eventually(are_reported)
    assert [run["run_id"] for run in live.get("/v1/runs").json()["runs"]] == ["run"]
    assert live.value(semconv.COLLECTOR_RUNS) == 1
    printed = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert sorted(printed) == sorted(set(printed))
    assert len(printed) == 3


def test_a_mistake_of_ours_keeps_nobody_out(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scoring thread goes on, takes the request, and counts the failure."""

    def fails(*_: object) -> None:
        raise IndexError

    world = WatchedWorld(kit.settings())
    monkeypatch.setattr(world.worker._admission, "admitted", fails)
    world.live(5.0)
    assert list(world.worker.snapshot.runs) == ["run"]
    assert world.worker.counts().failures == len(world.keys())
