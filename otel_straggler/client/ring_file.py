"""The state of a process, read from its ring's file by another one, even if it is stopped or dead.

The file is as block.hpp lays it out. It belongs to a process that may have died in the middle of
anything, so no number in it is believed before it was checked; there is one error for all of it.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from otel_straggler.client.native_records import PHASES, SECTIONS
from otel_straggler.errors import StragglerError
from otel_straggler.regular_files import open_regular
from otel_straggler.semconv import STEP_SPAN
from otel_straggler.strict_json import parse_json

VERSION = 1
MAX_IDENTITY_BYTES = 3_000
_MAGIC = b"OTSRING\0"
_HEADER = struct.Struct("<8s6I7QQqq")
_HEADER_BYTES = 4096
_SURROUNDINGS_AT = 128
_CELL_BYTES = 64
_SURROUNDINGS = struct.Struct("<qQIIqqII16s")
_IDENTITY_AT = 1_024
_LENGTH = struct.Struct("<I")
_RECORD = struct.Struct("<QQQqqqqqIIIIIIQ32x")
_RECORD_BYTES = 128
_STEP_SPAN = 2
_MAX_ENDED = 8
_TAIL_AT, _HEAD_AT, _DROPPED_AT = 320, 384, 392
_NAMES_USED_AT, _SLOTS_USED_AT = 448, 464
_NAME = struct.Struct("<IHH")
_SLOT = struct.Struct("<IIQQq")
_VERSION = struct.Struct("<8xQ")
_FRAME = struct.Struct("<QqqQqqIIII")
_FRAME_BYTES = 64
_MAX_SLOTS, _MAX_FRAMES, _MAX_CAPACITY, _MAX_NAMES_BYTES = 65_536, 1_024, 2**24, 2**24
_MAX_SLOTS_BYTES = 64 * 1024 * 1024
"""Read at once; a recorder's take 2 MiB."""
_NO_STEP = -(2**63)
_TRIES = 20

Read = Callable[[int, int], bytes]
"""(offset, bytes) -> so many bytes, or fewer at the end of the file."""


class RingFileError(StragglerError):
    """The bytes are not those of a ring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    """An open section. Times are ``CLOCK_MONOTONIC`` of its machine.

    Attributes:
        name, kind, phase: empty where they are not known.
        tid: of its thread, in the system.
        depth: open sections in that thread; from 33 on, the 32nd is shown.
        is_stepping: its thread is the one that counts steps.
    """

    name: str
    kind: str
    phase: str
    step: int | None
    start_ns: int
    tid: int
    depth: int
    is_stepping: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A section, or a step, that has ended. Times are ``CLOCK_MONOTONIC``."""

    name: str
    step: int | None
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RingIdentity:
    """The process that has written the file; empty and None if not known.

    Attributes:
        started: of the process, in ticks since the boot.
        boot: boot and container, in which its clock and process id are valid.
    """

    run_id: str = ""
    group: str = ""
    rank: int | None = None
    node: str = ""
    started: str = ""
    boot: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingState:
    """The state that a process has left behind, or is in now.

    Attributes:
        step: the open step; last_step: the last that has begun. None: none.
        progress_ns: when a step last began, or a section ended in the thread that counts steps.
        wall_offset_ns: Unix time minus ``CLOCK_MONOTONIC`` when the process began to record.
        pending, dropped: ended runs that nobody has taken, and that were lost.
        open_runs: the innermost of each thread, the longest open first.
        alive_ns: when it last did anything that shows here.
        ended_runs: the last that have ended, newest first.
    """

    pid: int
    session_id: str
    is_recording: bool
    step: int | None
    last_step: int | None
    phase: str
    progress_ns: int
    wall_offset_ns: int
    pending: int
    dropped: int
    open_runs: tuple[OpenRun, ...]
    alive_ns: int = 0
    ended_runs: tuple[EndedRun, ...] = ()
    identity: RingIdentity = RingIdentity()

    @property
    def open_section(self) -> OpenRun | None:
        """By the rules of a heartbeat: of the stepping thread; without one of the main thread,
        else the one that has been open for longest."""
        stepping = [run for run in self.open_runs if run.is_stepping]
        if stepping or self.last_step is not None:
            return stepping[0] if stepping else None
        main = [run for run in self.open_runs if run.tid == self.pid]
        return next(iter(main or self.open_runs), None)


def read_ring_file(path: Path) -> RingState:
    """Read the file of a process, whatever it is doing. Cost: some 10 µs for each thread.

    Raises:
        RingFileError: it is not a ring's. OSError: it cannot be read.
    """
    file = open_regular(path, os.O_RDONLY)
    try:
        return _state(lambda offset, count: os.pread(file, count, offset), os.fstat(file).st_size)
    finally:
        os.close(file)


class _Layout(NamedTuple):
    magic: bytes
    version: int
    flags: int
    header_bytes: int
    record_bytes: int
    slot_bytes: int
    frames_per_slot: int
    total_bytes: int
    names_offset: int
    names_bytes: int
    slots_offset: int
    slots: int
    ring_offset: int
    capacity: int
    pid: int
    wall_offset_ns: int
    alive_ns: int


class _Now(NamedTuple):
    step: int
    step_span: int
    phase: int
    session: int
    step_began_ns: int
    last_step: int
    stepping_thread: int
    is_on: int
    session_id: bytes


def _state(read: Read, size: int) -> RingState:
    layout = _layout(_exactly(read, 0, _HEADER_BYTES), size)
    now = _now(read)
    slots = _slots(read, layout)
    names = _names(read, layout)  # after those who use them: a name is there before its first use
    threads = list(_threads(slots, layout, now, names))
    ends_ns = [end_ns for number, end_ns, _ in threads if now.stepping_thread in {0, number}]
    progress_ns = max([now.step_began_ns, *ends_ns])
    runs = [run for _, _, run in threads if run is not None]
    ended = tuple(_ended(read, layout, names))
    tail, head, dropped = (_number(read, at) for at in (_TAIL_AT, _HEAD_AT, _DROPPED_AT))
    return RingState(
        pid=layout.pid,
        session_id=now.session_id.rstrip(b"\0").decode("ascii", "replace"),
        is_recording=now.is_on == 1,
        step=_step(now.step),
        last_step=_step(now.last_step),
        phase=names.get((PHASES, now.phase), ""),
        progress_ns=progress_ns,
        wall_offset_ns=layout.wall_offset_ns,
        pending=min(max(0, tail - head), layout.capacity),
        dropped=dropped,
        open_runs=tuple(sorted(runs, key=lambda run: run.start_ns)),
        alive_ns=max(layout.alive_ns, progress_ns, *(run.end_ns for run in ended)),
        ended_runs=ended,
        identity=_identity(read),
    )


def _layout(header: bytes, size: int) -> _Layout:
    it = _Layout._make(_HEADER.unpack_from(header))
    is_power = it.capacity & (it.capacity - 1) == 0
    end_of_names = it.names_offset + it.names_bytes
    end_of_slots = it.slots_offset + it.slots * it.slot_bytes
    for field, is_right in (
        ("magic", it.magic == _MAGIC),
        ("version", it.version == VERSION),
        ("header_bytes", it.header_bytes == _HEADER_BYTES),
        ("record_bytes", it.record_bytes == _RECORD_BYTES),
        ("frames_per_slot", 0 < it.frames_per_slot <= _MAX_FRAMES),
        ("slot_bytes", it.slot_bytes == _FRAME_BYTES * (1 + it.frames_per_slot)),
        ("slots", 0 < it.slots <= _MAX_SLOTS and it.slots * it.slot_bytes <= _MAX_SLOTS_BYTES),
        ("names_bytes", it.names_bytes <= _MAX_NAMES_BYTES),
        ("capacity", 0 < it.capacity <= _MAX_CAPACITY and is_power),
        ("total_bytes", it.total_bytes <= size),
        ("names_offset", it.names_offset == _HEADER_BYTES),
        ("slots_offset", it.slots_offset == end_of_names),
        ("ring_offset", it.ring_offset == end_of_slots),
        ("total_bytes", it.total_bytes == it.ring_offset + it.capacity * it.record_bytes),
    ):
        if not is_right:
            raise _wrong(field, getattr(it, field))
    return it


def _names(read: Read, layout: _Layout) -> dict[tuple[int, int], str]:
    """Text by (table, number); of a section ``kind NUL name``."""
    used = min(_number(read, _NAMES_USED_AT), layout.names_bytes)
    region = _exactly(read, layout.names_offset, used)
    names: dict[tuple[int, int], str] = {}
    at = 0
    while at + _NAME.size <= used:
        number, table, length = _NAME.unpack_from(region, at)
        at += _NAME.size
        text = region[at : at + length]
        if len(text) < length:
            break
        names[table, number] = text.decode("utf-8", "replace")
        at += (length + 7) // 8 * 8
    return names


def _now(read: Read) -> _Now:
    for _ in range(_TRIES):
        version = _number(read, _SURROUNDINGS_AT)
        cell = _exactly(read, _SURROUNDINGS_AT + (1 + version % 2) * _CELL_BYTES, _CELL_BYTES)
        if _number(read, _SURROUNDINGS_AT) == version:
            break
    return _Now._make(_SURROUNDINGS.unpack(cell))


def _step(number: int) -> int | None:
    return None if number == _NO_STEP else number


def _slots(read: Read, layout: _Layout) -> list[bytes]:
    used = min(_number(read, _SLOTS_USED_AT), layout.slots)
    indexes = range(layout.slots_offset, layout.slots_offset + layout.slot_bytes * used)
    return [_whole_slot(read, at, layout.slot_bytes) for at in indexes[:: layout.slot_bytes]]


def _threads(
    slots: list[bytes], layout: _Layout, now: _Now, names: dict[tuple[int, int], str]
) -> Iterator[tuple[int, int, OpenRun | None]]:
    """(number, end of its last run, innermost open run) of every thread."""
    for slot in slots:
        thread, tid, _, depth, last_end_ns = _SLOT.unpack_from(slot)
        if thread == 0:
            continue
        run = None
        if 0 < depth < 2**32:
            top = min(depth, layout.frames_per_slot)
            is_stepping = thread == now.stepping_thread
            run = _open_run(slot[top * _FRAME_BYTES :], tid, depth, is_stepping, names)
        yield thread, last_end_ns, run


def _whole_slot(read: Read, at: int, count: int) -> bytes:
    """A copy between two equal versions; zeros if its process died while it moved frames."""
    for _ in range(_TRIES):
        before = _exactly(read, at, _SLOT.size)
        slot = _exactly(read, at, count)
        (version,) = _VERSION.unpack_from(before)
        if version % 2 == 0 and _VERSION.unpack_from(_exactly(read, at, _SLOT.size)) == (version,):
            return slot
    return bytes(count)


def _open_run(
    frame: bytes, tid: int, depth: int, is_stepping: bool, names: dict[tuple[int, int], str]
) -> OpenRun:
    _, start_ns, step, _, _, _, section, _, phase, _ = _FRAME.unpack_from(frame)
    kind, _, name = names.get((SECTIONS, section), "").partition("\0")
    return OpenRun(
        name=name,
        kind=kind,
        phase=names.get((PHASES, phase), ""),
        step=_step(step),
        start_ns=start_ns,
        tid=tid,
        depth=depth,
        is_stepping=is_stepping,
    )


def _ended(read: Read, layout: _Layout, names: dict[tuple[int, int], str]) -> Iterator[EndedRun]:
    """The newest records, drained or not, but for those that are being written."""
    tail = min(_number(read, _TAIL_AT), 2**62)
    for index in range(tail - 1, max(tail - 1 - _MAX_ENDED, -1), -1):
        at = layout.ring_offset + (index & (layout.capacity - 1)) * _RECORD_BYTES
        record = _RECORD.unpack(_exactly(read, at, _RECORD_BYTES))
        lap = index & ~(layout.capacity - 1)
        if record != _RECORD.unpack(_exactly(read, at, _RECORD_BYTES)):
            continue
        _, _, _, step, start_ns, end_ns, _, _, section, _, _, _, _, flags, turn = record
        if turn not in {lap + 1, lap + layout.capacity}:
            continue
        _, _, name = names.get((SECTIONS, section), "").partition("\0")
        yield EndedRun(
            name=STEP_SPAN if flags & _STEP_SPAN else name,
            step=_step(step),
            start_ns=start_ns,
            end_ns=end_ns,
        )


def _identity(read: Read) -> RingIdentity:
    """Nothing if it is not there, as in a file of an older version, or makes no sense."""
    (length,) = _LENGTH.unpack(_exactly(read, _IDENTITY_AT, _LENGTH.size))
    if not 0 < length <= MAX_IDENTITY_BYTES:
        return RingIdentity()
    try:
        written = parse_json(_exactly(read, _IDENTITY_AT + _LENGTH.size, length))
    except ValueError:
        return RingIdentity()
    if not isinstance(written, dict):
        return RingIdentity()
    texts = {n: written.get(n) for n in ("run_id", "group", "node", "started", "boot")}
    rank = written.get("rank")
    return RingIdentity(
        **{name: text for name, text in texts.items() if isinstance(text, str)},
        rank=rank if type(rank) is int and 0 <= rank < 2**31 else None,
    )


def write_identity(path: Path, identity: RingIdentity) -> None:
    """Say in a ring's file whose it is. What does not fit is left out as a whole.

    Raises:
        OSError: it cannot be written.
    """
    text = json.dumps(asdict(identity)).encode()
    if len(text) > MAX_IDENTITY_BYTES:
        return
    file = open_regular(path, os.O_WRONLY)
    try:
        os.pwrite(file, _LENGTH.pack(len(text)) + text, _IDENTITY_AT)
    finally:
        os.close(file)


def _exactly(read: Read, offset: int, count: int) -> bytes:
    data = read(offset, count)
    if len(data) != count:
        raise _wrong("bytes", offset + len(data))
    return data


def _number(read: Read, at: int) -> int:
    return int.from_bytes(_exactly(read, at, 8), "little")


def _wrong(what: str, value: object) -> RingFileError:
    return RingFileError.of(
        f"ring file: {what}",
        value,
        f"what version {VERSION} of the format has there",
        "Is it a whole file of OTEL_STRAGGLER_RING_DIR, and of this version?",
    )
