"""The rank's connection to its agent, in a thread of its own that reconnects.

The training thread never waits for it: heartbeats and sections are in shared memory. It waits only
where it asks something, for a second at most.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from otel_straggler.agent.frames import (
    Frames,
    Message,
    ProtocolError,
    RankMonitorClientError,
    encode,
)

START_S: Final = 30.0
ANSWER_S: Final = 1.0
RETRY_S: Final = 0.5
FIRST_RETRY_S: Final = 0.1
RESTARTING_S: Final = 10.0
"""Until a first connection gives up: the agent may just be starting again."""
GONE_S: Final = 1.0
"""The same where there is not even a socket."""
_CHUNK: Final = 65_536
_FOR_NOW: Final = ("connections:", "full:", "silent:")
"""Refusals that are over soon."""
_LOG = logging.getLogger("otel_straggler")


class Link:
    """One rank's connection.

    Args:
        path: the agent's socket.
        hello: the first message.
        watch: given the answer to it, the second message, with a file descriptor to pass.
        on_request: does what the agent asks; called in the thread, its answers are sent.
    """

    def __init__(
        self,
        path: str,
        hello: Callable[[], Message],
        watch: Callable[[Message], tuple[Message, int]],
        on_request: Callable[[Message], Iterable[Message]],
    ) -> None:
        self._path, self._hello, self._watch, self._on_request = path, hello, watch, on_request
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._asked: dict[int, tuple[threading.Event, list[Message]]] = {}
        self._last_id = 0
        self._is_closed = threading.Event()
        self._started = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="otel-straggler-agent", daemon=True)

    def open(self) -> None:
        """Connect for the first time.

        Raises:
            RankMonitorClientError: there is no agent, it refuses, or does not answer in time.
        """
        self._thread.start()
        if not self._started.wait(START_S):
            self.close()
            raise RankMonitorClientError(f"{self._path}: the agent did not answer in {START_S:g} s")
        if self._error is not None:
            raise RankMonitorClientError(
                f"{self._path}: no connection to the agent of this node: {self._error}. "
                "Is it running, as the same user?"
            ) from self._error

    def send(self, message: Message) -> bool:
        """Without waiting; False if that is not possible now."""
        try:
            data = encode(message)
        except ProtocolError as error:
            _LOG.warning("a message to the agent is not sent: %s", error)
            return False
        with self._lock:
            if self._socket is None:
                return False
            try:
                is_whole = self._socket.send(data, socket.MSG_DONTWAIT) == len(data)
            except OSError:
                is_whole = False
            if not is_whole:  # the rest would be garbage: begin again
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
            return is_whole

    def request(self, message: Message, timeout_s: float = ANSWER_S) -> Message | None:
        """The answer; None if there is none in time."""
        answered, answers = threading.Event(), list[Message]()
        self._last_id = id_ = self._last_id + 1
        self._asked[id_] = answered, answers
        try:
            is_answered = self.send({**message, "id": id_}) and answered.wait(timeout_s)
        finally:
            del self._asked[id_]
        return answers[0] if is_answered and answers else None

    def close(self) -> None:
        """End the connection and the thread."""
        self._is_closed.set()
        with self._lock:
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(ANSWER_S)

    def leave_to_parent(self) -> None:
        """In a forked child: the connection is the parent's."""
        self._lock = threading.Lock()
        self._is_closed.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                os.close(self._socket.detach())
            self._socket = None

    # --- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        begin_s, is_first = time.monotonic(), True
        while not self._is_closed.is_set():
            try:
                self._serve()
            except (OSError, ProtocolError, RankMonitorClientError) as error:
                self._error = error
            except Exception as error:  # noqa: BLE001  telemetry never stops training
                _LOG.warning("the connection to the agent failed; training goes on", exc_info=error)
                self._error = error
            if not self._started.is_set():
                limit_s = GONE_S if isinstance(self._error, FileNotFoundError) else RESTARTING_S
                is_retried = isinstance(self._error, OSError)
                if not is_retried or time.monotonic() - begin_s > limit_s:
                    self._started.set()
                    return  # the caller gets the error
                self._is_closed.wait(FIRST_RETRY_S)
                continue
            if is_first and not self._is_closed.is_set():
                _LOG.info("the agent of this node has gone (%s); trying again", self._error)
            is_first = False
            self._is_closed.wait(RETRY_S)

    def _serve(self) -> None:
        """One connection, from begin to end."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
            connected.settimeout(START_S)
            connected.connect(self._path)
            frames = Frames()
            connected.sendall(encode(self._hello()))
            config, *_ = self._next(connected, frames, "config")
            message, file = self._watch(config)
            socket.send_fds(connected, [encode(message)], [file])
            _, *more = self._next(connected, frames, "ok")
            connected.settimeout(None)
            with self._lock:
                self._socket = connected
            self._error = None
            self._started.set()
            try:
                self._receive(connected, frames, more)
            finally:
                with self._lock:
                    self._socket = None

    def _next(self, connected: socket.socket, frames: Frames, expected: str) -> list[Message]:
        while True:
            messages = list(frames.add(_received(connected)))
            if messages and messages[0]["type"] == expected:
                return messages
            if messages:
                why = messages[0].get("why", messages[0]["type"])
                if str(why).startswith(_FOR_NOW):
                    raise ConnectionError(why)
                raise RankMonitorClientError(f"it answered {why!r}")

    def _receive(self, connected: socket.socket, frames: Frames, first: list[Message]) -> None:
        messages = first
        while True:
            for message in messages:
                asked = self._asked.get(message.get("id", 0))
                if asked is not None:
                    asked[1].append(message)
                    asked[0].set()
                elif message["type"] == "diagnose":
                    for answer in self._on_request(message):
                        self.send(answer)
            messages = list(frames.add(_received(connected)))


def _received(connected: socket.socket) -> bytes:
    data = connected.recv(_CHUNK)
    if not data:
        raise ConnectionError("it closed the connection")
    return data
