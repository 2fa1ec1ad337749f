"""Settings of scores, verdicts and hangs, with the product's defaults."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from otel_straggler.setting import above, integer, kind, number, option


def _are_ascending(steps: object) -> bool:
    if not isinstance(steps, (list, tuple)) or not all(type(count) is int for count in steps):
        return False
    return len(steps) > 0 and all(a < b for a, b in pairwise((0, *steps)))


_ASCENDING = kind(
    accepts=_are_ascending,
    expected="a list of ascending integers of at least 1",
    convert=tuple,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreSettings:
    """When windows close, and which scores list a rank.

    Attributes:
        window_steps: None puts the whole input into one window.
        kernel_bytes: kernel histograms of all runs, kept until their windows are scored.
        max_kernels: names of kernels per run and attempt; further ones are left out.
    """

    window_steps: int | None = option(
        20, integer(1), "steps that are scored together", "--window-steps N"
    )
    window_longest_s: float = option(
        120.0,
        above(0),
        "a window this long with at least five steps takes no further ones: of steps of 30 s, five "
        "are scored together",
    )
    window_s: float = option(
        30.0, number(0.1), "length of a window for spans without a step", "--window-seconds S"
    )
    grace_s: float = option(
        5.0, number(0), "how long a window waits for other ranks after the first has passed it"
    )
    idle_s: float = option(
        30.0,
        above(0),
        "a window closes after this time without spans and heartbeats, or after 4 times the "
        "longest pause so far; as long it waits for steps that were skipped, and for the last "
        "spans of a rank that has ended",
    )
    threshold: float = option(0.75, above(0, 1), "a score below it lists the rank as a straggler")
    min_reference_samples: int = option(
        5, integer(1), "a median of fewer executions never becomes a rank's own best"
    )
    reference_half_life_s: float = option(
        86_400.0, above(0), "a best that is not met again doubles in this time"
    )
    max_section_names: int = option(200, integer(1), "per run; further ones count as `<other>`")
    max_runs: int = option(
        100,
        integer(1),
        "runs kept; the one idle longest of those that have ended or are silent is evicted first. "
        "Further ones are refused (429) while all are active",
    )
    evict_run_s: float = option(
        3_600.0, above(0), "a run without spans or heartbeats for so long is evicted"
    )
    kernel_bytes: int = 512 * 1024 * 1024
    max_kernels: int = 10_000


KEPT = "kept"
REPEATED = "repeated"
OVER_LIMIT = "over_limit"
KERNEL_OUTCOMES = (KEPT, REPEATED, OVER_LIMIT)
"""Of a point of a kernel histogram."""


@dataclass(slots=True, kw_only=True)
class ScorerCounts:
    """What happened to rows since the start.

    ``scored + duplicates + superseded + late + unfinished`` plus the rows of open windows =
    ``observed``. ``unfinished`` are of a last window whose steps were only begun.
    ``windows`` counts closed windows by what closed them, ``kernel_times`` points of kernel
    histograms by ``KERNEL_OUTCOMES``.
    """

    observed: int = 0
    scored: int = 0
    duplicates: int = 0
    superseded: int = 0
    late: int = 0
    unfinished: int = 0
    names_folded: int = 0
    windows: dict[str, int] = field(default_factory=dict)
    kernel_times: Counter[str] = field(
        default_factory=lambda: Counter(dict.fromkeys(KERNEL_OUTCOMES, 0))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictSettings:
    """When a rank or host is called slow."""

    block_steps: int = option(
        5,
        integer(1),
        "steps summed up by one median; verdicts are evaluated as often. At most the longest of "
        "`windows_steps`",
    )
    block_s: float = option(10.0, number(0.1), "length of a block of spans without a step")
    windows_steps: tuple[int, ...] = option(
        (20, 100, 400), _ASCENDING, "lengths over which a rank is compared with its peers"
    )
    min_slowdown: float = option(1.03, number(1), "no smaller one is ever confirmed (1.03 = 3 %)")
    min_z: float = option(
        6.0, number(0), "nor one fewer robust standard deviations beyond its peers"
    )
    page_slowdown: float = option(
        1.10,
        number(1),
        "no smaller one begins to page; a page ends below half of its excess (1.05), and of the "
        "losses below",
    )
    page_loss: float = option(
        0.05,
        number(0, 1),
        "nor one that costs less than this part of the job's GPU time, unless it reaches "
        "`page_gpu_hours`. Below, it is a warning",
    )
    page_gpu_hours: float = option(
        16.0, number(0), "GPU-hours lost per hour that page whatever part of the job they are"
    )
    min_share: float = option(
        0.01, number(0, 1), "a section must lose at least this part of the step"
    )
    min_peers: int = option(
        3,
        integer(2),
        "smaller groups of peers give no verdict; below 5, only slowdowns of 1.10 count",
    )
    quorum: float = option(0.8, number(0, 1), "no verdict while fewer ranks than this part report")
    warm_up_steps: int = option(20, integer(0), "left out after an observed start of an attempt")
    max_changes: int = option(10_000, integer(1), "changes of state kept in memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class HangSettings:
    """When a rank counts as lost or stuck. All times in seconds.

    Attributes:
        min_samples: executions of a section below which ``unknown_timeout_s`` counts.
        quantile_samples: fewer executions than this have no 99.9th percentile; their longest stands
            for it.
        quantile_factor: of the 99.9th percentile.
        mad_factor: of the median absolute deviation, above the median.
        max_shrinking_per_h: a timeout becomes shorter by at most this part per hour.
        min_over_usual: what is usually reached is never a hang: a timeout is at least so many
            times the 99.9th percentile, also beyond ``max_timeout_s``.
        warm_steps: before a world has done so many steps in its attempt ``start_timeout_s`` counts:
            the first ones compile, and warm caches up.
        late_part: of the timeout, after which a rank is late.
        longest_factor: a pause that was once survived is none of a hang's: a timeout is at least so
            many times the longest, up to ``max_timeout_s``.
        reported_s: what was lost for longer before somebody ended the run was reported meanwhile.
        restart_s: where a restart brings new processes one by one, so long after the first of them
            nobody is lost who fell silent before it.
        lost_quorum: with at least this part of its ranks lost a run is called hung as a whole.
    """

    lost_after_s: float = option(20.0, above(0), "a rank without a heartbeat for so long is lost")
    min_timeout_s: float = option(30.0, above(0), "no progress for less is never called stuck")
    max_timeout_s: float = option(
        480.0,
        above(0),
        "no progress for more always is, unless that is usual for the section. 0.8 of the 600 s "
        "after which NCCL's watchdog ends a job",
    )
    start_timeout_s: float = option(
        3_600.0, above(0), "for a rank that has not progressed yet, and for the first steps"
    )
    unknown_timeout_s: float = option(
        480.0, above(0), "for a section with too few executions to know"
    )
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
        """A rank that falls silent within so long of the recorded end of others may have ended with
        them: three heartbeats of the four after which it is lost."""
        return 0.75 * self.lost_after_s
