"""Settings of the hang judge, with the product's defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HangSettings:
    """When a rank counts as lost or stuck. All times in seconds.

    Attributes:
        lost_after_s: without a sign of life for so long a rank is lost; four heartbeats by default.
        least_timeout_s: no progress for less is never called stuck.
        most_timeout_s: for more always; 0.8 of the 600 s after which NCCL's watchdog ends a job.
        start_timeout_s: a rank that has never progressed has so long, and one of a world that has
            only just begun.
        unknown_timeout_s: for a section of which fewer than ``least_samples`` runs were seen.
        least_samples: see above.
        quantile_samples: fewer runs than this have no 99.9th percentile; their longest stands
            for it.
        quantile_factor: of the 99.9th percentile.
        mad_factor: of the median absolute deviation, above the median.
        most_shrinking_per_h: a timeout becomes shorter by at most this part per hour.
        least_over_usual: what is usually reached is never a hang: a timeout is at least so many
            times the 99.9th percentile, also beyond ``most_timeout_s``.
        warm_steps: before a world has done so many steps in its attempt ``start_timeout_s`` counts:
            the first ones compile, and warm caches up.
        late_part: of the timeout, after which a rank is late.
        longest_factor: a pause that was once survived is none of a hang's: a timeout is at least so
            many times the longest, up to ``most_timeout_s``.
        told_s: what was lost for longer before somebody ended the run was told of meanwhile.
        restart_s: where a restart brings new processes one by one, so long after the first of them
            nobody is lost who fell silent before it.
        lost_quorum: with at least this part of its ranks lost a run is called hung as a whole.
    """

    lost_after_s: float = 20.0
    least_timeout_s: float = 30.0
    most_timeout_s: float = 480.0
    start_timeout_s: float = 3_600.0
    unknown_timeout_s: float = 480.0
    least_samples: int = 30
    quantile_samples: int = 1_000
    quantile_factor: float = 3.0
    mad_factor: float = 10.0
    most_shrinking_per_h: float = 0.2
    least_over_usual: float = 1.5
    warm_steps: int = 3
    late_part: float = 0.5
    longest_factor: float = 1.2
    told_s: float = 300.0
    restart_s: float = 120.0
    lost_quorum: float = 0.5

    @property
    def ending_s(self) -> float:
        """A rank that falls silent within so long of the recorded end of others may have ended with
        them: three heartbeats of the four after which it is lost."""
        return 0.75 * self.lost_after_s
