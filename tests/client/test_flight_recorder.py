"""PyTorch's flight recorder is read in time and within bounds, or it is said once why not.

The server is PyTorch's own, or a stand-in on a real socket that answers as the test wants.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from otel_straggler.client.diagnostics import flight_recorder
from otel_straggler.client.diagnostics.flight_recorder import FlightRecorder, UnavailableError

GLOO = {
    "pg_config": {"": {"desc": "", "ranks": "[]"}},
    "pg_status": {"0": {}},
    "entries": [
        {
            "record_id": 0,
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": 1,
            "profiling_name": "gloo:all_reduce",
            "state": "scheduled",
            "retired": False,
            "time_created_ns": 5,
        }
    ],
}
NCCL = {
    "pg_config": {"0": {"desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 4, "last_completed_collective": 4}},
    "entries": [],
}


class StandIn:
    """In place of PyTorch's server: listens where it is told to, and answers with ``answers`` by
    handler; None: never."""

    answers: dict[str, bytes | None]
    running: list[StandIn]

    def __init__(self, path: str) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen()
        self.is_shut_down = False
        self.running.append(self)
        self.connections: list[socket.socket] = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            handler = connection.recv(4096).split()[1].decode().rpartition("/")[2]
            answer = self.answers[handler]
            if answer is not None:
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n"
                with contextlib.suppress(OSError):  # it has read enough
                    connection.sendall(head.encode() + answer)
                connection.close()

    def shutdown(self) -> None:
        self.is_shut_down = True
        self.close()

    def close(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Group:
    group_desc = "default_pg"


@pytest.fixture
def torch_with(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[StandIn]]]:
    """Puts a ``torch.distributed`` of rank 1 of 2 in place, whose recorders answer as given."""
    running: list[StandIn] = []

    def install(rank: int = 1, **answers: Any) -> list[StandIn]:
        handlers = {f"dump_{name}" if name == "nccl_trace_json" else name: body
                    for name, body in answers.items()}  # fmt: skip
        server = type("Server", (StandIn,), {"answers": handlers, "running": running})
        private = SimpleNamespace(_WorkerServer=server, _get_handler_names=lambda: [*handlers])
        group = Group()
        distributed = SimpleNamespace(
            torch=SimpleNamespace(_C=SimpleNamespace(_distributed_c10d=private)),
            is_initialized=lambda: True,
            get_rank=lambda: rank,
            get_process_group_ranks=lambda _: [0, 1],
            _world=SimpleNamespace(pg_names={group: "0"}),
        )
        monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", distributed)
        return running

    yield install
    for one in running:
        if not one.is_shut_down:
            one.close()
        for connection in one.connections:
            connection.close()


def body(dump: Any) -> bytes:
    return json.dumps(dump).encode()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in caplog.messages if "flight recorder cannot be read" in text]


def test_gloo_s_groups_come_from_torch_and_the_server_is_ended(torch_with: Any) -> None:
    """The recorder of gloo does not know them."""
    running = torch_with(fr_trace_json=body(GLOO))
    [call] = FlightRecorder(1).read().pending
    assert (str(call), call.group.ranks) == ("all_reduce #1 of default_pg", (0, 1))
    assert [one.is_shut_down for one in running] == [True]


def test_both_recorders_are_read_and_their_groups_are_not_mixed(torch_with: Any) -> None:
    """A group with NCCL and gloo has a sequence of its own in each."""
    torch_with(nccl_trace_json=body(NCCL), fr_trace_json=body(GLOO))
    record = FlightRecorder(1).read()
    assert {group.backend: n for group, n in record.enqueued.items()} == {"nccl": 4, "cpu": 1}
    assert [call.group.backend for call in record.calls] == ["cpu"]


def test_an_empty_recorder_of_nccl_is_left_out(torch_with: Any) -> None:
    """Nothing says of it that its rank has launched nothing: it may be off."""
    empty = {"pg_config": {}, "pg_status": {}}
    torch_with(nccl_trace_json=body(empty), fr_trace_json=body(GLOO))
    assert {group.backend for group in FlightRecorder(1).read().groups} == {"cpu"}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "Expecting value"),
        (b'{"pg_config": {"0": {"ranks": "[0, 1', "Unterminated"),
        (b"\xff\xfe", "decode"),
        (b"[1, 2]", "list"),
        (b"3", "int"),
        (body({"pg_config": {"0": {}}, "entries": [{}]}), "KeyError"),
        (b"[" * 100_000, "recursion"),
        (body({"pg_config": {}, "pg_status": {}}), "it is empty"),
        (b" " * (17 << 20), "more than"),
    ],
)
def test_what_cannot_be_read_is_said_once(
    torch_with: Any, caplog: pytest.LogCaptureFixture, answer: bytes, why: str
) -> None:
    """Cut off, foreign, empty, too large; asked twice."""
    torch_with(fr_trace_json=answer)
    recorder = FlightRecorder(1)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with pytest.raises(UnavailableError, match=f"(?i){why}"):
                recorder.read()
    assert len(said(caplog)) == 1


def test_a_recorder_that_does_not_answer_is_asked_once(
    torch_with: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The server is left alone: to end it is to wait for its thread."""
    running = torch_with(fr_trace_json=None)
    recorder = FlightRecorder(1, timeout_s=0.05)
    for _ in range(3):
        with pytest.raises(UnavailableError, match="did not answer"):
            recorder.read()
    assert [one.is_shut_down for one in running] == [False]
    assert len(said(caplog)) == 1


def test_another_rank_than_that_of_torch_is_not_reported(torch_with: Any) -> None:
    """Groups have the ranks of torch."""
    torch_with(rank=3, fr_trace_json=body(GLOO))
    with pytest.raises(UnavailableError, match="rank 3 of torch"):
        FlightRecorder(1).read()


CHANGED: list[tuple[str, Any, str]] = [
    ("_get_handler_names", None, "no server"),
    ("_WorkerServer", None, "no server"),
    ("_get_handler_names", lambda: ["ping"], "does not record"),
    ("_get_handler_names", lambda: 1 / 0, "ZeroDivisionError"),
    ("_WorkerServer", lambda _: 1 / 0, "ZeroDivisionError"),
    ("_WorkerServer", lambda _: object(), "Error"),
]


@pytest.mark.parametrize(("name", "value", "why"), CHANGED)
def test_a_torch_whose_private_parts_have_changed_is_left_alone(
    torch_with: Any, caplog: pytest.LogCaptureFixture, name: str, value: Any, why: str
) -> None:
    """With one line."""
    torch_with(fr_trace_json=body(GLOO))
    private = sys.modules["torch.distributed.distributed_c10d"].torch._C._distributed_c10d
    if value is None:
        delattr(private, name)
    else:
        setattr(private, name, value)
    recorder = FlightRecorder(1)
    for _ in range(2):
        with pytest.raises(UnavailableError, match=why):
            recorder.read()
    assert len(said(caplog)) == 1


def test_without_torch_there_is_nothing_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not imported for that."""
    monkeypatch.delitem(sys.modules, "torch.distributed.distributed_c10d", raising=False)
    with pytest.raises(UnavailableError, match="not initialized"):
        FlightRecorder(0).read()
    assert "torch.distributed.distributed_c10d" not in sys.modules


def test_the_handlers_are_those_of_the_installed_torch() -> None:
    """If a version renames them, this fails."""
    private = pytest.importorskip("torch._C._distributed_c10d")
    assert flight_recorder._handlers(private)
