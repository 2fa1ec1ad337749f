"""What asks for a save at once is a file that anything may be in: the thread that looks at it goes
on, and the next request is heard."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from otel_straggler.agent.checkpoint_request import SAVE_S, CheckpointRequest
from otel_straggler.checkpoint import emergency
from otel_straggler.checkpoint.emergency import RequestFile
from otel_straggler.semconv import CHECKPOINT_REQUEST_FILE, CHECKPOINT_SAVED, CHECKPOINT_SERVED

from ..damage import damaged
from ..waiting import eventually
from .test_manifests import BAD, Damage, content

Asked = list[tuple[str, tuple[int, ...]]]
DIGITS = "9" * 100_000


@pytest.fixture
def asked() -> Asked:
    return []


@pytest.fixture
def requests(
    tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RequestFile]:
    monkeypatch.setattr(emergency, "_POLL_S", 0.01)
    made = RequestFile(tmp_path / "request", lambda reason, stuck: asked.append((reason, stuck)))
    yield made
    made.close()


READ: dict[str, tuple[str | bytes, tuple[str, tuple[int, ...]]]] = {
    "a digit that is none": ("why\n²", ("why", ())),
    "digits of another script": ("why\n٣", ("why", ())),
    "among good ones": ("why\n3,²,5", ("why", (3, 5))),
    "100,000 digits": (f"why\n{DIGITS}"[:60_000], ("why", ())),
    "a negative rank": ("why\n-3", ("why", ())),
    "a fraction": ("why\n1.5", ("why", ())),
    "no rank": ("why\n,,", ("why", ())),
    "no reason": ("\n3", ("request", (3,))),
    "nothing": ("", ("request", ())),
    "not UTF-8": (b"wh\xffy\n3", ("wh�y", (3,))),
    "a forged log line": ("why\r\x1b[2Kok\n3", ("why", ())),
    "an escape": ("a\x1b[31mb\n3", ("a�[31mb", (3,))),
    "a reason of a page": ("why " * 1_000, (("why " * 25), ())),
}


@pytest.mark.parametrize(("text", "expected"), READ.values(), ids=READ)
def test_a_request_is_heard_whatever_is_in_it(
    tmp_path: Path, requests: RequestFile, asked: Asked, text: str | bytes, expected: object
) -> None:
    content(text)(tmp_path / "request")
    eventually(lambda: bool(asked))
    assert asked == [expected]


UNREADABLE: dict[str, Damage] = {
    "too large": content(f"why\n{DIGITS}"),
    **{
        name: BAD[name]
        for name in ("a pipe", "a socket", "a directory", "a device", "a link to nothing",
                     "a link to itself", "a terabyte")
    },
}  # fmt: skip


@pytest.mark.timeout(30)
@pytest.mark.parametrize("damage", UNREADABLE.values(), ids=UNREADABLE)
def test_what_is_no_request_is_one_line_and_the_next_one_is_heard(
    tmp_path: Path,
    requests: RequestFile,
    asked: Asked,
    damage: Damage,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = tmp_path / "request"
    other = tmp_path / "other"
    other.touch()
    damage(other)
    other.rename(path)
    eventually(lambda: bool(caplog.messages))
    assert len(caplog.messages) == 1
    assert str(path) in caplog.text
    assert asked == []
    path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / "new").write_text("why\n1")
    (tmp_path / "new").rename(path)
    eventually(lambda: bool(asked))
    assert asked == [("why", (1,))]


def test_a_look_that_fails_is_logged_once_and_the_next_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever raises: a request that nobody can be asked with, a fault of ours."""
    monkeypatch.setattr(emergency, "_POLL_S", 0.01)
    heard: list[str] = []

    def fail_first(reason: str, _: object) -> None:
        heard.append(reason)
        if len(heard) < 3:
            raise RuntimeError(reason)

    requests = RequestFile(tmp_path / "request", fail_first)
    try:
        for number in range(3):
            new = tmp_path / f"new-{number}"
            new.write_text(str(number))
            new.rename(tmp_path / "request")
            eventually(lambda number=number: len(heard) > number)
    finally:
        requests.close()
    assert heard == ["0", "1", "2"]
    assert len([each for each in caplog.messages if "request file" in each]) == 1


def test_a_request_that_vanishes_while_it_is_read_is_heard(
    tmp_path: Path, requests: RequestFile, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: Path, _: int) -> bytes:
        raise FileNotFoundError(2, "No such file or directory", str(path))

    monkeypatch.setattr(emergency, "read_small", gone)
    (tmp_path / "request").write_text("why\n3")
    eventually(lambda: bool(asked))
    assert asked == [("request", ())]


@settings(suppress_health_check=list(HealthCheck))
@given(text=damaged([b"rank 3 hangs\n3,5\n", b"\n", f"why\n{DIGITS[:5000]}\n".encode()]))
def test_a_damaged_request_is_heard(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    """`make fuzz` tries 20,000."""
    asked: Asked = []
    folder = tmp_path_factory.mktemp("request")
    requests = RequestFile(folder / "request", lambda why, stuck: asked.append((why, stuck)))
    requests.close()
    (folder / "request").write_bytes(text)
    requests.poll()
    ((reason, stuck),) = asked
    assert reason.isprintable()
    assert len(reason) <= 100
    assert all(0 <= rank < 10**18 for rank in stuck)


CLOCKS: dict[str, Callable[[float], float]] = {
    "set back by a day": lambda now_s: now_s - 86_400,
    "set ahead by a day": lambda now_s: now_s + 86_400,
    "at the beginning of time": lambda _: 0.0,
}


@pytest.mark.parametrize("clock", CLOCKS.values(), ids=CLOCKS)
def test_an_agent_asks_and_waits_by_no_wall_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Callable[[float], float]
) -> None:
    """A request of before the clock was set is not taken for one of now, and the wait ends."""
    path = tmp_path / "request"
    monkeypatch.setenv(CHECKPOINT_REQUEST_FILE, str(path))
    path.write_text("of yesterday")
    path.with_name(path.name + CHECKPOINT_SERVED).touch()
    path.with_name(path.name + CHECKPOINT_SAVED).touch()
    now_s, monotonic_s = time.time(), time.monotonic()
    os.utime(path, (now_s - 60, now_s - 60))
    monkeypatch.setattr(time, "time", lambda: clock(now_s))
    asking = CheckpointRequest("why", 3)
    assert path.read_text() == "why\n3\n"
    assert not asking.is_over
    monkeypatch.setattr(time, "monotonic", lambda: monotonic_s + SAVE_S + 60)
    assert asking.is_over


def test_a_clock_that_is_set_while_an_agent_waits_ends_no_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "request"
    monkeypatch.setenv(CHECKPOINT_REQUEST_FILE, str(path))
    path.with_name(path.name + CHECKPOINT_SERVED).touch()
    asking = CheckpointRequest("why", 3)
    for now_s in (0.0, 9e9):
        monkeypatch.setattr(time, "time", lambda now_s=now_s: now_s)
        assert not asking.is_over
    saved = path.with_name(path.name + CHECKPOINT_SAVED)
    saved.touch()
    os.utime(saved, (1.0, 1.0))
    assert asking.is_over
