"""The spool: what was appended is read again by the next process, and nothing else is."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.collector.history.spool import Record, Spool
from otel_straggler.errors import UnavailableError

from ..waiting import eventually

KiB = 1024
Open = Callable[..., Spool]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def begin(folder: Path) -> Iterator[Any]:
    """Opens the spool, and appends after what is there; ``replayed`` is what was."""
    opened: list[Spool] = []

    def start(after: int = 0, **limits: Any) -> tuple[Spool, list[Record]]:
        spool = Spool(folder, **{"max_bytes": 1 << 30, "syncs": False, **limits})
        opened.append(spool)
        spool.open()
        replayed = list(spool.replay(after))
        spool.begin()
        return spool, replayed

    yield start
    for spool in opened:
        spool.close()


def die(spool: Spool) -> None:
    """As a process that is killed: the lock goes, the files stay as they are."""
    spool._writer.release()


def failures(spool: Spool) -> dict[str, int]:
    return {reason: count for reason, count in spool.counts().items() if count}


def test_what_was_appended_comes_again_in_order(begin: Any) -> None:
    """With its kind, and from the first that the history does not include."""
    spool, _ = begin()
    for number in range(5):
        assert spool.append(number % 2, b"%d" % number * 100) == (number + 1, None)
    die(spool)
    again, replayed = begin(after=2)
    assert [(r.sequence, r.kind, r.body[:1]) for r in replayed] == [
        (3, 0, b"2"), (4, 1, b"3"), (5, 0, b"4"),
    ]  # fmt: skip
    assert again.append(0, b"next")[0] == 6
    assert again.id == spool.id
    assert failures(again) == {}


def test_a_sequence_is_never_given_twice(begin: Any) -> None:
    """Not even if the history knows of requests that the log has lost, in a power cut."""
    spool, _ = begin()
    spool.append(0, b"one")
    die(spool)
    again, replayed = begin(after=7)
    assert replayed == []
    assert again.append(0, b"next")[0] == 8


@pytest.mark.parametrize("cut", [1, 30, 127])
def test_a_tail_that_was_cut_is_counted_and_the_rest_is_read(
    begin: Any, folder: Path, cut: int
) -> None:
    """A process may die in the middle of writing; what comes next is in another file."""
    spool, _ = begin()
    for _ in range(3):
        spool.append(0, bytes(100))
    die(spool)
    [segment] = folder.glob("*.spool")
    os.truncate(segment, segment.stat().st_size - cut)
    again, replayed = begin()
    assert [r.sequence for r in replayed] == [1, 2]
    assert failures(again) == {"damaged": 1}
    again.append(0, b"third")
    die(again)
    _, replayed = begin()
    assert [(r.sequence, r.body[:5]) for r in replayed[2:]] == [(3, b"third")]


@pytest.mark.parametrize("at", [0, 10, 24, 30, 60, 200])
def test_damage_is_never_believed(begin: Any, folder: Path, at: int) -> None:
    """A flipped bit anywhere: what is read is as it was appended, or is not read."""
    bodies = [bytes([number]) * 50 for number in range(4)]
    spool, _ = begin()
    for body in bodies:
        spool.append(0, body)
    die(spool)
    [segment] = folder.glob("*.spool")
    data = bytearray(segment.read_bytes())
    data[at] ^= 0x10
    segment.write_bytes(data)
    again, replayed = begin()
    assert [r.body for r in replayed] == bodies[: len(replayed)]
    assert failures(again) == {"damaged": 1}


def test_a_record_that_claims_gigabytes_is_damage(begin: Any, folder: Path) -> None:
    """No memory is taken for it."""
    spool, _ = begin()
    spool.append(0, bytes(10))
    die(spool)
    [segment] = folder.glob("*.spool")
    data = bytearray(segment.read_bytes())
    data[28:32] = b"\xff\xff\xff\xff"
    segment.write_bytes(data)
    again, replayed = begin()
    assert replayed == []
    assert failures(again) == {"damaged": 1}


def test_what_the_history_has_is_removed(begin: Any, folder: Path) -> None:
    """Segment by segment; the rest stays."""
    spool, _ = begin(segment_bytes=KiB)
    for _ in range(20):
        spool.append(0, bytes(400))
    before = len(list(folder.glob("*.spool")))
    spool.release(15)
    assert 0 < len(list(folder.glob("*.spool"))) < before
    die(spool)
    again, replayed = begin(after=15)
    assert [r.sequence for r in replayed] == [16, 17, 18, 19, 20]
    again.release(20)
    again.close()
    assert list(folder.glob("*.spool")) == []


def test_a_spool_that_is_empty_is_still_the_same(begin: Any, folder: Path) -> None:
    """The history may have everything when its collector is killed: its sequence stays valid, and
    so do the rows of open windows that it has."""
    spool, _ = begin(segment_bytes=KiB)
    spool.append(0, bytes(400))
    spool.release(1)
    assert list(folder.glob("*.spool")) == []
    die(spool)
    again, replayed = begin(after=1)
    assert (again.id, replayed) == (spool.id, [])
    assert again.append(0, b"next")[0] == 2


def test_what_was_not_read_yet_is_not_removed(begin: Any, folder: Path) -> None:
    """The history may be saved while requests are still being replayed."""
    spool, _ = begin(segment_bytes=KiB)
    for _ in range(20):
        spool.append(0, bytes(400))
    die(spool)
    again = Spool(folder, max_bytes=1 << 30, syncs=False)
    again.open()
    replayed = []
    for record in again.replay(0):
        replayed.append(record.sequence)
        again.release(record.sequence)
    again.close()
    assert replayed == list(range(1, 21))
    assert list(folder.glob("*.spool")) == []


def test_a_spool_without_an_end_drops_its_oldest(begin: Any, folder: Path) -> None:
    """Where the history cannot be saved for long: the log is bounded, and that is counted."""
    spool, _ = begin(max_bytes=20 * KiB, segment_bytes=4 * KiB)
    for _ in range(100):
        spool.append(0, bytes(KiB))
    assert spool.size_bytes <= 20 * KiB
    assert sum(f.stat().st_size for f in folder.glob("*.spool")) == spool.size_bytes
    assert failures(spool)["dropped"] > 10
    die(spool)
    _, replayed = begin()
    assert replayed[-1].sequence == 100


def test_a_request_is_stored_once_it_is_on_the_disk(
    begin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that come while the disk works share the next sync."""
    may_go, syncs = threading.Event(), []

    def slow(file: int) -> None:
        syncs.append(file)
        may_go.wait(30)

    monkeypatch.setattr(os, "fdatasync", slow)
    spool, _ = begin(syncs=True)
    _, first = spool.append(0, b"first")
    eventually(lambda: syncs)
    others = [spool.append(0, b"other")[1] for _ in range(50)]
    assert not any(each.done() for each in (first, *others))
    assert not first.cancel()  # a client that goes away takes it from nobody
    may_go.set()
    for each in (first, *others):
        each.result(30)
    assert len(syncs) == 2


def test_a_full_disk_is_counted_and_leaves_no_half_request(
    begin: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The request is scored all the same, and the next one is stored again if there is room."""
    spool, _ = begin()
    spool.append(0, b"before")
    writev = os.writev

    def half(file: int, parts: list[bytes]) -> int:
        os.write(file, b"".join(parts)[:20])
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "writev", half)
    assert spool.append(0, b"lost") == (0, None)
    assert spool.append(0, b"lost") == (0, None)
    monkeypatch.setattr(os, "writev", writev)
    assert spool.append(0, b"after")[0] == 2
    assert failures(spool) == {"not_written": 2}
    assert len(caplog.records) == 1
    die(spool)
    _, replayed = begin()
    assert [r.body for r in replayed] == [b"before", b"after"]


def test_a_segment_that_was_only_begun_goes(begin: Any, folder: Path) -> None:
    """Its process died before a byte was in it."""
    folder.mkdir()
    (folder / "0000000007.spool").touch()
    spool, replayed = begin()
    spool.append(0, b"x")
    assert replayed == []
    assert [path.name for path in folder.glob("*.spool")] == ["0000000008.spool"]
    assert failures(spool) == {}


def test_two_collectors_do_not_share_a_spool(begin: Any, folder: Path) -> None:
    """The second one does not start, and says who has it."""
    begin()
    with pytest.raises(UnavailableError, match=f"a spool in use by process {os.getpid()}.*--spool"):
        Spool(folder, max_bytes=1).open()


def test_a_folder_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    """Whoever asks for a spool is not to go on without it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UnavailableError, match="--spool"):
        Spool(tmp_path / "file", max_bytes=1).open()


def test_its_files_are_private_and_links_are_not_followed(begin: Any, folder: Path) -> None:
    """Requests hold whatever users put on their spans."""
    folder.mkdir(mode=0o700)
    os.mkfifo(folder / "0000000001.spool")
    (folder / "0000000002.spool").symlink_to("/etc/hostname")
    spool, replayed = begin()
    spool.append(0, b"x")
    assert replayed == []
    assert failures(spool) == {"damaged": 2}
    mode = (folder / "0000000003.spool").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
