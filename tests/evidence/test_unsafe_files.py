"""Links, pipes and huge files where a lock, history, ring or file of stacks is expected."""

from __future__ import annotations

import os
import stat
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_straggler.client.diagnostics.stacks import StacksFile
from otel_straggler.client.ring_file import (
    RingFileError,
    RingIdentity,
    read_ring_file,
    write_identity,
)
from otel_straggler.collector.history.database import Database, WriterLock
from otel_straggler.errors import InputError
from otel_straggler.recordings.diagnostics_files import read_flight_record, read_stacks_file
from otel_straggler.regular_files import UnsafeFileError, create_folder, open_regular

CONTENT = b"something of somebody else\n"


def lock(path: Path) -> None:
    """Of the history that the name of the lock belongs to."""
    lock_of_it = path.with_name(path.name + ".lock")
    path.rename(lock_of_it)
    WriterLock(path).acquire()


def stacks(path: Path) -> None:
    StacksFile(path)


def identity(path: Path) -> None:
    write_identity(path, RingIdentity(run_id="r"))


def history(path: Path) -> None:
    Database(path)


def flight_record(path: Path) -> None:
    read_flight_record(path, 0)


WRITERS = [lock, stacks, identity, history]
READERS = [read_ring_file, read_stacks_file, flight_record]


@pytest.mark.parametrize("opened", [*WRITERS, *READERS])
def test_a_symbolic_link_is_not_followed(tmp_path: Path, opened: Callable[[Path], None]) -> None:
    """What it leads to stays as it is."""
    target = tmp_path / "target"
    target.write_bytes(CONTENT)
    path = tmp_path / "file"
    path.symlink_to(target)
    with pytest.raises((OSError, InputError), match="symbolic link"):
        opened(path)
    assert target.read_bytes() == CONTENT


@pytest.mark.parametrize("opened", [*WRITERS, *READERS])
def test_a_pipe_is_not_waited_for(tmp_path: Path, opened: Callable[[Path], None]) -> None:
    """Nobody else has it open; a reader or writer would wait for ever."""
    path = tmp_path / "file"
    os.mkfifo(path)
    failures: list[BaseException] = []

    def try_it() -> None:
        try:
            opened(path)
        except (OSError, InputError) as error:
            failures.append(error)

    thread = threading.Thread(target=try_it, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert "is a pipe" in str(failures[0])


@pytest.mark.parametrize("opened", WRITERS)
def test_a_file_with_a_second_name_is_not_written(
    tmp_path: Path, opened: Callable[[Path], None]
) -> None:
    """A hard link is a way to another's file, too."""
    target = tmp_path / "target"
    target.write_bytes(CONTENT)
    path = tmp_path / "file"
    path.hardlink_to(target)
    with pytest.raises(UnsafeFileError, match="2 names"):
        opened(path)
    assert target.read_bytes() == CONTENT


@pytest.mark.skipif(
    os.geteuid() != 0, reason="not root (run as root): only root can make a file of another user"
)
@pytest.mark.parametrize("opened", WRITERS)
def test_a_file_of_another_user_is_not_written(
    tmp_path: Path, opened: Callable[[Path], None]
) -> None:
    """Not even by root."""
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    os.chown(path, 12_345, -1)
    with pytest.raises(UnsafeFileError, match="belongs to user 12345"):
        opened(path)


def test_a_huge_sparse_file_of_stacks_costs_its_last_8_mib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that is read of 1 TiB."""
    path = tmp_path / "x.stacks.txt"
    path.touch()
    os.truncate(path, 1 << 40)
    read: list[int] = []
    pread = os.pread

    def counted(file: int, count: int, offset: int) -> bytes:
        data = pread(file, count, offset)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    assert read_stacks_file(path) == []
    assert sum(read) == 8 * 1024 * 1024


def test_a_ring_that_claims_gigabytes_of_threads_is_refused(tmp_path: Path) -> None:
    """Its size may be real, as of a sparse file; 65,536 threads with 1,024 frames take 4.3 GB."""
    slots, slot_bytes, capacity = 65_536, 64 * 1_025, 2
    ring_at = 4_096 + slots * slot_bytes
    header = struct.pack(
        "<8s6I7QQqq", b"OTSRING\0", 1, 0, 4_096, 128, slot_bytes, 1_024,
        ring_at + capacity * 128, 4_096, 0, 4_096, slots, ring_at, capacity, 1, 0, 0,
    )  # fmt: skip
    path = tmp_path / "huge.ring"
    path.write_bytes(header)
    os.truncate(path, ring_at + capacity * 128)
    with path.open("r+b") as file:
        file.seek(464)
        file.write(struct.pack("<Q", slots))
    with pytest.raises(RingFileError, match="slots"):
        read_ring_file(path)


def test_files_and_folders_are_private_from_the_beginning(tmp_path: Path) -> None:
    """Also where everybody may read by default."""
    before = os.umask(0)
    try:
        folder = tmp_path / "new" / "evidence"
        create_folder(folder)
        os.close(open_regular(folder / "file", os.O_WRONLY | os.O_CREAT))
        database = Database(folder / "history.db")
        WriterLock(folder / "history.db").acquire()
        modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()}
        database.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    names = {"file", "history.db", "history.db-wal", "history.db-shm", "history.db.lock"}
    assert modes == dict.fromkeys(names, 0o600)


def test_a_file_is_not_truncated_before_it_is_checked(tmp_path: Path) -> None:
    """The flag that would do so is a mistake of the caller."""
    with pytest.raises(ValueError, match="O_TRUNC"):
        open_regular(tmp_path / "file", os.O_WRONLY | os.O_TRUNC)
