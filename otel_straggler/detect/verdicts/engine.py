"""Verdicts of one run and group: step tables in, changes of state out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from otel_straggler.detect.scores.medians import median_of, median_of_rows
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.scores.step_tables import StepEnds
from otel_straggler.detect.verdicts.blocks import TimedBlocks, WarmUp, pieces
from otel_straggler.detect.verdicts.clocks import (
    ClockedBlock,
    ClockSelector,
    without_shared_gpus,
)
from otel_straggler.detect.verdicts.excess import (
    Excesses,
    excesses,
    late_seconds,
    local_sections,
    medians_by_step,
    part_outside,
)
from otel_straggler.detect.verdicts.hidden import HiddenWork
from otel_straggler.detect.verdicts.log import EvaluationTime, VerdictLog
from otel_straggler.detect.verdicts.memory import Memory, Tracks
from otel_straggler.detect.verdicts.notifications import Notification
from otel_straggler.detect.verdicts.peer_engine import PeerVerdictEngine
from otel_straggler.detect.verdicts.run_engine import RunVerdictEngine, evidence_of
from otel_straggler.detect.verdicts.structure import Structure
from otel_straggler.detect.verdicts.summary import SummaryBuilder
from otel_straggler.detect.verdicts.uneven import UnevenWork
from otel_straggler.detect.verdicts.waits import SharedSections, WaitDetector
from otel_straggler.detect.verdicts.world import World, inferred_groups
from otel_straggler.model.observation import Bools, Floats
from otel_straggler.model.step_table import StepTable
from otel_straggler.model.verdict import Evidence, Verdict, WorldSummary

MEMORY_BLOCKS = 4
"""Blocks (20 steps) between updates of the memory that outlives the world."""
COMMON_MODE = 1.5
"""Steps that take all ranks this many times the usual do not count: undeclared pauses."""
USUAL_STEPS = 40
"""Steps whose median is the usual; nothing is left out before ten."""


class VerdictEngine:
    """Evaluates one run and group over all its attempts. Pure; not thread-safe.

    Attributes:
        evaluated: how many blocks of steps were evaluated to the end.
    """

    def __init__(self, settings: VerdictSettings | None = None) -> None:
        self._settings = settings or VerdictSettings()
        self._log = VerdictLog(self._settings.max_changes)
        self._peers = PeerVerdictEngine(self._settings, self._log)
        self._run = RunVerdictEngine(self._log, self._settings.min_share)
        self._structure = Structure(self._log)
        self._uneven = UnevenWork(self._log)
        self._ends = StepEnds()
        self._intervals = TimedBlocks()
        self._warm_up = WarmUp(self._settings)
        self._memory = Memory()
        self._builder = SummaryBuilder()
        self._summary: WorldSummary | None = None
        self._basis: Evidence = "host"
        self.evaluated = 0
        self._newest_step_s: Floats | None = None  # of a block that is not summed up yet
        self._ended_step_s: Floats | None = None  # of the newest steps of this world
        self._outside = 0.0  # part of a step that no section covers
        self._begin_world()

    def _begin_world(self) -> None:
        self._world = World(self._memory.shared)
        self._waiting = WaitDetector()
        self._shared = SharedSections()
        self._hidden = HiddenWork()
        self._clocks = ClockSelector()
        self._structure.reset()
        self._uneven.reset()
        self._tracks: Tracks | None = None
        self._usual_s: list[float] = []
        self._ended_step_s = None

    def observe(self, table: StepTable) -> tuple[Verdict, ...]:
        """Evaluate the next steps; returns changes of state."""
        changes: list[Verdict] = []
        for block in self._intervals.add(self._ends.timed(table)):
            for piece in pieces(block, self._settings.block_steps):
                for ready in self._warm_up.admit(piece):
                    changes += self._evaluate_block(ready)
        return tuple(changes)

    def finish(self) -> tuple[Verdict, ...]:
        """End of input: evaluate the rest."""
        ready = [one for block in self._intervals.finish() for one in self._warm_up.admit(block)]
        ready += self._warm_up.finish()
        changes = [change for one in ready for change in self._evaluate_block(one)]
        summary = self.summary()
        changes += self._structure.finish()
        if summary is not None:
            self._summary = self._builder.revised(
                summary, self._structure.balance, self._log.latest()
            )
        return tuple(changes)

    @property
    def changes(self) -> tuple[Verdict, ...]:
        """All changes of state in order; the last of a subject has its newest numbers."""
        return self._log.changes

    @property
    def notifications(self) -> tuple[Notification, ...]:
        return self._log.notifications

    def drain_late_notifications(self) -> list[Verdict]:
        """Subjects that have begun to page since the last call without a change of state."""
        return self._log.drain_late_notifications()

    def summary(self) -> WorldSummary | None:
        """Of the newest steps, made on request; None before the first."""
        if self._newest_step_s is not None and self._tracks is not None:
            self._summary = self._builder.summary(
                self._newest_step_s,
                self._world,
                self._structure.balance,
                self._tracks.resolvable(
                    self._peers.min_effects(self._world), self._outside, self._settings.min_share
                ),
                self._log.latest(),
                self._waiting,
                self._basis,
            )
            self._newest_step_s = None
        return self._summary

    # --- one block -----------------------------------------------------------------------------

    def _evaluate_block(self, table: StepTable) -> list[Verdict]:
        if self._warm_up.is_stray(table):
            return []
        if self._warm_up.begins_again(table):
            self.summary()
            self._begin_world()
        changes = self._begin_anew(table) if self._world.update(table) else []
        block = without_shared_gpus(self._world.align(table), self._world.shares_gpu)
        excess = self._excesses(block)
        counts = self._counting_steps(excess)
        if self._warm_up.is_warming_up(table):
            return changes
        if self._tracks is None:
            self._tracks = Tracks.of(self._world, self._settings)
            self._memory.set_meaning(self._waiting)
            self._memory.seed(self._tracks, self._world, int(block.end_ns.max()))
        self._tracks.widen(len(self._world.sections))
        timed = excess.timed
        self._tracks.resolution.learn(block.seconds if timed is None else timed.seconds)
        self._tracks.observe(excess, self._world, counts)
        self._observe_meetings(block, excess.timed)
        self._hidden.observe(block, excess, self._world, self._waiting)
        self._tracks.begins.add(block)
        if not block.is_timed:
            self._tracks.numbers.add(block.steps)
        changes += self._evaluate(block, excess, counts)
        self._learn(block)
        self._builder.add(
            excess.step_s, block.steps, self._world, self._structure.balance, self._log.costly()
        )
        self._newest_step_s = self._with_steps_before(excess.step_s)
        self._outside = part_outside(excess)
        self._basis = evidence_of(excess.timed)
        return changes

    def _begin_anew(self, table: StepTable) -> list[Verdict]:
        """Ranks or peers are others than before; changes of verdicts that go by another name."""
        self._tracks = None
        self._run.reset()
        self._clocks.reset()
        self._structure.reset()
        self._uneven.reset()
        self._ended_step_s = None
        renamed = self._world.renamed
        self._builder.waits.rename(renamed)
        self._builder.waits.keep_only(self._world.rank_subjects)
        step = None if table.is_timed else int(table.steps[-1])
        at_ns = int(table.end_ns.max())
        return self._log.rename(renamed, EvaluationTime(steps=0, step=step, at_ns=at_ns))

    def _observe_meetings(self, block: StepTable, timed: ClockedBlock | None) -> None:
        """By the host's clock, where its waiting is compared."""
        assert self._tracks is not None
        waits = np.array([self._waiting.waits(section) for section in self._world.sections], bool)
        ends_ns = block.section_end_ns if timed is None and waits.any() else None
        self._tracks.meetings.observe(
            None if ends_ns is None else ends_ns[..., waits], block.seconds[..., waits]
        )

    def _with_steps_before(self, step_s: Floats) -> Floats:
        """(T, R) of the block; a shorter one, as at the end, with steps before it."""
        if self._ended_step_s is not None:
            with_before = np.concatenate([self._ended_step_s, step_s])
            step_s = with_before[-max(len(step_s), self._settings.block_steps) :]
        self._ended_step_s = step_s[-self._settings.block_steps :]
        return step_s

    def _excesses(self, block: StepTable) -> Excesses:
        world = self._world
        timed = self._timed(block) if self._clocks.sees(block) else None
        by_host = self._late_by_host(block) if timed is None else None
        if not world.is_reported and not world.is_inferred and self._tracks is None:
            peers = world.peers
            if timed is None:
                self._infer(block.seconds, self._local())
            else:
                self._infer(timed.seconds, np.asarray(timed.local.all(axis=0)))
            if world.peers is not peers:
                by_host = None
                if timed is not None:
                    self._clocks.reset()
                    timed = self._timed(block)
        local = local_sections(world, self._waiting)
        measured_s, carried_from = block.seconds, None
        if timed is not None:
            local, measured_s = np.asarray(timed.local.any(axis=0)), timed.seconds
            carried_from = self._after_last_wait()
        self._memory.set_names(None if timed is None else self._clocks.names(world))
        seconds = self._memory.for_equal_work(measured_s, block.tokens, world, local)
        if by_host is None or seconds is not block.seconds:
            by_host = late_seconds(seconds, world)
        peers_s, late_s = by_host
        shared = self._shared.shared(late_s, world, carried_from)
        min_peers = self._settings.min_peers
        return excesses(
            seconds,
            measured_s,
            peers_s,
            late_s,
            world,
            self._waiting,
            shared,
            min_peers,
            timed,
            block.step_s,
        )

    def _late_by_host(self, block: StepTable) -> tuple[Floats, Floats]:
        """:func:`late_seconds` by the host's clock, from which waiting is learned."""
        peers_s, late_s = late_seconds(block.seconds, self._world)
        if self._waiting.observe(late_s, self._world.sections):
            self._tracks = None
            self._run.reset()
        return peers_s, late_s

    def _timed(self, block: StepTable) -> ClockedBlock | None:
        """The block by the clocks of its groups, None where all are the host's; what was learned
        ends when these change."""
        world, was_in_use = self._world, self._clocks.is_in_use
        self._waiting.forget(self._clocks.learn(block, world))
        if not self._clocks.is_in_use:
            if was_in_use:
                self._begin_again()
            return None
        began = self._tracks is not None and not was_in_use
        seen_s, groups = self._clocks.late_on_host(block, world)
        late_s = seen_s - medians_by_step(seen_s, groups)[:, groups.code]
        self._waiting.observe(late_s, world.sections)
        timed, is_new = self._clocks.time(block, world, self._waiting)
        if is_new or began:
            self._begin_again()
        return timed

    def _begin_again(self) -> None:
        """Numbers have changed meaning."""
        self._tracks = None
        self._usual_s = []
        self._run.reset()
        self._structure.reset()
        self._uneven.reset()

    def _after_last_wait(self) -> int:
        """Index of the first section after all that hold waiting."""
        waits = np.array([self._waiting.waits(s) for s in self._world.sections], bool)
        return int(np.flatnonzero(waits)[-1]) + 1 if waits.any() else len(waits)

    def _local(self) -> Bools:
        waits = [self._waiting.waits(section) for section in self._world.sections]
        return ~np.array(waits, bool)

    def _infer(self, seconds: Floats, local: Bools) -> None:
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(median_of_rows(seconds))
        self._world.use_inferred(inferred_groups(logs[:, local], 0.01))

    def _counting_steps(self, excess: Excesses) -> Bools:
        """(T,) False for steps that took everyone much longer than usual."""
        counts = np.ones(len(excess.local_s), bool)
        for t, seconds in enumerate(median_of_rows(excess.local_s.T).tolist()):
            usual_s = median_of(np.array(self._usual_s)) if len(self._usual_s) >= 10 else np.inf
            counts[t] = not seconds > COMMON_MODE * usual_s
            if not math.isnan(seconds):  # as of a step that is apart
                self._usual_s = [*self._usual_s[-(USUAL_STEPS - 1) :], seconds]
        return counts

    def _evaluate(self, block: StepTable, excess: Excesses, counts: Bools) -> list[Verdict]:
        world = self._world
        assert self._tracks is not None
        reporting = int(np.isfinite(excess.step_s).any(axis=0).sum())
        if reporting < self._settings.quorum * max(world.expected, world.n_ranks):
            return []
        now = EvaluationTime(
            steps=self._tracks.ranks.steps,
            step=None if block.is_timed else int(block.steps[-1]),
            at_ns=int(block.end_ns.max()),
        )
        changes = self._peers.evaluate(
            self._tracks, excess, world, now, block.tokens, local_sections(world, self._waiting)
        )
        accused = self._peers.held(world)[0]
        changes += self._run.evaluate(
            excess,
            world,
            self._waiting,
            counts,
            self._tracks.numbers,
            self._tracks.begins,
            now,
            self._memory,
            block.tokens,
            accused,
        )
        whole = counts if excess.timed is None else counts & ~excess.timed.apart.any(axis=1)
        changes += self._structure.observe(_as_compared(block, excess.timed), whole, now)
        changes += self._uneven.observe(excess, world, self._tracks.ranks, accused, counts, now)
        for waited_s in self._waits(block, excess.timed):
            self._builder.waits.add(world.rank_subjects, waited_s[counts], world.peers)
        self.evaluated += 1
        return changes

    def _waits(self, block: StepTable, timed: ClockedBlock | None) -> Iterator[Floats]:
        """(T, R) per waiting section; or all waiting of a step, if reported, those that are apart
        as the others."""
        seconds = block.seconds if timed is None else timed.seconds
        for s, section in enumerate(self._world.sections):
            if self._waiting.waits(section):
                waited_s = seconds[..., s]
                if timed is not None:
                    waited_s = np.where(timed.tells_waiting | timed.local[:, s], np.nan, waited_s)
                yield waited_s
        if timed is not None and timed.tells_waiting.any():
            known = ~timed.apart[:, self._world.peers.code]
            times = len(known) / np.maximum(known.sum(axis=0), 1)
            waited_s = np.where(timed.tells_waiting & known, times * timed.waited_s, np.nan)
            yield waited_s

    def _learn(self, block: StepTable) -> None:
        """Update references of ranks not in trouble, every 20 steps also beyond this world."""
        assert self._tracks is not None
        held = self._peers.held(self._world)
        self._tracks.ranks.learn_reference(held[0])
        self._tracks.hosts.learn_reference(held[1])
        if self._tracks.ranks.blocks % MEMORY_BLOCKS == 0:
            now_ns = int(block.end_ns.max())
            self._memory.learn(self._tracks, self._world, held, now_ns)
            if self._run.past is not None:
                self._memory.learn_groups(self._run.past.reference, self._world, now_ns)
            self._builder.observe(block)

    # --- over restarts -------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """State for a restart: JSON types and NumPy arrays, nested in dicts and lists."""
        return {
            "cases": self._log.state(),
            "memory": self._memory.state(self._tracks, self._world),
            "sums": self._builder.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._log.restore(state.get("cases", {}))
        self._memory.restore(state.get("memory", {}))
        self._builder.restore(state.get("sums", {}))


def _as_compared(block: StepTable, timed: ClockedBlock | None) -> StepTable:
    """With the compared times; the host's if groups differ in clocks, as stages are compared."""
    if timed is None or not (timed.basis == timed.basis[0]).all():
        return replace(block, gpu=None)
    return replace(block, seconds=timed.seconds, gpu=None)
