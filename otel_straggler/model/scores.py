from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from otel_straggler.model.observation import Floats, Ints, Section
from otel_straggler.model.rank import Source

KindOfScore = Literal["section_relative", "section_individual", "gpu_relative", "gpu_individual"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A rank with a score under the threshold. ``section`` is empty for the whole rank."""

    source: Source
    section: str
    kind_of_score: KindOfScore
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """Seconds per step of a rank in a section beyond the median of its role."""

    source: Source
    section: str
    excess_s: float
    own_s: float
    role_median_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowScores:
    """Scores of one window of one run (and attempt, and group), R ranks and S sections; NaN = no
    data or not comparable.

    Attributes:
        first_step, last_step: smallest and largest step; None for a window by time.
        start_ns, end_ns: first start and last end among its rows, by the sender's clock; where
            clocks differ, by the foremost.
        lowest_ns: the same of the lowest rank, by its own clock.
        n_steps: distinct steps.
        sources: (R,) ranks with data, ordered by rank.
        sections: (S,) ordered by first appearance.
        section_median_s: (R, S) median of the section runs; section_count: their number.
        section_step_s: (R, S) median over steps of the duration per step, waiting included.
        section_own_s: (R, S) median over steps of the own time per step: by the clock that verdicts
            go by, without waiting in collectives where that is reported; NaN where it is unknown.
        section_relative, section_individual: (R, S) scores in (0, 1].
        section_slowdown: (R, S) own median / median of the role.
        section_best_s, section_best_at_s: (R, S) own best median, and when it was measured, seconds
            since 1970 by the sender's clock; NaN where there is none. None: not kept.
        gpu_relative, gpu_individual: (R,) scores in (0, 1]; gpu_section_*: (R, S) from one
            section's kernels.
        gpu_age_s: age of the newest kernels in them at the end of the window, 0 for those of the
            window itself; NaN without any.
        stragglers: below the threshold, lowest score first.
        largest_excess: the largest loss of own time against the role, if any rank is slower.
        world_size: ranks expected; missing_ranks: those without a row, at most 1,000 named.
        duplicates, superseded: rows left out because they were delivered twice, or another session
            of the rank has more rows.
        closed_by: "complete" (all ranks passed it), "grace" (some did not in time), "idle", "end".
    """

    run_id: str
    job: str
    group: str
    attempt: int
    first_step: int | None
    last_step: int | None
    start_ns: int
    end_ns: int
    n_steps: int
    sources: tuple[Source, ...]
    sections: tuple[Section, ...]
    section_median_s: Floats
    section_step_s: Floats
    section_own_s: Floats
    section_count: Ints
    section_relative: Floats
    section_individual: Floats
    section_slowdown: Floats
    gpu_relative: Floats
    gpu_individual: Floats
    gpu_section_relative: Floats
    gpu_section_individual: Floats
    section_best_s: Floats | None = None
    section_best_at_s: Floats | None = None
    gpu_age_s: float = math.nan
    stragglers: tuple[Straggler, ...]
    largest_excess: Excess | None
    world_size: int
    missing_ranks: tuple[int, ...]
    lowest_ns: tuple[int, int] = (0, 0)
    duplicates: int
    superseded: int
    closed_by: Literal["complete", "grace", "idle", "end"]
