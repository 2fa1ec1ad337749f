"""What the time of a replayed run goes to: useful steps, and everything else by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from otel_straggler import semconv
from otel_straggler.model.observation import Floats, ObservationBatch
from otel_straggler.semconv import Metric

Numbers = Sequence[tuple[Metric, dict[str, str], float]]
"""Metrics, the attributes of their points, their values."""


@dataclass
class TimeSpent:
    """Adds up the steps of a run; all attempts count.

    Attributes:
        productive_s: in steps that count.
        lost_s: by one of ``semconv.LOSSES``.
    """

    productive_s: float = 0.0
    lost_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(semconv.LOSSES, 0.0))
    _newest_step: int = -1
    _ended_ns: int | None = None
    _attempt: int = -1

    def take(self, rows: ObservationBatch) -> None:
        """Add a step of all ranks."""
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
        """Add time in which nothing went on."""
        self.lost_s["hang"] += seconds

    def numbers(self) -> Numbers:
        """As the metrics of ``semconv.GOODPUT_METRICS``."""
        whole = self.productive_s + sum(self.lost_s.values())
        told: list[tuple[Metric, dict[str, str], float]] = [
            (semconv.RUN_PRODUCTIVE, {}, self.productive_s)
        ]
        if whole > 0.0:
            told.append((semconv.RUN_GOODPUT, {}, self.productive_s / whole))
        reason = str(semconv.REASON)
        told += [(semconv.RUN_LOST, {reason: name}, self.lost_s[name]) for name in semconv.LOSSES]
        return told

    def _split(self, rows: ObservationBatch, whole_s: float) -> None:
        """What a step was not useful for, no more than it took."""
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
"""Kind of section, what its time counts as, and of which rank."""


def _seconds(rows: ObservationBatch, kind: str) -> Floats:
    """(ranks,) in sections of a kind."""
    chosen = np.array([section.kind == kind for section in rows.sections], bool)[rows.section]
    weights = np.where(chosen, rows.duration_s, 0.0)
    sums: Floats = np.bincount(rows.source, weights, len(rows.sources)).astype(np.float64)
    return sums
