"""The receiver processes of a collector: started, listened to, started again, stopped."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from otel_straggler.collector.intake import Intake
from otel_straggler.collector.processes.frames import (
    HEAD,
    FrameError,
    Kind,
    SpansFrame,
    SpansReader,
    dump,
    encode_answer,
    frame,
    load,
    read_head,
    read_request,
)
from otel_straggler.collector.processes.receiver import settings_for
from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.errors import UnavailableError
from otel_straggler.receive.handler import Answer, Request
from otel_straggler.receive.http1 import bind

_log = logging.getLogger(__name__)

_START_S = 60.0
_READ_BYTES = 1024 * 1024
_GRACE_S = 2.0
"""Beyond the deadline, before a receiver that does not end is killed."""
_PAUSE_S = (0.0, 0.2, 1.0, 5.0)
"""Before a receiver is started again, by how often in a row it ended within ten seconds."""
_LIVED_S = 10.0


class ReceiverPool:
    """Several processes that listen on one port; the system deals connections out to them.

    Each has a thread here that takes what it has decoded. The port stays bound while none listens.

    Args:
        settings: of the collector.
        intake: takes what they have decoded, and all that they do not decode.
        poll: answers ranks that ask for commands.
    """

    def __init__(
        self, settings: CollectorSettings, intake: Intake, poll: Callable[[str], bytes]
    ) -> None:
        self._settings = settings
        self._intake = intake
        self._poll = poll
        self._bound: list[socket.socket] = []
        self._receivers: list[_Receiver] = []
        self._http: Counter[tuple[str, int]] = Counter()
        self._restarts = 0
        self._cut = 0
        self._lock = threading.Lock()

    @property
    def http_answers(self) -> dict[tuple[str, int], int]:
        """Answers by (signal, status), as far as the receivers have told."""
        with self._lock:
            return dict(self._http)

    @property
    def connections_cut(self) -> int:
        """Connections that gave way to others, as far as the receivers have told."""
        return self._cut

    @property
    def restarts(self) -> int:
        """Receivers that ended and were started again."""
        return self._restarts

    def start(self, host: str, port: int) -> tuple[str, int]:
        """Start all; returns once all listen.

        Raises:
            OSError: the address is taken, or is none of this machine.
            UnavailableError: a receiver does not start, or several cannot share a port here.
        """
        if not hasattr(socket, "SO_REUSEPORT"):
            msg = "this system cannot share a port; use --receivers 1"
            raise UnavailableError(msg)
        for one in bind(host, port):  # fails where another program listens, shared or not
            bound_port = int(one.getsockname()[1])
            one.close()
        self._bound = bind(host, bound_port, is_shared=True)
        address = self._bound[0].getsockname()
        settings = dump(settings_for(self._settings, host, bound_port))
        count = self._settings.receivers.processes
        self._receivers = [_Receiver(n, self, settings) for n in range(count)]
        for receiver in self._receivers:
            receiver.start()
        until_s = time.monotonic() + _START_S
        for receiver in self._receivers:
            receiver.has_begun.wait(max(0.0, until_s - time.monotonic()))
            if not receiver.is_ready:
                self.stop(0.0)
                msg = "a receiver process did not start; its messages are above. Try --receivers 1"
                raise UnavailableError(msg)
        return str(address[0]), bound_port

    @property
    def is_receiving(self) -> bool:
        """Whether at least one receiver listens."""
        return any(receiver.is_listening for receiver in self._receivers)

    def stop(self, deadline_s: float) -> None:
        """Finish the requests that have begun; take all that was accepted; end the processes."""
        for receiver in self._receivers:
            receiver.tell_to_stop(deadline_s)
        until_s = time.monotonic() + deadline_s + _GRACE_S
        for receiver in self._receivers:
            receiver.join(until_s)
        for one in self._bound:
            one.close()
        self._bound = []

    # --- what the threads of the receivers call -----------------------------------------------

    def count_restart(self) -> None:
        with self._lock:
            self._restarts += 1

    def take_counts(self, part: bytearray) -> None:
        told = load(part)
        with self._lock:
            for name, status, count in told["http"]:
                self._http[name, status] += count
            self._cut += told["cut"]
        self._intake.count_answers(
            {(name, answer): count for name, answer, count in told["answers"]}
        )

    def take_spans(self, found: SpansFrame, original: bytes) -> Answer:
        request = Request(
            signal="traces",
            content_type=found.content_type,  # type: ignore[arg-type]
            body=original,
            raw_body=original,
            content_encoding=found.content_encoding,
        )
        return self._intake.handle_decoded(found.spans, found.size, request)

    def take_request(self, request: Request) -> Answer:
        return self._intake.handle(request)

    def take_poll(self, part: bytearray) -> Answer:
        return Answer(status="ok", message=self._poll(str(load(part)["query"])).decode())


class _Receiver:
    """One process, and the thread that listens to it."""

    def __init__(self, number: int, pool: ReceiverPool, settings: bytes) -> None:
        self._pool = pool
        self._settings = settings
        self._reader = SpansReader()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._deadline_s = 0.0
        self.has_begun = threading.Event()
        self.is_ready = False
        name = f"receiver-{number}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_listening(self) -> bool:
        return self.is_ready and self._socket is not None

    def start(self) -> None:
        self._thread.start()

    def tell_to_stop(self, deadline_s: float) -> None:
        with self._lock:
            self._deadline_s = deadline_s
            self._stop.set()
        self._send(frame(Kind.STOP, 0, dump({"deadline_s": deadline_s})))

    def join(self, until_s: float) -> None:
        self._thread.join(max(0.0, until_s - time.monotonic()))
        if self._thread.is_alive() and self._process is not None:
            _log.warning("a receiver process did not end in time and is killed")
            self._process.kill()
            self._thread.join(_GRACE_S)

    # --- its thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        in_a_row = 0
        while not self._stop.is_set():
            began_s = time.monotonic()
            try:
                self._run_once()
            except Exception:  # noqa: BLE001 - logged; a new process takes its place
                _log.exception("a receiver process is given up")
            if self._stop.is_set():
                return
            if not self.is_ready:
                self.has_begun.set()
                return
            self._pool.count_restart()
            _log.warning("a receiver process has ended; it is started again")
            self._stop.wait(_PAUSE_S[min(in_a_row, len(_PAUSE_S) - 1)])
            in_a_row = 0 if time.monotonic() - began_s > _LIVED_S else in_a_row + 1

    def _run_once(self) -> None:
        """Start the process and take what it says, until it ends."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                process = _spawn(theirs.fileno())
            with self._lock:
                self._process, self._socket = process, ours
            try:
                self._send(frame(Kind.SETTINGS, 0, self._settings))
                if self._stop.is_set():  # told before there was a socket
                    self._send(frame(Kind.STOP, 0, dump({"deadline_s": self._deadline_s})))
                # Reset: it was killed before it had read all that it was told.
                with ours.makefile("rb", _READ_BYTES) as stream, suppress(ConnectionError):
                    self._listen(stream)
            finally:
                with self._lock:
                    self._socket = None
                ours.close()
                _end(process)

    def _listen(self, stream: Any) -> None:
        while True:
            head = stream.read(HEAD.size)
            if len(head) < HEAD.size:
                return
            kind, number, size, original_size = read_head(head)
            part = bytearray(size)
            if stream.readinto(part) < size:
                return
            original = stream.read(original_size)
            if len(original) < original_size:
                return
            self._take(kind, number, part, original)

    def _take(self, kind: Kind, number: int, part: bytearray, original: bytes) -> None:
        if kind == Kind.SPANS:
            found = self._reader.read(part)
            self._answer(number, lambda: self._pool.take_spans(found, original))
        elif kind == Kind.REQUEST:
            request = read_request(part, original)
            self._answer(number, lambda: self._pool.take_request(request))
        elif kind == Kind.POLL:
            self._answer(number, lambda: self._pool.take_poll(part))
        elif kind == Kind.COUNTS:
            self._pool.take_counts(part)
        elif kind == Kind.READY:
            self.is_ready = True
            self.has_begun.set()
        else:
            raise FrameError(f"a receiver does not send {kind.name}")

    def _answer(self, number: int, take: Callable[[], Answer]) -> None:
        try:
            answer = take()
        except Exception:  # noqa: BLE001 - logged; the next request goes on
            _log.exception("a request could not be answered")
            answer = Answer(status="malformed", message="a mistake of ours; see our log")
        self._send(frame(Kind.ANSWER, number, encode_answer(answer)))

    def _send(self, data: bytes) -> None:
        with self._lock, suppress(OSError):  # that it is gone is seen when reading
            if self._socket is not None:
                self._socket.sendall(data)


def _spawn(fd: int) -> subprocess.Popen[bytes]:
    """A receiver that finds the same packages as this process."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    module = "otel_straggler.collector.processes.receiver"
    command = [sys.executable, "-m", module, str(fd)]
    null = subprocess.DEVNULL  # what stands on standard output is a promise of the command
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        command, pass_fds=[fd], env=environment, stdin=null, stdout=null
    )


def _end(process: subprocess.Popen[Any]) -> None:
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
