"""A journal that is empty, missing, damaged, of another version, or of yesterday: what is cordoned
is asked of the scheduler, or said not to be known."""

from __future__ import annotations

import dataclasses
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.cli.supervise import status_lines
from otel_straggler.errors import ConfigError, StragglerError
from otel_straggler.supervisor.dry_run import dry_run
from otel_straggler.supervisor.executors import StepError
from otel_straggler.supervisor.fleet import Host, SchedulerHost
from otel_straggler.supervisor.store import Step, Store

from .supervised import NOW_S, Remembering, Scene, alert, policy_of

POLICY = policy_of("""
max_fleet_share: 0.5
rules:
  - {name: gpu, alert: Gpu, action: cordon}
  - {name: slow, alert: Slow, action: notify}
""")
NODES = ("a", "b", "c", "d")


class Slurm(Remembering):
    """An executor with a scheduler, in which a host is drained that it was told to cordon."""

    def __init__(self, *drained: str) -> None:
        super().__init__()
        self.drained = set(drained)
        self.is_away = False

    def hosts(self) -> dict[str, SchedulerHost] | None:
        if self.is_away:
            raise StepError("slurmctld is away")
        return {
            name: SchedulerHost(name=name, is_cordoned=name in self.drained, allocated_to=())
            for name in NODES
        }

    def perform(self, step: Step, before: dict[str, Any]) -> str:
        self.drained.add(step.target)
        return super().perform(step, before)


def cordoned(scene: Scene) -> set[str]:
    fleet = scene.engine.fleet
    return {name for name in fleet.known if fleet.state_of(name) == "cordoned"}


def emptied(path: Path) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.write_bytes(b"")


def removed(path: Path) -> None:
    emptied(path)
    path.unlink()


def of_yesterday(path: Path) -> None:
    emptied(path)
    shutil.copyfile(f"{path}.yesterday", path)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    result = Scene(tmp_path / "db", POLICY)
    result.hosts = ()
    result.restart(Slurm("d"))
    result.engine.ask_scheduler()
    return result


@pytest.mark.parametrize("lose", [emptied, removed, of_yesterday])
def test_what_was_cordoned_is_asked_of_the_scheduler(
    scene: Scene, lose: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """So the share is what it was: two of four are out, and no third is taken out."""
    scene.store.close()
    shutil.copyfile(scene.path, f"{scene.path}.yesterday")
    scene.restart()
    scene.engine.ask_scheduler()
    scene.submit(alert("Gpu", node="a"))
    scene.act()
    assert cordoned(scene) == {"a", "d"}
    scene.store.close()
    lose(scene.path)
    scene.now_s += 86_400
    caplog.clear()
    scene.restart()
    scene.engine.ask_scheduler()
    scene.engine.log_gap()
    assert cordoned(scene) == {"a", "d"}
    late = alert("Gpu", at_s=scene.now_s, node="b")
    assert scene.submit(late) == ["fleet_share"]
    assert "cordoned, as remembering says: a, d" in caplog.text
    assert scene.engine.status(1)["unknown"] is None


@pytest.mark.parametrize("lose", [emptied, removed, of_yesterday])
def test_without_a_scheduler_it_is_said_not_to_be_known(
    tmp_path: Path, lose: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """In the log and in the status, over restarts, until a person marks a host."""
    scene = Scene(tmp_path / "db", POLICY, *NODES)
    scene.engine.mark("a", "running")
    scene.store.close()
    shutil.copyfile(scene.path, f"{scene.path}.yesterday")
    scene.restart()
    scene.submit(alert("Gpu", node="a"))
    scene.act()
    scene.store.close()
    lose(scene.path)
    scene.now_s += 86_400
    caplog.clear()
    for _ in range(2):
        scene.restart()
        scene.engine.ask_scheduler()
        scene.engine.log_gap()
    assert caplog.text.count("which hosts are cordoned is not known") == 2
    lines = status_lines(scene.engine.status(5))
    assert "It is not known which hosts are cordoned, as the journal" in lines[1]
    scene.engine.mark("a", "cordoned")
    assert "not known" not in "\n".join(status_lines(scene.engine.status(5)))
    scene.restart()
    assert scene.engine.status(5)["unknown"] is None


def test_a_supervisor_that_was_away_for_a_moment_knows_what_it_knew(tmp_path: Path) -> None:
    """As after an update."""
    scene = Scene(tmp_path / "db", POLICY, *NODES)
    scene.engine.mark("a", "cordoned")
    scene.now_s += 1800
    scene.restart()
    assert scene.engine.status(5)["unknown"] is None
    assert cordoned(scene) == {"a"}


def test_a_scheduler_that_does_not_answer_has_no_hosts_yet(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is done to any, and the status says why; later the answer of before stays in
    force."""
    away = Slurm()
    away.is_away = True
    scene.restart(away)
    scene.engine.ask_scheduler()
    scene.engine.ask_scheduler()
    assert scene.submit(alert("Gpu", node="a")) == ["unknown_host"]
    assert caplog.text.count("slurmctld is away") == 1
    lines = status_lines(scene.engine.status(5))
    assert "The scheduler does not list its hosts: slurmctld is away" in lines
    away.is_away = False
    scene.engine.ask_scheduler()
    away.is_away = True
    scene.engine.ask_scheduler()
    assert scene.submit(alert("Gpu", at_s=NOW_S + 1, node="a")) == ["cordon"]


def test_a_host_that_a_person_drained_by_hand_is_out_and_comes_back(scene: Scene) -> None:
    """Without a mark: the scheduler says both."""
    scene.executor.drained = {"a", "b"}
    scene.engine.ask_scheduler()
    assert scene.submit(alert("Gpu", node="c")) == ["fleet_share"]
    scene.executor.drained = set()
    scene.engine.ask_scheduler()
    assert scene.submit(alert("Gpu", node="c")) == ["cordon"]


def test_a_journal_of_the_first_version_is_taken_over(tmp_path: Path) -> None:
    """With its hosts, decisions and what has been stopped; one of a later version stops the
    start."""
    scene = Scene(tmp_path / "db", POLICY, *NODES)
    scene.submit(alert("Gpu", node="a"))
    scene.engine.stop("x", "me")
    scene.store.close()
    with sqlite3.connect(scene.path) as connection:
        connection.execute("ALTER TABLE hosts DROP COLUMN added_by")
        connection.execute("DELETE FROM meta WHERE key IN ('seen', 'unknown')")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    scene.restart()
    assert scene.state_of("a") == "cordoned"
    assert scene.engine.fleet.is_stopped
    assert scene.engine.status(5)["unknown"] is None
    scene.store.close()
    with sqlite3.connect(scene.path) as connection:
        connection.execute("PRAGMA user_version = 3")
    connection.close()
    with pytest.raises(ConfigError, match=r"state\.path: .*version 2"):
        Store(scene.path)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE hosts SET state = 'dancing'",
        "UPDATE hosts SET since_unix_s = 'soon'",
        "UPDATE decisions SET decision = '{'",
        "UPDATE decisions SET decision = replace(decision, 'cordon', 'reboot')",
        'UPDATE decisions SET decision = replace(decision, \'"rule": "gpu"\', \'"rule": 7\')',
        "UPDATE decisions SET decision = '[]', status = 'decided'",
        "UPDATE decisions SET cause = '{\"id\": 1}', status = 'started'",
        'UPDATE steps SET step = \'{"verb": "x"}\'',
        "UPDATE meta SET value = '[1]' WHERE key = 'seen'",
        "UPDATE meta SET value = '{\"a\": 1}' WHERE key = 'seen'",
        "DROP TABLE steps",
        "DROP TABLE meta",
        "UPDATE hosts SET run_id = CAST(x'ff' AS TEXT)",
    ],
)
def test_a_damaged_row_stops_the_start(tmp_path: Path, change: str) -> None:
    """And says which file, and what to do; a host that was taken out is not forgotten in
    silence."""
    scene = Scene(tmp_path / "db", POLICY, *NODES)
    scene.submit(alert("Gpu", node="a"))
    scene.store.close()
    with sqlite3.connect(scene.path) as connection:
        connection.execute(change)
    connection.close()
    with pytest.raises(ConfigError, match=r"state\.path: .*undamaged journal.*move it away"):
        Store(scene.path)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with hosts, decisions and steps."""
    scene = Scene(tmp_path_factory.mktemp("journal") / "db", POLICY, *NODES)
    scene.submit(*(alert("Gpu", node=node) for node in NODES))
    scene.engine.act_once()
    scene.submit(*(alert("Slow", run_id=f"r{n}") for n in range(5)))
    scene.engine.stop("x", "me")
    scene.store.close()
    return scene.path


@given(st.integers(0, 2**32), st.sampled_from(["flip", "cut", "zero", "swap"]))
def test_whatever_happens_to_a_journal_it_opens_or_stops_the_start(
    written: Path, tmp_path_factory: pytest.TempPathFactory, seed: int, how: str
) -> None:
    """With an error for people, and no traceback."""
    path = tmp_path_factory.mktemp("damaged") / "db"
    path.write_bytes(damaged(written.read_bytes(), random.Random(seed), how))
    try:
        scene = Scene(path, POLICY, *NODES)
    except StragglerError:
        return
    try:
        scene.engine.recover()
        scene.submit(alert("Gpu", node="a"))
        scene.act()
        scene.engine.status(10)
    except sqlite3.Error:
        pass  # the loop and the API take this for a journal that cannot be used
    finally:
        scene.store.close()


def damaged(content: bytes, random_: random.Random, how: str) -> bytes:
    """A file after an accident of its disk."""
    result = bytearray(content)
    pick = random_.randrange
    if how == "cut":
        return bytes(result[: pick(len(result))])
    if how == "flip":
        for _ in range(1 + pick(8)):
            result[pick(len(result))] ^= 1 << pick(8)
    else:
        at, other = (pick(len(result) // 512) * 512 for _ in range(2))
        block = bytes(512) if how == "zero" else bytes(result[other : other + 512])
        result[at : at + 512] = block
    return bytes(result)


# --- another policy -------------------------------------------------------------------------------


def test_a_dry_run_says_what_a_day_would_have_led_to(tmp_path: Path) -> None:
    """Under another policy, of the journal of a supervisor that runs; nothing is done, and nothing
    is changed."""
    scene = Scene(tmp_path / "db", POLICY, *NODES)
    scene.submit(*(alert("Gpu", node=node) for node in NODES))
    scene.act()
    scene.submit(alert("Slow", node="a"))
    performed = list(scene.executor.performed)
    policy = policy_of("{max_fleet_share: 1, rules: [{name: all, alert: Gpu, action: cordon}]}")
    lines = dry_run(str(scene.path), policy, scene.now_s)
    assert lines[:5] == [
        "5 causes of the last 24 h are in the journal. Of them, then and now:",
        "  cordon                     2       4",
        "  fleet_share                2       0",
        "  no_rule                    0       1",
        "  notify                     1       0",
    ]
    assert "Gpu of c: nothing: fleet_share (gpu); now cordon (all)" in lines
    assert "Slow of a: notify (slow); now nothing: no_rule" in lines
    assert scene.executor.performed == performed
    scene.now_s += 86_400
    assert dry_run(str(scene.path), policy, scene.now_s + 1)[0].startswith("0 causes")
    assert scene.engine.fleet == scene.store.fleet(0.0)


def test_a_dry_run_counts_what_a_tenant_sent_for_the_tenant(tmp_path: Path) -> None:
    """As the supervisor that decided."""
    scene = Scene(tmp_path / "db", POLICY, *NODES)
    scene.submit(alert("Slow", node="a"))
    with scene.store.transaction():
        entry = scene.store.newest(1)[0]
        decision = dataclasses.replace(entry.decision, by="t", tenant="t/")
        scene.store.put(dataclasses.replace(entry.cause, id="other"), decision, ())
    policy = policy_of("{cooldown_seconds: 0, rules: [{alert: Slow, action: notify}]}")
    assert "  notify                     2       2" in dry_run(str(scene.path), policy, NOW_S)


def test_a_dry_run_without_a_journal_says_so(tmp_path: Path) -> None:
    """As does one of a file that is none."""
    with pytest.raises(StragglerError, match=r"state\.path: .*the journal of a supervisor"):
        dry_run(str(tmp_path / "db"), POLICY, NOW_S)
    (tmp_path / "db").write_text("no database, but long enough to be taken for one" * 30)
    with pytest.raises(ConfigError, match=f"got '{tmp_path}/db'; expected .* journal"):
        dry_run(str(tmp_path / "db"), POLICY, NOW_S)


def test_hosts_of_the_file_and_the_journal_are_one_fleet(tmp_path: Path) -> None:
    """The journal's state counts, and the operator's name makes it the operator's host."""
    scene = Scene(tmp_path / "db", POLICY, "a")
    scene.engine._put_hosts([Host(name="x", state="running", added_by="agents")])
    scene.hosts = (Host(name="x", state="spare"),)
    scene.restart()
    assert scene.engine.fleet.hosts["x"] == Host(name="x", state="running")


@pytest.mark.parametrize("what", ["moved", "removed", "replaced"])
def test_a_journal_that_is_gone_from_its_place_is_as_one_that_cannot_be_written(
    tmp_path: Path, what: str
) -> None:
    """What is decided would be lost with the process, and another supervisor could start there."""
    scene = Scene(tmp_path / "db", POLICY, *NODES)
    away = tmp_path / "away"
    (tmp_path / "db").rename(away)
    if what == "removed":
        away.unlink()
    elif what == "replaced":
        shutil.copyfile(away, tmp_path / "db")
    for does in (lambda: scene.submit(alert("Gpu", node="a")), scene.act):
        with pytest.raises(sqlite3.OperationalError, match="is another file now, or none"):
            does()
    assert scene.executor.performed == []
    assert cordoned(scene) == set()
    if what == "moved":
        away.rename(tmp_path / "db")
        assert scene.submit(alert("Gpu", node="a")) == ["cordon"]
        assert scene.act() == [("cordon", "a")]
