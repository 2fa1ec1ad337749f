"""Settings of layer 1 and what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSettings:
    """Settings of layer 1, with the product's defaults.

    Attributes:
        window_steps: steps of a window; None puts the whole input into one window.
        window_longest_s: a window that is so long takes no further steps, if it has five.
        window_s: length of a window for rows without a step.
        grace_s: how long a window waits for the other ranks after the first has passed it.
        idle_s: a stream without rows for so long (and for 4 times its longest pause so far)
            closes its open windows.
        threshold: a score below it lists the rank as a straggler.
        min_reference_samples: a median of fewer runs never becomes an own-history reference.
        reference_half_life_s: a best that is not met again doubles in this time.
        max_names: section names per stream; further ones count as ``<other>``.
        max_runs: runs kept; the one idle longest is forgotten first.
        kernel_bytes: kernel histograms of all runs, kept until their windows are scored.
        max_kernels: names of kernels per run and attempt; further ones are left out.
        forget_s: a run without rows or signs of life for so long is forgotten.
    """

    window_steps: int | None = 20
    window_longest_s: float = 120.0
    window_s: float = 30.0
    grace_s: float = 5.0
    idle_s: float = 30.0
    threshold: float = 0.75
    min_reference_samples: int = 5
    reference_half_life_s: float = 86_400.0
    max_names: int = 200
    max_runs: int = 100
    kernel_bytes: int = 512 * 1024 * 1024
    max_kernels: int = 10_000
    forget_s: float = 3_600.0


@dataclass(slots=True, kw_only=True)
class ScorerCounts:
    """What happened to rows since the start.

    ``scored + duplicates + superseded + late`` plus the rows of open windows = ``observed``.
    ``windows`` counts closed windows by what closed them.
    """

    observed: int = 0
    scored: int = 0
    duplicates: int = 0
    superseded: int = 0
    late: int = 0
    names_folded: int = 0
    windows: dict[str, int] = field(default_factory=dict)
