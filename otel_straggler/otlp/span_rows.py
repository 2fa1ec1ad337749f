"""Rows of spans that protobuf's parser has read."""

from __future__ import annotations

import math
from collections import Counter
from struct import Struct
from typing import Any

import numpy as np

from otel_straggler import semconv
from otel_straggler.model.observation import (
    NO_KERNEL,
    NO_SEQ,
    Floats,
    GpuTimes,
    Ints,
    ObservationBatch,
    Section,
)
from otel_straggler.model.rank import Source
from otel_straggler.otlp import span_rules as rules
from otel_straggler.otlp.folded_spans import FoldedSpan, folded_span, unfold
from otel_straggler.otlp.identity import Resource, as_int, as_size

_NO_TRACE = bytes(16)
_NO_SPAN = bytes(8)
_IDS = Struct("<QQQ")
_MASK = 2**64 - 1
_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93)


class SpanRows:
    """The spans of one request, in the order in which they came."""

    def __init__(self, keys: rules.Keys) -> None:
        self._keys = keys
        self._lines: list[tuple[int, int, int, int, int, int]] = []
        self._work: list[tuple[float, float, float, float, float]] = []
        self._folded: dict[int, FoldedSpan] = {}
        self._refused_gpu_times = 0
        self._sources: dict[Source, int] = {}
        self._section_codes: dict[rules.SectionKey, int] = {}
        self._sections: dict[Section, int] = {}
        self._outcomes: Counter[str] = Counter()
        self._progress: dict[Source, rules.Progress] = {}

    def add(self, span: Any, resource: Resource, *, is_own: bool) -> None:
        self._outcomes[self._add(span, resource, is_own)] += 1

    def _add(self, span: Any, resource: Resource, is_own: bool) -> str:
        trace_id: bytes = span.trace_id
        span_id: bytes = span.span_id
        if len(trace_id) != 16 or len(span_id) != 8 or trace_id == _NO_TRACE or span_id == _NO_SPAN:
            return rules.BAD_ID
        attributes = self._keys.find(span)
        identity = self._keys.identity_of(resource, attributes)
        if identity.source is None:
            return identity.outcome
        start_ns: int = span.start_time_unix_nano
        end_ns: int = span.end_time_unix_nano
        outcome = rules.outcome_of_times(start_ns, end_ns)
        if outcome:
            return outcome
        step = rules.step_of(attributes, self._keys)
        self._record_progress(identity.source, step, end_ns)
        key, outcome = rules.shape_of(span, attributes, self._keys, is_own=is_own)
        if key is None:
            return outcome
        seq = as_int(attributes.get(semconv.SEQ))
        if seq is None:
            seq = mix_ids(trace_id, span_id)
        code = self._sources.setdefault(identity.source, len(self._sources))
        section = self._section(key)
        length_ns, runs = end_ns - start_ns, 1
        if semconv.FOLD_COUNT in attributes:
            folded = folded_span(attributes, _sketch_of(span), start_ns, end_ns)
            if folded is None:
                return rules.BAD_FOLD
            self._folded[len(self._lines)] = folded
            length_ns, runs = folded.sum_ns, folded.runs
        self._lines.append((code, section, step, start_ns, end_ns, seq))
        self._work.append(self._work_of(attributes, length_ns, runs))
        return rules.ROW

    def _work_of(
        self, attributes: rules.Attributes, length_ns: int, runs: int
    ) -> tuple[float, float, float, float, float]:
        """Tokens, basis and GPU times of a row: an equal part of what its span sums up."""
        tokens = as_size(attributes.get(semconv.TOKENS))
        size = math.nan if tokens is None else tokens / runs
        gpu = rules.gpu_numbers(attributes, length_ns)
        self._refused_gpu_times += gpu.refused
        return size, gpu.basis, gpu.busy_ns / runs, gpu.nccl_ns / runs, gpu.kernel_ns / runs

    def _record_progress(self, source: Source, step: int, end_ns: int) -> None:
        progress = self._progress.get(source)
        if progress is None:
            progress = self._progress[source] = rules.Progress()
        if step > progress.step:
            progress.step = step
        if end_ns > progress.end_ns:
            progress.end_ns = end_ns

    def _section(self, key: rules.SectionKey) -> int:
        code = self._section_codes.get(key)
        if code is None:
            code = self._sections.setdefault(rules.section_of(*key), len(self._sections))
            self._section_codes[key] = code
        return code

    def build(self) -> rules.DecodedSpans:
        """Columns of all spans added; called once."""
        lines = np.array(self._lines, np.int64).reshape(-1, 6)
        work = np.array(self._work, np.float64).reshape(-1, 5)
        if self._folded:
            lines, work = self._unfold(lines, work)
        source, section, step, start_ns, end_ns, seq = lines.T
        batch = ObservationBatch(
            sources=tuple(self._sources),
            sections=tuple(self._sections),
            source=source.astype(np.int32),
            section=section.astype(np.int32),
            kernel=np.full(len(lines), NO_KERNEL, np.int32),
            step=step.copy(),
            start_ns=start_ns.copy(),
            duration_s=(end_ns - start_ns) * 1e-9,
            seq=seq.copy(),
            tokens=None if np.isnan(work[:, 0]).all() else work[:, 0].copy(),
            gpu=_gpu_times(work[:, 1:]),
        )
        return rules.DecodedSpans(
            batch=batch,
            outcomes={outcome: spans for outcome, spans in self._outcomes.items() if spans},
            progress=self._progress,
            refused_gpu_times=self._refused_gpu_times,
        )

    def _unfold(self, lines: Ints, work: Floats) -> tuple[Ints, Floats]:
        """A line for every execution of a folded span, in its place; none if its sketch is bad."""
        folded = np.array(list(self._folded), np.int64)
        runs = unfold(list(self._folded.values()))
        repeats = np.ones(len(lines), np.int64)
        repeats[folded] = np.bincount(runs.owner, minlength=len(folded))
        bad = int((repeats == 0).sum())
        self._outcomes[rules.ROW] -= bad
        self._outcomes[rules.BAD_FOLD] += bad
        is_folded = np.repeat(np.isin(np.arange(len(lines)), folded), repeats)
        lines = np.repeat(lines, repeats, axis=0)
        lines[is_folded, 3] = runs.start_ns
        lines[is_folded, 4] = runs.start_ns + runs.length_ns
        lines[is_folded, 5] += runs.index
        return lines, np.repeat(work, repeats, axis=0)


def _gpu_times(columns: Floats) -> GpuTimes | None:
    """Of (n, 4) basis and nanoseconds; None if all rows go by the host's clock."""
    basis = columns[:, 0].astype(np.uint8)
    busy_s, nccl_s, kernel_s = (1e-9 * columns[:, 1:]).T.copy()
    return GpuTimes(basis, busy_s, nccl_s, kernel_s) if basis.any() else None


def mix_ids(trace_id: bytes, span_id: bytes) -> int:
    """A number for a span without one, out of its ids: the same in every delivery of it.

    >>> mix_ids(bytes(15) + b"a", bytes(7) + b"b") == mix_ids(bytes(15) + b"a", bytes(7) + b"c")
    False
    """
    low, high, span = _IDS.unpack(trace_id + span_id)
    mixed = (low * _MIX[0] ^ high * _MIX[1] ^ span * _MIX[2]) & _MASK
    mixed ^= mixed >> 32
    signed: int = mixed - (mixed >> 63 << 64)
    return signed if signed != NO_SEQ else 0


def _sketch_of(span: Any) -> bytes:
    for pair in span.attributes:
        if pair.key == semconv.FOLD_SKETCH:
            sketch: bytes = pair.value.bytes_value
            return sketch
    return b""
