"""The section times of this rank since the last report, within bounded memory.

Records come in batches and are taken apart by column, because a report waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from otel_straggler.model.observation import Ints, Section
from otel_straggler.record.active import STEP_TIMER
from otel_straggler.record.batch import FAILED, STEP_SPAN, NativeBatch
from otel_straggler.record.recorder import Context, Record, SectionTimer, is_failure
from otel_straggler.semconv import OTHER_SECTION

MOST_RUNS = 8192
"""Runs kept per section, the newest; NVRx keeps as many."""
MOST_SECTIONS = 1000
_ERROR = itemgetter(3)
_LOW = 2**32 - 1
_MOST_SMALL = 2**14


class _Runs:
    """The newest runs of one section, as chunks."""

    __slots__ = ("chunks", "count", "section")

    def __init__(self, section: Section) -> None:
        self.section = section
        self.chunks: list[Ints] = []
        self.count = 0

    def add(self, lengths_ns: Ints) -> None:
        self.chunks.append(lengths_ns)
        self.count += len(lengths_ns)
        if self.count > 2 * MOST_RUNS:
            self.chunks = [self.newest()]
            self.count = MOST_RUNS

    def newest(self) -> Ints:
        joined = self.chunks[0] if len(self.chunks) == 1 else np.concatenate(self.chunks)
        return joined[-MOST_RUNS:]


class SectionSamples:
    """Takes records as they are drained, gives the times of every section.

    State: 8 bytes per run, of at most 16,384 runs per section.
    """

    def __init__(self) -> None:
        self._runs: dict[str, _Runs] = {}
        self._sections: dict[_Opened, Section] = {}

    def add(self, records: Sequence[Record]) -> None:
        """Keep the durations; a run that an exception ended says nothing about speed.

        Cost: about 0.2 µs per record; of a native batch of a thousand less than a tenth of that.
        """
        if isinstance(records, NativeBatch):
            self._add_native(records)
        else:
            self._add_tuples(records)

    def _add_native(self, batch: NativeBatch) -> None:
        columns = batch.columns
        lengths_ns = columns["end_ns"] - columns["start_ns"]
        np.maximum(lengths_ns, 1, out=lengths_ns)
        keys = np.ascontiguousarray(columns["section"])
        phases = columns["phase"]
        if phases.any():
            keys = keys | phases.astype(np.uint64) << np.uint64(32)
        unused = columns["flags"] & (FAILED | STEP_SPAN)
        if unused.any():
            keys, lengths_ns = keys[unused == 0], lengths_ns[unused == 0]
        found, codes = _numbered(keys)
        recorder = batch.recorder
        names = recorder.phases()
        opened = [(recorder.timer(k & _LOW), names[k >> 32]) for k in found]
        self._add(opened, codes, lengths_ns)

    def _add_tuples(self, records: Sequence[Record]) -> None:
        count = len(records)
        lengths_ns = np.fromiter((r[2] - r[0][2] for r in records), np.int64, count)
        lengths_ns = np.maximum(1, lengths_ns)
        codes, opened = _coded([r[0][0] for r in records], [r[0][3] for r in records])
        used = codes >= 0
        if any(map(_ERROR, records)):
            used &= np.fromiter((not is_failure(r[3]) for r in records), bool, count)
        self._add(opened, codes[used], lengths_ns[used])

    def _add(self, opened: list[_Opened], codes: Ints, lengths_ns: Ints) -> None:
        """``codes``: of each run, its place in ``opened``."""
        if len(opened) == 1:
            self._of(opened[0]).add(lengths_ns)
            return
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(opened) + 1))
        lengths_ns = lengths_ns[order]
        for each, first, last in zip(opened, bounds.tolist(), bounds[1:].tolist(), strict=False):
            if last > first:
                self._of(each).add(lengths_ns[first:last])

    def take(self) -> list[tuple[Section, Ints]]:
        """Every section as it is scored, each name once, with its durations in nanoseconds, oldest
        first; then begin anew. A section that was opened with two kinds has the first."""
        taken, self._runs = self._runs, {}
        return [(runs.section, runs.newest()) for runs in taken.values()]

    def _of(self, opened: _Opened) -> _Runs:
        section = self._sections.get(opened) or self._scored(opened)
        runs = self._runs.get(section.name)
        if runs is None:
            if len(self._runs) >= MOST_SECTIONS:
                section = _OTHER
            runs = self._runs.setdefault(section.name, _Runs(section))
        return runs

    def _scored(self, opened: _Opened) -> Section:
        """Kept, because a section is opened window after window."""
        timer, phase = opened
        if len(self._sections) > 2 * MOST_SECTIONS:
            self._sections.clear()
        section = Section(timer.name, timer.kind).in_phase(phase)  # type: ignore[arg-type]
        return self._sections.setdefault(opened, section)


_Opened = tuple[SectionTimer, str]
"""What was opened, and in which phase."""
_OTHER = Section(OTHER_SECTION, "other")


def _numbered(keys: npt.NDArray[np.unsignedinteger[Any]]) -> tuple[list[int], Ints]:
    """The different keys, ascending, and of each key its place among them.

    Cost: O(n) for the small numbers that sections have; O(n log n) for others.
    """
    most = int(keys.max(initial=0))
    if most > _MOST_SMALL:
        found, codes = np.unique(keys, return_inverse=True)
        return found.tolist(), codes.astype(np.int64)
    is_there = np.zeros(most + 1, bool)
    is_there[keys] = True
    place = np.cumsum(is_there, dtype=np.uint16) - np.uint16(1)
    return np.flatnonzero(is_there).tolist(), place[keys]


def _coded(timers: list[SectionTimer], contexts: list[Context]) -> tuple[Ints, list[_Opened]]:
    """A number per record, -1 for a step's own span, and what the numbers stand for."""
    if any(context.phase for context in set(contexts)):
        pairs = [(t, context.phase) for t, context in zip(timers, contexts, strict=True)]
        numbers = {pair: at for at, pair in enumerate(dict.fromkeys(pairs))}
        codes = np.array([numbers[pair] for pair in pairs], np.int64)
    else:  # nearly always, and four times as fast
        alone = {timer: at for at, timer in enumerate(dict.fromkeys(timers))}
        codes = np.array(list(map(alone.__getitem__, timers)), np.int64)
        numbers = {(timer, ""): at for timer, at in alone.items()}
    for (timer, _), number in numbers.items():
        if timer is STEP_TIMER:
            codes[codes == number] = -1
    return codes, list(numbers)
