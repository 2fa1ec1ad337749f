"""Settings of scores, verdicts, and hangs, with the product's defaults. Those that a collector
takes are described in ``docs/reference/configuration.md``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSettings:
    """Settings of scores. ``window_steps`` None puts the whole input into one window.

    Attributes:
        max_names: section names per stream; further ones count as ``<other>``.
        kernel_bytes: kernel histograms of all runs, kept until their windows are scored.
        max_kernels: names of kernels per run and attempt; further ones are left out.
        evict_s: a run without rows or heartbeats for so long is evicted.
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
    evict_s: float = 3_600.0


KEPT = "kept"
REPEATED = "repeated"
OVER_LIMIT = "over_limit"
KERNEL_OUTCOMES = (KEPT, REPEATED, OVER_LIMIT)
"""Of a point of a kernel histogram."""


@dataclass(slots=True, kw_only=True)
class ScorerCounts:
    """Rows since the start: ``observed`` = ``scored + duplicates + superseded + late`` + rows of
    open windows. ``windows`` counts closed windows by what closed them, ``kernel_times`` points of
    kernel histograms by ``KERNEL_OUTCOMES``."""

    observed: int = 0
    scored: int = 0
    duplicates: int = 0
    superseded: int = 0
    late: int = 0
    names_folded: int = 0
    windows: dict[str, int] = field(default_factory=dict)
    kernel_times: Counter[str] = field(
        default_factory=lambda: Counter(dict.fromkeys(KERNEL_OUTCOMES, 0))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictSettings:
    """When a rank or host is called slow. ``block_s`` is the length of a "step" for rows without
    one."""

    block_steps: int = 5
    block_s: float = 10.0
    windows_steps: tuple[int, ...] = (20, 100, 400)
    min_slowdown: float = 1.03
    floor_of_resolvable: float = 1.5
    min_z: float = 3.5
    page_slowdown: float = 1.10
    page_loss: float = 0.01
    min_share: float = 0.01
    min_peers: int = 3
    quorum: float = 0.8
    warm_up_steps: int = 20
    max_changes: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HangSettings:
    """When a rank counts as lost or stuck. All times in seconds.

    Attributes:
        min_samples: sections with fewer runs get ``unknown_timeout_s``.
        quantile_samples: with fewer runs the longest stands for the 99.9th percentile.
        quantile_factor: of the 99.9th percentile.
        mad_factor: of the median absolute deviation, above the median.
        max_shrinking_per_h: a timeout shrinks by at most this part per hour.
        min_over_usual: a timeout is at least so many times the 99.9th percentile, also beyond
            ``max_timeout_s``.
        warm_steps: first steps of an attempt, which compile, with ``start_timeout_s``.
        late_part: of the timeout, after which a rank is late.
        longest_factor: a timeout is at least so many times the longest, up to ``max_timeout_s``.
        reported_s: a rank lost for longer before somebody ended the run was reported meanwhile.
        restart_s: during a restart, time to come back for ranks that fell silent before it.
        lost_quorum: with this part of its ranks lost a run is hung as a whole.
    """

    lost_after_s: float = 20.0
    min_timeout_s: float = 30.0
    max_timeout_s: float = 480.0
    start_timeout_s: float = 3_600.0
    unknown_timeout_s: float = 480.0
    min_samples: int = 30
    quantile_samples: int = 1_000
    quantile_factor: float = 3.0
    mad_factor: float = 10.0
    max_shrinking_per_h: float = 0.2
    min_over_usual: float = 1.5
    warm_steps: int = 3
    late_part: float = 0.5
    longest_factor: float = 1.2
    reported_s: float = 300.0
    restart_s: float = 120.0
    lost_quorum: float = 0.5

    @property
    def ending_s(self) -> float:
        """A rank that falls silent this close to the recorded end of others may have ended with
        them: three of the four heartbeats of ``lost_after_s``."""
        return 0.75 * self.lost_after_s
