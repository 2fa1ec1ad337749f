"""Spans on their way to columns: what became of each, whoever parsed it."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from otel_straggler import semconv
from otel_straggler.model.gpu_times import HOST, GpuTimes
from otel_straggler.model.observation import (
    NO_SEQ,
    NO_STEP,
    Floats,
    Ints,
    ObservationBatch,
    Section,
)
from otel_straggler.model.rank import Source
from otel_straggler.semconv import SectionKind
from otel_straggler.wire.folded_spans import FoldedSpan, folded_span, unfold
from otel_straggler.wire.identity import (
    BAD_RANK,
    NO_RANK,
    Aliases,
    Identity,
    Resource,
    Value,
    as_int,
    as_size,
    read_value,
)
from otel_straggler.wire.span_gpu import GPU_KEYS, GpuNumbers, gpu_numbers
from otel_straggler.wire.span_names import SpanNames
from otel_straggler.wire.told_values import ToldValues

ROW = "row"
STEP = "step"
BAD_ID = "bad_id"
BAD_TIME = "bad_time"
BAD_FOLD = "bad_fold"
NO_NAME = "no_name"
DURATION_NOT_POSITIVE = "duration_not_positive"
ERROR_STATUS = "error_status"
EXCLUDED = "excluded"
TRUNCATED = "truncated"

FATES = (
    ROW, STEP, NO_RANK, ERROR_STATUS, EXCLUDED, TRUNCATED,
    BAD_ID, BAD_RANK, BAD_TIME, NO_NAME, DURATION_NOT_POSITIVE, BAD_FOLD,
)  # fmt: skip
MALFORMED = frozenset({BAD_ID, BAD_RANK, BAD_TIME, NO_NAME, DURATION_NOT_POSITIVE, BAD_FOLD})
"""Fates of spans that the sender is told were rejected."""

_STATUS_ERROR = 2
_MAX_NS = 2**63 - 1
_MAX_NAME = 256
_NO_TRACE = bytes(16)
_NO_SPAN = bytes(8)
_KINDS = frozenset(semconv.SECTION_KINDS)
_IDS = Struct("<QQQ")
_MASK = 2**64 - 1
_SECTION_KEYS = (
    semconv.SECTION_KIND,
    semconv.SECTION_PARENT,
    semconv.PHASE,
    semconv.SPAN_TRUNCATED,
    semconv.FOLD_COUNT,
    semconv.FOLD_SUM,
    semconv.FOLD_MIN,
    semconv.FOLD_MAX,
    semconv.TIME_BASIS,
)
_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93)

Found = dict[str, Value]
"""The attributes of a span that mean something here."""


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
        refused_gpu_times: GPU times of rows that make no sense; the rows go by the host's clock.
    """

    batch: ObservationBatch
    fates: dict[str, int]
    progress: dict[Source, Progress] = field(default_factory=dict)
    refused_gpu_times: int = 0

    @property
    def rejected(self) -> dict[str, int]:
        """Malformed spans, by reason."""
        return {fate: count for fate, count in self.fates.items() if fate in MALFORMED}


@dataclass(frozen=True, slots=True)
class Keys:
    """Which attributes of a span mean something.

    Attributes:
        names: which plain spans are scored.
        identity: those that say who sent it, and so override the resource.
        wanted: all.
        numbers: those whose value differs from span to span.
    """

    aliases: Aliases
    names: SpanNames
    identity: frozenset[str]
    wanted: frozenset[str]
    numbers: frozenset[str]

    @classmethod
    def of(cls, aliases: Aliases, names: SpanNames) -> Keys:
        identity = aliases.identity_keys()
        numbers = frozenset((*aliases.step, semconv.SEQ, semconv.TOKENS, *GPU_KEYS))
        wanted = identity.union(numbers, aliases.section, _SECTION_KEYS)
        return cls(aliases, names, identity, wanted, numbers)

    def find(self, span: Any) -> Found:
        """The attributes of a protobuf ``Span`` that mean something."""
        wanted = self.wanted
        found = {}
        for pair in span.attributes:
            key = pair.key
            if key in wanted:
                found[key] = read_value(pair.value)
        return found

    def who(self, resource: Resource, found: Found) -> Identity:
        """Who sent the span."""
        if self.identity.isdisjoint(found):
            return resource.identity
        return resource.overridden_by({k: v for k, v in found.items() if k in self.identity})

    def step_key(self, found: Found) -> str | None:
        """The attribute that holds the step: the first alias that is there."""
        return next((key for key in self.aliases.step if key in found), None)

    def plain_name(self, span: Any, found: Found) -> str:
        """What a span without ``straggler.section`` is scored under."""
        for key in self.aliases.section:
            if found.get(key):
                return str(found[key])
        name: str = span.name
        return name


SectionKey = tuple[str, Value, Value, Value]
"""Name, kind, phase and parent of a section as a span gives them."""


class Rows:
    """The spans of one request, in the order in which they came."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._single: list[tuple[int, int, int, int, int, int, int]] = []
        self._many: list[npt.NDArray[np.int64]] = []
        self._tokens = ToldValues()
        self._gpu = ToldValues(4)
        self._refused_gpu_times = 0
        self._sources: dict[Source, int] = {}
        self._section_codes: dict[SectionKey, int] = {}
        self._sections: dict[Section, int] = {}
        self._fates: dict[str, int] = {}
        self._progress: dict[Source, Progress] = {}
        self._count = 0
        self._folded: list[tuple[tuple[int, int, int, int, int, int, int], FoldedSpan]] = []
        self._is_mixed = False  # rows do not stand in the order in which they came

    def add(self, span: Any, resource: Resource, *, is_own: bool, index: int | None = None) -> None:
        """Take one protobuf ``Span``; ``index`` is its place, if they do not come in order."""
        place = self._count if index is None else index
        self._count += 1
        self._is_mixed |= index is not None
        fate = self._add(span, resource, is_own, place)
        self._fates[fate] = self._fates.get(fate, 0) + 1

    def _add(self, span: Any, resource: Resource, is_own: bool, place: int) -> str:
        trace_id: bytes = span.trace_id
        span_id: bytes = span.span_id
        if len(trace_id) != 16 or len(span_id) != 8 or trace_id == _NO_TRACE or span_id == _NO_SPAN:
            return BAD_ID
        found = self._keys.find(span)
        identity = self._keys.who(resource, found)
        if identity.source is None:
            return identity.fate
        start_ns: int = span.start_time_unix_nano
        end_ns: int = span.end_time_unix_nano
        fate = _fate_of_times(start_ns, end_ns)
        if fate:
            return fate
        step = step_of(found, self._keys)
        self._note_progress(identity.source, step, end_ns)
        key, fate = shape_of(span, found, self._keys, is_own=is_own)
        if key is None:
            return fate
        seq = as_int(found.get(semconv.SEQ))
        if seq is None:
            seq = mix_ids(trace_id, span_id)
        tokens = as_size(found.get(semconv.TOKENS))
        code = self._sources.setdefault(identity.source, len(self._sources))
        line = (place, code, self._section(key), step, start_ns, end_ns, seq)
        length_ns, runs = end_ns - start_ns, 1
        if semconv.FOLD_COUNT in found:
            folded = folded_span(found, _sketch_of(span), start_ns, end_ns)
            if folded is None:
                return BAD_FOLD
            self._folded.append((line, folded))
            length_ns, runs = folded.sum_ns, folded.runs
        else:
            self._single.append(line)
        if tokens is not None:
            self._tokens.add(place, tokens / runs)
        gpu = gpu_numbers(found, length_ns)
        if gpu is not None:
            self._take_gpu(place, gpu, runs)
        return ROW

    def _take_gpu(self, place: int, gpu: GpuNumbers, runs: int) -> None:
        """Sums of a span's runs belong to its rows in equal parts."""
        self._refused_gpu_times += gpu.refused
        if gpu.basis != HOST:
            self._gpu.add(place, gpu.basis, *(time_ns / runs for time_ns in gpu[1:4]))

    def _unfold(self) -> None:
        """Take all runs of the folded spans."""
        runs = unfold([folded for _, folded in self._folded])
        block = np.array([line for line, _ in self._folded], np.int64)[runs.owner]
        block[:, 4] = runs.start_ns
        block[:, 5] = runs.start_ns + runs.length_ns
        block[:, 6] += runs.place
        self._many.append(block)
        self._is_mixed = True
        bad = len(self._folded) - len(np.unique(runs.owner))
        if bad:
            self._fates[ROW] -= bad
            self._fates[BAD_FOLD] = self._fates.get(BAD_FOLD, 0) + bad
            self._fates = {fate: spans for fate, spans in self._fates.items() if spans}

    def count(self, fate: str, spans: int) -> None:
        """Take spans that are no rows."""
        if spans:
            self._fates[fate] = self._fates.get(fate, 0) + spans

    def add_columns(
        self,
        places: Ints,
        source: Source,
        section: SectionKey,
        columns: tuple[Ints | int, Ints, Ints, Ints | int],
        tokens: Floats | None = None,
        gpu: Floats | None = None,
        refused_gpu_times: int = 0,
    ) -> None:
        """Take spans of one source and section that are rows: step, start, end, seq; of the GPU
        (n, 4) basis, busy, nccl and kernel ns."""
        self.count(ROW, len(places))
        code = self._sources.setdefault(source, len(self._sources))
        block = np.empty((len(places), 7), np.int64)
        block[:, 0] = places
        block[:, 1] = code
        block[:, 2] = self._section(section)
        for number, column in enumerate(columns, 3):
            block[:, number] = column
        self._many.append(block)
        if tokens is not None:
            self._tokens.add_many(places, tokens[:, None])
        if gpu is not None:
            self._gpu.add_many(places, gpu)
        self._refused_gpu_times += refused_gpu_times
        self._is_mixed = True

    def note_progress(self, source: Source, steps: Ints | int, ends_ns: Ints) -> None:
        """Take how far spans of one source have come."""
        step = steps if isinstance(steps, int) else int(steps.max())
        self._note_progress(source, step, int(ends_ns.max()))

    def _note_progress(self, source: Source, step: int, end_ns: int) -> None:
        progress = self._progress.get(source)
        if progress is None:
            progress = self._progress[source] = Progress()
        if step > progress.step:
            progress.step = step
        if end_ns > progress.end_ns:
            progress.end_ns = end_ns

    def _section(self, key: SectionKey) -> int:
        code = self._section_codes.get(key)
        if code is None:
            code = self._sections.setdefault(section_of(*key), len(self._sections))
            self._section_codes[key] = code
        return code

    def build(self) -> DecodedSpans:
        """What has been taken; called once."""
        if self._folded:
            self._unfold()
        return DecodedSpans(
            batch=self._batch(),
            fates=self._fates,
            progress=self._progress,
            refused_gpu_times=self._refused_gpu_times,
        )

    def _batch(self) -> ObservationBatch:
        single = np.array(self._single, np.int64).reshape(-1, 7)
        sources, sections = tuple(self._sources), tuple(self._sections)
        if self._is_mixed:
            table = np.concatenate([single, *self._many])
            table = table[np.argsort(table[:, 0], kind="stable")]
            sources = _in_order(sources, table[:, 1])
            sections = _in_order(sections, table[:, 2])
        else:
            table = single
        columns = table.T
        tokens = self._tokens.at(columns[0])
        return ObservationBatch(
            sources=sources,
            sections=sections,
            source=columns[1].astype(np.int32),
            section=columns[2].astype(np.int32),
            kernel=np.full(len(table), -1, np.int32),
            step=columns[3].copy(),
            start_ns=columns[4].copy(),
            duration_s=(columns[5] - columns[4]) * 1e-9,
            seq=columns[6].copy(),
            tokens=None if tokens is None else tokens[:, 0],
            gpu=_gpu_times(self._gpu.at(columns[0])),
        )


def _gpu_times(told: Floats | None) -> GpuTimes | None:
    """Of (n, 4) basis and nanoseconds, NaN where nothing is told."""
    if told is None:
        return None
    basis = np.nan_to_num(told[:, 0]).astype(np.uint8)
    busy_s, nccl_s, kernel_s = (1e-9 * told[:, 1:]).T.copy()
    return GpuTimes(basis, busy_s, nccl_s, kernel_s) if basis.any() else None


_Named = TypeVar("_Named")


def _in_order(names: tuple[_Named, ...], codes: Ints) -> tuple[_Named, ...]:
    """Names by first appearance; ``codes`` are renumbered in place."""
    if len(names) < 2:
        return names
    first = np.full(len(names), len(codes), np.int64)
    np.minimum.at(first, codes, np.arange(len(codes)))
    order = np.argsort(first, kind="stable")
    number = np.empty(len(names), np.int64)
    number[order] = np.arange(len(names))
    codes[:] = number[codes]
    return tuple(names[i] for i in order.tolist())


def shape_of(span: Any, found: Found, keys: Keys, *, is_own: bool) -> tuple[SectionKey | None, str]:
    """The section that a span is scored as; None and its fate if it is not."""
    kind = found.get(semconv.SECTION_KIND)
    section = found.get(semconv.SECTION)
    if section:
        name = str(section)
    else:
        name = keys.plain_name(span, found)
        if not name:
            return None, NO_NAME
        if is_own and name == semconv.STEP_SPAN:
            return None, STEP
        if not keys.names.is_scored(name):
            return None, EXCLUDED
        kind = kind or keys.names.kind_of(name)
    if span.status.code == _STATUS_ERROR:
        return None, ERROR_STATUS
    if semconv.SPAN_TRUNCATED in found and found[semconv.SPAN_TRUNCATED] in (True, "true"):
        return None, TRUNCATED
    return (name, kind, found.get(semconv.PHASE), found.get(semconv.SECTION_PARENT)), ROW


def _sketch_of(span: Any) -> bytes:
    for pair in span.attributes:
        if pair.key == semconv.FOLD_SKETCH:
            sketch: bytes = pair.value.bytes_value
            return sketch
    return b""


def step_of(found: Found, keys: Keys) -> int:
    key = keys.step_key(found)
    step = None if key is None else as_int(found[key])
    return NO_STEP if step is None or step < 0 else step


def section_of(name: str, kind: Value, phase: Value, parent: Value = None) -> Section:
    """Name and kind under which a section is scored; a phase keeps it apart from training.

    >>> section_of("forward", "compute", "eval").name
    'eval/forward'
    """
    own_kind: SectionKind = kind if kind in _KINDS else "compute"
    around = str(parent or "")[:_MAX_NAME]
    return Section(name[:_MAX_NAME], own_kind, around).in_phase(str(phase or "")[:_MAX_NAME])


def mix_ids(trace_id: bytes, span_id: bytes) -> int:
    """64 bits of trace id and span id: the same in every delivery of a span.

    >>> mix_ids(bytes(15) + b"a", bytes(7) + b"b") == mix_ids(bytes(15) + b"a", bytes(7) + b"c")
    False
    """
    low, high, span = _IDS.unpack(trace_id + span_id)
    mixed = (low * _MIX[0] ^ high * _MIX[1] ^ span * _MIX[2]) & _MASK
    mixed ^= mixed >> 32
    signed = mixed - (mixed >> 63 << 64)
    return signed if signed != NO_SEQ else 0


def mix_columns(
    low: npt.NDArray[np.uint64], high: npt.NDArray[np.uint64], span: npt.NDArray[np.uint64]
) -> Ints:
    """:func:`mix_ids` for many: the halves of the trace ids, and the span ids, little-endian."""
    mixed = low * np.uint64(_MIX[0]) ^ high * np.uint64(_MIX[1]) ^ span * np.uint64(_MIX[2])
    mixed ^= mixed >> np.uint64(32)
    signed: Ints = mixed.view(np.int64)
    signed[signed == NO_SEQ] = 0
    return signed


def _fate_of_times(start_ns: int, end_ns: int) -> str:
    if not (0 < start_ns <= _MAX_NS and 0 < end_ns <= _MAX_NS):
        return BAD_TIME
    return "" if end_ns > start_ns else DURATION_NOT_POSITIVE
