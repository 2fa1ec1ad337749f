"""Metrics of a replayed run besides spans: goodput, saves, kernel times, GPU sensors."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from otel_straggler import semconv
from otel_straggler.model.kernels import KernelCell, KernelCounts
from otel_straggler.model.observation import CUPTI, Floats, Kernel, ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.semconv import Metric
from otel_straggler.simulate.faults import GPU_KINDS
from otel_straggler.simulate.labels import Label

Numbers = Sequence[tuple[Metric, dict[str, str], float]]
"""Metrics, the attributes of their points, their values."""


@dataclass
class Goodput:
    """Adds up the steps of a run over all attempts.

    Attributes:
        productive_s: in steps that count.
        lost_s: by one of ``semconv.LOSSES``.
    """

    productive_s: float = 0.0
    lost_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(semconv.LOSSES, 0.0))
    _newest_step: int = -1
    _ended_ns: int | None = None
    _attempt: int = -1

    def add(self, rows: ObservationBatch) -> None:
        """Add one step of all ranks."""
        ends_ns = rows.start_ns + np.rint(rows.duration_s * 1e9).astype(np.int64)
        began_ns, ended_ns = int(rows.start_ns.min()), int(ends_ns.max())
        attempt, step = rows.sources[0].attempt, int(rows.step[0])
        if self._ended_ns is not None and attempt > self._attempt:
            self.lost_s["restart"] += max(0.0, (began_ns - self._ended_ns) * 1e-9)
        if step <= self._newest_step:
            self.lost_s["redone"] += (ended_ns - began_ns) * 1e-9
        else:
            self._split(rows, (ended_ns - began_ns) * 1e-9)
        self._attempt, self._ended_ns = attempt, ended_ns
        self._newest_step = max(step, self._newest_step)

    def hang(self, seconds: float) -> None:
        self.lost_s["hang"] += seconds

    def numbers(self) -> Numbers:
        """The metrics of ``semconv.GOODPUT_METRICS``."""
        whole = self.productive_s + sum(self.lost_s.values())
        reported: list[tuple[Metric, dict[str, str], float]] = [
            (semconv.RUN_PRODUCTIVE, {}, self.productive_s)
        ]
        if whole > 0.0:
            reported.append((semconv.RUN_GOODPUT, {}, self.productive_s / whole))
        reason = str(semconv.REASON)
        reported += [
            (semconv.RUN_LOST, {reason: name}, self.lost_s[name]) for name in semconv.LOSSES
        ]
        return reported

    def _split(self, rows: ObservationBatch, whole_s: float) -> None:
        """Split a step into losses and productive time; together as long as it took."""
        left_s = whole_s
        for kind, name, of_ranks in _LOSSES:
            seconds = min(left_s, float(of_ranks(_seconds(rows, kind))))
            self.lost_s[name] += seconds
            left_s -= seconds
        self.productive_s += left_s


_LOSSES = (
    ("checkpoint", "checkpoint", np.max),
    ("eval", "eval", np.max),
    ("data", "data", np.median),
    ("wait", "stragglers", np.median),
)
"""Kind of section, the loss that it counts as, and over ranks which value."""


def _seconds(rows: ObservationBatch, kind: str) -> Floats:
    """(ranks,) in sections of a kind."""
    chosen = np.array([section.kind == kind for section in rows.sections], bool)[rows.section]
    weights = np.where(chosen, rows.duration_s, 0.0)
    sums: Floats = np.bincount(rows.source, weights, len(rows.sources)).astype(np.float64)
    return sums


_STATE_BYTES: Final = 2e9
"""That a simulated rank writes."""


@dataclass
class Saves:
    """Synchronous saves of checkpoints, by rank: all wait for the rank that writes longest."""

    _totals: dict[tuple[str, int], dict[Metric, float]] = field(default_factory=dict)

    def add(self, rows: ObservationBatch) -> None:
        """Add one step of all ranks."""
        write_s = _seconds(rows, "checkpoint")
        save_s = float(write_s.max())
        if save_s <= 0.0:
            return
        grown = {
            semconv.CHECKPOINT_SAVES: 1.0,
            semconv.CHECKPOINT_SAVE_TIME: save_s,
            semconv.CHECKPOINT_BLOCKING_TIME: save_s,
            semconv.CHECKPOINT_SIZE: _STATE_BYTES,
        }
        for source, own_s in zip(rows.sources, write_s.tolist(), strict=True):
            totals = self._totals.setdefault((source.session_id, source.rank), {})
            for metric, value in {**grown, semconv.CHECKPOINT_WRITE_TIME: own_s}.items():
                totals[metric] = totals.get(metric, 0.0) + value
            totals[semconv.CHECKPOINT_STEP] = float(rows.step[0])

    def numbers(self, source: Source) -> Numbers:
        """The metrics of ``semconv.CHECKPOINT_METRICS``; none before the first save."""
        totals = self._totals.get((source.session_id, source.rank), {})
        return [(metric, {}, value) for metric, value in totals.items()]


_SCALE: Final = 6
"""Buckets end at powers of 2 ** (1 / 64)."""
_COMPUTE: Final = (
    ("ampere_bf16_s16816gemm_128x256_ldg8_f2f_stages_64x3_nn", 0.55),
    ("flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>>", 0.30),
    ("vectorized_elementwise_kernel<4, GeluCUDAKernel>", 0.10),
    ("layer_norm_kernel<BFloat16, float>", 0.05),
)
"""Kernels of sections that compute, and their parts of the time."""
_NCCL: Final = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


@dataclass
class KernelReports:
    """Kernel counts until they are drained."""

    _counts: dict[tuple[int, KernelCell], KernelCounts] = field(default_factory=dict)
    _since_ns: int | None = None
    _until_ns: int = 0

    def add(self, rows: ObservationBatch) -> None:
        gpu = rows.gpu
        if gpu is None or not (gpu.basis == CUPTI).any():
            return
        began_ns = int(rows.start_ns.min())
        self._since_ns = began_ns if self._since_ns is None else min(self._since_ns, began_ns)
        ends_ns = rows.start_ns + np.rint(rows.duration_s * 1e9).astype(np.int64)
        self._until_ns = max(self._until_ns, int(ends_ns.max()))
        nccl_s = np.nan_to_num(gpu.nccl_s)
        own_s = np.maximum(np.nan_to_num(gpu.kernel_s) - nccl_s, 0.0)
        size = len(rows.sources), len(rows.sections)
        cell = rows.source.astype(np.int64) * size[1] + rows.section
        n_cells = size[0] * size[1]
        own_by = np.bincount(cell, own_s, n_cells).reshape(size)
        nccl_by = np.bincount(cell, nccl_s, n_cells).reshape(size)
        runs_by = np.bincount(cell[gpu.basis == CUPTI], minlength=n_cells).reshape(size)
        for code, number in np.argwhere(own_by + nccl_by > 0.0).tolist():
            section = rows.sections[number].name
            runs = int(runs_by[code, number])
            for name, part in _COMPUTE:
                kernel = Kernel(name, "compute")
                self._add(code, KernelCell(section, kernel), part * own_by[code, number], runs)
            kernel = Kernel(_NCCL, "nccl")
            self._add(code, KernelCell(section, kernel), nccl_by[code, number], runs)

    def drain(self) -> tuple[int, int, dict[int, list[KernelCounts]]]:
        """The interval on the senders' clock, and the counts by index of the rank."""
        by_rank: dict[int, list[KernelCounts]] = {}
        for (code, _), counts in self._counts.items():
            by_rank.setdefault(code, []).append(counts)
        reported = self._since_ns or 0, self._until_ns, by_rank
        self._counts, self._since_ns = {}, None
        return reported

    def _add(self, code: int, cell: KernelCell, seconds: float, runs: int) -> None:
        """Each execution of a section has eight equal kernels."""
        if seconds <= 0.0:
            return
        counts = self._counts.setdefault((code, cell), KernelCounts(cell))
        one_s, count = seconds / (8 * runs), 8 * runs
        bucket = int(np.ceil(np.log2(one_s) * 2**_SCALE)) - 1
        one_ns = max(1, int(one_s * 1e9))
        numbers = count, int(seconds * 1e9), one_ns, one_ns
        counts.add(numbers, _SCALE, bucket, np.array([count], np.int64))


_NAMESPACE: Final = uuid.UUID("6f0d6f0a-5d0e-4d0c-8a52-9d8f3c1e7b11")
_SM_HZ, _MEMORY_HZ, _IDLE_SM_HZ = 1.98e9, 2.619e9, 0.345e9
_POWER_W, _THROTTLED_W, _IDLE_W = 660.0, 410.0, 95.0
_COOL_C, _HOT_C, _MEMORY_ABOVE_C = 61.0, 87.0, 12.0
_MEMORY_BYTES = 80 * 2**30
_USED, _BUSY = 0.86, 0.97
_XID_OF_CRASH = "xid_79"


GPU_MODEL: Final = "NVIDIA H100 80GB HBM3"


def gpu_uuid(source: Source) -> str:
    """The GPU of a rank, by node and local rank, so that it stays the same over a restart.

    >>> gpu_uuid(Source(run_id="r", rank=3, node="node-0", local_rank=3))[:8]
    'GPU-bd53'
    """
    index = source.local_rank if source.local_rank >= 0 else source.rank
    return f"GPU-{uuid.uuid5(_NAMESPACE, f'{source.node}/{index}')}"


@dataclass
class Sensors:
    """Readings of GPU sensors, with running totals.

    Attributes:
        labels: faults of the run; a slow GPU is throttled by heat, a crashed one has reported an
            XID.
        seed: of the small differences between GPUs.
    """

    labels: Sequence[Label] = ()
    seed: int = 0
    _at_s: dict[int, float] = field(default_factory=dict)
    _energy_j: dict[int, float] = field(default_factory=dict)
    _hot_s: dict[int, float] = field(default_factory=dict)

    def numbers(self, source: Source, step: int | None, now_s: float) -> Numbers:
        """Readings of the GPU of a rank.

        Args:
            step: newest of the rank; None before the first: its GPU is idle.
        """
        rank = source.rank
        slowed = self._slowdown(source, step)
        noise = np.random.default_rng((self.seed, rank)).normal(0.0, 1.0)
        power_w = _IDLE_W if step is None else _THROTTLED_W if slowed > 1.0 else _POWER_W
        power_w *= 1.0 + 0.01 * noise
        since_s = max(0.0, now_s - self._at_s.get(rank, now_s))
        self._at_s[rank] = now_s
        self._energy_j[rank] = self._energy_j.get(rank, 1e6) + power_w * since_s
        self._hot_s[rank] = self._hot_s.get(rank, 0.0) + since_s * (slowed > 1.0)
        clock_hz = _IDLE_SM_HZ if step is None else _SM_HZ / slowed
        heat_c = (_HOT_C if slowed > 1.0 else _COOL_C) + noise
        who = {str(semconv.GPU_UUID): gpu_uuid(source), str(semconv.HW_TYPE): "gpu"}
        sensor, reason = str(semconv.HW_SENSOR), str(semconv.REASON)
        bare = (
            (semconv.GPU_CLOCK, {sensor: "sm"}, clock_hz),
            (semconv.GPU_CLOCK, {sensor: "memory"}, _MEMORY_HZ),
            (semconv.HW_POWER, {}, power_w),
            (semconv.HW_ENERGY, {}, self._energy_j[rank]),
            (semconv.HW_TEMPERATURE, {sensor: "gpu"}, heat_c),
            (semconv.HW_TEMPERATURE, {sensor: "memory"}, heat_c + _MEMORY_ABOVE_C),
            (semconv.HW_GPU_UTILIZATION, {}, 0.0 if step is None else _BUSY),
            (semconv.HW_GPU_MEMORY, {}, _USED * _MEMORY_BYTES),
            (semconv.HW_GPU_MEMORY_LIMIT, {}, float(_MEMORY_BYTES)),
            (semconv.GPU_THROTTLED, {reason: "thermal"}, self._hot_s[rank]),
            (semconv.GPU_THROTTLED, {reason: "power"}, 0.0),
            *self._errors(source),
        )
        return [(metric, {**who, **more}, value) for metric, more, value in bare]

    def _slowdown(self, source: Source, step: int | None) -> float:
        if step is None:
            return 1.0
        slow = [
            label.slowdown
            for label in self.labels
            if label.kind in GPU_KINDS
            and source.rank in _ranks(label, source)
            and label.onset_step <= step
            and (label.end_step is None or step < label.end_step)
        ]
        return max([1.0, *(each for each in slow if np.isfinite(each))])

    def _errors(self, source: Source) -> Numbers:
        kind = str(semconv.ERROR_TYPE)
        gone = any(
            label.kind == "crash" and source.rank in _ranks(label, source) for label in self.labels
        )
        counted = {"ecc_corrected": float(source.rank % 3), "ecc_uncorrected": 0.0}
        if gone:
            counted[_XID_OF_CRASH] = 1.0
        return [(semconv.HW_ERRORS, {kind: name}, count) for name, count in counted.items()]


def _ranks(label: Label, source: Source) -> frozenset[int]:
    """Ranks with the fault in the attempt of the source."""
    of_attempt = label.ranks_by_attempt
    return of_attempt[min(source.attempt, len(of_attempt) - 1)]
