"""Input of verdicts: seconds of every step, rank, and section, as dense tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from otel_straggler.model.observation import Bases, Codes, Floats, Ints, Section
from otel_straggler.model.rank import Source


@dataclass(frozen=True, slots=True, eq=False)
class GpuSeconds:
    """Time on the GPU, or without waiting in collectives, by step, rank and section: (T, R, S).

    Attributes:
        basis: codes of ``gpu_times``; ``HOST`` where one run has no times, or runs were measured
            differently: unknown.
        own_s: own work, see :meth:`.GpuTimes.own_s`; NaN if unknown.
        nccl_s: communication kernels, waiting included, or waiting in collectives; NaN where
            neither was timed.
    """

    basis: Bases
    own_s: Floats
    nccl_s: Floats

    def of_rows(self, at: Any) -> GpuSeconds:
        return GpuSeconds(self.basis[at], self.own_s[at], self.nccl_s[at])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepTable:
    """Consecutive steps of one world of ranks (one run, group, attempt, and incarnation): T steps,
    R ranks, S top-level sections. Rows without a step are in intervals of time, one a "step".

    Attributes:
        steps: (T,) ascending and distinct.
        sources: (R,) ordered by rank; one session each.
        sections: (S,) in the order in which they run within a step.
        seconds: (T, R, S) time of all runs of the section in the step; NaN if there was none.
        runs: (T, R, S) their number, such as microbatches; 0 where ``seconds`` is NaN.
        run_cv: (R, S) standard deviation of single runs within their step / their mean, pooled over
            the steps; NaN where no step has two runs.
        tokens: (T, R) work done in the step; NaN if not reported.
        start_ns, end_ns: (T, R) first start and last end in the step, sender's clock; 0 if none.
        world_size: ranks expected, 0 if unknown.
        section_end_ns: (T, R, S) last end of the section in the step, sender's clock; 0 if unknown.
            None: of all.
        is_timed: the "steps" are intervals of time.
        gpu: time on the GPU, or without waiting; None: nobody reports it.
        step_s: (T, R) seconds of the whole step, with what no section covers, see
            :class:`.StepEnds`; NaN where unknown. None: not known, sections are all there is.
    """

    steps: Ints
    sources: tuple[Source, ...]
    sections: tuple[Section, ...]
    seconds: Floats
    runs: Codes
    run_cv: Floats
    tokens: Floats
    start_ns: Ints
    end_ns: Ints
    section_end_ns: Ints | None = None
    world_size: int = 0
    is_timed: bool = False
    gpu: GpuSeconds | None = None
    step_s: Floats | None = None

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Durations of some steps on the slowest rank: from its first start to its last end."""

    run_id: str
    group: str
    attempt: int
    steps: tuple[int, ...]
    slowest_s: tuple[float, ...]
    is_timed: bool

    @classmethod
    def of(cls, table: StepTable) -> StepTimes:
        first = table.sources[0]
        longest_ns = (table.end_ns - table.start_ns).max(axis=1)  # 0 where a rank ran nothing
        return cls(
            run_id=first.run_id,
            group=first.group,
            attempt=first.attempt,
            steps=tuple(table.steps.tolist()),
            slowest_s=tuple((longest_ns * 1e-9).tolist()),
            is_timed=table.is_timed,
        )
