"""OTLP trace requests -> columns that can be scored, and the outcome of every span.

A bad span never raises: it is counted under its reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_straggler import native, semconv
from otel_straggler.model.observation import (
    CUPTI,
    NO_KERNEL,
    GpuTimes,
    ObservationBatch,
    Section,
)
from otel_straggler.model.rank import Source
from otel_straggler.otlp import span_rules as rules
from otel_straggler.otlp.decoder import Cases, CodeTable, Decoder
from otel_straggler.otlp.folded_spans import FOLD_KEYS
from otel_straggler.otlp.identity import Aliases, Resources, as_int, as_size
from otel_straggler.otlp.span_rows import SpanRows

_NUMBER, _WHO, _SHAPE, _SECTION, _FOREIGN = range(5)
_SCOPE, _SENDER = range(2)
_FROM_IDS, _FIXED, _FROM_NUMBER = range(3)
_ABSENT, _NO_NUMBER = -1, -2
_MAX_NUMBERS = 64
_OUTCOME_CODES = {outcome: number for number, outcome in enumerate(rules.SPAN_OUTCOMES)}
_OWN_OUTCOMES = (rules.ROW, rules.BAD_ID, rules.BAD_TIME, rules.DURATION_NOT_POSITIVE)


def can_scan(keys: rules.Keys) -> bool:
    """True if each key means one thing only, as C++ needs it; the built-in ones do."""
    others = keys.wanted - keys.numbers - keys.identity
    return len(keys.numbers) <= _MAX_NUMBERS and len(keys.wanted) == sum(
        map(len, (others, keys.numbers, keys.identity))
    )


@dataclass(frozen=True, slots=True)
class SpanCases(Cases):
    """Scopes, senders, and shapes of spans."""

    sources: CodeTable[Source] = field(default_factory=CodeTable)
    sections: CodeTable[Section] = field(default_factory=CodeTable)


class SpanDecoder(Decoder[rules.DecodedSpans, SpanCases]):
    """Decodes trace requests; ``extension``: the extension module, if any; ``resources``: shared
    with other decoders; ``with_activities``: as in :class:`~.span_rules.Keys`."""

    _message = ExportTraceServiceRequest

    def __init__(
        self,
        aliases: Aliases | None = None,
        names: rules.SpanNames | None = None,
        extension: ModuleType | None = native.NATIVE,
        resources: Resources | None = None,
        *,
        with_activities: bool = False,
    ) -> None:
        self._keys = rules.Keys.of(
            aliases or Aliases(), names or rules.SpanNames(), with_activities=with_activities
        )
        self._resources = resources or Resources(self._keys.aliases)
        self._slots = {key: slot for slot, key in enumerate(sorted(self._keys.numbers))}
        self._extension = extension
        super().__init__(is_native=extension is not None and can_scan(self._keys))

    def _read(self, request: Any) -> rules.DecodedSpans:
        rows = SpanRows(self._keys)
        for resource_spans in request.resource_spans:
            resource = self._resources.read(resource_spans.resource)
            for scope_spans in resource_spans.scope_spans:
                is_own = scope_spans.scope.name == semconv.SCOPE_NAME
                for span in scope_spans.spans:
                    rows.add(span, resource, is_own=is_own)
        return rows.build()

    def _new_cases(self) -> SpanCases:
        assert self._extension is not None
        codes = tuple(_OUTCOME_CODES[outcome] for outcome in _OWN_OUTCOMES)
        return SpanCases(self._extension.Scanner(self._roles(), codes))

    def _roles(self) -> list[tuple[str, int, int]]:
        roles = {**dict.fromkeys(self._keys.wanted, _SHAPE), semconv.SECTION: _SECTION}
        roles |= dict.fromkeys(self._keys.identity, _WHO)
        roles |= dict.fromkeys(self._keys.numbers, _NUMBER)
        roles |= dict.fromkeys((*FOLD_KEYS, semconv.FOLD_SKETCH), _FOREIGN)  # left to protobuf
        return [(key, role, self._slots.get(key, 0)) for key, role in sorted(roles.items())]

    def _teach(
        self, cases: SpanCases, case: int, number: int, context: bytes, sample: bytes
    ) -> None:
        if case == _SCOPE:
            cases.scanner.learn_scope(number, _is_own(sample))
        elif case == _SENDER:
            self._teach_sender(cases, number, context, sample)
        else:
            self._teach_shape(cases, number, Span.FromString(sample), is_own=_is_own(context))

    def _teach_sender(self, cases: SpanCases, number: int, resource: bytes, sample: bytes) -> None:
        attributes = self._keys.find(Span.FromString(sample))
        identity = self._keys.identity_of(self._resources.read_bytes(resource), attributes)
        if identity.source is None:
            cases.scanner.learn_sender(number, -1, _OUTCOME_CODES[identity.outcome])
        else:
            code = cases.sources.code(identity.source)
            cases.scanner.learn_sender(number, code, 0)

    def _teach_shape(self, cases: SpanCases, number: int, span: Any, *, is_own: bool) -> None:
        attributes = self._keys.find(span)
        key, outcome = rules.shape_of(span, attributes, self._keys, is_own=is_own)
        section = -1
        if key is not None:
            section = cases.sections.code(rules.section_of(*key))
        cases.scanner.learn_shape(
            number,
            section,
            _OUTCOME_CODES[outcome],
            (
                self._slot(attributes, self._keys.step_key(attributes)),
                rules.step_of(attributes, self._keys),
            ),
            self._sequence(attributes),
            self._tokens(attributes),
            self._gpu(attributes),
        )

    def _sequence(self, attributes: rules.Attributes) -> tuple[int, int, int]:
        slot = self._slot(attributes, semconv.SEQ)
        if slot >= 0:
            return _FROM_NUMBER, slot, 0
        seq = as_int(attributes.get(semconv.SEQ))
        return (_FROM_IDS, 0, 0) if seq is None else (_FIXED, 0, seq)

    def _tokens(self, attributes: rules.Attributes) -> tuple[int, float]:
        size = as_size(attributes.get(semconv.TOKENS))
        return self._slot(attributes, semconv.TOKENS), math.nan if size is None else size

    def _gpu(self, attributes: rules.Attributes) -> tuple[int, int, int, int]:
        """Basis, and where the times are that it needs; ``_NO_NUMBER`` for what is none."""
        basis = rules.basis_of(attributes.get(semconv.TIME_BASIS))
        busy, nccl, kernel, waited = (
            self._slot(attributes, key, _NO_NUMBER) if key in attributes else _ABSENT
            for key in rules.TIME_KEYS
        )
        return (basis, busy, nccl if basis == CUPTI else waited, kernel)

    def _slot(self, attributes: rules.Attributes, key: str | None, other: int = -1) -> int:
        """The slot of a number in C++; ``other`` if it does not differ from span to span."""
        value = None if key is None else attributes.get(key)
        if key is None or isinstance(value, bool) or not isinstance(value, (int, float)):
            return other
        return self._slots[key]

    def _decoded(self, cases: SpanCases, body: bytes, *columns: Any) -> rules.DecodedSpans:  # noqa: ARG002
        (
            source, section, step, start, duration, seq, tokens, gpu, sources, sections, outcomes,
            progress, refused,
        ) = columns  # fmt: skip
        rows = np.frombuffer(source, np.int32)
        batch = ObservationBatch(
            sources=tuple([cases.sources.names[code] for code in sources]),
            sections=tuple([cases.sections.names[code] for code in sections]),
            source=rows,
            section=np.frombuffer(section, np.int32),
            kernel=np.full(len(rows), NO_KERNEL, np.int32),
            step=np.frombuffer(step, np.int64),
            start_ns=np.frombuffer(start, np.int64),
            duration_s=np.frombuffer(duration, np.float64),
            seq=np.frombuffer(seq, np.int64),
            tokens=None if tokens is None else np.frombuffer(tokens, np.float64),
            gpu=None if gpu is None else _gpu_times(*gpu),
        )
        return rules.DecodedSpans(
            batch=batch,
            outcomes={rules.SPAN_OUTCOMES[outcome]: count for outcome, count in outcomes.items()},
            progress={cases.sources.names[code]: rules.Progress(*far) for code, *far in progress},
            refused_gpu_times=refused,
        )


def _gpu_times(basis: bytearray, *times: bytearray) -> GpuTimes:
    return GpuTimes(
        np.frombuffer(basis, np.uint8), *(np.frombuffer(column, np.float64) for column in times)
    )


def _is_own(scope: bytes) -> bool:
    return bool(InstrumentationScope.FromString(scope).name == semconv.SCOPE_NAME)
