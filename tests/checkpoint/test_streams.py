"""Files from node to node."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import answer_challenge
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.checkpoint import streams
from otel_straggler.checkpoint.manifest import FileEntry
from otel_straggler.checkpoint.streams import FileAddress, FileServer, fetch, own_hosts
from otel_straggler.errors import UnavailableError

from ..waiting import eventually

IS_FULL = os.environ.get("OTEL_STRAGGLER_TEST_DOSE") == "full"
CONTENT = os.urandom(9 << 20)
ENTRY = FileEntry(size_bytes=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    (tmp_path / "node" / "step-1").mkdir(parents=True)
    (tmp_path / "node" / "step-1" / "shard").write_bytes(CONTENT)
    (tmp_path / "secret").write_text("of the node")
    server = FileServer(tmp_path / "node", "127.0.0.1")
    yield server
    server.close()
    server.close()


def test_a_file_arrives_whole(server: FileServer, tmp_path: Path) -> None:
    fetch(server.address, "step-1", "shard", ENTRY, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT


def shorten(node: Path) -> None:
    os.truncate(node / "step-1" / "shard", 5 << 20)


def flip_a_bit(node: Path) -> None:
    (node / "step-1" / "shard").write_bytes(bytes([CONTENT[0] ^ 1]) + CONTENT[1:])


def remove(node: Path) -> None:
    (node / "step-1" / "shard").unlink()


@pytest.mark.parametrize("damage", [shorten, flip_a_bit, remove])
def test_a_damaged_file_leaves_nothing(server: FileServer, tmp_path: Path, damage: object) -> None:
    """Neither under its name nor a part."""
    damage(tmp_path / "node")  # type: ignore[operator]
    (tmp_path / "copies").mkdir()
    with pytest.raises(UnavailableError, match="shard"):
        fetch(server.address, "step-1", "shard", ENTRY, tmp_path / "copies" / "copy")
    assert list((tmp_path / "copies").iterdir()) == []


@pytest.mark.parametrize("path", [("..", "secret"), ("step-1", "../../secret"), ("", "secret")])
def test_only_files_of_checkpoints_are_sent(
    server: FileServer, tmp_path: Path, path: tuple[str, str]
) -> None:
    with pytest.raises(UnavailableError, match="not a file of a checkpoint"):
        fetch(server.address, *path, ENTRY, tmp_path / "copy")


def test_a_link_out_of_the_folder_is_not_followed(server: FileServer, tmp_path: Path) -> None:
    (tmp_path / "node" / "step-1" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(UnavailableError, match="link of 127"):
        fetch(server.address, "step-1", "link", ENTRY, tmp_path / "copy")


def test_who_does_not_know_the_key_gets_nothing(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="a peer cannot be reached"):
        fetch(replace(server.address, key=b"guess"), "step-1", "shard", ENTRY, tmp_path / "copy")


def test_the_next_address_is_tried(server: FileServer, tmp_path: Path) -> None:
    hosts = ("host.invalid", "127.0.0.1")
    fetch(replace(server.address, hosts=hosts), "step-1", "shard", ENTRY, tmp_path / "copy")
    server.close()
    with pytest.raises(UnavailableError, match=r"host\.invalid: .*; 127\.0\.0\.1: "):
        fetch(replace(server.address, hosts=hosts), "step-1", "shard", ENTRY, tmp_path / "copy")


def test_a_training_on_one_machine_is_reached_there_alone(server: FileServer) -> None:
    assert (
        own_hosts("localhost") == own_hosts("127.0.0.1") == server.address.hosts == ("127.0.0.1",)
    )
    assert server._socket.getsockname()[0] == "127.0.0.1"


# --- who does not know the key -------------------------------------------------------------------


def knock(server: FileServer, source: str = "127.0.0.1") -> socket.socket:
    """A connection of a stranger, from any address of this machine."""
    return socket.create_connection(("127.0.0.1", server.address.port), 30, (source, 0))


def drip(connected: socket.socket) -> None:
    """A byte now and then, for as long as the server listens."""

    def send() -> None:
        with contextlib.suppress(OSError):
            while True:
                connected.sendall(b"x")
                time.sleep(0.05)

    threading.Thread(target=send, daemon=True).start()


def reset(connected: socket.socket) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connected.close()


STRANGERS: dict[str, Callable[[socket.socket], object]] = {
    "silent": lambda _: None,
    "drips": drip,
    "half-open": lambda one: one.shutdown(socket.SHUT_WR),
    "resets": reset,
    "wrong-proof": lambda one: one.sendall(os.urandom(64)),
    "zeros": lambda one: one.sendall(bytes(64)),
    "endless": lambda one: one.sendall(os.urandom(1 << 16)),
    "http": lambda one: one.sendall(b"GET / HTTP/1.1\r\n\r\n"),
}


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS)
def test_very_many_strangers_keep_no_peer_out(
    server: FileServer, tmp_path: Path, stranger: Callable[[socket.socket], object]
) -> None:
    """Found by attack: 64 connections without the key stopped all copies. Half of these come from
    the address of the peer."""
    held = []
    for number in range(1_000 if IS_FULL else 300):
        held.append(knock(server, "127.0.0.1" if number % 2 else f"127.0.0.{2 + number % 50}"))
        with contextlib.suppress(OSError):
            stranger(held[-1])
    fetch(server.address, "step-1", "shard", ENTRY, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT
    assert len(server._strangers) <= streams._MAX_STRANGERS
    for each in held:
        each.close()


@pytest.mark.parametrize("stranger", ["silent", "drips", "half-open"])
def test_a_stranger_has_a_few_seconds(
    server: FileServer, monkeypatch: pytest.MonkeyPatch, stranger: str
) -> None:
    monkeypatch.setattr(streams, "_HANDSHAKE_S", 0.3)
    connected = knock(server)
    STRANGERS[stranger](connected)
    eventually(lambda: len(server._strangers) == 0)
    with contextlib.suppress(ConnectionResetError):
        assert len(connected.recv(1_000)) == 32, "its challenge"
        assert connected.recv(1_000) == b""
    connected.close()


def announce(length: int) -> Callable[[Any], None]:
    return lambda exchange: exchange._send(struct.pack("!i", length) + b"x")


@pytest.mark.parametrize(
    "wants",
    [
        lambda _: None,
        announce(2**31 - 1),
        announce(-1),
        announce(0),
        announce(100),
        lambda exchange: exchange.send(b"not JSON"),
        lambda exchange: exchange.send(b"[" * 4_000),
        lambda exchange: exchange.send(b'["step-1"]'),
        lambda exchange: exchange.send(b'{"a": 1}'),
        lambda exchange: exchange.send(json.dumps(["\0", "\0"]).encode()),
    ],
    ids=["silence", "giant", "negative", "empty", "half", "no-json", "deep", "one", "map", "zeros"],
)
def test_who_knows_the_key_and_then_talks_nonsense_takes_no_place_for_long(
    server: FileServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    wants: Callable[[Any], None],
) -> None:
    monkeypatch.setattr(streams, "_HANDSHAKE_S", 0.5)
    monkeypatch.setattr(streams, "_MAX_PEERS", 1)
    connected = [knock(server) for _ in range(5)]
    for each in connected:
        exchange = streams._Handshake(each, server.address.key, 30)
        exchange.as_client()
        with contextlib.suppress(OSError):
            wants(exchange)
    fetch(server.address, "step-1", "shard", ENTRY, tmp_path / "copy")
    eventually(lambda: len(server._strangers) == 0)
    for each in connected:
        each.close()


def test_more_peers_than_places_are_served_one_after_the_other(
    server: FileServer, tmp_path: Path
) -> None:
    server._free = threading.Semaphore(1)
    problems: list[BaseException] = []

    def copy(number: int) -> None:
        try:
            fetch(server.address, "step-1", "shard", ENTRY, tmp_path / f"copy-{number}")
        except UnavailableError as error:
            problems.append(error)

    threads = [threading.Thread(target=copy, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert problems == []


def rogue(say: Callable[[socket.socket], object]) -> socket.socket:
    """Something else that listens at the port of a peer that has gone."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = listening.accept()
                with accepted, contextlib.suppress(OSError, EOFError):
                    say(accepted)

    threading.Thread(target=serve, daemon=True).start()
    return listening


@pytest.mark.parametrize(
    "say",
    [
        lambda _: None,
        lambda peer: peer.sendall(b"SSH-2.0-OpenSSH\r\n"),
        lambda peer: peer.sendall(struct.pack("!i", 20) + b"no challenge at all."),
        lambda peer: peer.sendall(os.urandom(64)),
        lambda peer: answer_challenge(streams._connection(peer), b"key"),
    ],
    ids=["closes", "ssh", "assertion", "random", "old"],
)
def test_something_else_at_the_port_of_a_peer_is_a_peer_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say: Callable[[socket.socket], object]
) -> None:
    """Also an assertion in Python's own handshake, which ended the thread that copied."""
    monkeypatch.setattr(streams, "_AGAIN_S", 0.01)
    monkeypatch.setattr(streams, "_SILENCE_S", 1)
    listening = rogue(say)
    port = listening.getsockname()[1]
    address = FileAddress(hosts=("127.0.0.1",), port=port, key=b"key")
    with pytest.raises(UnavailableError, match="a peer cannot be reached"):
        fetch(address, "step-1", "shard", ENTRY, tmp_path / "copy")
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()


def test_an_error_of_accept_does_not_end_the_server(server: FileServer, tmp_path: Path) -> None:
    """It did so silently: no descriptor left for a moment, and no copy ever after."""
    real, failures = server._socket, iter([OSError(24, "Too many open files")] * 3)

    class Failing:
        def accept(self) -> Any:
            for error in failures:
                raise error
            return real.accept()

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    server._socket = Failing()  # type: ignore[assignment]
    for number in range(4):
        fetch(server.address, "step-1", "shard", ENTRY, tmp_path / f"copy-{number}")
    assert next(failures, None) is None


# --- where it listens ----------------------------------------------------------------------------


def others(monkeypatch: pytest.MonkeyPatch, **known: str) -> None:
    """What names lead to, and from which address this host reaches what it cannot name."""
    real = socket.getaddrinfo

    def resolve(host: Any, *arguments: Any, **more: Any) -> Any:
        if host is None or not str(host).replace("-", "").isalnum():
            return real(host, *arguments, **more)
        if host not in known:
            raise socket.gaierror(-2, "Name or service not known")
        return real(known[host], *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "gethostname", lambda: "node-0")


@pytest.mark.parametrize(
    ("store", "names"),
    [
        ("192.0.2.7", {"node-0": "127.0.1.1"}),
        ("store", {"store": "192.0.2.7", "node-0": "127.0.1.1"}),
        ("node-0", {"node-0": "127.0.1.1"}),
        ("", {"node-0": "127.0.1.1"}),
        ("nowhere", {}),
    ],
)
def test_with_several_nodes_it_listens_where_its_peers_come_from_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str, names: dict[str, str]
) -> None:
    """Not at 0.0.0.0."""
    own = streams._address_towards("192.0.2.7")
    if not own:
        pytest.skip("no route (give the machine one): it would show where a server listens")
    others(monkeypatch, **names)
    server = FileServer(tmp_path, store)
    assert server._socket.getsockname()[0] == own
    assert own in server.address.hosts
    assert "127.0.0.1" not in server.address.hosts
    server.close()


def test_a_host_that_only_knows_itself_listens_everywhere_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a route there is no other way to be reached."""
    monkeypatch.setattr(streams, "_address_towards", lambda _: "")
    others(monkeypatch, **{"node-0": "127.0.1.1"})
    server = FileServer(tmp_path, "node-0")
    assert server._socket.getsockname()[0] == "0.0.0.0"
    assert "leads to itself alone" in caplog.text
    server.close()
