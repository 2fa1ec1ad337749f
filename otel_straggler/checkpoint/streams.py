"""Files of checkpoints from rank to rank, over TCP.

Both ends prove that they know a random key, which travels through the store of the training, within
a few seconds; nothing is encrypted, as between the ranks themselves.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import logging
import os
import secrets
import socket
import struct
import threading
import time
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from otel_straggler.checkpoint.files import copy_checked, open_to_read
from otel_straggler.checkpoint.manifest import FileEntry
from otel_straggler.errors import UnavailableError
from otel_straggler.throttle import Places

_LOG = logging.getLogger("otel_straggler")
_CHUNK_BYTES: Final = 4 << 20
_SILENCE_S: Final = 30
"""A peer that sends nothing for so long is given up."""
_MAX_PEERS: Final = 64
"""That know the key, and are sent a file. Others wait until one has ended."""
_MAX_STRANGERS, _MAX_OF_ADDRESS = 128, 32
"""That have not proved to know the key: of all addresses, and of one."""
_HANDSHAKE_S: Final = 5.0
"""Until they have, and have said what they want."""
_MAX_REQUEST: Final = 4_096
_TRIES: Final = 5
"""Of a peer that knows the key, if its place was taken before it could prove it."""
_AGAIN_S: Final = 0.2
_LATE_S: Final = 0.01
"""Somebody here may have kept the GIL until it was late."""
_FULL_S: Final = 0.1
_LENGTH: Final = struct.Struct("!i")
_NONCE_BYTES: Final = 32
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_ANYWHERE: Final = "192.0.2.1"
"""An address of nobody (RFC 5737): the way to it is the usual one."""
_BACKLOG: Final = 128


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

    Who connects has a few seconds to prove that it knows the key and to say what it wants. Those
    that have not done so have places of their own, few for each address, where the oldest gives way
    to a newcomer: they never keep out who knows the key.

    Args:
        folder: only files in its folders are sent.
        store_host: of the training's store, to know by which address this host is reached: it
            listens there alone.

    Raises:
        OSError: there is no port.
    """

    def __init__(self, folder: Path, store_host: str) -> None:
        self._folder = folder
        hosts = own_hosts(store_host)
        self._socket, bound = _listening(hosts)
        self.address = FileAddress(
            hosts=tuple(dict.fromkeys([*hosts[:1], *bound])) if bound else hosts,
            port=self._socket.getsockname()[1],
            key=secrets.token_bytes(32),
        )
        self._is_closed = False
        self._free = threading.Semaphore(_MAX_PEERS)
        self._strangers = Places[socket.socket](_MAX_STRANGERS, _MAX_OF_ADDRESS)
        self._lock = threading.Lock()
        threading.Thread(
            target=self._run, name="otel-straggler-checkpoint-files", daemon=True
        ).start()

    def close(self) -> None:
        """Safe to call twice."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # ends accept()
        self._socket.close()

    def _run(self) -> None:
        while not self._is_closed:
            try:
                accepted, address = self._socket.accept()
                self._admit(accepted, address[0])
            except (OSError, RuntimeError) as error:  # no descriptor or thread is left, or a reset
                if not self._is_closed:
                    _LOG.debug("a peer was not accepted: %r", error)
                    time.sleep(_FULL_S)

    def _admit(self, accepted: socket.socket, address: str) -> None:
        with self._lock:
            gone = self._strangers.enter(accepted, address)
        if gone is not None:
            with contextlib.suppress(OSError):
                gone.shutdown(socket.SHUT_RDWR)  # its thread closes it
        try:
            threading.Thread(
                target=self._serve, args=(accepted,), name="otel-straggler-checkpoint-file",
                daemon=True,
            ).start()  # fmt: skip
        except RuntimeError:
            self._leave(accepted)
            accepted.close()
            raise

    def _leave(self, accepted: socket.socket) -> None:
        with self._lock:
            self._strangers.leave(accepted)

    def _serve(self, accepted: socket.socket) -> None:
        try:
            with accepted:
                checkpoint, name = self._asked(accepted)
                with self._free, _connection(accepted) as peer:
                    self._send(peer, checkpoint, name)
        except (
            OSError, EOFError, AuthenticationError, ValueError, TypeError, RecursionError,
        ) as error:  # fmt: skip
            _LOG.debug("a file was not sent to a peer: %r", error)

    def _asked(self, accepted: socket.socket) -> tuple[str, str]:
        """Which file a peer that knows the key wants."""
        try:
            exchange = _Handshake(accepted, self.address.key, _HANDSHAKE_S)
            exchange.as_server()
            checkpoint, name = json.loads(exchange.receive(_MAX_REQUEST))
        finally:
            self._leave(accepted)
        return str(checkpoint), str(name)

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
        with _connect(address, json.dumps([checkpoint, name]).encode()) as peer:
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
    hosts = [_address_towards(store_host)]
    if hosts[0].startswith("127."):
        hosts = [store_host]  # the store is on this host, under a name that others know
    with contextlib.suppress(OSError):
        hosts += [str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None)]
    hosts.append(_address_towards(_ANYWHERE))
    return tuple(dict.fromkeys(filter(None, hosts))) or ("127.0.0.1",)


def _address_towards(host: str) -> str:
    """Of this host, from which it would send to another one; empty if it knows no way."""
    with contextlib.suppress(OSError):
        family, kind, _, _, target = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)  # sends nothing: it chooses the interface
            return str(probe.getsockname()[0])
    return ""


def _listening(hosts: tuple[str, ...]) -> tuple[socket.socket, list[str]]:
    """A socket at the first of these addresses that is this host's and that others can reach; and
    that address. At all of them where there is none, as for a host whose name is 127.0.1.1 to
    itself and that has no route.

    Raises:
        OSError: there is no port.
    """
    if set(hosts) <= _LOOPBACK:
        return socket.create_server((hosts[0], 0), backlog=_BACKLOG), list(hosts[:1])
    for host in hosts:
        with contextlib.suppress(OSError):
            family, _, _, _, where = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
            if not str(where[0]).startswith("127.") and where[0] not in _LOOPBACK:
                made = socket.create_server(where[:2], family=family, backlog=_BACKLOG)
                return made, [str(where[0])]
    _LOG.warning(
        "checkpoints: the name of this host, %s, leads to itself alone, so copies for other nodes "
        "are offered at all of its addresses. Give the name an address in /etc/hosts.", hosts[0],
    )  # fmt: skip
    return socket.create_server(("", 0), backlog=_BACKLOG), []


class _Handshake:
    """Both ends of a fresh connection prove that they know a key, within some seconds altogether,
    however slowly the other one sends; what has come by then is read.

    Raises:
        AuthenticationError: the other one does not know it.
        OSError, EOFError: it has gone, or took too long.
    """

    def __init__(self, connected: socket.socket, key: bytes, seconds: float) -> None:
        self._socket, self._key = connected, key
        self._until_s = time.monotonic() + seconds

    def as_server(self) -> None:
        ours = secrets.token_bytes(_NONCE_BYTES)
        self._send(ours)
        theirs, proof = self._read(_NONCE_BYTES), self._read(_NONCE_BYTES)
        self._check(proof, b"client", ours, theirs)
        self._send(self._proof(b"server", ours, theirs))

    def as_client(self) -> None:
        ours, theirs = secrets.token_bytes(_NONCE_BYTES), self._read(_NONCE_BYTES)
        self._send(ours + self._proof(b"client", theirs, ours))
        self._check(self._read(_NONCE_BYTES), b"server", theirs, ours)

    def receive(self, max_bytes: int) -> bytes:
        """A message, its length before it."""
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if not 0 < length <= max_bytes:
            raise ValueError(f"a message of {length} bytes is announced, above {max_bytes}")
        return self._read(length)

    def send(self, message: bytes) -> None:
        self._send(_LENGTH.pack(len(message)) + message)

    def _proof(self, who: bytes, of_server: bytes, of_client: bytes) -> bytes:
        return hmac.digest(self._key, who + of_server + of_client, "sha256")

    def _check(self, proof: bytes, who: bytes, of_server: bytes, of_client: bytes) -> None:
        if not hmac.compare_digest(proof, self._proof(who, of_server, of_client)):
            raise AuthenticationError("it does not know the key")

    def _send(self, data: bytes) -> None:
        self._limit()
        self._socket.sendall(data)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            self._limit()
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise EOFError("it has closed the connection")
            data += piece
        return data

    def _limit(self) -> None:
        self._socket.settimeout(max(_LATE_S, self._until_s - time.monotonic()))


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


def _connect(address: FileAddress, request: bytes) -> Any:
    """A connection over which the file comes, or why it does not.

    Raises:
        UnavailableError: the peer cannot be reached, or one of both does not know the key.
    """
    problems = []
    for host in address.hosts:
        for tried in range(1, _TRIES + 1):
            try:
                return _asking(host, address, request)
            except (EOFError, ConnectionResetError, BrokenPipeError) as error:
                problem = f"{host}: {error}"  # its place was taken, or it has ended
                time.sleep(_AGAIN_S * tried * secrets.SystemRandom().random())
            except (OSError, AuthenticationError) as error:
                problem = f"{host}: {getattr(error, 'strerror', None) or error}"
                break
        problems.append(problem)
    raise UnavailableError(f"a peer cannot be reached: {'; '.join(problems)}")


def _asking(host: str, address: FileAddress, request: bytes) -> Any:
    connected = socket.create_connection((host, address.port), _SILENCE_S)
    try:
        exchange = _Handshake(connected, address.key, _SILENCE_S)
        exchange.as_client()
        exchange.send(request)
        return _connection(connected)
    except BaseException:
        connected.close()
        raise


def _connection(connected: socket.socket) -> Any:
    """Messages over a socket that gives up a silent peer."""
    connected.setblocking(True)
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connected.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", _SILENCE_S, 0))
    return Connection(connected.detach())
