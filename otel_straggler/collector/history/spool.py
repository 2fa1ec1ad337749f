"""The spool: accepted requests on disk, until what they fed is in the history.

An append-only log in segments, each a file. A process that was killed is followed by one that reads
the log again from the last request whose effect the history has saved; a tail that was cut is
counted. Nothing here interprets a request.
"""

from __future__ import annotations

import binascii
import errno
import logging
import os
import struct
import threading
import time
from collections import Counter
from collections.abc import Container, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal

from otel_straggler.collector.history.database import WriterLock
from otel_straggler.errors import UnavailableError
from otel_straggler.regular_files import create_folder, open_regular, read_tail, sync_folder

_log = logging.getLogger(__name__)

MiB: Final = 1024 * 1024
SEGMENT_BYTES: Final = 8 * MiB
Reason = Literal["not_written", "dropped", "damaged", "rejected"]
REASONS: Final[dict[Reason, str]] = {
    "not_written": "the disk was full, or failed: the request was scored, but is lost if the "
    "collector is killed before the history is saved",
    "dropped": "the spool reached `history.spool_max_mib`, since the history could not be saved: "
    "the oldest requests are lost if the collector is killed",
    "damaged": "a part of the log could not be read; the last request of a killed process, which "
    "was not answered yet, is often cut",
    "rejected": "a request could not be decoded again, by another version perhaps",
}
_MAGIC: Final = b"OTSSPL\x00\x01"
_SEGMENT: Final = struct.Struct("<8s16s")
_RECORD: Final = struct.Struct("<IIQqHH")
"""Checksum of the rest, bytes of the body, sequence, arrival (ns, wall clock), kind, zeros."""
_CHECKSUM: Final = struct.Struct("<I")
_SUFFIX: Final = ".spool"
_ID: Final = "spool.id"
_ID_CHARS: Final = 16
_DIGITS: Final = 10
_READ_BYTES: Final = 1 * MiB
_CLOSE_S: Final = 5.0
_UNREAD: Final = 2**64
_MIN_SHARE: Final = 8
"""A segment of at least this fraction (1 / 8) of its size is ended early, to be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One request as it was appended.

    Attributes:
        sequence: ascending, from 1.
        at_ns: arrival, wall clock.
        kind: whatever the writer distinguishes, 0 to 65,535.
    """

    sequence: int
    at_ns: int
    kind: int
    body: bytes


@dataclass(slots=True, eq=False)
class _Segment:
    """``last``: sequence of its last request; of one that was not read yet, higher than any."""

    path: Path
    size: int = 0
    last: int = _UNREAD


class Spool:
    """One directory, for one process. Appending never raises; failures are counted by reason, and
    logged once per reason.

    Args:
        folder: created if missing, with mode 0700.
        max_bytes: of all segments; beyond it the oldest are dropped.
        syncs: whether a request counts as stored once it is on the disk (group commit: one
            ``fdatasync`` for all that came meanwhile), which also survives a power cut; else once
            the system has it, which survives the end of the process.
        segment_bytes: of one file.

    Attributes:
        why: the last failure, as a sentence.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int,
        syncs: bool = True,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._syncs = syncs
        self._segment_bytes = min(segment_bytes, max(max_bytes // 4, 1))
        self._lock = threading.Condition()
        self._writer = WriterLock(folder / "spool", what="a spool", flag="--spool")
        self._segments: list[_Segment] = []
        self._number = 0
        self._file: int | None = None
        self._to_close: list[int] = []
        self._sequence = self._released = 0
        self._synced = _not_cancellable()
        self._has_news = self._is_closed = False
        self._counts: Counter[Reason] = Counter()
        self._logged: set[Reason] = set()
        self._thread = threading.Thread(target=self._run, name="straggler-spool", daemon=True)
        self.id = ""
        self.why = ""

    # --- opening ------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the directory; :meth:`replay`, then :meth:`begin` follow.

        Raises:
            UnavailableError: another collector uses it, or it cannot be created.
        """
        try:
            create_folder(self._folder)
            self._writer.acquire()
            self._read_folder()
        except OSError as error:
            raise UnavailableError.of(
                "--spool", str(self._folder), "a directory of this user that can be written to",
                f"Choose another one ({error}).",
            ) from error  # fmt: skip

    def _read_folder(self) -> None:
        paths = sorted(path for path in self._folder.glob(f"*{_SUFFIX}") if _number(path) >= 0)
        self._number = max(map(_number, paths), default=0)
        by_id = {segment: self._id_of(segment) for segment in map(_Segment, paths)}
        own = [each for each in by_id.values() if each]
        self.id = self._read_id() or (own[-1] if own else os.urandom(8).hex())
        self._write_id()
        for segment, segment_id in by_id.items():
            if segment_id == self.id:
                self._segments.append(segment)
            elif segment_id:
                self.count("damaged", f"{segment.path}: of another spool")

    def replay(self, after: int, also: Container[int] = ()) -> Iterator[Record]:
        """The requests of earlier processes with a higher sequence, and ``also`` these, in
        order."""
        self._sequence = after
        for segment in list(self._segments):
            last = 0
            for record in self._records(segment):
                last = max(last, record.sequence)
                if record.sequence > self._sequence:
                    self._sequence = record.sequence
                    yield record
                elif record.sequence in also:
                    yield record
            segment.last = last

    def begin(self) -> None:
        """Start to append, after the requests that were replayed."""
        if self._syncs:
            self._thread.start()

    def close(self, within_s: float = _CLOSE_S) -> None:
        """Store what was appended and end. May be called twice."""
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
        if self._thread.is_alive():
            self._thread.join(within_s)
        with self._lock:
            self._end_segment()
            for file in self._drain_closed():
                os.close(file)
            self.release(self._released)
        self._writer.release()

    # --- writing ------------------------------------------------------------------------------

    def append(self, kind: int, body: bytes) -> tuple[int, Future[None] | None]:
        """Append a request; returns its sequence (0 if that failed) and what is done once it is
        stored (None: it is). From any thread. Cost: a copy into the system's memory."""
        with self._lock:
            sequence = self._sequence + 1
            head = _RECORD.pack(0, len(body), sequence, time.time_ns(), kind, 0)[_CHECKSUM.size :]
            checksum = binascii.crc32(body, binascii.crc32(head))
            if self._is_closed or not self._write(_CHECKSUM.pack(checksum) + head, body):
                return 0, None
            self._sequence = self._segments[-1].last = sequence
            if not self._syncs:
                return sequence, None
            self._has_news = True
            self._lock.notify_all()
            return sequence, self._synced

    def release(self, through: int) -> None:
        """Forget requests up to this sequence: the history has what they fed. From any thread."""
        with self._lock:
            self._released = max(self._released, through)
            is_open = self._file is not None
            if is_open and self._segments[-1].size >= self._segment_bytes // _MIN_SHARE:
                self._end_segment()
                is_open = False
            ended = self._segments[:-1] if is_open else self._segments
            for segment in [each for each in ended if each.last <= through]:
                self._remove(segment)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def counts(self) -> dict[str, int]:
        """Failures by reason."""
        with self._lock:
            return {reason: self._counts[reason] for reason in REASONS}

    def count(self, reason: Reason, what: str = "") -> None:
        """Count a failure. From any thread."""
        with self._lock:
            self._counts[reason] += 1
            is_new = reason not in self._logged
            self._logged.add(reason)
            self.why = f"spool {self._folder}: {REASONS[reason]}{f' ({what})' if what else ''}"
        if is_new:
            _log.warning(
                "%s. Scoring continues; straggler_collector_spool_failures_total counts this.",
                self.why,
            )

    def _write(self, head: bytes, body: bytes) -> bool:
        size = len(head) + len(body)
        try:
            if self._file is None or self._segments[-1].size + size > self._segment_bytes:
                self._begin_segment()
            assert self._file is not None
            segment = self._segments[-1]
            self._make_room(size)
            try:
                _write_all(self._file, head, body)
            except OSError:
                os.ftruncate(self._file, segment.size)  # what follows must not be after a half one
                raise
        except OSError as error:
            self.count("not_written", str(error))
            self._end_segment()
            return False
        segment.size += size
        return True

    def _begin_segment(self) -> None:
        self._end_segment()
        self._number += 1
        path = self._folder / f"{self._number:0{_DIGITS}d}{_SUFFIX}"
        file = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL)
        try:
            _write_all(file, _SEGMENT.pack(_MAGIC, self.id.encode()))
            if self._syncs:
                sync_folder(self._folder)
        except OSError:
            os.close(file)
            path.unlink(missing_ok=True)
            raise
        self._file = file
        self._segments.append(_Segment(path, size=_SEGMENT.size, last=self._sequence))

    def _end_segment(self) -> None:
        file, self._file = self._file, None
        if file is None:
            return
        self._to_close.append(file)
        if not self._thread.is_alive():
            for each in self._drain_closed():
                os.close(each)

    def _drain_closed(self) -> list[int]:
        files, self._to_close = self._to_close, []
        return files

    def _make_room(self, size: int) -> None:
        while len(self._segments) > 1 and self.size_bytes + size > self._max_bytes:
            self.count("dropped")
            self._remove(self._segments[0])

    def _remove(self, segment: _Segment) -> None:
        self._segments.remove(segment)
        try:
            segment.path.unlink(missing_ok=True)
        except OSError as error:
            _log.debug("%s cannot be removed: %s", segment.path, error)

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        """Group commit: one ``fdatasync`` for all that was appended since the last one began."""
        while self._sync_next():
            pass

    def _sync_next(self) -> bool:
        with self._lock:
            self._lock.wait_for(lambda: self._has_news or self._is_closed)
            if not self._has_news:
                return False
            self._has_news = False
            ended, file = self._drain_closed(), self._file
            current = None if file is None else os.dup(file)
            done, self._synced = self._synced, _not_cancellable()
        for each in (*ended, *([] if current is None else [current])):
            try:
                os.fdatasync(each)
            except OSError as error:
                self.count("not_written", str(error))
            os.close(each)
        done.set_result(None)
        return True

    # --- reading ------------------------------------------------------------------------------

    def _read_id(self) -> str:
        """Empty if there is none. It outlives the segments: without it the sequence that the
        history has would mean nothing."""
        try:
            text = read_tail(self._folder / _ID, _ID_CHARS).decode("ascii", "replace")
        except FileNotFoundError:
            return ""
        return text if len(text) == _ID_CHARS and text.isalnum() else ""

    def _write_id(self) -> None:
        if self._read_id() == self.id:
            return
        file = open_regular(self._folder / _ID, os.O_WRONLY | os.O_CREAT)
        try:
            os.ftruncate(file, 0)
            _write_all(file, self.id.encode())
            os.fsync(file)
            sync_folder(self._folder)
        finally:
            os.close(file)

    def _id_of(self, segment: _Segment) -> str:
        """Empty for what is no segment, which is left as it is, and for one that is empty."""
        try:
            file = open_regular(segment.path, os.O_RDONLY)
            try:
                segment.size = os.fstat(file).st_size
                head = os.pread(file, _SEGMENT.size, 0)
            finally:
                os.close(file)
        except OSError as error:
            self.count("damaged", str(error))
            return ""
        if segment.size == 0:
            segment.path.unlink(missing_ok=True)
            return ""
        if len(head) < _SEGMENT.size or not head.startswith(_MAGIC):
            self.count("damaged", f"{segment.path}: no segment")
            return ""
        return str(_SEGMENT.unpack(head)[1], "ascii", "replace")

    def _records(self, segment: _Segment) -> Iterator[Record]:
        """All whole records of a segment, up to the first damage."""
        try:
            with os.fdopen(open_regular(segment.path, os.O_RDONLY), "rb", _READ_BYTES) as file:
                file.seek(_SEGMENT.size)
                while head := file.read(_RECORD.size):
                    record = _read_record(head, file, segment.size)
                    if record is None:
                        self.count("damaged", f"{segment.path} at byte {file.tell()}")
                        return
                    yield record
        except OSError as error:
            self.count("damaged", str(error))


def _read_record(head: bytes, file: BinaryIO, end: int) -> Record | None:
    """The record that begins with ``head``; None if it is damaged or goes beyond ``end``."""
    if len(head) < _RECORD.size:
        return None
    checksum, size, sequence, at_ns, kind, _ = _RECORD.unpack(head)
    if size > end - file.tell():
        return None
    body = file.read(size)
    if binascii.crc32(body, binascii.crc32(head[_CHECKSUM.size :])) != checksum:
        return None
    return Record(sequence=sequence, at_ns=at_ns, kind=kind, body=body)


def _not_cancellable() -> Future[None]:
    """Many wait for it: one that gives up must not take it from the others."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future


def _write_all(file: int, *parts: bytes) -> None:
    written = os.writev(file, parts)
    if written < sum(map(len, parts)):
        rest = memoryview(b"".join(parts))[written:]
        while rest:
            count = os.write(file, rest)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            rest = rest[count:]


def _number(path: Path) -> int:
    """Of a segment by its name; -1 for another file."""
    stem = path.name.removesuffix(_SUFFIX)
    return int(stem) if len(stem) == _DIGITS and stem.isascii() and stem.isdecimal() else -1
