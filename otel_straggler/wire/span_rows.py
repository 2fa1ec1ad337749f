"""Spans on their way to columns: what became of each, whoever parsed it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from otel_straggler import semconv
from otel_straggler.model.gpu_times import HOST, GpuTimes
from otel_straggler.model.observation import NO_STEP, Floats, Ints, ObservationBatch, Section
from otel_straggler.model.rank import Source
from otel_straggler.wire.folded_spans import FoldedSpan, folded_span, unfold
from otel_straggler.wire.identity import Resource, as_int, as_size
from otel_straggler.wire.mixed_ids import mix_ids
from otel_straggler.wire.span_fates import BAD_FOLD, BAD_ID, MALFORMED, ROW, fate_of_times
from otel_straggler.wire.span_gpu import GpuNumbers, gpu_numbers
from otel_straggler.wire.span_keys import Keys, SectionKey, section_of, shape_of, step_of
from otel_straggler.wire.told_values import ToldValues

_NO_TRACE = bytes(16)
_NO_SPAN = bytes(8)


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
        fate = fate_of_times(start_ns, end_ns)
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


def _sketch_of(span: Any) -> bytes:
    for pair in span.attributes:
        if pair.key == semconv.FOLD_SKETCH:
            sketch: bytes = pair.value.bytes_value
            return sketch
    return b""
