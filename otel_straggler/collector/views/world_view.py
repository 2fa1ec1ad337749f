"""What is known of one world (run and group) at one moment: what pictures are made of.

A collector fills it from what it follows, a report from a history; None, NaN and empty mean that
nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from otel_straggler.collector.history.codec import WindowSummary
from otel_straggler.collector.views.numbers import Slowdowns, peers_of, step_slowdowns
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.states import ENDS
from otel_straggler.model.alert import Maintenance, Mode
from otel_straggler.model.observation import Floats, Ints, Section
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import RunVerdicts, Verdict, WorldSummary

Json: TypeAlias = dict[str, Any]
Parallel: TypeAlias = tuple[tuple[str, int], ...]
_SILENT_S = 120.0
_SILENT_STEPS = 10.0
TimeBasis = Literal["host", "events", "cupti", "mixed"]


@dataclass(frozen=True, kw_only=True, eq=False)
class RankTable:
    """A closed window, R ranks and S sections; NaN = no data or not comparable.

    Attributes:
        ranks: (R,) ascending.
        nodes, roles, devices, parallels: (R,) of each rank; empty where not told.
        sections: (S,) in the order in which they run.
        median_s, step_s, relative, individual: (R, S), as in :class:`WindowScores`.
        count: (R, S) section runs.
        gpu_relative, gpu_individual: (R,)
        gpu_section_relative, gpu_section_individual: (R, S); None if not kept.
        first_step, last_step, n_steps, end_ns: of the window.
    """

    ranks: Ints
    nodes: Sequence[str]
    roles: Sequence[str]
    devices: Sequence[str]
    parallels: Sequence[Parallel]
    sections: Sequence[Section]
    median_s: Floats
    step_s: Floats
    relative: Floats
    individual: Floats
    count: Ints
    gpu_relative: Floats
    gpu_individual: Floats
    gpu_section_relative: Floats | None = None
    gpu_section_individual: Floats | None = None
    first_step: int | None = None
    last_step: int | None = None
    n_steps: int = 0
    end_ns: int = 0

    @cached_property
    def slowdowns(self) -> Slowdowns:
        """Own time per step / median of the role. Cost: O(R S log R), once."""
        return step_slowdowns(self.step_s, self.sections, peers_of(self.roles))

    @classmethod
    def of_window(cls, window: WindowScores) -> RankTable:
        """Cost: O(R)."""
        sources = window.sources
        return cls(
            ranks=np.array([source.rank for source in sources], np.int64),
            nodes=[source.node for source in sources],
            roles=[source.role for source in sources],
            devices=[source.device for source in sources],
            parallels=[source.parallel for source in sources],
            sections=window.sections,
            median_s=window.section_median_s,
            step_s=window.section_step_s,
            relative=window.section_relative,
            individual=window.section_individual,
            count=window.section_count,
            gpu_relative=window.gpu_relative,
            gpu_individual=window.gpu_individual,
            gpu_section_relative=window.gpu_section_relative,
            gpu_section_individual=window.gpu_section_individual,
            first_step=window.first_step,
            last_step=window.last_step,
            n_steps=window.n_steps,
            end_ns=window.end_ns,
        )

    @classmethod
    def of_summary(cls, window: WindowSummary) -> RankTable:
        """Of a history, which keeps neither the layout nor the scores of kernels by section."""
        return cls(
            ranks=window.ranks,
            nodes=window.nodes,
            roles=window.roles,
            devices=window.devices,
            parallels=[()] * len(window.ranks),
            sections=window.sections,
            median_s=window.median_s.astype(np.float64),
            step_s=window.step_s.astype(np.float64),
            relative=window.relative,
            individual=window.individual.astype(np.float64),
            count=window.count.astype(np.int64),
            gpu_relative=window.gpu_relative.astype(np.float64),
            gpu_individual=window.gpu_individual.astype(np.float64),
            first_step=window.first_step,
            last_step=window.last_step,
            n_steps=window.n_steps,
            end_ns=window.end_ns,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankHeartbeats:
    """What R ranks last said of themselves. Ages are seconds on the collector's clock.

    Attributes:
        ranks: (R,) ascending; only those that were heard of.
        nodes, roles, devices, parallels: (R,) of each rank; empty where not told.
        heartbeat_age_s, progress_age_s: (R,) NaN where there never was any.
        step: (R,) ``NO_STEP`` where not told.
        open_section: (R,) empty if none is open.
        models: (R,) of the GPU, empty if not told.
        gpu_tier, gpu_reason: (R,) what times it on its GPU, and why not more; empty if not told.
        dropped: (R,) records lost, by reason.
        outcomes: (R,) how it said that it ended, as ``OUTCOMES`` has it; empty while it has not.
        ended_age_s: (R,) since then, NaN while it has not. Both may be of no rank: not known.
    """

    ranks: Ints
    nodes: Sequence[str]
    roles: Sequence[str]
    devices: Sequence[str]
    parallels: Sequence[Parallel]
    heartbeat_age_s: Floats
    progress_age_s: Floats
    step: Ints
    open_section: Sequence[str]
    models: Sequence[str] = ()
    gpu_tier: Sequence[str] = ()
    gpu_reason: Sequence[str] = ()
    dropped: Sequence[Mapping[str, int]] = ()
    outcomes: Sequence[str] = ()
    ended_age_s: Floats = field(default_factory=lambda: np.empty(0))


@dataclass(frozen=True, slots=True)
class Awaited:
    """The collector was restarted, and has heard nothing of the run since.

    Attributes:
        since_s: when it was, seconds since 1970.
        is_overdue: a rank that lives would have been heard by now.
    """

    since_s: float
    is_overdue: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class WorldView:
    """One world. Times are seconds since 1970.

    Attributes:
        run_id, job, group, attempt: which.
        groups: all of the run, this one among them.
        now_s: the moment.
        clock_s: by how much the collector's clock is ahead of the foremost one of the senders, of
            which times of windows and verdicts are; 0 where that is small, or nobody knows.
        is_live: a collector follows it; else it is known from a history.
        began_at_s, received_at_s, finished_at_s: of this attempt.
        outcome: how it ended, as ``OUTCOMES`` has it.
        world_size: ranks expected, 0 if not told.
        table: the newest window.
        heartbeats: signs of life.
        hang: who is stuck or lost.
        run_verdicts: verdicts of the whole run, all groups.
        alerts: that fire, as the report has them.
        maintenance: of its nodes, or of any.
        is_acknowledged: it hangs, and a person has said that nobody is to be called for that.
        mode: whether alerts may call somebody.
        awaited: of a run that a collector followed before it was restarted, and that it has not
            heard of since.
    """

    run_id: str
    job: str = ""
    group: str = ""
    groups: tuple[str, ...] = ("",)
    attempt: int = 0
    now_s: float
    is_live: bool = True
    began_at_s: float | None = None
    received_at_s: float | None = None
    finished_at_s: float | None = None
    outcome: str | None = None
    world_size: int = 0
    table: RankTable | None = None
    heartbeats: RankHeartbeats | None = None
    hang: HangStatus | None = None
    run_verdicts: RunVerdicts = field(default_factory=RunVerdicts)
    alerts: Sequence[Json] = ()
    maintenance: Sequence[Maintenance] = ()
    is_acknowledged: bool = False
    mode: Mode = "observe"
    awaited: Awaited | None = None
    clock_s: float = 0.0

    @cached_property
    def world(self) -> WorldSummary | None:
        """What layer 2 says of the group; None while it has said nothing."""
        return next((each for each in self.run_verdicts.worlds if each.group == self.group), None)

    @cached_property
    def has_verdicts(self) -> bool:
        """Whether steps of this attempt were looked at; what is known else is of before."""
        world = self.world
        return world is not None and world.has_verdicts and world.attempt >= self.attempt

    @cached_property
    def changes(self) -> tuple[Verdict, ...]:
        """Changes of verdicts of the group, oldest first."""
        return tuple(each for each in self.run_verdicts.changes if each.group == self.group)

    @cached_property
    def current(self) -> tuple[Verdict, ...]:
        """The newest verdict of every subject of the group."""
        return RunVerdicts(changes=self.changes).current

    def is_of_before(self, verdict: Verdict) -> bool:
        """Whether it was said of an attempt before this one: nothing in this one has renewed it."""
        return verdict.attempt < self.attempt

    @cached_property
    def on_gpu(self) -> bool:
        """Whether any rank told of a GPU, or was timed on one. Cost: O(ranks), once."""
        if self.world is not None and self.world.on_gpu:
            return True
        if self.table is not None and any(self.table.devices):
            return True
        heartbeats = self.heartbeats
        if heartbeats is None:
            return False
        is_timed = any(tier in ("events", "cupti") for tier in heartbeats.gpu_tier)
        return is_timed or any(heartbeats.devices) or any(heartbeats.models)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is to come of it."""
        if self.awaited is not None:
            return False
        if not self.is_live or self.finished_at_s is not None:
            return True
        return self.hang is not None and self.hang.state in ENDS

    @cached_property
    def silent_s(self) -> float | None:
        """For how long nothing has come of a run of which no rank sends signs of life; None where
        one does, where it has ended, and as long as that may be a step, or a batch on its way."""
        if self.hang is not None or self.has_ended or self.received_at_s is None:
            return None
        step_s = 0.0 if self.world is None else self.world.step_s
        silent_s = self.now_s - self.received_at_s
        is_long = silent_s >= _SILENT_S and not silent_s < _SILENT_STEPS * step_s
        return silent_s if is_long else None

    @property
    def reporting(self) -> int:
        """Ranks of the newest window, or else those that were heard of."""
        if self.table is not None:
            return len(self.table.ranks)
        return 0 if self.heartbeats is None else len(self.heartbeats.ranks)

    @property
    def expected(self) -> int:
        """Ranks that there should be, as far as anybody told; 0 if nobody knows of one."""
        received = 0 if self.heartbeats is None else len(self.heartbeats.ranks)
        return max(self.world_size, self.reporting, received)
