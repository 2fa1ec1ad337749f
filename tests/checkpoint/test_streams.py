"""Files from node to node."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from otel_straggler.checkpoint.manifest import FileEntry
from otel_straggler.checkpoint.streams import FileServer, fetch, own_hosts
from otel_straggler.errors import UnavailableError

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
