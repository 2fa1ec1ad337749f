"""OTLP trace requests -> columns that can be scored, and what became of every span.

A bad span never raises: it is counted under its reason, and the others go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_straggler import semconv
from otel_straggler.errors import InputError
from otel_straggler.model.observation import NO_SEQ, NO_STEP, ObservationBatch, Section
from otel_straggler.model.rank import Source
from otel_straggler.semconv import SectionKind
from otel_straggler.wire.decode_json import message_from_json
from otel_straggler.wire.identity import (
    BAD_RANK,
    NO_RANK,
    Aliases,
    Resource,
    Resources,
    Value,
    as_int,
    read_value,
)

__all__ = [
    "BAD_ID",
    "BAD_RANK",
    "BAD_TIME",
    "DURATION_NOT_POSITIVE",
    "ERROR_STATUS",
    "FATES",
    "MALFORMED",
    "NO_NAME",
    "NO_RANK",
    "ROW",
    "STEP",
    "DecodedSpans",
    "Progress",
    "SpanDecoder",
    "mix_ids",
    "section_of",
]

ROW = "row"
STEP = "step"
BAD_ID = "bad_id"
BAD_TIME = "bad_time"
NO_NAME = "no_name"
DURATION_NOT_POSITIVE = "duration_not_positive"
ERROR_STATUS = "error_status"

FATES = (
    ROW, STEP, NO_RANK, ERROR_STATUS,
    BAD_ID, BAD_RANK, BAD_TIME, NO_NAME, DURATION_NOT_POSITIVE,
)  # fmt: skip
MALFORMED = frozenset({BAD_ID, BAD_RANK, BAD_TIME, NO_NAME, DURATION_NOT_POSITIVE})
"""Fates of spans that the sender is told were rejected."""

_STATUS_ERROR = 2
_MAX_NS = 2**63 - 1
_MAX_NAME = 256
_NO_TRACE = bytes(16)
_NO_SPAN = bytes(8)
_KINDS = frozenset(semconv.SECTION_KINDS)
_IDS = Struct("<QQQ")
_MASK = 2**64 - 1


@dataclass(slots=True)
class Progress:
    """How far one source has come, as its spans say."""

    step: int = NO_STEP
    end_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedSpans:
    """One trace request.

    Attributes:
        batch: the rows to score.
        fates: spans by what became of them; the sum is the number of spans received.
        progress: newest step (``NO_STEP`` if none) and newest end per source.
    """

    batch: ObservationBatch
    fates: dict[str, int]
    progress: dict[Source, Progress] = field(default_factory=dict)

    @property
    def rejected(self) -> dict[str, int]:
        """Malformed spans, by reason."""
        return {fate: count for fate, count in self.fates.items() if fate in MALFORMED}


class SpanDecoder:
    """Decodes trace requests; safe to use from several threads."""

    def __init__(self, aliases: Aliases | None = None) -> None:
        self._aliases = aliases or Aliases()
        self._resources = Resources(self._aliases)

    def decode(self, body: bytes) -> DecodedSpans:
        """Decode binary protobuf.

        Raises:
            InputError: the body is not an ``ExportTraceServiceRequest``.
        """
        request = ExportTraceServiceRequest()
        try:
            request.ParseFromString(body)
        except DecodeError as error:
            msg = f"body: not an ExportTraceServiceRequest in protobuf: {error}"
            raise InputError(msg) from error
        return self._decode(request)

    def decode_json(self, body: bytes) -> DecodedSpans:
        """Decode OTLP-JSON.

        Raises:
            InputError: the body is not an ``ExportTraceServiceRequest``.
        """
        return self._decode(message_from_json(body, ExportTraceServiceRequest))

    def _decode(self, request: Any) -> DecodedSpans:
        rows = _Rows(self._aliases)
        fates: dict[str, int] = {}
        for resource_spans in request.resource_spans:
            resource = self._resources.read(resource_spans.resource)
            for scope_spans in resource_spans.scope_spans:
                is_own = scope_spans.scope.name == semconv.SCOPE_NAME
                for span in scope_spans.spans:
                    fate = rows.add(span, resource, is_own=is_own)
                    fates[fate] = fates.get(fate, 0) + 1
        return DecodedSpans(batch=rows.build(), fates=fates, progress=rows.progress)


class _Rows:
    """Spans of one request on their way to columns."""

    __slots__ = (
        "_aliases", "_identity_keys", "_rows", "_section_codes", "_sections",
        "_source_codes", "_wanted", "progress",
    )  # fmt: skip

    def __init__(self, aliases: Aliases) -> None:
        self._aliases = aliases
        self._identity_keys = aliases.identity_keys()
        self._wanted = self._identity_keys.union(aliases.step, _SECTION_KEYS)
        self._rows: list[tuple[int, int, int, int, int, int]] = []
        self._source_codes: dict[Source, int] = {}
        self._section_codes: dict[tuple[str, Value, Value], int] = {}
        self._sections: dict[Section, int] = {}
        self.progress: dict[Source, Progress] = {}

    def add(self, span: Any, resource: Resource, *, is_own: bool) -> str:
        """Take one span; returns its fate."""
        trace_id: bytes = span.trace_id
        span_id: bytes = span.span_id
        if len(trace_id) != 16 or len(span_id) != 8 or trace_id == _NO_TRACE or span_id == _NO_SPAN:
            return BAD_ID
        wanted = self._wanted
        found = {pair.key: read_value(pair.value) for pair in span.attributes if pair.key in wanted}
        source, fate = self._who(resource, found)
        if source is None:
            return fate
        start_ns: int = span.start_time_unix_nano
        end_ns: int = span.end_time_unix_nano
        fate = _fate_of_times(start_ns, end_ns)
        if fate:
            return fate
        step = self._step(found)
        self._note_progress(source, step, end_ns)
        name = found.get(semconv.SECTION) or span.name
        if not name:
            return NO_NAME
        if is_own and name == semconv.STEP_SPAN and semconv.SECTION not in found:
            return STEP
        if span.status.code == _STATUS_ERROR:
            return ERROR_STATUS
        section = self._section(str(name), found)
        seq = as_int(found.get(semconv.SEQ))
        if seq is None:
            seq = mix_ids(trace_id, span_id)
        code = self._source_codes.setdefault(source, len(self._source_codes))
        self._rows.append((code, section, step, start_ns, end_ns, seq))
        return ROW

    def _who(self, resource: Resource, found: dict[str, Value]) -> tuple[Source | None, str]:
        identity = resource.identity
        if not self._identity_keys.isdisjoint(found):
            keys = self._identity_keys
            identity = resource.overridden_by({k: v for k, v in found.items() if k in keys})
        return identity.source, identity.fate

    def _step(self, found: dict[str, Value]) -> int:
        for key in self._aliases.step:
            if key in found:
                step = as_int(found[key])
                return step if step is not None and step >= 0 else NO_STEP
        return NO_STEP

    def _note_progress(self, source: Source, step: int, end_ns: int) -> None:
        progress = self.progress.get(source)
        if progress is None:
            progress = self.progress[source] = Progress()
        if step > progress.step:
            progress.step = step
        if end_ns > progress.end_ns:
            progress.end_ns = end_ns

    def _section(self, name: str, found: dict[str, Value]) -> int:
        key = (name, found.get(semconv.SECTION_KIND), found.get(semconv.PHASE))
        code = self._section_codes.get(key)
        if code is None:
            section = section_of(*key)
            code = self._sections.setdefault(section, len(self._sections))
            self._section_codes[key] = code
        return code

    def build(self) -> ObservationBatch:
        columns = np.array(self._rows, np.int64).reshape(-1, 6).T
        return ObservationBatch(
            sources=tuple(self._source_codes),
            sections=tuple(self._sections),
            source=columns[0].astype(np.int32),
            section=columns[1].astype(np.int32),
            kernel=np.full(len(self._rows), -1, np.int32),
            step=columns[2].copy(),
            start_ns=columns[3].copy(),
            duration_s=(columns[4] - columns[3]) * 1e-9,
            seq=columns[5].copy(),
        )


_SECTION_KEYS = (semconv.SECTION, semconv.SECTION_KIND, semconv.PHASE, semconv.SEQ)


def section_of(name: str, kind: Value, phase: Value) -> Section:
    """Name and kind under which a section is scored; a phase keeps it apart from training.

    >>> section_of("forward", "compute", "eval")
    Section(name='eval/forward', kind='eval')
    """
    own_kind: SectionKind = kind if kind in _KINDS else "compute"
    name = name[:_MAX_NAME]
    if not phase or phase == name:
        return Section(name, own_kind)
    phase_name = str(phase)[:_MAX_NAME]
    return Section(f"{phase_name}/{name}", semconv.PHASE_KINDS.get(phase_name, own_kind))


def mix_ids(trace_id: bytes, span_id: bytes) -> int:
    """64 bits of trace id and span id: the same in every delivery of a span.

    >>> mix_ids(bytes(15) + b"a", bytes(7) + b"b") == mix_ids(bytes(15) + b"a", bytes(7) + b"c")
    False
    """
    low, high, span = _IDS.unpack(trace_id + span_id)
    mixed = low * 0x9E3779B97F4A7C15 ^ high * 0xC2B2AE3D27D4EB4F ^ span * 0xD6E8FEB86659FD93
    mixed &= _MASK
    mixed ^= mixed >> 32
    signed = mixed - (mixed >> 63 << 64)
    return signed if signed != NO_SEQ else 0


def _fate_of_times(start_ns: int, end_ns: int) -> str:
    if not (0 < start_ns <= _MAX_NS and 0 < end_ns <= _MAX_NS):
        return BAD_TIME
    return "" if end_ns > start_ns else DURATION_NOT_POSITIVE
