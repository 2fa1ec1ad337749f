"""A mistake of ours in the evaluation of one run: its page and an alert say so, other runs go on,
and the next steps are evaluated afresh."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.collector.runs.hangs import WorldHangs
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.collector.views import publisher
from otel_straggler.detect.scores import world as scores_world
from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.detect.verdicts.peer_engine import PeerVerdictEngine

RANKS, STEPS = 4, 60
BAD, GOOD = "bad", "good"
ALERT = "StragglerScoringFailing"
Json = dict[str, Any]


class TwoRuns:
    """A real collector with two runs alike, in which rank 2 may be slow."""

    def __init__(self, live: Any, kit: Any) -> None:
        self.live, self.kit = live, kit
        self.next_step = 0

    def train(
        self, slow: float = 1.0, steps: int = STEPS, runs: tuple[str, ...] = (BAD, GOOD)
    ) -> None:
        """Further steps of all ranks."""
        span = range(self.next_step, self.next_step + steps)
        self.next_step += steps
        for run_id in (BAD, GOOD):
            for number in range(RANKS):
                source = self.kit.rank(number, RANKS, run_id=run_id)
                own_s = 0.1 * (slow if number == 2 else 1.0)
                sections = {"forward": own_s, "sync": 0.4 - own_s}
                self.live.post(self.kit.spans_of(source, span, sections))
                progress = self.kit.beat_of(source, sent_at_s=1.0, step=self.next_step)
                self.live.post(progress, "metrics")

    def page(self, run_id: str) -> Json:
        result: Json = self.live.get(f"/v1/run?run={run_id}").json()
        return result

    def note(self, run_id: str = BAD) -> Json | None:
        notes = self.page(run_id).get("notes", ())
        return next((each for each in notes if each["kind"] == "scoring_failed"), None)

    def called_slow(self, run_id: str) -> list[int]:
        verdicts = self.page(run_id).get("verdicts", ())
        return [each["rank"] for each in verdicts if each["state"] == "confirmed"]

    def firing(self, run_id: str = BAD) -> list[str]:
        return [each["labels"]["alertname"] for each in self.page(run_id)["alerts"]]

    def is_failing(self) -> dict[str, float]:
        samples = self.live.samples(semconv.RUN_SCORING_FAILING.prometheus_name)
        return {dict(labels)["run_id"]: value for labels, value in samples.items()}


@pytest.fixture
def two_runs(start: Any, kit: Any) -> TwoRuns:
    return TwoRuns(start(scoring__window_steps=20, alerts__evaluation_seconds=1.0), kit)


Break = Callable[[], None]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[], None]]:
    """Has a function raise for the run ``bad``, as often as asked; returns what mends it."""

    def break_it(owner: Any, name: str, run_of: Callable[..., str], times: float = 1e9) -> Break:
        really, left = getattr(owner, name), [times]

        def fails(*arguments: Any, **named: Any) -> Any:
            if run_of(*arguments) == BAD and left[0] > 0:
                left[0] -= 1
                raise IndexError("index 2 is out of bounds for axis 0 with size 1")
            return really(*arguments, **named)

        monkeypatch.setattr(owner, name, fails)
        return lambda: left.__setitem__(0, 0)

    return break_it


def run_of_engine(engine: VerdictEngine) -> str:
    return next((source.run_id for source in engine._world.sources), "")


PLACES = {
    "verdicts": (PeerVerdictEngine, "evaluate", lambda *args: args[3].sources[0].run_id),
    "tables": (VerdictEngine, "observe", lambda *args: args[1].sources[0].run_id),
    "scores": (scores_world, "score_window", lambda rows, *_: rows.sources[0].run_id),
    "windows": (RunStore, "observe_window", lambda *args: args[1].run_id),
    "timeouts": (WorldHangs, "learn", lambda *args: args[1].sources[0].run_id),
    "hangs": (publisher, "_evaluated", lambda _, status, *__: status.ranks[0].source.run_id),
    "summary": (VerdictEngine, "summary", run_of_engine),
    "view": (publisher.Publisher, "_whole_view", lambda _, run, *__: run.run_id),
    "alerts": (publisher, "watched_worlds", lambda view, *_: view.run_id),
    "series": (publisher.MetricsText, "_families", lambda _, run, *__: run.run_id),
}


@pytest.mark.parametrize("place", PLACES)
def test_what_fails_for_one_run_is_told_and_ends_nothing_else(
    two_runs: TwoRuns, broken: Any, kit: Any, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At every evaluation: the page says since when, what and where, the series and the alert tell
    the operator. The other run is evaluated as ever: its slow rank is named meanwhile. Once it
    works again, everything is as if it had never failed."""
    mend = broken(*PLACES[place])
    with caplog.at_level(logging.CRITICAL):
        two_runs.train()
        two_runs.train(slow=1.5)
        kit.eventually(lambda: two_runs.is_failing() == {BAD: 1.0, GOOD: 0.0})
        kit.eventually(lambda: two_runs.called_slow(GOOD) == [2])
        kit.eventually(lambda: ALERT in two_runs.firing())
        note = two_runs.note()
        assert note is not None
        assert note["text"].startswith("Scoring has failed since 20")
        assert note["error"] == "IndexError: index 2 is out of bounds for axis 0 with size 1"
        assert ":" in note["where"]
        page = two_runs.page(BAD)
        assert page["answer"]["headline"] == "Scoring has failed"
        assert page["answer"]["since_s"] == pytest.approx(note["since_s"], abs=0.01)
        assert page["answer"]["tone"] == "watch"
        assert ALERT not in two_runs.firing(GOOD)
        assert two_runs.note(GOOD) is None
        two_runs.train(slow=1.5)
        kit.eventually(lambda: two_runs.called_slow(GOOD) == [2])
        assert two_runs.note()["since_s"] == note["since_s"]
    failures = two_runs.live.value(semconv.COLLECTOR_FAILURES)
    assert failures >= 1
    mend()
    two_runs.train(slow=1.5)
    two_runs.train(slow=1.5)
    kit.eventually(lambda: two_runs.is_failing() == {BAD: 0.0, GOOD: 0.0})
    kit.eventually(lambda: two_runs.note() is None)
    kit.eventually(lambda: two_runs.called_slow(BAD) == two_runs.called_slow(GOOD) == [2])
    kit.eventually(lambda: ALERT not in two_runs.firing())


def test_one_poisoned_window_costs_no_verdict(two_runs: TwoRuns, broken: Any, kit: Any) -> None:
    """Of before: the rank stays slow over a single failure, and its end is said."""
    two_runs.train()
    two_runs.train(slow=1.5)
    kit.eventually(lambda: two_runs.called_slow(BAD) == [2])
    broken(*PLACES["verdicts"], times=1)
    two_runs.train(slow=1.5, steps=100)
    kit.eventually(lambda: two_runs.live.value(semconv.COLLECTOR_FAILURES) == 1)
    kit.eventually(lambda: two_runs.note() is None)
    assert two_runs.called_slow(BAD) == [2]
    two_runs.train(steps=100)

    def states() -> list[str]:
        return [each["state"] for each in two_runs.page(BAD)["verdicts"]]

    kit.eventually(lambda: states() == ["recovered"])


def test_a_poisoned_memory_is_dropped(
    two_runs: TwoRuns, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the verdicts so far are what it fails on: their rank is found again without them."""
    two_runs.train()
    two_runs.train(slow=1.5)
    kit.eventually(lambda: two_runs.called_slow(BAD) == [2])
    really = PeerVerdictEngine._were_named

    def fails(engine: Any, rows: Any) -> Any:
        if engine._world.sources[0].run_id == BAD and engine._log.named_subjects():
            raise IndexError("index 2 is out of bounds for axis 0 with size 1")
        return really(engine, rows)

    monkeypatch.setattr(PeerVerdictEngine, "_were_named", fails)
    two_runs.train(slow=1.5, steps=100)
    kit.eventually(lambda: two_runs.note() is not None)
    two_runs.train(slow=1.5, steps=40)
    kit.eventually(lambda: two_runs.called_slow(GOOD) == [2])
    monkeypatch.setattr(PeerVerdictEngine, "_were_named", really)
    two_runs.train(slow=1.5, steps=100)
    kit.eventually(lambda: two_runs.note() is None and two_runs.called_slow(BAD) == [2])


def test_a_failure_is_logged_once_and_so_is_its_end(
    two_runs: TwoRuns, broken: Any, kit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """With its traceback; a run that fails at each evaluation does not flood the log."""
    mend = broken(*PLACES["view"])
    two_runs.train()
    kit.eventually(lambda: (two_runs.note() or {}).get("count", 0) > 3)
    mend()
    kit.eventually(lambda: two_runs.note() is None)

    def of_run() -> list[logging.LogRecord]:
        return [each for each in caplog.records if each.message.startswith("run 'bad': view")]

    kit.eventually(lambda: len(of_run()) > 1)
    assert [each.levelname for each in of_run()] == ["ERROR", "WARNING"]
    assert of_run()[0].exc_info
    assert of_run()[1].message == "run 'bad': view works again"
