"""A training run as one point of a scalability report."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

from otel_straggler.scalability.timeline import TimeShares

RANKS, NODES, GPUS = "ranks", "nodes", "GPUs"
"""What a world size counts."""


class Key(NamedTuple):
    """Runs with the same key are repeats of each other."""

    strategy: str
    unit: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRun:
    """What was measured of one run; NaN and None are unknown.

    Attributes:
        name: of the run; strategy: how it was distributed, such as "torch-ddp".
        size: world size, in ``unit``.
        epochs_s: one time per epoch, seconds.
        step_s: median seconds per step.
        samples_per_s, tokens_per_s: of all ranks together.
        utilization: 0 to 1, mean of all GPUs.
        power_w: of all GPUs together; energy_wh: of the whole run.
        computation: 0 to 1, share of operators that compute in the time of all operators.
        time: where the time of the GPUs went, summed over ranks.
    """

    name: str
    strategy: str
    size: int
    unit: str = RANKS
    epochs_s: tuple[float, ...] = ()
    step_s: float = math.nan
    samples_per_s: float = math.nan
    tokens_per_s: float = math.nan
    utilization: float = math.nan
    power_w: float = math.nan
    energy_wh: float = math.nan
    computation: float = math.nan
    time: TimeShares | None = None

    @property
    def key(self) -> Key:
        return Key(self.strategy, self.unit, self.size)

    def joined(self, other: ScalingRun) -> ScalingRun:
        """The same run with what another source knows of it; times that both have are summed."""
        known = {
            f.name: value
            for f in fields(self)
            if f.name not in ("name", "strategy", "size", "unit", "time")
            and not _is_unknown(value := getattr(other, f.name))
        }
        time = other.time if self.time is None else self.time
        if self.time is not None and other.time is not None:
            time = self.time + other.time
        return replace(self, **known, time=time)


def _is_unknown(value: object) -> bool:
    return value == () or (isinstance(value, float) and math.isnan(value))
