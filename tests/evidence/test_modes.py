"""Files and folders of ours are for their user alone, whatever the umask lets others read."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from otel_straggler.agent.checkpoint_request import CheckpointRequest
from otel_straggler.agent.config import FaultToleranceConfig
from otel_straggler.agent.process import running_agent
from otel_straggler.checkpoint.emergency import RequestFile
from otel_straggler.client.diagnostics.stacks import StacksFile
from otel_straggler.client.failures import ERROR_FILE, write_error_file
from otel_straggler.collector.history.backup import back_up, restore
from otel_straggler.collector.history.history import History
from otel_straggler.collector.history.spool import Spool
from otel_straggler.detect.hangs.rank_timeouts import HeartbeatTimeouts
from otel_straggler.integrations.lightning.heartbeat_timeouts import write_timeouts
from otel_straggler.launcher.options import parse_options
from otel_straggler.launcher.plan import make_plan
from otel_straggler.launcher.reports import EventLog
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.profiles.artifacts import reserve
from otel_straggler.regular_files import FileLock
from otel_straggler.semconv import CHECKPOINT_REQUEST_FILE, CHECKPOINT_SERVED
from otel_straggler.supervisor.store import Store

pytest.importorskip("torch.distributed.run")


def logs(folder: Path) -> None:
    """Of all ranks, and the launcher's events."""
    os.chdir(folder)
    plan = make_plan(parse_options(["--until-finished", "train.py"]), {})
    started = LaunchEvent(name="straggler.attempt.started", at_unix_s=1.0, node="n")
    EventLog(plan.folder / "events.jsonl").add(started)


def failure(folder: Path) -> None:
    write_error_file(ValueError("bad"), {ERROR_FILE: str(folder / "error.json")})


def request(folder: Path) -> None:
    served = RequestFile(folder / "request", lambda *_: None)
    CheckpointRequest("why", 3)
    served.answer()
    served.close()
    (folder / f"request{CHECKPOINT_SERVED}").unlink(missing_ok=True)


def history(folder: Path) -> None:
    made = History(folder / "new" / "history.db")
    made.open()
    made.close()
    back_up(folder / "new" / "history.db", folder / "copy.db")
    restore(folder / "copy.db", folder / "other" / "history.db", wall_s=1.0)


def spool(folder: Path) -> None:
    made = Spool(folder / "spool", max_bytes=1 << 20, syncs=False)
    made.open()
    made.append(1, b"body")
    made.close()


def journal(folder: Path) -> None:
    Store(folder / "supervisor" / "journal.db").close()


def profile(folder: Path) -> None:
    reserve(folder / "prof" / "run", "trace", ".json")


def stacks(folder: Path) -> None:
    StacksFile(folder / "rank0.stacks")  # its end removes it


def timeouts(folder: Path) -> None:
    write_timeouts(folder / "timeouts.json", HeartbeatTimeouts())


def lock(folder: Path) -> None:
    FileLock(folder / "lock").release()


def agent(folder: Path) -> None:
    """Its configuration, lock and socket."""
    with running_agent(
        FaultToleranceConfig(), folder=folder / "agent", environment=dict(os.environ)
    ):
        pass


MAKERS: list[Callable[[Path], None]] = [
    logs, failure, request, history, spool, journal, profile, stacks, timeouts, lock, agent,
]  # fmt: skip


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("make", MAKERS)
def test_what_is_written_is_for_its_user_alone(
    tmp_path: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(CHECKPOINT_REQUEST_FILE, str(tmp_path / "request"))
    make(tmp_path)
    made = {
        str(path.relative_to(tmp_path)): stat.S_IMODE(path.lstat().st_mode)
        for path in tmp_path.rglob("*")
    }
    assert made
    assert {name: oct(mode) for name, mode in made.items() if mode & 0o077} == {}


def test_an_event_log_is_neither_written_nor_read_through_a_link(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor what else has its name; what the link leads to stays as it is."""
    event = LaunchEvent(name="straggler.attempt.started", at_unix_s=1.0, node="n", run_id="r")
    other = tmp_path / "other"
    other.write_text(event.to_json() + "\n")
    log = EventLog(tmp_path / "events.jsonl")
    log.path.symlink_to(other)
    assert log.next_attempt("r") == 0
    log.add(event)
    assert other.read_text() == event.to_json() + "\n"
    assert "symbolic link" in caplog.text
    log.path.unlink()
    os.mkfifo(log.path)
    assert log.next_attempt("r") == 0
    EventLog(log.path).add(event)
    assert "is a pipe" in caplog.text


OF_TEXT = (
    '{"name": "straggler.attempt.started", "node": "n", "at_unix_s": 1.0, "run_id": "r", '
    '"attempt": "7"}'
)


@pytest.mark.parametrize(
    "line",
    ["[" * 100_000, f'{{"attempt": {"9" * 5_000}}}', OF_TEXT, "\udcff", "null"],
    ids=["nested", "digits", "text", "bytes", "null"],
)
def test_a_damaged_line_of_an_event_log_is_not_used(tmp_path: Path, line: str) -> None:
    event = LaunchEvent(name="straggler.attempt.started", at_unix_s=1.0, node="n", run_id="r")
    path = tmp_path / "events.jsonl"
    path.write_bytes(f"{line}\n{event.to_json()}\n".encode("utf-8", "surrogateescape"))
    assert EventLog(path).next_attempt("r") == 1
