"""The collective of the demo's ranks: nobody goes on before all have come.

A rank says that it has come by one byte and waits for one byte. Who is gone or does not come is
waited for, as NCCL waits. With the answer a rank can be told to go wrong.
"""

from __future__ import annotations

import socket
import socketserver
import threading

GO_ON, BE_SLOW, STAY_AWAY = b"g", b"s", b"a"
"""Answers: all is well; be slow from now on; do not come any more."""


class Meeting:
    """Listens on a free port of this machine, in threads of its own, until :meth:`close`.

    Args:
        n_ranks: so many must have come.
    """

    def __init__(self, n_ranks: int) -> None:
        self._n_ranks = n_ranks
        self._changed = threading.Condition()
        self._n_came = 0
        self._step = 0
        self._orders: dict[int, bytes] = {}
        self._server = _Server(("127.0.0.1", 0), _handler_of(self))
        self._thread = threading.Thread(target=self._server.serve_forever, name="meeting")
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def step(self) -> int:
        """Steps that all ranks have done."""
        with self._changed:
            return self._step

    def order(self, rank: int, answer: bytes) -> None:
        """Answer a rank so, the next time that it comes."""
        with self._changed:
            self._orders[rank] = answer

    def wait_for_step(self, step: int, timeout_s: float) -> bool:
        """Whether all have done so many steps within the time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._step >= step, timeout_s)

    def come(self, rank: int) -> bytes:
        """One rank has come; the answer, once all have."""
        with self._changed:
            step = self._step
            self._n_came += 1
            if self._n_came == self._n_ranks:
                self._n_came = 0
                self._step += 1
                self._changed.notify_all()
            while self._step == step:
                self._changed.wait()
            return self._orders.pop(rank, GO_ON)

    def close(self) -> None:
        """Whoever waits is let go."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        with self._changed:
            self._step += 1
            self._changed.notify_all()


class Place:
    """A rank's place at the meeting."""

    def __init__(self, port: int, rank: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(rank.to_bytes(4, "big"))

    def meet(self) -> bytes:
        """Come, and wait for all; the answer. Empty if the meeting is over."""
        try:
            self._socket.sendall(b".")
            return self._socket.recv(1)
        except OSError:
            return b""


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


def _handler_of(meeting: Meeting) -> type[socketserver.BaseRequestHandler]:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            try:
                rank = int.from_bytes(self.request.recv(4), "big")
                while self.request.recv(1):
                    self.request.sendall(meeting.come(rank))
            except OSError:
                return  # a rank was killed: it is waited for

    return Handler
