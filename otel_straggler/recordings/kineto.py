"""Traces of torch.profiler (Kineto, Chrome's JSON), of one rank or several merged, to rows.

A step is a ``ProfilerStep#N`` annotation. Its sections are the outermost annotations on the same
thread; the rest of the step is one more, without what other threads spend there in collectives of
the CPU. Kernels belong to the section in which they were launched,
by any thread: a section's GPU time is what its kernels took, as CUPTI reports it.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import Counter
from pathlib import PurePath
from typing import NoReturn

import numpy as np

from otel_straggler.errors import InputError
from otel_straggler.model.observation import (
    CUPTI,
    NO_KERNEL,
    NO_SEQ,
    BatchBuilder,
    Bools,
    Codes,
    Floats,
    GpuTimes,
    Ints,
    Kernel,
    ObservationBatch,
    Section,
    kernel_class_of,
    merge_batches,
)
from otel_straggler.model.rank import Source
from otel_straggler.recordings.columns import Note, TableRules
from otel_straggler.recordings.trace_events import ON_CPU, Interval, KinetoTrace, read_traces

REST = "rest of the step"
COLLECTIVES = "collectives"
WHOLE = "step"
_HANDLER = re.compile(r"(.+)_\d+\.\d+\.pt\.trace\.json")
"""Name that ``tensorboard_trace_handler`` gives: host, process and time."""


def read_kineto(text: str, name: str, note: Note, rules: TableRules) -> ObservationBatch:
    """Sections and kernels of all steps of the ranks in a file.

    Raises:
        InputError: it is cut off, or its steps or its ranks cannot be known.

    Cost: O(bytes) in time; about 100 bytes a kernel and annotation stay.
    """
    traces = read_traces(text, name, rules.skipped)
    if processes := [trace.process for trace in traces if trace.process]:
        _fail(
            name, f"steps of processes {', '.join(sorted(processes)[:4])}", "one rank in a file",
            "Nothing separates the ranks of a merged trace: give a directory of one file per rank, "
            "or name the processes: rank 0, rank 1, ...",
        )  # fmt: skip
    return merge_batches([rows_of_trace(trace, name, note, rules) for trace in traces])


def rows_of_trace(trace: KinetoTrace, name: str, note: Note, rules: TableRules) -> ObservationBatch:
    """The rows of a trace that was read; errors as of :func:`read_kineto`."""
    if not trace.steps:
        _fail(
            name, "no ProfilerStep#N annotation", "one for each step",
            "Nothing else separates the steps: call prof.step() after every training step.",
        )  # fmt: skip
    source = _source(trace, name, rules)
    builder = _Rows(trace, rules)
    if builder.outside:
        note(f"{name}: {builder.outside:,} kernels launched outside of the steps are left out")
    return builder.batch(source)


def as_one_step(trace: KinetoTrace) -> None:
    """Make all of a trace without steps its step 0, on the thread with most annotations."""
    ends = [each.end for each in trace.annotations]
    ends += [begin + length for _, begin, length, _ in trace.kernels]
    if trace.steps or not ends:
        return
    begins = [*(each.begin for each in trace.annotations), *(each[1] for each in trace.kernels)]
    threads = Counter(e.thread for e in trace.annotations if not e.name.startswith(ON_CPU))
    main = threads.most_common(1)[0][0] if threads else (None, None)
    trace.steps[0] = Interval(min(begins), max(ends), WHOLE, main)


# --- who -----------------------------------------------------------------------------------------


def _source(trace: KinetoTrace, name: str, rules: TableRules) -> Source:
    rank = trace.rank(name)
    if rank is None:
        _fail(
            name, "a trace without a rank", "distributedInfo.rank in it, or rank3 in its name",
            "Start the profiler after init_process_group(), or rename the file of each rank: "
            "trace_rank0.json, trace_rank1.json, ...",
        )  # fmt: skip
    host = _HANDLER.match(PurePath(name).name)
    devices = trace.header.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices else None
    device = first.get("name", "") if isinstance(first, dict) else ""
    node = str(trace.header.get("host_name") or (host[1] if host else ""))[:256]
    return Source(run_id=rules.run_id, rank=rank, node=node, device_model=str(device)[:256])


# --- rows ----------------------------------------------------------------------------------------


class _Rows:
    """Sections of the steps, and the kernels of each."""

    def __init__(self, trace: KinetoTrace, rules: TableRules) -> None:
        self._rules = rules
        base_ns = trace.header.get("baseTimeNanoseconds")
        self._base_ns = base_ns if isinstance(base_ns, int) and 0 <= base_ns < 2**62 else 0
        self._steps = sorted(trace.steps.items(), key=lambda item: item[1].begin)
        self._step_begins = np.array([step.begin for _, step in self._steps])
        self._step_ends = np.array([step.end for _, step in self._steps])
        main = self._steps[0][1].thread
        outermost = _outermost([each for each in trace.annotations if each.thread == main])
        of_step = self._step_of(np.array([each.begin for each in outermost]))
        self._sections = [
            (each, int(step)) for each, step in zip(outermost, of_step, strict=True) if step >= 0
        ]
        begins = [each.begin for each, _ in self._sections]
        ends = [each.end for each, _ in self._sections]
        on_cpu = [each for each in trace.annotations if each.name.startswith(ON_CPU)]
        self._collectives = _uncovered(
            [each for each in on_cpu if each.thread != main], [0.0, *ends], [*begins, math.inf]
        )
        self._place_kernels(trace)

    def _step_of(self, times: Floats) -> Ints:
        """Index of the step that each time lies in; -1 outside."""
        index = np.searchsorted(self._step_begins, times, side="right") - 1
        is_in = (index >= 0) & (times < self._step_ends[np.maximum(index, 0)])
        result: Ints = np.where(is_in, index, -1).astype(np.int64)
        return result

    def _place_kernels(self, trace: KinetoTrace) -> None:
        """The row of each kernel: of the section that was open when it was launched."""
        self._names = [kernel[0] for kernel in trace.kernels]
        self._begin = np.array([kernel[1] for kernel in trace.kernels], np.float64)
        self._length = np.array([kernel[2] for kernel in trace.kernels], np.float64)
        launched = [trace.launches.get(kernel[3], kernel[1]) for kernel in trace.kernels]
        at = np.array(launched, np.float64)
        step, n = self._step_of(at), len(self._sections)
        begins = np.array([each.begin for each, _ in self._sections])
        ends = np.array([each.end for each, _ in self._sections])
        index = np.searchsorted(begins, at, side="right") - 1
        is_in = np.zeros(len(at), np.bool_)
        if n:
            is_in = (index >= 0) & (at < ends[np.maximum(index, 0)])
        self._row = np.where(is_in, index, np.where(step >= 0, n + step, -1))
        self.outside = int((self._row < 0).sum())

    def batch(self, source: Source) -> ObservationBatch:
        builder = BatchBuilder()
        annotated = dict.fromkeys(range(len(self._steps)), 0.0)
        for each, at in self._sections:
            annotated[at] += each.end - each.begin
            self._add(builder, source, each.name, self._steps[at][0], each.begin, each.end)
        rest = REST if self._sections else WHOLE
        for at, (number, step) in enumerate(self._steps):
            waited = _length_within(self._collectives, step)
            end = max(step.end - annotated[at] - waited, step.begin + 1e-3)
            self._add(builder, source, rest, number, step.begin, end)
        for number, step in self._steps:
            if (waited := _length_within(self._collectives, step)) > 0.0:
                self._add(builder, source, COLLECTIVES, number, step.end - waited, step.end)
        return self._with_kernels(builder.build())

    def _add(
        self,
        builder: BatchBuilder,
        source: Source,
        name: str,
        step: int,
        begin: float,
        end: float,
    ) -> None:
        builder.add(
            source,
            Section(name, "wait" if name == COLLECTIVES else self._rules.kind_of(name)),
            start_ns=self._ns(begin),
            duration_s=(end - begin) / 1e6,
            step=step,
        )

    def _ns(self, us: float) -> int:
        return self._base_ns + round(us * 1e3)

    def _with_kernels(self, batch: ObservationBatch) -> ObservationBatch:
        """Rows of sections get their GPU times; kernels follow as rows of their own."""
        kept = self._row >= 0
        if not kept.any():
            return batch
        row, begin, length = self._row[kept], self._begin[kept], self._length[kept]
        names = [name for name, is_kept in zip(self._names, kept.tolist(), strict=True) if is_kept]
        codes: dict[str, int] = {}
        kernel = np.array([codes.setdefault(name, len(codes)) for name in names], np.int32)
        table = tuple(Kernel(name, kernel_class_of(name)) for name in codes)
        is_nccl = np.array([each.kernel_class == "nccl" for each in table])[kernel]
        gpu = _gpu_times(row, begin, length, is_nccl, len(batch))
        starts = np.array([self._ns(us) for us in begin.tolist()], np.int64)
        n = len(row)
        return ObservationBatch(
            sources=batch.sources,
            sections=batch.sections,
            kernels=table,
            source=np.concatenate([batch.source, np.zeros(n, np.int32)]),
            section=np.concatenate([batch.section, batch.section[row]]),
            kernel=np.concatenate([np.full(len(batch), NO_KERNEL, np.int32), kernel]),
            step=np.concatenate([batch.step, batch.step[row]]),
            start_ns=np.concatenate([batch.start_ns, starts]),
            duration_s=np.concatenate([batch.duration_s, length / 1e6]),
            seq=np.full(len(batch) + n, NO_SEQ, np.int64),
            gpu=GpuTimes.join([gpu, None], [len(batch), n]),
        )


def _outermost(annotations: list[Interval]) -> list[Interval]:
    """Annotations of one thread that lie in no other, by their starts."""
    result: list[Interval] = []
    for each in sorted(annotations, key=lambda one: (one.begin, -one.end)):
        if not result or each.begin >= result[-1].end:
            result.append(each)
    return result


def _uncovered(
    intervals: list[Interval], gap_begins: list[float], gap_ends: list[float]
) -> list[tuple[float, float]]:
    """The union of intervals, cut to the gaps between sections; in order."""
    result: list[tuple[float, float]] = []
    until = 0.0
    for each in sorted(intervals, key=lambda one: one.begin):
        begin = max(each.begin, until)
        until = max(until, each.end)
        first = max(bisect_right(gap_begins, begin) - 1, 0)
        for gap in range(first, len(gap_begins)):
            if gap_begins[gap] >= each.end:
                break
            low, high = max(begin, gap_begins[gap]), min(each.end, gap_ends[gap])
            if high > low:
                result.append((low, high))
    return result


def _length_within(intervals: list[tuple[float, float]], step: Interval) -> float:
    first = max(bisect_right(intervals, (step.begin,)) - 1, 0)
    last = bisect_right(intervals, (step.end,))
    inside = (min(end, step.end) - max(begin, step.begin) for begin, end in intervals[first:last])
    return sum(length for length in inside if length > 0.0)


def _gpu_times(row: Ints, begin: Floats, length: Floats, is_nccl: Bools, rows: int) -> GpuTimes:
    """Of every row: time with a kernel at work, and sums over kernels; unknown without kernels."""
    order = np.lexsort((begin, row))
    busy = np.zeros(rows)
    until = np.full(rows, -np.inf)
    for at, start, took in zip(
        row[order].tolist(), begin[order].tolist(), length[order].tolist(), strict=True
    ):
        end = start + took
        busy[at] += max(0.0, end - max(start, until[at]))
        until[at] = max(until[at], end)
    kernel = np.bincount(row, length, rows)
    nccl = np.bincount(row, np.where(is_nccl, length, 0.0), rows)
    has_kernels = np.bincount(row, minlength=rows) > 0
    basis: Codes = np.where(has_kernels, CUPTI, 0)
    busy_s, nccl_s, kernel_s = (
        np.where(has_kernels, us / 1e6, np.nan) for us in (busy, nccl, kernel)
    )
    return GpuTimes(basis.astype(np.uint8), busy_s, nccl_s, kernel_s)


def _fail(where: str, value: object, expected: str, remedy: str) -> NoReturn:
    raise InputError.of(where, value, expected, remedy) from None
