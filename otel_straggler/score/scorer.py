"""All of layer 1 in one place: batches go in, scores of closed windows come out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from otel_straggler.model.observation import ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSettings:
    """Settings of layer 1 (defaults of the product).

    Attributes:
        window_steps: steps of a window; None puts the whole input into one window.
        window_s: length of a window for rows without a step.
        grace_s: how long a window waits for the other ranks after the first has passed it.
        idle_s: a stream without rows for so long closes its open windows.
        threshold: a score below it lists the rank as a straggler.
        min_reference_samples: a median of fewer runs never becomes an own-history reference.
        reference_half_life_s: a best that is not met again doubles in this time.
        max_names: section names per run; further ones count as ``<other>``.
        max_runs: runs kept; the one idle longest is forgotten first.
        forget_s: a run without rows or signs of life for so long is forgotten.
    """

    window_steps: int | None = 20
    window_s: float = 30.0
    grace_s: float = 5.0
    idle_s: float = 30.0
    threshold: float = 0.75
    min_reference_samples: int = 5
    reference_half_life_s: float = 86_400.0
    max_names: int = 200
    max_runs: int = 100
    forget_s: float = 3_600.0


@dataclass(slots=True, kw_only=True)
class ScorerCounts:
    """What happened to rows, since the start. ``scored + duplicates + superseded + late`` plus
    the rows of open windows = rows observed."""

    observed: int = 0
    scored: int = 0
    duplicates: int = 0
    superseded: int = 0
    late: int = 0
    windows: dict[str, int] = field(default_factory=dict)


class Scorer:
    """Scores every run it is shown. Pure: no clock, no I/O; ``now_ns`` is any monotonic time."""

    def __init__(self, settings: ScoreSettings | None = None) -> None: ...

    def observe(self, batch: ObservationBatch, now_ns: int) -> None:
        """Take the rows of ``batch``; windows that became due are given by :meth:`close_due`."""

    def finish(self, source: Source, now_ns: int) -> None:
        """The rank has ended: it has passed every window of its stream."""

    def close_due(self, now_ns: int) -> list[WindowScores]:
        """Close and score the windows that all ranks have passed, or whose wait is over."""

    def close_all(self, now_ns: int) -> list[WindowScores]:
        """Close and score every open window (end of input)."""

    def clashes(self, run_id: str) -> tuple[Source, ...]:
        """Ranks of a run that two live sessions claim; the older session of each pair."""
        return ()
