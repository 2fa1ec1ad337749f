"""The loop: one action for one cause, stop and resume, what a crash leaves, what is recorded."""

from __future__ import annotations

import dataclasses
import logging
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan

from otel_straggler.collector.access.audit import Audit
from otel_straggler.errors import ConfigError, UnavailableError
from otel_straggler.model.fleet_reports import FleetReport
from otel_straggler.supervisor.causes import Cause
from otel_straggler.supervisor.executors import StepError, UncertainError
from otel_straggler.supervisor.service import Supervisor
from otel_straggler.supervisor.settings import (
    ExportSettings,
    FleetSettings,
    ServerSettings,
    StateSettings,
    SupervisorSettings,
)
from otel_straggler.supervisor.store import Step, Store
from otel_straggler.supervisor.telemetry import Telemetry
from otel_straggler.testing import CapturedRequests

from ..waiting import eventually
from .supervised import NOW_S, Remembering, Scene, alert, policy_of

POLICY = policy_of("""
cooldown_seconds: 0
max_fleet_share: 1
rules:
  - {name: gpu, xid: [gpu, host], action: replace_host}
  - {name: lost, alert: StragglerRankLost, action: restart_workload}
  - {name: hung, report: [rank_hung], action: restart_in_job}
  - {name: slow, alert: StragglerHostSlow, action: notify}
""")
GPU = alert("GpuXid", node="a", gpu="3", xid="79")
LOST = alert(node="a", run_id="run")
BOTH = [("drain", "a"), ("requeue", "a")]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "state" / "db", POLICY, "a", "b", spare="s")


# --- once ---------------------------------------------------------------------------------------


def test_one_cause_leads_to_one_action_however_often_it_comes(scene: Scene) -> None:
    """In one webhook, in the next, while it is under way, and after a restart."""
    assert scene.submit(GPU, GPU) == ["replace_host", "known"]
    assert scene.submit(GPU) == ["known"]
    assert scene.act() == BOTH
    assert scene.status_of(GPU) == "done"
    scene.restart()
    scene.now_s += 100
    assert scene.submit(GPU) == ["known"]
    assert scene.act() == BOTH
    assert scene.watching.reasons == ["known"] * 3


def test_a_replay_after_the_journal_was_cleaned_is_too_old(scene: Scene) -> None:
    """The journal goes back further than causes are acted upon."""
    scene.submit(GPU)
    scene.act()
    scene.now_s += 30 * 86_400
    scene.act()
    assert scene.store.entry(GPU.id) is None
    assert scene.submit(GPU) == ["stale"]


def test_a_cause_that_was_ignored_may_be_acted_upon_when_it_comes_again(scene: Scene) -> None:
    """Alertmanager repeats what still fires; nothing has been done about it."""
    scene.engine.stop("upgrade", "alice")
    assert scene.submit(LOST, LOST) == ["stopped", "stopped"]
    assert len(scene.watching.entries) == 1, "one span, not one for each time"
    scene.engine.resume()
    assert scene.submit(LOST) == ["restart_workload"]


def test_what_the_policy_is_not_about_is_counted_and_not_kept(scene: Scene) -> None:
    """A fleet has many alerts."""
    other = alert("DiskFull", node="a")
    assert scene.submit(other) == ["no_rule"]
    assert scene.store.entry(other.id) is None
    assert scene.watching.reasons == ["no_rule"]


# --- the fleet ----------------------------------------------------------------------------------


def test_the_hosts_have_their_new_states_from_the_decision_on(scene: Scene) -> None:
    """So that what is under way counts; over a restart, too."""
    scene.submit(GPU)
    assert (scene.state_of("a"), scene.state_of("s")) == ("cordoned", "running")
    scene.restart()
    assert (scene.state_of("a"), scene.state_of("s")) == ("cordoned", "running")
    assert scene.engine.fleet.hosts["s"].run_id == "run"


def test_reports_add_hosts_and_change_their_states(scene: Scene) -> None:
    """A cordoned one stays so until a person returns it."""

    def reported(kind: str, node: str, reason: str = "", number: int = 0) -> str:
        scene.engine.report(
            FleetReport(
                kind=kind,
                id=f"{kind}{node}{number}",
                run_id="q",
                attempt=0,
                node=node,  # type: ignore[arg-type]
                at_unix_s=NOW_S,
                reason=reason,
            )
        )
        return scene.state_of(node)

    assert reported("rank_exited", "new") == "running"
    assert reported("agent_ended", "new", "ok") == "complete"
    assert reported("agent_started", "new") == "running"
    assert reported("agent_ended", "new", "SIGKILL", 1) == "failed"
    scene.submit(GPU)
    assert reported("agent_started", "a") == "cordoned"
    scene.engine.mark("a", "spare")
    assert reported("agent_started", "a", number=1) == "running"
    assert scene.engine.fleet.by_state() == {
        "spare": 0, "running": 3, "failed": 1, "complete": 0, "cordoned": 0,
    }  # fmt: skip


def test_a_report_that_is_replayed_does_not_change_its_host(scene: Scene) -> None:
    """Also one that nothing follows from, and one of long ago."""
    began = FleetReport(
        kind="agent_started", id="1", run_id="q", attempt=0, node="a", at_unix_s=NOW_S
    )
    assert scene.engine.report(began).reason == "no_rule"
    scene.engine.mark("a", "spare")
    scene.restart()
    assert scene.engine.report(began).reason == "no_rule"
    assert scene.engine.status(10)["decisions"] == [], "it says nothing to a person"
    scene.now_s += 30 * 86_400
    scene.act()
    assert scene.engine.report(began).reason == "stale"
    assert scene.state_of("a") == "spare"


def test_a_report_that_is_sent_again_changes_nothing(scene: Scene) -> None:
    """Its host has moved on since."""
    hung = FleetReport(
        kind="rank_hung", id="1", run_id="run", attempt=0, node="new", rank=1, at_unix_s=NOW_S
    )
    assert scene.engine.report(hung).action == "restart_in_job"
    scene.engine.mark("new", "cordoned")
    assert scene.engine.report(hung).reason == "known"
    assert scene.state_of("new") == "cordoned"


# --- steps that fail ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "state"),
    [
        (StepError("no such node"), "failed", ("failed", "spare")),
        (UncertainError("no answer"), "unknown", ("cordoned", "running")),
        (RuntimeError("a mistake"), "unknown", ("cordoned", "running")),
    ],
)
def test_after_a_step_that_failed_the_others_are_not_begun(
    scene: Scene, error: Exception, status: str, state: tuple[str, str]
) -> None:
    """Nor is it tried again; a person has to look."""
    scene.executor.error = error
    scene.submit(GPU)
    assert scene.act() == BOTH[:1]
    assert scene.status_of(GPU) == status
    assert (scene.state_of("a"), scene.state_of("s")) == state
    scene.restart()
    scene.engine.recover()
    assert scene.act() == BOTH[:1]
    assert str(error) in scene.store.newest(1)[0].text


def test_an_action_that_lacks_what_it_needs_fails_before_anything_is_done(scene: Scene) -> None:
    """As a run that is no job of Slurm."""
    scene.executor.steps = lambda _: (_ for _ in ()).throw(StepError("no job"))
    assert scene.submit(GPU) == ["replace_host"]
    assert scene.status_of(GPU) == "failed"
    assert (scene.state_of("a"), scene.state_of("s")) == ("running", "spare")


# --- people -------------------------------------------------------------------------------------


def test_once_stopped_no_step_begins_until_it_is_resumed(scene: Scene) -> None:
    """Not the next step of an action either, nor after a restart."""
    scene.submit(GPU)
    scene.engine.act_once()
    stopped = scene.engine.stop("maintenance", "alice")
    assert scene.engine.stop("again", "bob") == stopped, "who was first is remembered"
    assert scene.act() == BOTH[:1]
    scene.restart()
    scene.engine.recover()
    assert scene.act() == BOTH[:1]
    assert scene.engine.fleet.is_stopped
    assert scene.engine.resume()
    assert scene.act() == BOTH
    assert not scene.engine.resume()


def test_a_stop_that_comes_while_a_step_is_prepared_holds_it(scene: Scene) -> None:
    """Until the journal says that it began, nothing has."""

    def observe(_: Step) -> dict[str, Any]:
        scene.engine.stop("x", "y")
        return {}

    scene.executor.observe = observe
    scene.submit(LOST)
    assert scene.act() == []
    assert scene.status_of(LOST) == "decided"


def test_what_is_too_old_when_it_is_resumed_is_not_begun(scene: Scene) -> None:
    """The hosts are as before."""
    scene.submit(GPU)
    scene.engine.stop("maintenance", "alice")
    scene.now_s += POLICY.max_age_s + 1
    scene.engine.resume()
    assert scene.act() == []
    assert scene.status_of(GPU) == "expired"
    assert (scene.state_of("a"), scene.state_of("s")) == ("running", "spare")


def test_an_alert_that_ends_before_its_action_began_cancels_it(scene: Scene) -> None:
    """One that had begun goes on."""
    scene.submit(GPU, LOST)
    scene.engine.act_once()
    ended = [dataclasses.replace(cause, is_resolved=True) for cause in (GPU, LOST)]
    assert scene.submit(*ended) == ["resolved", "resolved"]
    assert scene.act() == BOTH
    assert (scene.status_of(GPU), scene.status_of(LOST)) == ("done", "expired")


# --- crashes ------------------------------------------------------------------------------------


def begun(scene: Scene) -> None:
    """As after a kill in the middle of the first step."""
    scene.submit(GPU)
    scene.store.start_step(GPU.id, 0, {}, scene.now_s)


@pytest.mark.parametrize(
    ("was_done", "performed", "status"),
    [
        (True, BOTH[1:], "done"),
        (False, BOTH, "done"),
        (None, [], "unknown"),
    ],
)
def test_a_step_that_a_crash_interrupted_is_resolved_by_the_executor(
    scene: Scene, was_done: bool | None, performed: list[tuple[str, str]], status: str
) -> None:
    """Done: go on. Not done: do it. Nobody can say: report it, and do nothing."""
    begun(scene)
    scene.restart(Remembering(was_done))
    scene.engine.recover()
    assert scene.act() == performed
    assert scene.status_of(GPU) == status


def test_an_executor_that_cannot_answer_leaves_the_step_unknown(scene: Scene) -> None:
    """As one whose API server is away."""
    begun(scene)
    executor = Remembering()

    def fails(*_: object) -> bool:
        raise UncertainError("no answer")

    executor.was_done = fails  # type: ignore[method-assign]
    scene.restart(executor)
    scene.engine.recover()
    assert scene.act() == []
    assert scene.status_of(GPU) == "unknown"


class Killed(BaseException):
    """As SIGKILL: nothing of ours runs any more."""


class Mortal(Remembering):
    """Is killed before or after it acts, as the test says; knows what it has done, or does not."""

    def __init__(self, *, knows: bool) -> None:
        super().__init__()
        self._knows = knows
        self.kill = ""

    def perform(self, step: Step, before: dict[str, Any]) -> str:
        kill, self.kill = self.kill, ""
        if kill == "before":
            raise Killed
        text = super().perform(step, before)
        if kill == "after":
            raise Killed
        return text

    def was_done(self, step: Step, before: dict[str, Any]) -> bool | None:
        return (step.verb, step.target) in self.performed if self._knows else None


MANY = [alert("GpuXid", node=f"h{n}", xid="79") for n in range(3)]
MOVES = st.one_of(
    st.integers(0, 2),
    st.sampled_from(["act", "before", "after", "restart", "stop", "resume", "resolve"]),
)


@pytest.mark.parametrize("knows", [True, False])
@given(moves=st.lists(MOVES, max_size=25))
@settings(max_examples=25)
def test_no_order_of_events_does_a_step_twice(
    knows: bool, moves: list[int | str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Causes again and again, kills, restarts, stops. While it is stopped no step begins; in the
    end each action is done, is unknown, or never began."""
    folder = tmp_path_factory.mktemp("orders")
    scene = Scene(folder / "db", POLICY, "h0", "h1", "h2", spare="s")
    scene.executor = executor = Mortal(knows=knows)
    scene.restart()
    for move in (*moves, "resume", "act", "act"):
        done = len(executor.performed)
        is_stopped = scene.engine.fleet.is_stopped
        try:
            _move(scene, move)
        except Killed:
            scene.restart()
            scene.engine.recover()
        assert len(executor.performed) == done or not is_stopped
        stored = scene.store.fleet(scene.now_s - 86_400)
        assert stored == scene.engine.fleet, "what is in memory is what a restart would read"
    assert len(set(executor.performed)) == len(executor.performed)
    for entry in scene.store.newest(10):
        assert entry.status in ("done", "expired", "ignored", *(() if knows else ("unknown",)))
    scene.store.close()


def _move(scene: Scene, move: int | str) -> None:
    if isinstance(move, int):
        scene.submit(MANY[move])
    elif move == "restart":
        scene.restart()
        scene.engine.recover()
    elif move == "stop":
        scene.engine.stop("x", "y")
    elif move == "resume":
        scene.engine.resume()
    elif move == "resolve":
        scene.submit(dataclasses.replace(MANY[0], is_resolved=True))
    else:
        scene.executor.kill = "" if move == "act" else move
        scene.act()


def test_an_error_of_the_journal_stops_actions(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be written down is not done."""
    scene.submit(LOST)

    def fails(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(scene.store, "start_step", fails)
    with pytest.raises(sqlite3.OperationalError):
        scene.act()
    assert scene.executor.performed == []


@pytest.mark.parametrize("was_done", [True, None])
def test_a_step_whose_end_could_not_be_written_is_resolved_as_after_a_crash(
    scene: Scene, was_done: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full for a moment: it is neither taken for done nor done again."""
    scene.executor.error = StepError("failed")
    scene.executor.result = was_done
    scene.submit(LOST)

    def fails(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as full:
        full.setattr(scene.store, "end_step", fails)
        with pytest.raises(sqlite3.OperationalError):
            scene.act()
    assert len(scene.act()) == 1
    assert scene.status_of(LOST) == ("done" if was_done else "unknown")


def test_a_mistake_in_an_executor_ends_no_supervisor(scene: Scene) -> None:
    """Before a step begins, nothing has been done."""

    def observe(_: Step) -> dict[str, Any]:
        raise AttributeError("metadata")

    scene.executor.observe = observe
    scene.submit(GPU)
    assert scene.act() == []
    assert scene.status_of(GPU) == "failed"
    assert (scene.state_of("a"), scene.state_of("s")) == ("running", "spare")


def test_a_host_that_a_person_has_changed_since_is_left_as_it_is(scene: Scene) -> None:
    """After an action that failed."""
    scene.submit(GPU)
    scene.engine.mark("a", "complete")
    scene.executor.error = StepError("no such node")
    scene.act()
    assert (scene.state_of("a"), scene.state_of("s")) == ("complete", "spare")


def test_a_journal_has_one_supervisor(scene: Scene, tmp_path: Path) -> None:
    """A second one, and another program's file, stop the start."""
    with pytest.raises(UnavailableError, match="no other supervisor uses"):
        Store(scene.path)
    other = tmp_path / "other"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE x (y)")
    with pytest.raises(ConfigError, match="the journal of a supervisor"):
        Store(other)
    (tmp_path / "text").write_text("no database, but long enough to be read as one" * 30)
    with pytest.raises(ConfigError, match="a SQLite file"):
        Store(tmp_path / "text")
    (tmp_path / "link").symlink_to(other)
    with pytest.raises(UnavailableError, match="symbolic link"):
        Store(tmp_path / "link")


# --- what is recorded ---------------------------------------------------------------------------


def test_every_decision_is_a_span_linked_to_its_cause(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Its steps are children; what was ignored is a span, too; the audit has a line before and
    after."""
    spans: list[ReadableSpan] = []
    scene.watching = Telemetry(Audit(), spans.append)  # type: ignore[assignment]
    scene.restart()
    parent = f"00-{'ab' * 16}-{'cd' * 8}-01"
    with caplog.at_level(logging.INFO, "otel_straggler.audit"):
        scene.submit(dataclasses.replace(GPU, traceparent=parent), alert("X", node="?", xid="79"))
        scene.act()
    ignored, done = (_spans_about(each, spans) for each in (alert("X", node="?", xid="79"), GPU))
    cause, decision = done
    assert [s.name for s in ignored] == ["supervisor.cause", "supervisor.decision"]
    assert ignored[1].attributes["straggler.supervisor.reason"] == "unknown_host"  # type: ignore[index]
    assert decision.links[0].context == cause.context
    assert f"{decision.links[1].context.trace_id:x}" == "ab" * 16
    assert decision.attributes == {
        "straggler.supervisor.cause.id": GPU.id,
        "straggler.supervisor.cause.name": "GpuXid",
        "host.name": "a",
        "training.run.id": "run",
        "straggler.supervisor.device": "3",
        "straggler.supervisor.code": "xid_79",
        "straggler.supervisor.action": "replace_host",
        "straggler.supervisor.rule": "gpu",
        "straggler.supervisor.replacement": "s",
        "straggler.supervisor.outcome": "done",
    }
    steps = [span for span in spans if span.name == "supervisor.step"]
    assert [s.attributes["straggler.supervisor.step"] for s in steps] == ["drain", "requeue"]  # type: ignore[index]
    assert {s.parent.span_id for s in steps if s.parent} == {decision.context.span_id}
    audited = [r.getMessage() for r in caplog.records if "replace_host" in r.getMessage()]
    assert [line.partition("status=")[2].split()[0] for line in audited] == ['"decided"', '"done"']


def _spans_about(cause: Cause, spans: list[ReadableSpan]) -> list[ReadableSpan]:
    """Of a cause and its decision."""
    key = "straggler.supervisor.cause.id"
    return [span for span in spans if span.attributes and span.attributes.get(key) == cause.id]


def test_a_span_that_a_crash_prevented_is_sent_after_the_restart(scene: Scene) -> None:
    """Once, and with the ids that it would have had."""
    scene.submit(LOST)
    scene.act()
    (before,) = scene.watching.entries
    scene.store._reported.clear()  # a kill is faster than the next write
    scene.restart()
    scene.engine.recover()
    scene.engine.recover()
    assert scene.watching.entries == [before, before]


def test_spans_go_to_an_otlp_address_with_its_token(tmp_path: Path) -> None:
    """By HTTP; what waits is sent at the end."""
    (tmp_path / "token").write_text("a-token-of-the-test")
    with CapturedRequests() as sink:
        settings = SupervisorSettings(
            server=ServerSettings(listen="127.0.0.1:0"),
            state=StateSettings(path=str(tmp_path / "db")),
            export=ExportSettings(endpoint=sink.url, token_file=str(tmp_path / "token")),
            fleet=FleetSettings(hosts=(("a", "running"),)),
            policy=POLICY,
        )
        supervisor = Supervisor(settings, wall_s=lambda: NOW_S, executor=Remembering())
        supervisor.start()
        supervisor.engine.submit([alert("StragglerHostSlow", node="a")])
        eventually(lambda: supervisor.engine.unfinished() == 0)
        supervisor.stop()
        names = [span.name for span in sink.spans()]
    assert sorted(names) == ["supervisor.cause", "supervisor.decision", "supervisor.step"]


def test_the_series_count_decisions_ignored_causes_and_hosts(scene: Scene) -> None:
    """And whether it is stopped."""
    telemetry = Telemetry(Audit())
    scene.watching = telemetry  # type: ignore[assignment]
    scene.restart()
    scene.submit(GPU, GPU, alert("StragglerHostSlow", node="b"))
    scene.act()
    scene.engine.stop("x", "y")
    text = telemetry.families(scene.engine.fleet, scene.engine.unfinished()).render().decode()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines == [
        'straggler_supervisor_decisions_total{action="notify",outcome="done"} 1',
        'straggler_supervisor_decisions_total{action="replace_host",outcome="done"} 1',
        'straggler_supervisor_hosts{state="spare"} 0',
        'straggler_supervisor_hosts{state="running"} 2',
        'straggler_supervisor_hosts{state="failed"} 0',
        'straggler_supervisor_hosts{state="complete"} 0',
        'straggler_supervisor_hosts{state="cordoned"} 1',
        'straggler_supervisor_ignored_total{reason="known"} 1',
        "straggler_supervisor_stopped{} 1",
        "straggler_supervisor_unfinished{} 0",
    ]
