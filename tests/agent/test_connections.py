"""What the agent makes of messages and peers that make no sense: nobody else is harmed."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.agent.beats import BeatPage, BeatReader
from otel_straggler.agent.connections import Connection, Peer, Rejections
from otel_straggler.agent.frames import MAX_FRAME, Frames, ProtocolError, encode
from otel_straggler.client.diagnostics.processes import started_ticks

from ..waiting import eventually
from .conftest import LocalAgent, MakeAgent, MakeClient

INIT = {
    "type": "init", "version": 1, "rank": 1, "local_rank": 0, "attempt": 0, "run_id": "",
    "started": started_ticks(os.getpid()),
}  # fmt: skip
TIMEOUTS: dict[str, Any] = {"heartbeat": {}, "section": {"section": {}}}
WATCH = {"type": "watch", "sections": [], **TIMEOUTS}


class Raw:
    """A client that says what it likes."""

    def __init__(self, agent: LocalAgent) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(agent.folder / "agent.sock"))
        self.socket.settimeout(30)
        self._frames = Frames()
        self._answers: list[Any] = []

    def send(self, *messages: Any, file: int | None = None) -> None:
        data = b"".join(one if isinstance(one, bytes) else encode(one) for one in messages)
        if file is None:
            self.socket.sendall(data)
        else:
            socket.send_fds(self.socket, [data], [file])

    def answer(self) -> Any:
        """The next one."""
        while not self._answers:
            data = self.socket.recv(65_536)
            assert data, "the agent has closed the connection"
            self._answers += list(self._frames.add(data))
        return self._answers.pop(0)

    def answers(self) -> list[Any]:
        """All until the agent closes the connection."""
        result, self._answers = self._answers, []
        with self.socket, contextlib.suppress(ConnectionResetError):
            while data := self.socket.recv(65_536):
                result += list(self._frames.add(data))
        return result


def framed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([b"GET / HTTP/1.1\r\n\r\n"], "length"),
        ([struct.pack(">I", MAX_FRAME + 1)], "length"),
        ([struct.pack(">I", 0)], "length"),
        ([framed(b"\x80\x04\x95")], "json"),
        ([framed(b"[1, 2]")], "json"),
        ([framed(b'{"type": 5}')], "json"),
        ([framed(b"[" * 60_000)], "json"),
        ([{"type": "heartbeat"}], "order"),
        ([{**INIT, "version": 2}], "version"),
        ([{**INIT, "rank": -1}], "field"),
        ([{**INIT, "rank": "1"}], "field"),
        ([{**INIT, "rank": True}], "field"),
        ([{**INIT, "run_id": 5}], "field"),
        ([WATCH], "order"),
        ([INIT, WATCH], "files"),
        ([INIT, {"type": "calculate", "kind": "heartbeat"}], "order"),
    ],
)
def test_a_malformed_message_ends_its_connection_and_is_counted_and_harms_nobody_else(
    make_agent: MakeAgent, make_client: MakeClient, messages: list[Any], reason: str
) -> None:
    agent = make_agent()
    client = make_client(0)
    raw = Raw(agent)
    raw.send(*messages)
    last = raw.answers()[-1]
    assert last["type"] == "refused"
    assert last["why"].startswith(reason)
    assert agent.server.rejections.counts == {reason: 1}
    client.send_heartbeat()
    client.send_heartbeat()
    assert client.calculate_and_set_hb_timeouts()


def with_file(make: Callable[[], int], **fields: Any) -> Callable[[Raw], None]:
    def send(raw: Raw) -> None:
        file = make()
        raw.send(INIT, {**WATCH, **fields}, file=file)
        os.close(file)

    return send


def empty_file() -> int:
    return os.memfd_create("test")


def pipe() -> int:
    reading, writing = os.pipe()
    os.close(writing)
    return reading


def page(**cells: int) -> Callable[[], int]:
    """A page with cells that make no sense."""

    def make() -> int:
        made = BeatPage([])
        file = os.dup(made.file)
        for cell, value in cells.items():
            os.pwrite(file, struct.pack("q", value), 8 * int(cell.removeprefix("c")))
        made.end()
        return file

    return make


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize(
    ("send", "reason"),
    [
        (with_file(empty_file), "page"),
        (with_file(pipe), "page"),
        (with_file(page(c0=1)), "page"),
        (with_file(page(c1=7)), "page"),
        (with_file(page(), sections=["step"]), "page"),
        (with_file(page(), sections=["a", "a"]), "field"),
        (with_file(page(), sections="a"), "field"),
        (with_file(page(), sections=["x"] * 1_000), "field"),
        (with_file(page(), heartbeat={"initial": -1}), "timeouts"),
        (with_file(page(), section=5), "timeouts"),
        (with_file(page(), stacks=5), "field"),
        (with_file(page(), stacks="/x", stacks_signal=9_999), "field"),
    ],
)
def test_a_page_that_is_none_is_refused(
    make_agent: MakeAgent, send: Callable[[Raw], None], reason: str
) -> None:
    agent = make_agent()
    files = open_files()
    raw = Raw(agent)
    send(raw)
    assert raw.answers()[-1]["why"].startswith(reason)
    assert agent.server.rejections.counts == {reason: 1}
    assert agent.server.ranks == {}
    eventually(lambda: open_files() <= files)


def test_a_page_that_later_makes_no_sense_is_watched_no_longer(make_agent: MakeAgent) -> None:
    agent = make_agent()
    raw = Raw(agent)
    made = BeatPage([])
    raw.send(INIT, WATCH, file=made.file)
    eventually(lambda: 1 in agent.server.ranks)
    os.pwrite(made.file, struct.pack("q", 2**62), 8 * 2)  # it begins in a century
    eventually(lambda: not agent.server.ranks)
    assert agent.server.rejections.counts == {"page": 1}
    assert agent.hangs == []
    raw.socket.close()


def test_a_page_that_becomes_shorter_is_an_error_and_no_crash() -> None:
    made = BeatPage(["step"])
    reader = BeatReader(os.dup(made.file), ["step"])
    os.ftruncate(made.file, 10)
    with pytest.raises(ProtocolError, match="shorter"):
        reader.beats()
    reader.close()


def test_more_than_one_file_is_refused_and_closed(make_agent: MakeAgent) -> None:
    agent = make_agent()
    raw = Raw(agent)
    files = [empty_file() for _ in range(3)]
    fds = array.array("i", files)
    raw.socket.sendmsg([encode(INIT)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    for file in files:
        os.close(file)
    assert raw.answers()[-1]["why"].startswith("files")


def test_a_message_in_pieces_is_read_whole(make_agent: MakeAgent) -> None:
    agent = make_agent()
    raw = Raw(agent)
    for byte in encode(INIT):
        raw.socket.sendall(bytes([byte]))
    raw.send({"type": "bye"})
    config, refused = raw.answers()
    assert config["type"] == "config"
    assert refused["why"].startswith("order")


def test_a_connection_that_says_nothing_is_closed_after_a_while(
    make_agent: MakeAgent, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("otel_straggler.agent.server.INIT_S", 0.05)
    agent = make_agent()
    make_client(0)
    raw = Raw(agent)
    assert raw.answers()[-1]["why"].startswith("silent")
    assert 0 in agent.server.ranks


def test_there_are_not_arbitrarily_many_connections(
    make_agent: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest that watches no rank gives way."""
    monkeypatch.setattr("otel_straggler.agent.server.MAX_VISITORS", 2)
    agent = make_agent()
    first, second, third = (Raw(agent) for _ in range(3))
    assert first.answers()[-1]["why"].startswith("connections")
    for raw in (second, third):
        raw.send(INIT)
        assert raw.socket.recv(10)
        raw.socket.close()


FOREIGN = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
try:
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(sys.argv[1])
        print(s.recv(10_000).decode("utf-8", "replace"))
except PermissionError as error:
    print(error)
"""


@pytest.mark.skipif(
    os.geteuid() != 0,
    reason="not root (run as root): it would show that another user's process is refused",
)
def test_another_user_is_refused_with_one_log_line(
    make_agent: MakeAgent, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agent = make_agent()

    def foreign() -> str:
        command = [sys.executable, "-c", FOREIGN, str(agent.folder / "agent.sock")]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "Permission denied" in foreign(), "the folder alone keeps others out"
    folders = [agent.folder, *agent.folder.parents]
    modes = {one: one.stat().st_mode for one in folders}
    try:
        for one in folders:
            one.chmod(modes[one] | 0o055)
        (agent.folder / "agent.sock").chmod(0o666)
        assert "user 65534 is not the agent's user" in foreign()
        foreign()
    finally:
        for one in folders:
            one.chmod(modes[one])
    assert agent.server.rejections.counts == {"user": 2}
    assert caplog.text.count("refused a connection of process") == 1
    assert agent.server.ranks == {}


def test_refusals_are_logged_at_the_1st_the_10th_the_100th_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rejections = Rejections()
    for _ in range(150):
        rejections.add(ProtocolError("json", "no"), Peer(1, 2))
    assert [f"({n} so far)" in caplog.text for n in (1, 10, 100, 2)] == [True, True, True, False]


def test_a_rank_that_does_not_read_is_cut_off() -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(ours, Peer(os.getpid(), os.geteuid()), 0.0)
    message = {"type": "diagnose", "why": "x" * 60_000}
    for _ in range(100):
        connection.send(message)
    theirs.settimeout(30)
    while theirs.recv(1_000_000):
        pass
    connection.close()
    theirs.close()


def test_a_message_that_is_too_long_is_not_sent() -> None:
    with pytest.raises(ProtocolError, match="too_long"):
        encode({"type": "init", "name": "x" * MAX_FRAME})
    assert json.loads(encode({"type": "init"})[4:]) == {"type": "init"}
