"""Metrics of ranks that are shown unchanged: sensors, goodput, kernels, checkpoints."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from otel_straggler import semconv
from otel_straggler.detect.verdicts.hardware import HardwareReading
from otel_straggler.model.observation import Kernel, ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import GpuUsage, PassthroughMetric
from otel_straggler.semconv import OTHER_KERNEL, Metric

KEPT_S: Final = 120.0
"""A sensor that is silent for so long has no value."""
MAX_SHOWN: Final = 10
"""Kernels of a rank that are shown: the longest."""
_MAX_OF_A_RANK: Final = 100
_MAX_KERNELS: Final = 200
_MIN_APART_S: Final = 1.0
"""Between two values that say how fast a total grows."""
_BYTES_PER_VALUE, _BYTES_PER_KERNEL, _BYTES_PER_SENSOR = 300, 1_000, 200
_J_PER_WH: Final = 3_600.0
_APART_S: Final = 5.0
"""Without steps, checkpoints that end so close to each other are one."""
_HARDWARE: Final = frozenset(semconv.HARDWARE_METRICS)
_OF_RANK: Final = _HARDWARE | frozenset(semconv.CHECKPOINT_METRICS)
_USAGE: Final = frozenset({semconv.HW_GPU_UTILIZATION, semconv.HW_POWER, semconv.HW_ENERGY})
_GOODPUT: Final = frozenset(semconv.GOODPUT_METRICS)
_LAUNCH: Final = frozenset(semconv.LAUNCH_METRICS)
_OF_NODE: Final = _LAUNCH | {semconv.RANK_TIMED_OUT}
Series: TypeAlias = tuple[Metric, tuple[str, ...]]
"""A metric, and the values of its labels."""
_Cell: TypeAlias = tuple[str, Kernel]
"""Section and kernel."""


@dataclass(slots=True)
class RankNumbers:
    """Sensors and goodput of one rank: value and arrival of every series, and of running totals
    how fast they grow; about 300 bytes each."""

    source: Source
    values: dict[Series, tuple[float, float]] = field(default_factory=dict)
    per_s: dict[Series, float] = field(default_factory=dict)

    def keep(self, series: Series, value: float, now_s: float) -> None:
        before, before_s = self.values.get(series, (value, now_s))
        if series[0].kind == "counter" and now_s - before_s >= _MIN_APART_S:
            self.per_s[series] = max(0.0, value - before) / (now_s - before_s)
        self.values[series] = value, now_s

    def drop(self, series: Series) -> None:
        del self.values[series]
        self.per_s.pop(series, None)

    def reading(self) -> HardwareReading:
        """What the verdict of this rank is compared with."""
        return HardwareReading(
            node=self.source.node,
            sm_clock_hz=self._value(semconv.GPU_CLOCK, "sm"),
            utilization=self._value(semconv.HW_GPU_UTILIZATION),
            throttled={
                values[-1]: part
                for (metric, values), part in self.per_s.items()
                if metric is semconv.GPU_THROTTLED
            },
            errors={
                values[-1]: value
                for (metric, values), (value, _) in self.values.items()
                if metric is semconv.HW_ERRORS and value > 0
            },
            pcie_lanes=self._value(semconv.GPU_PCIE_WIDTH),
            load_per_cpu=self._value(semconv.HOST_LOAD) / self._value(semconv.HOST_CPUS),
            memory_pressure=self._value(semconv.HOST_MEMORY_PRESSURE),
            disk_busy=self._value(semconv.HOST_DISK_BUSY),
        )

    def _value(self, metric: Metric, *last: str) -> float:
        """NaN: there is none."""
        for (each, values), (value, _) in self.values.items():
            if each is metric and values[len(values) - len(last) :] == last:
                return value
        return math.nan

    def of_rank(self) -> Iterator[tuple[Series, float]]:
        """Sensors, and what saves of checkpoints have cost."""
        return ((s, value) for s, (value, _) in self.values.items() if s[0] in _OF_RANK)

    def goodput(self) -> Iterator[tuple[Series, float]]:
        return ((s, value) for s, (value, _) in self.values.items() if s[0] in _GOODPUT)

    def launches(self) -> Iterator[tuple[Series, float, float]]:
        """Attempts, exits and restarts that the launcher of the rank's node reports for it: series,
        value and arrival."""
        return ((s, v, at_s) for s, (v, at_s) in self.values.items() if s[0] in _LAUNCH)

    def timed_out(self) -> tuple[str, float] | None:
        """Reason and seconds, if its agent has reported a timeout; the longest of several."""
        timeouts = [
            (value, values[-1])
            for (metric, values), (value, _) in self.values.items()
            if metric is semconv.RANK_TIMED_OUT
        ]
        if not timeouts:
            return None
        seconds, reason = max(timeouts)
        return reason, seconds

    @property
    def goodput_at_s(self) -> float:
        """Newest report of goodput; 0: never."""
        return max((at_s for s, (_, at_s) in self.values.items() if s[0] in _GOODPUT), default=0.0)


@dataclass(slots=True)
class KernelTotal:
    seconds: float = 0.0
    runs: int = 0


@dataclass(slots=True)
class RankKernels:
    """Kernels of one process since its first report; about 500 bytes each."""

    source: Source
    totals: dict[Kernel, KernelTotal] = field(default_factory=dict)
    _known_until_ns: dict[_Cell, int] = field(default_factory=dict)

    def add(self, cell: _Cell, end_ns: int, seconds: float, runs: int) -> None:
        """Add an interval, once; further kernels count as ``<other>``."""
        if end_ns <= self._known_until_ns.get(cell, 0):
            return
        kernel = cell[1]
        if kernel not in self.totals and len(self.totals) >= _MAX_KERNELS:
            kernel = Kernel(OTHER_KERNEL, kernel.kernel_class)
        if cell in self._known_until_ns or len(self._known_until_ns) < 4 * _MAX_KERNELS:
            self._known_until_ns[cell] = end_ns
        total = self.totals.setdefault(kernel, KernelTotal())
        total.seconds += seconds
        total.runs += runs

    def longest(self) -> list[tuple[Kernel, KernelTotal]]:
        """The longest named kernels."""
        named = [item for item in self.totals.items() if item[0].name != OTHER_KERNEL]
        named.sort(key=lambda item: -item[1].seconds)
        return named[:MAX_SHOWN]


@dataclass(slots=True)
class GpuTotals:
    """Running totals of the sensors of all GPUs; about 200 bytes for each sensor of a GPU."""

    _last: dict[tuple[Metric, str], tuple[float, float]] = field(default_factory=dict)
    _gpus: set[str] = field(default_factory=set)
    _sums: dict[Metric, float] = field(default_factory=dict)
    _readings: Counter[Metric] = field(default_factory=Counter)
    _joules: float = math.nan

    @property
    def nbytes(self) -> int:
        return _BYTES_PER_SENSOR * len(self._last)

    def add(self, metric: Metric, gpu: str, value: float, now_s: float) -> None:
        """A reading. A counter of energy that falls has begun again at zero; power counts where
        there is no counter, but not over a gap in which the sensor was silent."""
        before = self._last.get((metric, gpu))
        self._last[metric, gpu] = value, now_s
        self._gpus.add(gpu)
        self._readings[metric] += 1
        self._sums[metric] = self._sums.get(metric, 0.0) + value
        if before is None:
            return
        if metric is semconv.HW_ENERGY:
            self._use(value - before[0] if value >= before[0] else value)
        elif metric is semconv.HW_POWER and (semconv.HW_ENERGY, gpu) not in self._last:
            took_s = now_s - before[1]
            if took_s <= KEPT_S:
                self._use(took_s * (value + before[0]) / 2.0)

    def _use(self, joules: float) -> None:
        self._joules = joules if math.isnan(self._joules) else self._joules + joules

    def usage(self) -> GpuUsage | None:
        """None without a reading. Cost: O(1)."""
        if not self._gpus:
            return None
        return GpuUsage(
            gpus=len(self._gpus),
            utilization=self._mean(semconv.HW_GPU_UTILIZATION),
            power_w=self._mean(semconv.HW_POWER) * len(self._gpus),
            energy_wh=self._joules / _J_PER_WH,
        )

    def _mean(self, metric: Metric) -> float:
        readings = self._readings[metric]
        return self._sums[metric] / readings if readings else math.nan


@dataclass(slots=True)
class Passthrough:
    """Of one world. One thread owns it; time is an argument.

    Attributes:
        numbers, kernels: by rank.
        gpus: of all ranks.
        checkpoint_s: end of the newest checkpoint (seconds since 1970) on the rank that reported it
            first: one mark on a page, not one per rank. None if there was none.
    """

    numbers: dict[int, RankNumbers] = field(default_factory=dict)
    kernels: dict[int, RankKernels] = field(default_factory=dict)
    gpus: GpuTotals = field(default_factory=GpuTotals)
    checkpoint_s: float | None = None
    _checkpoint: tuple[int, int] = (-1, -1)

    @property
    def nbytes(self) -> int:
        """Memory, roughly. Cost: O(ranks)."""
        n_values = sum(len(each.values) for each in self.numbers.values())
        n_kernels = sum(len(each.totals) for each in self.kernels.values())
        return _BYTES_PER_VALUE * n_values + _BYTES_PER_KERNEL * n_kernels + self.gpus.nbytes

    def observe_number(self, number: PassthroughMetric, now_s: float) -> None:
        """Keep the newest value of every series of the newest attempt."""
        source = number.source
        known = self.numbers.setdefault(source.rank, RankNumbers(source))
        if source.attempt < known.source.attempt:
            return
        is_own = number.metric not in _OF_NODE  # of agent or launcher, who know less of the rank
        if is_own or source.attempt > known.source.attempt:
            known.source = source
        series = number.metric, number.values
        if series in known.values or len(known.values) < _MAX_OF_A_RANK:
            known.keep(series, number.value, now_s)
            if number.metric in _USAGE:
                self.gpus.add(number.metric, number.values[0], number.value, now_s)

    def kernels_of(self, source: Source) -> RankKernels | None:
        """The kernels of a source; None for an older attempt. A new process counts from 0."""
        known = self.kernels.get(source.rank)
        if known is not None and source.attempt < known.source.attempt:
            return None
        if known is None or known.source.session_id != source.session_id:
            known = self.kernels[source.rank] = RankKernels(source)
        known.source = source
        return known

    def observe_checkpoint(self, source: Source, step: int, end_s: float) -> None:
        attempt, newest = self._checkpoint
        if (source.attempt, step) > (attempt, newest) or (
            step < 0 and source.attempt == attempt and end_s > (self.checkpoint_s or 0.0) + _APART_S
        ):
            self._checkpoint, self.checkpoint_s = (source.attempt, step), end_s

    def drop_old(self, now_s: float) -> None:
        for rank in self.numbers.values():
            for series in [s for s, (_, at_s) in rank.values.items() if now_s - at_s > KEPT_S]:
                rank.drop(series)

    def readings(self) -> dict[int, HardwareReading]:
        """Of ranks with sensors."""
        return {
            rank: its.reading()
            for rank, its in self.numbers.items()
            if any(metric in _HARDWARE for metric, _ in its.values)
        }


def checkpoint_ends(batch: ObservationBatch) -> Iterable[tuple[Source, int, float]]:
    """Source, step, and end (seconds since 1970) of every checkpoint."""
    kinds = np.array([section.kind == "checkpoint" for section in batch.sections], bool)
    if not kinds.any():
        return ()
    rows = np.flatnonzero(kinds[batch.section])
    ends_s = (batch.start_ns[rows] * 1e-9 + batch.duration_s[rows]).tolist()
    sources = (batch.sources[code] for code in batch.source[rows].tolist())
    return zip(sources, batch.step[rows].tolist(), ends_s, strict=True)
