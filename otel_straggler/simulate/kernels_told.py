"""What a rank's timer of kernels would count in a generated run, from the times of its sections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from otel_straggler.model.kernels import KernelCell, KernelCounts
from otel_straggler.model.observation import CUPTI, Kernel, ObservationBatch

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
class KernelsTold:
    """Counts until it is asked."""

    _counts: dict[tuple[int, KernelCell], KernelCounts] = field(default_factory=dict)
    _since_ns: int | None = None
    _until_ns: int = 0

    def take(self, rows: ObservationBatch) -> None:
        """Count the rows of a step, where kernels were timed."""
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
        runs_by = np.bincount(cell, minlength=n_cells).reshape(size)
        for code, number in np.argwhere(own_by + nccl_by > 0.0).tolist():
            section = rows.sections[number].name
            runs = int(runs_by[code, number])
            for name, part in _COMPUTE:
                kernel = Kernel(name, "compute")
                self._add(code, KernelCell(section, kernel), part * own_by[code, number], runs)
            kernel = Kernel(_NCCL, "nccl")
            self._add(code, KernelCell(section, kernel), nccl_by[code, number], runs)

    def take_all(self) -> tuple[int, int, dict[int, list[KernelCounts]]]:
        """The interval on the senders' clock, and what was counted by place of the rank; nothing
        is left."""
        by_rank: dict[int, list[KernelCounts]] = {}
        for (code, _), counts in self._counts.items():
            by_rank.setdefault(code, []).append(counts)
        told = self._since_ns or 0, self._until_ns, by_rank
        self._counts, self._since_ns = {}, None
        return told

    def _add(self, code: int, cell: KernelCell, seconds: float, runs: int) -> None:
        """``runs`` runs of a section, each with eight equal kernels."""
        if seconds <= 0.0:
            return
        counts = self._counts.setdefault((code, cell), KernelCounts(cell))
        one_s, count = seconds / (8 * runs), 8 * runs
        bucket = int(np.ceil(np.log2(one_s) * 2**_SCALE)) - 1
        one_ns = max(1, int(one_s * 1e9))
        numbers = count, int(seconds * 1e9), one_ns, one_ns
        counts.add(numbers, _SCALE, bucket, np.array([count], np.int64))
