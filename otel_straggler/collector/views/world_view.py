"""Everything known of one world (run and group) at one moment, from a collector's state or from a
history. None, NaN, and empty mean unknown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from otel_straggler.collector.runs.profiles import ProfilePair
from otel_straggler.collector.views.numbers import Slowdowns, peers_of, step_slowdowns
from otel_straggler.detect.checkpoints import LastSave
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.episodes import Standstill, standstill
from otel_straggler.detect.hangs.states import ENDS
from otel_straggler.goodput.live import GoodputView
from otel_straggler.model.alert import Maintenance, Mode
from otel_straggler.model.failure import Failure
from otel_straggler.model.observation import Floats, Ints, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import GpuUsage
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import RunVerdicts, Verdict, WorldSummary
from otel_straggler.semconv import Outcome

Json: TypeAlias = dict[str, Any]
Parallel: TypeAlias = tuple[tuple[str, int], ...]
_SILENT_S = 120.0
_SILENT_STEPS = 10.0
_SAME = (
    "sections", "gpu_relative", "gpu_individual", "gpu_section_relative", "gpu_section_individual",
    "gpu_age_s", "first_step", "last_step", "n_steps", "end_ns",
)  # fmt: skip
_NOBODY = np.empty(0, np.int64)
_NEVER = np.empty(0)


@dataclass(frozen=True, kw_only=True, eq=False)
class RankTable:
    """A closed window, R ranks and S sections; NaN = no data or not comparable.

    Attributes:
        ranks: (R,) ascending.
        nodes, roles, devices, parallels: (R,) of each rank; empty where not reported.
        median_s, step_s, relative, individual, count: (R, S), as in :class:`WindowScores`.
        gpu_section_relative, gpu_section_individual: (R, S); None if not kept.
        gpu_age_s: of the kernels in these, as in :class:`WindowScores`.
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
    gpu_age_s: float = math.nan
    first_step: int | None
    last_step: int | None
    n_steps: int
    end_ns: int

    @cached_property
    def slowdowns(self) -> Slowdowns:
        """Own time per step / median of the role. Cost: O(R S log R), once."""
        return step_slowdowns(self.step_s, self.sections, peers_of(self.roles))

    @classmethod
    def of_window(cls, window: WindowScores) -> RankTable:
        """Cost: O(R)."""
        sources = window.sources
        by_section: dict[str, Any] = {
            name: getattr(window, f"section_{name}")
            for name in ("median_s", "step_s", "relative", "individual", "count")
        }
        same: dict[str, Any] = {name: getattr(window, name) for name in _SAME}
        return cls(
            **by_section,
            **same,
            ranks=np.array([source.rank for source in sources], np.int64),
            nodes=[source.node for source in sources],
            roles=[source.role for source in sources],
            devices=[source.device for source in sources],
            parallels=[source.parallel for source in sources],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankHeartbeats:
    """The newest heartbeats of R ranks. Ages are seconds on the collector's clock.

    Attributes:
        ranks: (R,) ascending.
        nodes, roles, devices, models, parallels: (R,) of each rank; empty where not reported.
        heartbeat_age_s, progress_age_s: (R,) NaN where there never was any.
        step: (R,) ``NO_STEP`` where not reported.
        gpu_tier, gpu_reason: (R,) how the GPU is timed, and why not better; empty if not reported.
        outcomes: (R,) how it ended, as in ``OUTCOMES``; empty while it has not.
        ended_age_s: (R,) since then, NaN while it has not.
        observed_steps: (R,) steps begun since the session was first seen; step_s: (R,) their mean
            time, NaN without any. None in what a history has kept.
        pids: (R,) of their processes, each in its own PID namespace; 0 where not reported. None
            in what an older history has kept.
    """

    ranks: Ints
    nodes: Sequence[str]
    roles: Sequence[str]
    devices: Sequence[str]
    models: Sequence[str]
    parallels: Sequence[Parallel]
    heartbeat_age_s: Floats
    progress_age_s: Floats
    step: Ints
    open_section: Sequence[str]
    gpu_tier: Sequence[str]
    gpu_reason: Sequence[str]
    dropped: Sequence[Mapping[str, int]]
    outcomes: Sequence[str]
    ended_age_s: Floats
    observed_steps: Ints | None = None
    step_s: Floats | None = None
    pids: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Awaited:
    """The collector was restarted and has received nothing from the run since ``since_s``. Overdue:
    a live rank would have reported by now."""

    since_s: float
    is_overdue: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class WorldView:
    """One world. Times are seconds since 1970.

    Attributes:
        groups: all groups of the run, this one included.
        is_live: a collector follows it; else it comes from a history.
        began_at_s, received_at_s, finished_at_s: of this attempt.
        outcome: how it ended, as in ``OUTCOMES``.
        world_size: ranks expected, 0 if not reported.
        run_verdicts: verdicts of the whole run, all groups.
        is_acknowledged: it hangs, and a person has silenced the hang.
        clashes: other processes that report as the same rank, while they go on.
        awaited: set for a run of before a restart that has not reported since.
        takes_commands: the collector passes commands on to ranks.
        checkpoint: the last save that its ranks have reported.
        profiles: of slow ranks next to those of their peers, oldest first.
        goodput: the account of its time; None before the first step or phase.
        clock_s: offset of the collector's clock from the foremost clock of the senders, to which
            times of windows and verdicts refer; 0 where small or unknown.
        gpus: what their sensors reported; None without sensors.
        failure: what has failed for longest in evaluating it, and does so now.
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
    outcome: Outcome | None = None
    world_size: int = 0
    table: RankTable | None = None
    heartbeats: RankHeartbeats | None = None
    hang: HangStatus | None = None
    run_verdicts: RunVerdicts = field(default_factory=RunVerdicts)
    alerts: Sequence[Json] = ()
    maintenance: Sequence[Maintenance] = ()
    is_acknowledged: bool = False
    mode: Mode = "observe"
    clashes: Sequence[Source] = ()
    takes_commands: bool = False
    checkpoint: LastSave | None = None
    profiles: tuple[ProfilePair, ...] = ()
    goodput: GoodputView | None = None
    awaited: Awaited | None = None
    clock_s: float = 0.0
    gpus: GpuUsage | None = None
    failure: Failure | None = None

    @cached_property
    def world(self) -> WorldSummary | None:
        return next((each for each in self.run_verdicts.worlds if each.group == self.group), None)

    @cached_property
    def has_verdicts(self) -> bool:
        """True if steps of this attempt were evaluated."""
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
        """True for a verdict of an earlier attempt, not renewed in this one."""
        return verdict.attempt < self.attempt

    @cached_property
    def on_gpu(self) -> bool:
        """True if any rank reported a GPU or was timed on one. Cost: O(ranks), once."""
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
    def is_hung(self) -> bool:
        return self.hang is not None and self.hang.is_hung

    @cached_property
    def standstill(self) -> Standstill | None:
        """None while the run makes progress, or has ended. Cost: O(ranks), once."""
        hang, heartbeats = self.hang, self.heartbeats
        if hang is None:
            return None
        known_s = hang.hung_since_s if math.isfinite(hang.hung_since_s) else hang.since_s
        return standstill(
            hang.state,
            hang.ranks,
            hang.blame,
            received=_NOBODY if heartbeats is None else heartbeats.ranks,
            silent_s=_NEVER if heartbeats is None else heartbeats.heartbeat_age_s,
            stalled_s=_NEVER if heartbeats is None else heartbeats.progress_age_s,
            known_since_s=known_s,
            now_s=self.now_s,
        )

    @property
    def has_ended(self) -> bool:
        if self.awaited is not None:
            return False
        if not self.is_live or self.finished_at_s is not None:
            return True
        return self.hang is not None and self.hang.state in ENDS

    @cached_property
    def silent_s(self) -> float | None:
        """Seconds since a run without heartbeats last sent data; None where a rank sends
        heartbeats, it has ended, or the time may be a long step or a batch on its way."""
        if self.hang is not None or self.has_ended or self.received_at_s is None:
            return None
        step_s = 0.0 if self.world is None else self.world.step_s
        silent_s = self.now_s - self.received_at_s
        is_long = silent_s >= _SILENT_S and not silent_s < _SILENT_STEPS * step_s
        return silent_s if is_long else None

    @property
    def reporting(self) -> int:
        """Ranks of the newest window, or else those with heartbeats."""
        return self._received if self.table is None else len(self.table.ranks)

    @property
    def expected(self) -> int:
        """Ranks expected, as far as known; 0 if none is known."""
        return max(self.world_size, self.reporting, self._received)

    @property
    def _received(self) -> int:
        return 0 if self.heartbeats is None else len(self.heartbeats.ranks)
