"""Files of checkpoints from rank to rank, over TCP.

Both ends prove that they know a random key, which travels through the store of the training;
nothing is encrypted, as between the ranks themselves.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import socket
import struct
import threading
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from otel_straggler.checkpoint.files import copy_checked, open_to_read
from otel_straggler.checkpoint.manifest import FileEntry
from otel_straggler.errors import UnavailableError

_LOG = logging.getLogger("otel_straggler")
_CHUNK_BYTES: Final = 4 << 20
_SILENCE_S: Final = 30
"""A peer that sends nothing for so long is given up."""
_MAX_PEERS: Final = 64
"""Others wait until one has ended."""
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileAddress:
    """Where a :class:`FileServer` is reached, and what proves the right to.

    Attributes:
        hosts: to be tried in order.
    """

    hosts: tuple[str, ...]
    port: int
    key: bytes


class FileServer:
    """Sends the files of checkpoints in one folder to other ranks, until it is closed.

    Args:
        folder: only files in its folders are sent.
        store_host: of the training's store, to know by which address this host is reached.

    Raises:
        OSError: there is no port.
    """

    def __init__(self, folder: Path, store_host: str) -> None:
        self._folder = folder
        hosts = own_hosts(store_host)
        only_here = set(hosts) <= _LOOPBACK
        self._socket = socket.create_server(("127.0.0.1" if only_here else "", 0), backlog=128)
        self.address = FileAddress(
            hosts=hosts, port=self._socket.getsockname()[1], key=secrets.token_bytes(32)
        )
        self._free = threading.Semaphore(_MAX_PEERS)
        threading.Thread(
            target=self._run, name="otel-straggler-checkpoint-files", daemon=True
        ).start()

    def close(self) -> None:
        """Safe to call twice."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends accept()
        self._socket.close()

    def _run(self) -> None:
        while True:
            self._free.acquire()
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(
                target=self._serve, args=(accepted,), name="otel-straggler-checkpoint-file",
                daemon=True,
            ).start()  # fmt: skip

    def _serve(self, accepted: socket.socket) -> None:
        try:
            with _connection(accepted) as peer:
                deliver_challenge(peer, self.address.key)
                answer_challenge(peer, self.address.key)
                self._send(peer, *json.loads(peer.recv_bytes(_CHUNK_BYTES)))
        except (OSError, EOFError, AuthenticationError, ValueError, TypeError) as error:
            _LOG.debug("a file was not sent to a peer: %r", error)
        finally:
            self._free.release()

    def _send(self, peer: Any, checkpoint: str, name: str) -> None:
        if any("/" in part or part in {"", ".", ".."} for part in (checkpoint, name)):
            peer.send_bytes(b"not a file of a checkpoint")
            return
        try:
            file = open_to_read(self._folder / checkpoint / name)
        except OSError as error:
            peer.send_bytes(str(error.strerror or error).encode())
            return
        with file:
            peer.send_bytes(b"")
            while chunk := file.read(_CHUNK_BYTES):
                peer.send_bytes(chunk)


def fetch(address: FileAddress, checkpoint: str, name: str, entry: FileEntry, target: Path) -> None:
    """Copy a file of another node to ``target``, which exists only if it is whole.

    Raises:
        UnavailableError: the node cannot be reached, or its file is not what was written.
        OSError: it cannot be written.
    """
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with _connect(address) as peer:
            peer.send_bytes(json.dumps([checkpoint, name]).encode())
            if problem := peer.recv_bytes(_CHUNK_BYTES):
                raise UnavailableError(f"{name} of {address.hosts[0]}: {problem.decode()}")
            copy_checked(cast("BinaryIO", _Received(peer, entry.size_bytes)), part, entry)
        part.rename(target)
    except (EOFError, ValueError, ConnectionError, BlockingIOError) as error:
        raise UnavailableError(
            f"{name} of {address.hosts[0]}: {error or 'the connection has ended'}"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def own_hosts(store_host: str) -> tuple[str, ...]:
    """Names and addresses by which other nodes reach this one, the likeliest first.

    Args:
        store_host: of a TCPStore; anything else says nothing about the network.
    """
    if store_host in _LOOPBACK:
        return ("127.0.0.1",)
    hosts: list[str] = []
    with contextlib.suppress(OSError):
        family, kind, _, _, target = socket.getaddrinfo(store_host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)  # sends nothing: it chooses the interface
            hosts.append(probe.getsockname()[0])
    if hosts and hosts[0].startswith("127."):
        hosts = [store_host]  # the store is on this host, under a name that others know
    with contextlib.suppress(OSError):
        hosts += [each[4][0] for each in socket.getaddrinfo(socket.gethostname(), None)]  # type: ignore[misc]
    return tuple(dict.fromkeys([*hosts, "127.0.0.1"]))


class _Received:
    """What a peer sends, as a file to read.

    Args:
        size_bytes: that are expected.
    """

    def __init__(self, peer: Any, size_bytes: int) -> None:
        self._peer = peer
        self._left = size_bytes

    def read(self, _: int) -> bytes:
        if self._left <= 0:
            return b""
        chunk: bytes = self._peer.recv_bytes(_CHUNK_BYTES)
        self._left -= len(chunk)
        return chunk


def _connect(address: FileAddress) -> Any:
    problems = []
    for host in address.hosts:
        try:
            peer = _connection(socket.create_connection((host, address.port), _SILENCE_S))
        except OSError as error:
            problems.append(f"{host}: {error.strerror or error}")
            continue
        try:
            answer_challenge(peer, address.key)
            deliver_challenge(peer, address.key)
            return peer
        except (OSError, EOFError, AuthenticationError) as error:
            peer.close()
            problems.append(f"{host}: {error}")
    raise UnavailableError(f"a peer cannot be reached: {'; '.join(problems)}")


def _connection(connected: socket.socket) -> Any:
    """Messages over a socket that gives up a silent peer."""
    connected.setblocking(True)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connected.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", _SILENCE_S, 0))
    return Connection(connected.detach())
