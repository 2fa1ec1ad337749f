"""Metrics requests read by the extension module, as spans are (``native_scan.py``): a heartbeat at
once, cases decided by the code that reads point by point."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage

from otel_straggler import semconv
from otel_straggler.model.kernels import KernelCell, KernelTimes
from otel_straggler.model.observation import Section
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Buckets, Heartbeat, SectionTimes
from otel_straggler.otlp import metric_rules as rules
from otel_straggler.otlp.identity import Aliases, Resources, Value, read_attributes
from otel_straggler.otlp.native_scan import Cases, CodeTable

_NUMBER, _COUNTS, _INFO, _TIMES, _KERNELS = range(5)
_TEXT, _COUNT_NAME, _SECTION, _CELL = range(2, 6)
"""Cases of the scanner; 0 and 1 are senders, the second with a description."""
_OWN_USES = (
    rules.USED,
    rules.SECTION_TIMES,
    rules.UNKNOWN,
    rules.MALFORMED,
    rules.KERNEL_TIMES,
    rules.NOT_DELTA,
)
_USE_CODES = {use: number for number, use in enumerate(rules.USES)}
_SLOTS = (*rules.TEXTS, semconv.REASON)
_NO_SLOT = len(_SLOTS)


class MetricCases(Cases[rules.DecodedMetrics]):
    """Cases of metrics requests: senders, their descriptions, texts, sections and kernels."""

    def __init__(self, native: ModuleType, aliases: Aliases, resources: Resources) -> None:
        self._aliases = aliases
        self._resources = resources
        self._senders = CodeTable[tuple[Source, rules.RankDescription]]()
        self._sections = CodeTable[Section]()
        self._cells = CodeTable[KernelCell]()
        self._texts = CodeTable[str]()
        uses = tuple(_USE_CODES[use] for use in _OWN_USES)
        units = list(rules.UNITS_S.items())
        super().__init__(native.MetricScanner(_keys(aliases), _metrics(), units, uses))

    def _teach(self, case: int, number: int, context: bytes, sample: bytes) -> None:
        attributes = read_attributes(ResourceMessage.FromString(sample).attributes)
        code, use = -1, 0
        if case == _SECTION:
            section = rules.section_named(attributes, self._aliases)
            code = -1 if section is None else self._sections.code(section)
        elif case == _CELL:
            cell = rules.cell_named(attributes, self._aliases)
            code = -1 if cell is None else self._cells.code(cell)
        elif case in (_TEXT, _COUNT_NAME):
            value = next(iter(attributes.values()), None)
            text = rules.count_name(value) if case == _COUNT_NAME else rules.as_text(str(value))
            code = self._texts.code(text)
        else:
            code, use = self._sender(context, attributes)
        self._scanner.learn(case, number, code, use)

    def _sender(self, resource: bytes, attributes: dict[str, Value]) -> tuple[int, int]:
        """A code for a sender and its description, which changes while a rank is the same; for a
        sender that is none, -1 and the outcome of its points."""
        known = self._resources.read_bytes(resource)
        identity = known.overridden_by(attributes) if attributes else known.identity
        if identity.source is None:
            return -1, _USE_CODES[identity.outcome]
        description = rules.describe_rank(attributes, known.values)
        return self._senders.code((identity.source, description)), 0

    def _decoded(
        self,
        beats: list[tuple[Any, ...]],
        times: list[tuple[Any, ...]],
        kernels: tuple[bytearray, ...] | None,
        points: tuple[int, ...],
    ) -> rules.DecodedMetrics:
        return rules.DecodedMetrics(
            heartbeats=tuple([self._heartbeat(beat) for beat in beats]),
            section_times=tuple([self._times(one) for one in times]) if times else (),
            kernel_times=None if kernels is None else self._kernel_times(kernels),
            points=dict(zip(rules.USES, points, strict=False)),
        )

    def _heartbeat(self, beat: tuple[Any, ...]) -> Heartbeat:
        source, *numbers, section, phase, outcome, dropped, folded = beat
        texts = self._texts.names
        sender, description = self._senders.names[source]
        return rules.heartbeat(
            sender,
            numbers,
            ["" if code < 0 else texts[code] for code in (section, phase, outcome)],
            {texts[name]: count for name, count in dropped} if dropped else {},
            {texts[name]: count for name, count in folded} if folded else {},
            description,
        )

    def _times(self, columns: tuple[Any, ...]) -> SectionTimes:
        (
            source, section, start_ns, end_ns, is_cumulative, unit_s, min_s, max_s,
            total, counts, bounds, scale, first, zero, zero_bound,
        ) = columns  # fmt: skip
        return SectionTimes(
            source=self._senders.names[source][0],
            section=self._sections.names[section],
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
            sources=tuple(self._senders.names[code][0] for code in sources.tolist()),
            cells=tuple(self._cells.names[code] for code in cells.tolist()),
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
    """Attributes that mean something: whether they name the sender, the section, a kernel, and the
    slot of their text."""
    who = aliases.process_keys()
    section = {*aliases.section, semconv.SECTION_KIND, semconv.PHASE}
    kernel = {semconv.KERNEL, semconv.KERNEL_CLASS}
    slots = {str(key): slot for slot, key in enumerate(_SLOTS)}
    return [
        (key, key in who, key in section, key in kernel, slots.get(key, _NO_SLOT))
        for key in sorted({*who, *section, *kernel, *_SLOTS})
    ]


def _metrics() -> list[tuple[str, int, int, float, int]]:
    """Names, roles, indexes, largest values, and how many counts are kept."""
    limits = (rules.MAX_REASONS, rules.MAX_FOLDED)
    return [
        *(
            (name, _NUMBER, at, largest, 0)
            for at, (name, largest) in enumerate(rules.NUMBERS.items())
        ),
        *(
            (name, _COUNTS, at, rules.COUNTS[name], limits[at])
            for at, name in enumerate(rules.COUNTS)
        ),
        (semconv.RANK_INFO.name, _INFO, 0, 0.0, 0),
        (semconv.SECTION_DURATION.name, _TIMES, 0, 0.0, 0),
        (semconv.KERNEL_DURATION.name, _KERNELS, 0, 0.0, 0),
    ]
