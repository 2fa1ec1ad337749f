"""Connections of ranks: who they are, by the kernel's word, and what they say."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
from collections import Counter
from typing import Final, NamedTuple

from otel_straggler.agent.frames import Frames, Message, ProtocolError, encode

_LOG = logging.getLogger("otel_straggler.agent")
_CREDENTIALS: Final = struct.Struct("3i")
_CHUNK: Final = 65_536
_MAX_FILES: Final = 4


class Peer(NamedTuple):
    """The process at the other end when it connected."""

    pid: int
    uid: int


def peer_of(connected: socket.socket) -> Peer:
    """Raises: OSError if the kernel does not say."""
    packed = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(packed)
    return Peer(pid, uid)


class Connection:
    """One accepted connection. It owns the descriptors that come over it, until they are taken."""

    def __init__(self, connected: socket.socket, peer: Peer, at_s: float) -> None:
        connected.setblocking(False)
        self.socket, self.peer, self.at_s = connected, peer, at_s
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

    def add(self, error: ProtocolError, peer: Peer) -> None:
        self.counts[error.reason] += 1
        count = self.counts[error.reason]
        if str(count).strip("0") == "1":
            _LOG.warning(
                "refused a connection of process %d, user %d: %s (%d so far)",
                peer.pid, peer.uid, error, count,
            )  # fmt: skip
