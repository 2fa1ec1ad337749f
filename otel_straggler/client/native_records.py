"""Numbers for names, because a record has room for numbers only."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, overload

from otel_straggler.client.recorder import Record, WorkSize

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from otel_straggler.client.native_recorder import NativeRecorder

SECTIONS = 1
PHASES = 2
"""Tables in the ring's file; see ``NameTable`` in block.hpp."""
MAX_NAMES = 65_536
_MAX_BYTES = 1024
_Key = TypeVar("_Key", bound="str | tuple[str, str]")


class Names(Generic[_Key]):
    """Gives every name a number, for as long as the process lives.

    Args:
        table: of the ring's file.
        other: stands for all names above 65,536: a name that varies must not fill the memory.
        publish: called with every new name (table, number, bytes).

    Attributes:
        all: the names by number; it only grows.
    """

    def __init__(self, table: int, other: _Key, publish: Callable[[int, int, bytes], None]) -> None:
        self._table = table
        self._other = other
        self._publish = publish
        self._numbers: dict[_Key, int] = {}
        self.all: list[_Key] = []
        self._lock = threading.Lock()

    def number_of(self, key: _Key) -> int:
        result = self._numbers.get(key)
        return self._new(key) if result is None else result

    def add(self, key: _Key) -> int:
        """A number that ``number_of`` never gives."""
        self.all.append(key)
        return len(self.all) - 1

    def publish_all(self) -> None:
        for number, key in enumerate(self.all):
            self._publish(self._table, number, as_bytes(key))

    def reset_lock(self) -> None:
        """In a forked child: a thread of the parent may have held it."""
        self._lock = threading.Lock()

    def _new(self, key: _Key) -> int:
        with self._lock:
            if len(self.all) >= MAX_NAMES and key != self._other:
                key = self._other
            result = self._numbers.get(key)
            if result is None:
                self.all.append(key)
                result = len(self.all) - 1
                self._publish(self._table, result, as_bytes(key))
                self._numbers[key] = result  # last: who finds it may use it
        return result


def as_bytes(key: str | tuple[str, str]) -> bytes:
    """A name as the ring's file has it; of a section ``kind NUL name``."""
    text = key if isinstance(key, str) else f"{key[1]}\0{key[0]}"
    return text.encode("utf-8", "replace")[:_MAX_BYTES]


RECORD_BYTES = 128
RECORD = struct.Struct("<3Q5q6IQ16xq4xI")
"""``Record`` of record.hpp: span, parent, step_span, step, start_ns, end_ns, tokens, microbatch,
section, parent_section, phase, session (``epoch``), thread, flags, sequence; of its ``GpuSlot``
nccl_time_ns and state."""
TIMED_RECORD = struct.Struct("<3Q5q6IQ3q2I")
"""The same with all of its ``GpuSlot``: kernel, busy and nccl time, number of kernels, state."""
_FIELDS = [
    *((name, "<u8") for name in ("span", "parent", "step_span")),
    *((name, "<i8") for name in ("step", "start_ns", "end_ns", "tokens", "microbatch")),
    *((name, "<u4") for name in ("section", "parent_section", "phase", "epoch", "thread", "flags")),
    ("sequence", "<u8"),
    ("gpu", "V32"),
]
FAILED = 1
STEP_SPAN = 2
NO_SECTION = 2**32 - 1
TIMED_BY_EVENTS = 4
WAITED = 5


class Place(NamedTuple):
    """A section that was open: (name, kind) and the numbers of its record."""

    name: tuple[str, str]
    span: int
    section: int
    phase: int
    session: int
    step: int
    step_span: int


class NativeBatch(Sequence[Record]):
    """Executions in order of their ends, also as a sequence of tuples. ``errors`` and ``works``:
    what does not fit into a record, by span number."""

    def __init__(
        self,
        block: bytes,
        recorder: NativeRecorder,
        errors: Mapping[int, type[BaseException]],
        works: Mapping[int, WorkSize],
    ) -> None:
        self.block = block
        self.recorder = recorder
        self._errors = errors
        self._works = works

    @cached_property
    def columns(self) -> npt.NDArray[np.void]:
        """A structured array, without a copy."""
        import numpy as np

        return np.frombuffer(self.block, np.dtype(_FIELDS))

    @cached_property
    def records(self) -> list[Record]:
        """As tuples. Cost: about 1 µs each."""
        return list(self._tuples())

    def __len__(self) -> int:
        return len(self.block) // RECORD_BYTES

    @overload
    def __getitem__(self, at: int) -> Record: ...

    @overload
    def __getitem__(self, at: slice) -> NativeBatch: ...

    def __getitem__(self, at: int | slice) -> Record | NativeBatch:
        if isinstance(at, int):
            return self.records[at]
        first, last, _ = at.indices(len(self))
        block = self.block[first * RECORD_BYTES : last * RECORD_BYTES]
        return NativeBatch(block, self.recorder, self._errors, self._works)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def _tuples(self) -> Iterator[Record]:
        """Of the enclosing execution only number and name are known: its start is 0."""
        recorder = self.recorder
        for (
            span, parent, step_span, step, start_ns, end_ns, tokens, microbatch,
            section, around, phase, session, _, flags, _, nccl_time_ns, gpu_state,
        ) in RECORD.iter_unpack(self.block):  # fmt: skip
            context = recorder.context_of(session, step, step_span, phase)
            work: WorkSize | None = self._works.get(span) if self._works else None
            if work is None and (tokens >= 0 or microbatch >= 0):
                work = WorkSize(microbatch, tokens)
            enclosing = None
            if around != NO_SECTION:
                enclosing = (recorder.timer(around), parent, 0, context, None)
            error = self._errors.get(span, Exception) if flags & FAILED else None
            frame = (recorder.timer(section), span, start_ns, context, work)
            yield frame, enclosing, end_ns, error, nccl_time_ns if gpu_state == WAITED else 0
