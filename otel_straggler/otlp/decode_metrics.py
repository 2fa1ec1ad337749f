"""OTLP metrics requests -> heartbeats, times of sections and kernels, metrics that pass through.

Metrics that are not ours are counted and left alone. The sender of a point is named on its
resource, or on the point. The extension module does not read metrics that pass through: a request
that has some is read by protobuf, at some 10 µs a point.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage

from otel_straggler import native, semconv
from otel_straggler.model.kernels import KernelCell, KernelTimes
from otel_straggler.model.observation import Section
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Buckets, Heartbeat, SectionTimes
from otel_straggler.otlp import metric_rules as rules
from otel_straggler.otlp.decoder import Cases, CodeTable, Decoder
from otel_straggler.otlp.identity import Aliases, Resources, Value, read_attributes
from otel_straggler.otlp.metric_points import MetricPoints

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


@dataclass(frozen=True, slots=True)
class MetricCases(Cases):
    """Senders, their descriptions, texts, sections and kernels."""

    senders: CodeTable[tuple[Source, rules.RankDescription]] = field(default_factory=CodeTable)
    sections: CodeTable[Section] = field(default_factory=CodeTable)
    cells: CodeTable[KernelCell] = field(default_factory=CodeTable)
    texts: CodeTable[str] = field(default_factory=CodeTable)


class MetricDecoder(Decoder[rules.DecodedMetrics, MetricCases]):
    """Decodes metrics requests; ``extension``: the extension module, if any; ``resources``: shared
    with other decoders."""

    _message = ExportMetricsServiceRequest

    def __init__(
        self,
        aliases: Aliases | None = None,
        extension: ModuleType | None = native.NATIVE,
        resources: Resources | None = None,
    ) -> None:
        self._aliases = aliases or Aliases()
        self._resources = resources or Resources(self._aliases)
        self._extension = extension
        super().__init__(is_native=extension is not None)

    def _read(self, request: Any) -> rules.DecodedMetrics:
        points = MetricPoints(self._aliases)
        for resource_metrics in request.resource_metrics:
            resource = self._resources.read(resource_metrics.resource)
            for scope_metrics in resource_metrics.scope_metrics:
                for metric in scope_metrics.metrics:
                    points.read(metric, resource)
            points.end_resource()
        return points.build()

    def _new_cases(self) -> MetricCases:
        assert self._extension is not None
        uses = tuple(_USE_CODES[use] for use in _OWN_USES)
        units = list(rules.UNITS_S.items())
        keys = _keys(self._aliases)
        return MetricCases(self._extension.MetricScanner(keys, _metrics(), units, uses))

    def _teach(
        self, cases: MetricCases, case: int, number: int, context: bytes, sample: bytes
    ) -> None:
        attributes = read_attributes(ResourceMessage.FromString(sample).attributes)
        code, use = -1, 0
        if case == _SECTION:
            section = rules.section_named(attributes, self._aliases)
            code = -1 if section is None else cases.sections.code(section)
        elif case == _CELL:
            cell = rules.cell_named(attributes, self._aliases)
            code = -1 if cell is None else cases.cells.code(cell)
        elif case in (_TEXT, _COUNT_NAME):
            value = next(iter(attributes.values()), None)
            text = rules.count_name(value) if case == _COUNT_NAME else rules.as_text(str(value))
            code = cases.texts.code(text)
        else:
            code, use = self._sender(cases, context, attributes)
        cases.scanner.learn(case, number, code, use)

    def _sender(
        self, cases: MetricCases, resource: bytes, attributes: dict[str, Value]
    ) -> tuple[int, int]:
        """A code for a sender and its description, which changes while a rank is the same; for a
        sender that is none, -1 and the outcome of its points."""
        known = self._resources.read_bytes(resource)
        identity = known.overridden_by(attributes) if attributes else known.identity
        if identity.source is None:
            return -1, _USE_CODES[identity.outcome]
        description = rules.describe_rank(attributes, known.values)
        return cases.senders.code((identity.source, description)), 0

    def _decoded(
        self, cases: MetricCases, body: bytes, *columns: Any
    ) -> rules.DecodedMetrics | None:
        beats, times, kernels, counts = columns
        points = dict(zip(rules.USES, counts, strict=False))
        if points[rules.UNKNOWN] and rules.may_have_passthrough(body):
            return None
        return rules.DecodedMetrics(
            heartbeats=tuple([_heartbeat(cases, beat) for beat in beats]),
            section_times=tuple([_section_times(cases, one) for one in times]) if times else (),
            kernel_times=None if kernels is None else _kernel_times(cases, kernels),
            points=points,
        )


def _heartbeat(cases: MetricCases, beat: tuple[Any, ...]) -> Heartbeat:
    (
        source, sent_at_s, progress_at_s, step, open_time_s, finished_at_s,
        section, phase, outcome, dropped, folded,
    ) = beat  # fmt: skip
    texts = cases.texts.names
    sender, description = cases.senders.names[source]
    return Heartbeat(
        source=sender,
        sent_at_s=sent_at_s,
        progress_at_s=progress_at_s,
        step=None if step is None else int(step),
        open_section="" if section < 0 else texts[section],
        open_time_s=open_time_s,
        phase="" if phase < 0 else texts[phase],
        finished_at_s=finished_at_s,
        outcome=rules.outcome_of(finished_at_s, "" if outcome < 0 else texts[outcome]),
        dropped={texts[name]: count for name, count in dropped} if dropped else {},
        folded={texts[name]: count for name, count in folded} if folded else {},
        **description._asdict(),
    )


def _section_times(cases: MetricCases, columns: tuple[Any, ...]) -> SectionTimes:
    (
        source, section, start_ns, end_ns, is_cumulative, unit_s, min_s, max_s,
        total, counts, bounds, scale, first, zero, zero_bound,
    ) = columns  # fmt: skip
    return SectionTimes(
        source=cases.senders.names[source][0],
        section=cases.sections.names[section],
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


def _kernel_times(cases: MetricCases, columns: tuple[bytearray, ...]) -> KernelTimes:
    source, cell, scale, start_ns, end_ns, count, ends, sum_s, min_s, max_s, index, runs = (
        np.frombuffer(column, kind) for column, kind in zip(columns, _KERNEL_COLUMNS, strict=True)
    )
    sources, source = np.unique(source, return_inverse=True)
    cells, cell = np.unique(cell, return_inverse=True)
    return KernelTimes(
        sources=tuple(cases.senders.names[code][0] for code in sources.tolist()),
        cells=tuple(cases.cells.names[code] for code in cells.tolist()),
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
    return [
        *(
            (name, _NUMBER, at, largest, 0)
            for at, (name, largest) in enumerate(rules.NUMBERS.items())
        ),
        *(
            (name, _COUNTS, at, rules.MAX_VALUES[name], limit)
            for at, (name, (_, limit)) in enumerate(rules.COUNTS.items())
        ),
        (semconv.RANK_INFO.name, _INFO, 0, 0.0, 0),
        (semconv.SECTION_DURATION.name, _TIMES, 0, 0.0, 0),
        (semconv.KERNEL_DURATION.name, _KERNELS, 0, 0.0, 0),
    ]
