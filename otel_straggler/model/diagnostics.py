"""Diagnostics of a hanging rank: stacks of its threads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace

from otel_straggler.strict_json import whole_number

HEAD_LINE = "=== otel-straggler stacks 1"
HEAD_END = "---"
SUFFIX = ".stacks.txt"
ANNOUNCED = "announced"
"""The first head of a file, before any dump."""
MAX_DUMPS, MAX_THREADS, MAX_FRAMES, MAX_LINE = 1_000, 1_000, 200, 2_000
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_THREAD = re.compile(r"(?:Current t|T)hread 0x([0-9a-fA-F]{1,16})\b ?(?:\[(.*?)\])?(.*)")
_FRAME = re.compile(r'  File "(.*)", line (\d{1,9}|\?\?\?) in (.*)')


@dataclass(frozen=True, slots=True, kw_only=True)
class StacksHead:
    """Head of a dump, all text as in the file: its process, time and reason, and what was open.

    Attributes:
        run, group, rank, node, pid, session: identity.
        started: begin of the process, in ticks since the boot; distinguishes reused pids.
        at: UTC; why, by: reason of the dump, and who wrote it.
        step, section, since: what was open, and since when (UTC); or empty.
        main_thread: its number, as in the stacks.
        signal: with which a dump can be requested from outside; or empty.
    """

    run: str = ""
    group: str = ""
    rank: str = ""
    node: str = ""
    pid: str = ""
    session: str = ""
    started: str = ""
    at: str = ""
    why: str = ""
    by: str = ""
    step: str = ""
    section: str = ""
    since: str = ""
    main_thread: str = ""
    signal: str = ""

    @property
    def is_announcement(self) -> bool:
        return self.why == ANNOUNCED

    def text(self) -> str:
        """As in a file; a line each, without control characters."""
        lines = [f"{one.name}: {_plain(getattr(self, one.name))}" for one in fields(self)]
        return "\n".join([HEAD_LINE, *lines, HEAD_END, ""])


@dataclass(frozen=True, slots=True)
class StackFrame:
    """One call; ``line`` is 0 if unknown."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """One thread: ``threading.get_ident()``, its name or "", and frames, innermost first."""

    number: int
    name: str
    frames: tuple[StackFrame, ...]
    holds_gil: bool = False


@dataclass(frozen=True, slots=True)
class StacksDump:
    """One dump; without threads if the process did not answer."""

    head: StacksHead
    threads: tuple[ThreadStack, ...] = ()

    @property
    def main(self) -> ThreadStack | None:
        """By its number, else its name, else the last, as faulthandler writes the oldest last."""
        number = _number(self.head.main_thread)
        by_number = (one for one in self.threads if one.number == number)
        by_name = (one for one in self.threads if one.name == "MainThread")
        return next(iter((*by_number, *by_name, *self.threads[-1:])), None)


def file_stem(*, run_id: str, group: str, rank: int, session_id: str) -> str:
    """Name of the files of a session, without a suffix.

    >>> file_stem(run_id="a/b 1", group="", rank=3, session_id="00ff")
    'a_b_1--rank3-00ff'
    """
    run, group = (_UNSAFE.sub("_", text)[:80] for text in (run_id, group))
    return f"{run}-{group}-rank{rank}-{session_id}"


def parse_dumps(text: str) -> list[StacksDump]:
    """The newest 1,000 dumps of a file in order. Ignores foreign lines; never raises."""
    return list(_dumps(text))[-MAX_DUMPS:]


@dataclass(slots=True)
class _Reading:
    head: StacksHead = field(default_factory=StacksHead)
    threads: list[ThreadStack] = field(default_factory=list)
    frames: list[StackFrame] = field(default_factory=list)
    begun: tuple[int, str, bool] | None = None

    def end_thread(self) -> None:
        if self.begun is not None and len(self.threads) < MAX_THREADS:
            number, name, holds_gil = self.begun
            self.threads.append(ThreadStack(number, name, tuple(self.frames), holds_gil))
        self.begun, self.frames = None, []

    def has(self, number: int) -> bool:
        begun = self.begun is not None and self.begun[0] == number
        return begun or any(one.number == number for one in self.threads)

    def dump(self) -> StacksDump:
        self.end_thread()
        return StacksDump(self.head, tuple(self.threads))


def _dumps(text: str) -> Iterator[StacksDump]:
    reading: _Reading | None = None
    in_head = False
    for raw in text.split("\n"):
        line = raw[:MAX_LINE].rstrip("\r")
        if line == HEAD_LINE:
            if reading is not None:
                yield reading.dump()
            reading, in_head = _Reading(), True
        elif reading is None:
            continue
        elif in_head:
            in_head = line != HEAD_END
            if in_head:
                reading.head = _with(reading.head, line)
        elif thread := _THREAD.fullmatch(line):
            number = int(thread[1], 16)
            if reading.has(number):  # a signal began another dump
                yield reading.dump()
                reading = _Reading(head=replace(reading.head, why="signal", by="signal"))
            reading.end_thread()
            reading.begun = number, thread[2] or "", "holds the GIL" in thread[3]
        elif (frame := _FRAME.fullmatch(line)) and len(reading.frames) < MAX_FRAMES:
            number = whole_number(frame[2]) or 0
            reading.frames.append(StackFrame(frame[3], frame[1], number))
    if reading is not None:
        yield reading.dump()


_KEYS = frozenset(one.name for one in fields(StacksHead))


def _with(head: StacksHead, line: str) -> StacksHead:
    key, colon, value = line.partition(": ")
    return replace(head, **{key: value}) if colon and key in _KEYS else head


def _plain(value: str) -> str:
    return _CONTROL.sub(" ", value)[: MAX_LINE // 4]


def _number(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None
