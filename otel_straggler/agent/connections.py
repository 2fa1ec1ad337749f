"""Connections of ranks: who they are, by the kernel's word, and what they say."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import time
from collections import Counter
from typing import Final, NamedTuple

from otel_straggler.agent import frames
from otel_straggler.agent.frames import Frames, Message, ProtocolError, encode
from otel_straggler.client.diagnostics.processes import ProcessHandle

_LOG = logging.getLogger("otel_straggler.agent")
_CREDENTIALS: Final = struct.Struct("3i")
_DESCRIPTOR: Final = struct.Struct("i")
_SO_PEERPIDFD: Final = 77
"""Linux 6.5: a handle of the process that connected, of the kernel and not by its number."""
_CHUNK: Final = 65_536
_MAX_FILES: Final = 4


class Peer(NamedTuple):
    """The process at the other end when it connected, by numbers, which are for the log alone."""

    pid: int
    uid: int

    def __str__(self) -> str:
        return f"a connection of process {self.pid}, user {self.uid}"


def peer_of(connected: socket.socket) -> Peer:
    """Raises: OSError if the kernel does not say."""
    packed = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(packed)
    return Peer(pid, uid)


def peer_handle(connected: socket.socket) -> int | None:
    """The kernel's handle of the process that connected; None where it has none.

    Raises:
        ProcessLookupError: that process has ended.
    """
    try:
        packed = connected.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, _DESCRIPTOR.size)
    except ProcessLookupError:
        raise
    except OSError:
        return None
    return int(_DESCRIPTOR.unpack(packed)[0])


def ticks_since_boot() -> int:
    """Now, as the kernel counts starts of processes."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


class Connection:
    """One accepted connection. It owns the descriptors that come over it, until they are taken."""

    def __init__(self, connected: socket.socket, peer: Peer, at_s: float) -> None:
        connected.setblocking(False)
        self.socket, self.peer, self.at_s = connected, peer, at_s
        self._at_ticks = ticks_since_boot()
        self.init: Message | None = None
        self._frames = Frames()
        self._files: list[int] = []
        self.is_open = True

    def receive(self) -> list[Message] | None:
        """What has come; None at the end.

        Raises:
            ProtocolError: it makes no sense.
        """
        try:
            data, files, flags, _ = socket.recv_fds(self.socket, _CHUNK, _MAX_FILES)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            return None
        self._files += files
        if len(self._files) > 1 or flags & socket.MSG_CTRUNC:
            raise ProtocolError("files", "more than one file descriptor")
        return list(self._frames.add(data)) if data else None

    def take_file(self) -> int:
        """The descriptor that came with the message; the caller owns it.

        Raises:
            ProtocolError: there is none.
        """
        if not self._files:
            raise ProtocolError("files", "no page of beats came with it")
        return self._files.pop()

    def open_process(self) -> ProcessHandle:
        """The process that connected, which may have ended since, and its number be another's: the
        kernel's handle of it, else the number, if that process is the one which wrote "init" and
        does not run for a shorter time than this connection.

        Raises:
            ProtocolError: it has ended, or is not visible here.
        """
        assert self.init is not None
        started = frames.text(self.init, "started", 20)
        try:
            descriptor = peer_handle(self.socket)
            if descriptor is not None:
                return ProcessHandle(descriptor=descriptor)
            process = ProcessHandle(self.peer.pid, started=started)
        except OSError as error:
            raise ProtocolError(
                "process",
                f"process {self.peer.pid} cannot be watched: {error}. It has to live, and to share "
                "a PID namespace with the agent",
            ) from error
        if int(process.started) > self._at_ticks:
            process.close()
            why = f"process {process.pid} is younger than the connection: its number was reused"
            raise ProtocolError("process", why)
        return process

    def send(self, message: Message) -> None:
        """A rank that does not read is cut off: it connects again when it does."""
        data = encode(message)
        try:
            is_whole = self.socket.send(data) == len(data)
        except OSError:
            is_whole = False
        if not is_whole:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.is_open = False
        for file in self._files:
            os.close(file)
        self._files.clear()
        self.socket.close()


class Rejections:
    """Counts what is rejected, by reason, and logs each the 1st, 10th, 100th, ... time."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, error: ProtocolError, what: object) -> None:
        """``what`` was rejected: a peer, or a rank that is watched no longer for it."""
        self.counts[error.reason] += 1
        count = self.counts[error.reason]
        if str(count).strip("0") == "1":
            _LOG.warning("refused %s: %s (%d so far)", what, error, count)
