"""Metrics requests read by the extension module: one heartbeat at once, rules asked for once per
case.

As with spans (``native_scan.py``), C++ walks the bytes and tells cases apart; what a case means is
decided here, with the code that reads point by point. Whatever C++ does not take is left to
protobuf's own parser, so it decides what is no request.
"""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import numpy as np
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage

from otel_straggler import semconv
from otel_straggler.model.kernels import KernelCell, KernelTimes
from otel_straggler.model.observation import Section
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Buckets, Heartbeat, SectionTimes
from otel_straggler.wire.identity import Aliases, Resources, Value, read_attributes
from otel_straggler.wire.metric_rules import (
    COUNTS,
    KERNEL_TIMES,
    MALFORMED,
    MAX_FOLDED,
    MAX_REASONS,
    NOT_DELTA,
    NUMBERS,
    SECTION_TIMES,
    TEXTS,
    UNITS_S,
    UNKNOWN,
    USED,
    USES,
    DecodedMetrics,
    RankDescription,
    as_text,
    cell_named,
    count_name,
    describe_rank,
    heartbeat,
    section_named,
)

_NUMBER, _COUNTS, _INFO, _TIMES, _KERNELS = range(5)
_SENDER_ASKED, _DESCRIPTION_ASKED, _TEXT_ASKED, _COUNTED_ASKED, _SECTION_ASKED, _CELL_ASKED = range(
    6
)
_FULL = 2
_MAX_PASSES = 8
"""A request is read once more for senders, and once for what describes them; the rest is for other
threads."""
_OWN_USES = (USED, SECTION_TIMES, UNKNOWN, MALFORMED, KERNEL_TIMES, NOT_DELTA)
_USE_NUMBERS = {use: number for number, use in enumerate(USES)}
_SLOTS = (*TEXTS, semconv.REASON)
_NO_SLOT = len(_SLOTS)
_UNKNOWN_OUTCOME = "unknown"


class NativeMetrics:
    """Decodes metrics requests; safe to use from several threads.

    Memory is bounded: when there is no room for another case, it begins anew.
    """

    def __init__(self, native: ModuleType, aliases: Aliases, resources: Resources) -> None:
        self._native = native
        self._aliases = aliases
        self._resources = resources
        self._cases = _Cases(native, aliases, resources)

    def decode(self, body: bytes) -> DecodedMetrics | None:
        """None if protobuf's own parser has to read it.

        Raises:
            DecodeError: it is no request.
        """
        found = self._cases.decode(body)
        if found != _FULL:
            return found if isinstance(found, DecodedMetrics) else None
        fresh = _Cases(self._native, self._aliases, self._resources)
        found = fresh.decode(body)
        if not isinstance(found, DecodedMetrics):
            return None
        self._cases = fresh
        return found


class _Cases:
    """What a scanner has been told, and the names that its codes stand for."""

    def __init__(self, native: ModuleType, aliases: Aliases, resources: Resources) -> None:
        self._aliases = aliases
        self._resources = resources
        self._lock = threading.Lock()
        self._source_codes: dict[tuple[Source, RankDescription], int] = {}
        self._tellings: list[RankDescription] = []
        self._section_codes: dict[Section, int] = {}
        self._cell_codes: dict[KernelCell, int] = {}
        self._text_codes: dict[str, int] = {}
        self._sources: list[Source] = []
        self._sections: list[Section] = []
        self._cells: list[KernelCell] = []
        self._texts: list[str] = []
        uses = tuple(_USE_NUMBERS[use] for use in _OWN_USES)
        units = list(UNITS_S.items())
        self._scanner = native.MetricScanner(_keys(aliases), _metrics(), units, uses)

    def decode(self, body: bytes) -> DecodedMetrics | int:
        """What is in the body; or that it is unfamiliar, or that there is no room for its cases.

        Raises:
            DecodeError: it is no request.
        """
        for _ in range(_MAX_PASSES):
            found = self._scanner.scan(body)
            if isinstance(found, tuple):
                return self._decoded(*found)
            if isinstance(found, int):
                return found
            for asked, number, context, sample in found:
                self._scanner.learn(asked, number, *self._answer(asked, context, sample))
        return 1

    # --- answers ----------------------------------------------------------------------------

    def _answer(self, asked: int, context: bytes, sample: bytes) -> tuple[int, int]:
        """A code, or -1; and for a sender that is none what becomes of its points.

        Raises:
            DecodeError: the context is no resource.
        """
        told = read_attributes(ResourceMessage.FromString(sample).attributes)
        if asked == _SECTION_ASKED:
            section = section_named(told, self._aliases)
            known = None if section is None else (section, self._section_codes, self._sections)
            return (-1 if known is None else self._code(*known)), 0
        if asked == _CELL_ASKED:
            cell = cell_named(told, self._aliases)
            return (-1 if cell is None else self._code(cell, self._cell_codes, self._cells)), 0
        if asked in (_TEXT_ASKED, _COUNTED_ASKED):
            value = next(iter(told.values()), None)
            text = count_name(value) if asked == _COUNTED_ASKED else as_text(str(value))
            return self._code(text, self._text_codes, self._texts), 0
        return self._source(context, told)

    def _source(self, resource: bytes, told: dict[str, Value]) -> tuple[int, int]:
        known = self._resources.read_bytes(resource)
        identity = known.overridden_by(told) if told else known.identity
        if identity.source is None:
            return -1, _USE_NUMBERS[identity.outcome]
        return self._source_code(identity.source, describe_rank(told, known.values)), 0

    def _source_code(self, source: Source, told: RankDescription) -> int:
        """One for all that it tells of itself, which changes while a rank is the same."""
        with self._lock:
            code = self._source_codes.setdefault((source, told), len(self._sources))
            if code == len(self._sources):
                self._tellings.append(told)
                self._sources.append(source)
            return code

    def _code(self, name: Any, codes: dict[Any, int], names: list[Any]) -> int:
        with self._lock:
            code = codes.setdefault(name, len(names))
            if code == len(names):
                names.append(name)
            return code

    # --- columns ----------------------------------------------------------------------------

    def _decoded(
        self,
        beats: list[tuple[Any, ...]],
        times: list[tuple[Any, ...]],
        kernels: tuple[bytearray, ...] | None,
        points: tuple[int, ...],
    ) -> DecodedMetrics:
        """What the columns of a scan stand for."""
        return DecodedMetrics(
            heartbeats=tuple([self._heartbeat(*beat) for beat in beats]),
            section_times=tuple([self._times(*one) for one in times]) if times else (),
            kernel_times=None if kernels is None else self._kernel_times(kernels),
            points=dict(zip(USES, points, strict=False)),
        )

    def _heartbeat(
        self,
        source: int,
        sent_at_s: float | None,
        progress_at_s: float | None,
        step: float | None,
        open_time_s: float | None,
        finished_at_s: float | None,
        section: int,
        phase: int,
        outcome: int,
        dropped: list[tuple[int, int]] | None,
        folded: list[tuple[int, int]] | None,
    ) -> Heartbeat:
        texts = self._texts
        return heartbeat(
            self._sources[source],
            (sent_at_s, progress_at_s, step, open_time_s, finished_at_s),
            (
                "" if section < 0 else texts[section],
                "" if phase < 0 else texts[phase],
                _UNKNOWN_OUTCOME if outcome < 0 else texts[outcome],
            ),
            {texts[name]: count for name, count in dropped} if dropped else {},
            {texts[name]: count for name, count in folded} if folded else {},
            self._tellings[source],
        )

    def _times(
        self,
        source: int,
        section: int,
        start_ns: int,
        end_ns: int,
        is_cumulative: bool,
        unit_s: float,
        min_s: float | None,
        max_s: float | None,
        total: float | None,
        counts: bytearray,
        bounds: list[float],
        scale: int | None,
        first: int,
        zero: int,
        zero_bound: float,
    ) -> SectionTimes:
        return SectionTimes(
            source=self._sources[source],
            section=self._sections[section],
            start_ns=start_ns,
            end_ns=end_ns,
            is_cumulative=is_cumulative,
            buckets=Buckets(
                counts=np.frombuffer(counts, np.int64),
                bounds=tuple(bounds),
                scale=scale,
                first=first,
                zero=zero,
                zero_bound=zero_bound,
                sum=total,
                unit_s=unit_s,
            ),
            min_s=min_s,
            max_s=max_s,
        )

    def _kernel_times(self, columns: tuple[bytearray, ...]) -> KernelTimes:
        source, cell, scale, start_ns, end_ns, count, ends, sum_s, min_s, max_s, index, runs = (
            np.frombuffer(column, kind)
            for column, kind in zip(columns, _KERNEL_COLUMNS, strict=True)
        )
        sources, source = np.unique(source, return_inverse=True)
        cells, cell = np.unique(cell, return_inverse=True)
        return KernelTimes(
            sources=tuple(self._sources[code] for code in sources.tolist()),
            cells=tuple(self._cells[code] for code in cells.tolist()),
            source=source.astype(np.int32),
            cell=cell.astype(np.int32),
            start_ns=start_ns,
            end_ns=end_ns,
            count=count,
            sum_s=sum_s,
            min_s=min_s,
            max_s=max_s,
            scale=scale,
            ends=ends,
            index=index,
            runs=runs,
        )


_KERNEL_COLUMNS = (
    *(np.int32, np.int32, np.int32, np.int64, np.int64, np.int64, np.int64),
    *(np.float64, np.float64, np.float64, np.int32, np.int64),
)


def _keys(aliases: Aliases) -> list[tuple[str, bool, bool, bool, int]]:
    """Attributes that mean something: whether they tell who sent, whether they name the section,
    whether they name a kernel, and as which text."""
    who = aliases.process_keys()
    section = {*aliases.section, semconv.SECTION_KIND, semconv.PHASE}
    kernel = {semconv.KERNEL, semconv.KERNEL_CLASS}
    slots = {str(key): slot for slot, key in enumerate(_SLOTS)}
    return [
        (key, key in who, key in section, key in kernel, slots.get(key, _NO_SLOT))
        for key in sorted({*who, *section, *kernel, *_SLOTS})
    ]


def _metrics() -> list[tuple[str, int, int, float, int]]:
    """Names, roles, places, largest values, and how many counts are kept."""
    most = (MAX_REASONS, MAX_FOLDED)
    return [
        *((name, _NUMBER, at, largest, 0) for at, (name, largest) in enumerate(NUMBERS.items())),
        *((name, _COUNTS, at, COUNTS[name], most[at]) for at, name in enumerate(COUNTS)),
        (semconv.RANK_INFO.name, _INFO, 0, 0.0, 0),
        (semconv.SECTION_DURATION.name, _TIMES, 0, 0.0, 0),
        (semconv.KERNEL_DURATION.name, _KERNELS, 0, 0.0, 0),
    ]
