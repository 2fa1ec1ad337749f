"""A training run and its worlds: everything known of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from otel_straggler.alerts.naming import Naming
from otel_straggler.collector.metrics.score_series import RunScores
from otel_straggler.collector.runs.checkpoints import WorldCheckpoints
from otel_straggler.collector.runs.claims import WorldClaims
from otel_straggler.collector.runs.collectives import WorldCollectives
from otel_straggler.collector.runs.contents import Content
from otel_straggler.collector.runs.goodput import WorldGoodput
from otel_straggler.collector.runs.hangs import NamedCulprits, WorldHangs
from otel_straggler.collector.runs.liveness import Liveness
from otel_straggler.collector.runs.passthrough import Passthrough
from otel_straggler.collector.runs.profiles import RunProfiles
from otel_straggler.collector.runs.section_histograms import WorldHistograms
from otel_straggler.collector.runs.timeline import Timeline
from otel_straggler.collector.views.run_shown import RunShown
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.detect.hangs.detector import HangStatus, HungRun
from otel_straggler.goodput.live import GoodputView
from otel_straggler.model.failure import Failure, Stage
from otel_straggler.model.verdict import RunVerdicts, WorldSummary, hang_subject

_BYTES_PER_POINT: Final = 2_000
"""Of the newest point of a section's histogram."""


@dataclass(slots=True)
class World:
    """One group of ranks of a run, over all its attempts. Times are of the collector's clock.

    Attributes:
        admitted_at_s: last admission; earlier once it has ended.
        hung, culprits: whether it is reported as hung, and its named culprits.
        naming: the slow ranks and hosts that alerts name.
        claims: the attempt, size and steps that its ranks agree on.
        asked: ranks that were asked for something in the present hang, by verb.
        collectives: the flight records of the present hang.
        before: of one that hangs since before a restart, what the last process has shown of it,
            until a window closes in this one; idle_before_s: GPU seconds of hangs in its loss.
    """

    group: str
    hangs: WorldHangs
    hung: HungRun
    claims: WorldClaims[Content]
    admitted_at_s: float = 0.0
    liveness: Liveness = field(default_factory=Liveness)
    culprits: NamedCulprits = field(default_factory=NamedCulprits)
    naming: Naming = field(default_factory=Naming)
    asked: dict[str, set[int]] = field(default_factory=dict)
    collectives: WorldCollectives = field(default_factory=WorldCollectives)
    histograms: WorldHistograms = field(default_factory=WorldHistograms)
    passthrough: Passthrough = field(default_factory=Passthrough)
    checkpoints: WorldCheckpoints = field(default_factory=WorldCheckpoints)
    timeline: Timeline = field(default_factory=Timeline)
    goodput: WorldGoodput = field(default_factory=WorldGoodput)
    before: WorldView | None = None
    idle_before_s: float = 0.0

    @property
    def nbytes(self) -> int:
        """Memory, roughly. Cost: O(1), and O(ranks) of those with metrics that pass through."""
        held = sum(claim.held_bytes for claim in self.claims.claims.values())
        newest = _BYTES_PER_POINT * len(self.histograms.newest)
        others = self.timeline.size + self.goodput.live.nbytes + self.checkpoints.nbytes
        return self.liveness.nbytes + self.passthrough.nbytes + held + newest + others

    @property
    def is_known(self) -> bool:
        """Whether any rank has reported."""
        return self.liveness.touched_at_s is not None

    @property
    def has_ended(self) -> bool:
        """Cost: O(ranks)."""
        status = self.liveness.status
        return status is None or status.finished_at_s is not None


@dataclass(slots=True)
class Run:
    """A training run.

    Attributes:
        given_up_at_s: when monitoring gave up on it.
        worlds: by group.
        scores: of its newest windows.
        first_window: smaller for a run that was scored earlier; infinite for one that never was.
        shown: caches of its last view.
        profiles: of its slow ranks, next to those of their peers.
        failures: of its evaluation, by group and stage, until that succeeds again.
        is_full: no further ranks are taken: memory is short, and the run has more than its share.
    """

    run_id: str
    scores: RunScores
    admitted_at_s: float = 0.0
    given_up_at_s: float | None = None
    worlds: dict[str, World] = field(default_factory=dict)
    first_window: float = math.inf
    shown: RunShown = field(default_factory=RunShown)
    profiles: RunProfiles = field(default_factory=RunProfiles)
    failures: dict[tuple[str, Stage], Failure] = field(default_factory=dict)
    is_full: bool = False

    @property
    def is_known(self) -> bool:
        return any(world.is_known for world in self.worlds.values())

    @property
    def touched_at_s(self) -> float:
        """Last report of any rank; 0 if never."""
        times = (world.liveness.touched_at_s for world in self.worlds.values())
        return max((at_s for at_s in times if at_s is not None), default=0.0)

    @property
    def has_ended(self) -> bool:
        """Cost: O(ranks)."""
        return all(world.has_ended for world in self.worlds.values())

    @property
    def n_ranks(self) -> int:
        """Ranks that have reported, in the present attempts of all worlds. Cost: O(worlds)."""
        return sum(len(world.claims.speakers) for world in self.worlds.values())

    def known_worlds(self) -> Iterator[World]:
        """Worlds of which a rank has reported, in order of arrival."""
        return (world for world in self.worlds.values() if world.is_known)

    def goodputs(
        self,
        hangs: Mapping[str, HangStatus],
        run_verdicts: RunVerdicts,
        now_s: float,
        ahead_s: float,
        n_runs: int,
    ) -> dict[str, GoodputView]:
        """The account of each world of which a step or a phase is known."""
        views = {
            group: world.goodput.evaluate(
                group,
                world.liveness.status,
                hangs.get(group),
                run_verdicts.changes,
                now_s=now_s,
                ahead_s=ahead_s,
                n_runs=n_runs,
            )
            for group, world in self.worlds.items()
        }
        return {group: view for group, view in views.items() if view is not None}

    def summaries_before(self) -> tuple[WorldSummary, ...]:
        """What the last process knew of groups that hang since then, without the cost of hangs."""
        known = [(world, world.before.world) for world in self.worlds.values() if world.before]
        return tuple(
            replace(its, gpu_seconds_lost=max(its.gpu_seconds_lost - world.idle_before_s, 0.0))
            for world, its in known
            if its is not None
        )

    def hung(self) -> dict[str, int]:
        """Since when (ns, wall clock) worlds are stuck or lost, by subject of a decision."""
        since = {group: world.hangs.hung_since_ns for group, world in self.worlds.items()}
        return {hang_subject(group): at_ns for group, at_ns in since.items() if at_ns is not None}
