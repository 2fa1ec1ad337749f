"""What the GPUs of a generated run would tell of themselves: clocks, power, heat, faults."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from otel_straggler import semconv
from otel_straggler.model.rank import Source
from otel_straggler.simulate.faults import GPU_KINDS
from otel_straggler.simulate.labels import Label
from otel_straggler.simulate.time_spent import Numbers

_NAMESPACE: Final = uuid.UUID("6f0d6f0a-5d0e-4d0c-8a52-9d8f3c1e7b11")
_SM_HZ, _MEMORY_HZ, _IDLE_SM_HZ = 1.98e9, 2.619e9, 0.345e9
_POWER_W, _THROTTLED_W, _IDLE_W = 660.0, 410.0, 95.0
_COOL_C, _HOT_C, _MEMORY_ABOVE_C = 61.0, 87.0, 12.0
_MEMORY_BYTES = 80 * 2**30
_USED, _BUSY = 0.86, 0.97
_XID_OF_CRASH = "xid_79"


GPU_MODEL: Final = "NVIDIA H100 80GB HBM3"


def gpu_uuid(source: Source) -> str:
    """The GPU of a rank: that of its place on its node, so that it stays over a restart.

    >>> gpu_uuid(Source(run_id="r", rank=3, node="node-0", local_rank=3))[:8]
    'GPU-bd53'
    """
    place = source.local_rank if source.local_rank >= 0 else source.rank
    return f"GPU-{uuid.uuid5(_NAMESPACE, f'{source.node}/{place}')}"


@dataclass
class Sensors:
    """One reading of every GPU at a time; running totals are kept.

    Attributes:
        labels: what is wrong with the run; a slow GPU is throttled because it is hot, one that is
            gone has reported an XID before.
        seed: of the small differences between GPUs.
    """

    labels: Sequence[Label] = ()
    seed: int = 0
    _at_s: dict[int, float] = field(default_factory=dict)
    _energy_j: dict[int, float] = field(default_factory=dict)
    _hot_s: dict[int, float] = field(default_factory=dict)

    def numbers(self, source: Source, step: int | None, now_s: float) -> Numbers:
        """What the GPU of a rank tells now.

        Args:
            step: newest of the rank; None: it has not begun, and its GPU is idle.
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
        """By how much the GPU is slowed down in a step; 1: it is well."""
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
    """Who has it in the attempt of the source."""
    of_attempt = label.ranks_by_attempt
    return of_attempt[min(source.attempt, len(of_attempt) - 1)]
