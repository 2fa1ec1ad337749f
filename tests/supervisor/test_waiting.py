"""When much comes at once: what protects comes first, some notices give way, health waits for
nothing."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.supervisor.store import Step
from otel_straggler.supervisor.waiting import Waiting

from ..waiting import eventually
from .served import Served
from .supervised import Remembering, Scene, alert, alert_json, policy_of, webhook

POLICY = policy_of("""
max_actions: 100
max_fleet_share: 1
rules:
  - {alert: Slow, action: notify}
  - {alert: Gpu, action: cordon}
""")
CONFIG = """
server: {{listen: "127.0.0.1:0"}}
auth: {{grant_files: [{folder}/grants]}}
state: {{path: {folder}/db}}
fleet: {{hosts: {{a: running, b: running}}}}
policy:
  rules:
    - {{alert: Slow, action: notify}}
    - {{alert: Gpu.*, action: cordon}}
"""


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "db", POLICY, "a", "b")


def slow(number: int) -> Any:
    return alert("Slow", run_id=f"r{number}")


def statements(scene: Scene, count: int) -> int:
    """That SQLite runs to do so many actions that wait."""
    scene.submit(*map(slow, range(count)))
    ran: list[str] = []
    scene.store._connection.set_trace_callback(ran.append)
    scene.act()
    scene.store._connection.set_trace_callback(None)
    return len(ran)


def test_the_work_grows_with_what_waits_and_no_faster(tmp_path: Path) -> None:
    """Counted in rows that are read, not in seconds: a scan would read each that waits for each."""
    few, many = (Scene(tmp_path / name, POLICY, "a") for name in ("few", "many"))
    rows = []
    for scene, count in ((few, 50), (many, 200)):
        read: list[int] = []
        entry = scene.store._all

        def counted(*arguments: Any, entry: Any = entry, read: list[int] = read) -> Any:
            result = entry(*arguments)
            read.append(len(result))
            return result

        scene.store._all = counted  # type: ignore[method-assign]
        done = statements(scene, count)
        rows.append((sum(read), done))
    (few_rows, few_done), (many_rows, many_done) = rows
    assert many_rows <= 4.1 * few_rows
    assert many_done <= 4.1 * few_done


def test_what_protects_comes_before_all_that_only_notifies(scene: Scene) -> None:
    """However long that has waited; over a restart, too."""
    scene.submit(*map(slow, range(50)))
    scene.submit(alert("Gpu", node="a"))
    scene.engine.act_once()
    assert scene.executor.performed == [("cordon", "a")]
    scene.submit(alert("Gpu", node="b"))
    scene.restart()
    scene.engine.recover()
    for _ in range(3):
        scene.engine.act_once()
    assert scene.executor.performed[:2] == [("cordon", "a"), ("cordon", "b")]
    assert len(scene.act()) == 52


def test_what_is_shed_is_notices_alone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Counted, logged once for a flood, in the status, and made when it comes again later."""
    monkeypatch.setattr(scene.engine, "_waiting", Waiting(3))
    outcomes = scene.submit(*map(slow, range(10)), *(alert("Gpu", node=n) for n in "ab"))
    assert outcomes == ["notify"] * 3 + ["shed"] * 7 + ["cordon"] * 2
    assert scene.watching.reasons == ["shed"] * 7
    assert [r.getMessage()[:24] for r in caplog.records if "wait" in r.getMessage()] == [
        "3 notifications wait, so"
    ]
    status = scene.engine.status(10)
    assert (status["shed"], status["waiting"]) == (7, 5)
    assert len(scene.act()) == 5
    assert scene.submit(slow(9)) == ["notify"]


def test_a_flood_of_one_is_logged_once_for_each_flood(caplog: pytest.LogCaptureFixture) -> None:
    """A new one, after what waited was done, is news."""
    its = Waiting(2)
    for _ in range(2):
        for name in "ab":
            assert its.has_room()
            its.add(name, is_notice=True)
        assert not its.has_room()
        assert not its.has_room()
        its.remove("a")
        its.remove("b")
    assert len(caplog.records) == 2
    assert its.shed == 4


def test_the_journal_that_fails_leaves_what_waits_as_it_was(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook is written as a whole or not at all, and comes again."""

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(scene.store, "put_hosts", full)
        with pytest.raises(sqlite3.OperationalError):
            scene.submit(slow(1), alert("Gpu", node="a"))
    assert scene.store.newest(10) == ()
    assert scene.engine.fleet == scene.store.fleet(0.0)
    assert scene.act() == []
    assert scene.submit(slow(1), alert("Gpu", node="a")) == ["notify", "cordon"]
    assert scene.act() == [("cordon", "a"), ("notify", "r1")]


class Hanging(Remembering):
    """An executor in the middle of an action that does not end."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()

    def perform(self, step: Step, before: dict[str, Any]) -> str:
        self.goes_on.wait(60)
        return super().perform(step, before)


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Served]:
    result = Served(tmp_path, CONFIG, executor=Hanging())
    yield result
    result.executor.goes_on.set()  # type: ignore[attr-defined]
    result.supervisor.stop()


def test_health_commands_and_reports_are_answered_while_an_action_hangs(hanging: Served) -> None:
    """A person can stop what would come next."""
    alerts = [
        alert_json("Gpu", node="a"),
        *(alert_json("Slow", run_id=f"r{n}") for n in range(500)),
    ]
    assert hanging.ask("POST", "/v1/alerts", webhook(*alerts), role="ingest")[0] == 200
    assert hanging.ask("GET", "/healthz")[0] == 200
    assert hanging.ask("GET", "/v1/status", role="read")[1]["waiting"] == 501
    assert hanging.ask("POST", "/v1/stop", {"reason": "x"}, role="operate")[0] == 200
    assert hanging.alert("ingest", node="b") == "stopped"
    hanging.executor.goes_on.set()  # type: ignore[attr-defined]
    eventually(lambda: hanging.supervisor.engine.unfinished() == 500)
    assert hanging.executor.performed == [("cordon", "a")]


def test_health_is_answered_while_a_webhook_is_decided(
    hanging: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever holds the journal, and the thread that reads requests."""
    engine = hanging.supervisor.engine
    with engine._lock:
        posting = threading.Thread(target=hanging.alert, args=("ingest",), kwargs={"node": "b"})
        posting.start()
        for _ in range(3):
            assert hanging.ask("GET", "/healthz") == (200, {"status": "ok"})
    posting.join(10)
    assert not posting.is_alive()
