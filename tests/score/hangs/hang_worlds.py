"""Worlds that train, pause, end and hang, told by the signs of life of their ranks: the truth for
the hang judge. Nothing is timed here; a world of days takes milliseconds to ask about.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from otel_straggler.detect.hangs.states import NO_OPEN_SECTION, NOT_ENDED, HeartbeatTable
from otel_straggler.model.observation import NO_STEP, Bools, Floats, Ints, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable
from otel_straggler.semconv import OUTCOMES, Outcome

HangFault = Literal[
    "never_joined", "joined_but_stuck", "crash", "host_loss", "stopped", "killed", "host_gone"
]
Unheard = Literal["", "node", "some"]
HANG_FAULTS: tuple[HangFault, ...] = (
    "never_joined",
    "joined_but_stuck",
    "crash",
    "host_loss",
    "stopped",
    "killed",
    "host_gone",
)
"""Of "killed" (one rank) and "host_gone" the launcher ends all others by SIGTERM, soon or late."""
SECTIONS = ("data", "forward", "backward", "optimizer", "checkpoint/save", "eval/forward")
_DATA, _FORWARD, _BACKWARD, _OPTIMIZER, _SAVE, _EVAL = range(len(SECTIONS))
_BLOCK = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class HangPlan:
    """What happens in a world.

    Attributes:
        seed: of all that is random.
        ranks, ranks_per_node: its size.
        steps: until it ends.
        step_s: of one step, without pauses.
        noise: relative, of each rank's own work.
        compile_s: what the first step takes more.
        checkpoint_every, checkpoint_s: pauses of all ranks; 0: none.
        eval_every, eval_s: the same.
        heartbeat_s: between signs of life.
        fault, at_step: what stops it, and in which step.
        end: how its ranks say they end; None: they are killed without a word.
        end_spread_s: between the first rank's end and the last one's.
        unheard: whose last words do not arrive: those of a whole node, or of some ranks on several.
        first_step: the one with which it begins.
        session: tells its processes from those before a restart.
        is_reversed: rank 0 is on the last node.
    """

    seed: int = 0
    ranks: int = 8
    ranks_per_node: int = 4
    steps: int = 200
    step_s: float = 1.0
    noise: float = 0.03
    compile_s: float = 0.0
    checkpoint_every: int = 0
    checkpoint_s: float = 0.0
    eval_every: int = 0
    eval_s: float = 0.0
    heartbeat_s: float = 5.0
    fault: HangFault | None = None
    at_step: int = 0
    end: Outcome | None = "ok"
    end_spread_s: float = 2.0
    unheard: Unheard = ""
    first_step: int = 0
    session: str = ""
    is_reversed: bool = False

    @property
    def nodes(self) -> Ints:
        """(R,) on which node each rank is."""
        nodes = np.arange(self.ranks) // self.ranks_per_node
        return nodes[::-1].copy() if self.is_reversed else nodes


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """One step of all ranks: when each begins what. Times are seconds since the world began.

    Attributes:
        number: of the step.
        begun_s: (R, S) start of each section, NaN where it is not run.
        ended_s: (R, S) its end; infinite if it never comes.
    """

    number: int
    begun_s: Floats
    ended_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Tale:
    """What one rank does, change by change.

    Attributes:
        at_s: (N,) ascending, when something begins or ends.
        step, section: (N,) from then on; ``NO_OPEN_SECTION`` between two.
        progress_s: (N,) the newest begin of a step or end of a section.
    """

    at_s: Floats
    step: Ints
    section: Ints
    progress_s: Floats

    @classmethod
    def of(cls, steps: list[_Step], rank: int) -> _Tale:
        begun_s = np.stack([step.begun_s[rank] for step in steps])
        ended_s = np.stack([step.ended_s[rank] for step in steps])
        number = np.broadcast_to(np.array([step.number for step in steps])[:, None], begun_s.shape)
        section = np.broadcast_to(np.arange(len(SECTIONS)), begun_s.shape)
        is_progress = np.concatenate([(section == _DATA).ravel(), np.ones(begun_s.size, bool)])
        at_s = np.concatenate([begun_s.ravel(), ended_s.ravel()])
        order = np.argsort(at_s, kind="stable")
        order = order[np.isfinite(at_s[order])]
        opened = np.concatenate([section.ravel(), np.full(begun_s.size, NO_OPEN_SECTION)])
        progress_s = np.where(is_progress, at_s, -np.inf)[order]
        return cls(
            at_s=at_s[order],
            step=np.concatenate([number.ravel()] * 2)[order],
            section=opened[order],
            progress_s=np.maximum.accumulate(progress_s),
        )

    def at(self, now_s: float) -> tuple[int, int, float]:
        """(step, open section, last progress) at ``now_s``; NaN is before everything."""
        change = int(np.searchsorted(self.at_s, now_s, side="right")) - 1
        if change < 0 or np.isnan(now_s):
            return NO_STEP, NO_OPEN_SECTION, float("nan")
        progress_s = float(self.progress_s[change])
        return int(self.step[change]), int(self.section[change]), progress_s


@dataclass(slots=True)
class HangWorld:
    """A world by its plan.

    Attributes:
        culprits: ranks that are to blame; empty where none is, or none can be told.
        hung_at_s: when the fault began; infinite if there is none.
        ends_at_s: when the last rank has ended; infinite if it hangs.
    """

    plan: HangPlan
    culprits: tuple[int, ...] = ()
    hung_at_s: float = float("inf")
    ends_at_s: float = float("inf")
    _steps: list[_Step] = field(default_factory=list)
    _tales: dict[int, _Tale] = field(default_factory=dict)
    _first_steps: dict[int, int] = field(default_factory=dict)
    _reported: int = 0
    _gone_s: Floats = field(default_factory=lambda: np.empty(0))
    _ended_s: Floats = field(default_factory=lambda: np.empty(0))
    _beat_offset_s: Floats = field(default_factory=lambda: np.empty(0))
    _is_unheard: Bools = field(default_factory=lambda: np.empty(0, bool))

    def __post_init__(self) -> None:
        plan = self.plan
        rng = np.random.default_rng(plan.seed)
        self._gone_s = np.full(plan.ranks, np.inf)
        self._ended_s = np.full(plan.ranks, np.inf)
        self._is_unheard = np.zeros(plan.ranks, bool)
        self._beat_offset_s = rng.uniform(0.0, plan.heartbeat_s, plan.ranks)
        now_s = 10.0
        for number in range(plan.first_step, plan.first_step + plan.steps):
            step = self._step(number, now_s, rng)
            self._steps.append(step)
            now_s = float(np.nanmax(step.ended_s))
            if not np.isfinite(now_s):
                self._end_others(rng)
                return
        self.ends_at_s = now_s + plan.end_spread_s
        self._ended_s = now_s + np.sort(rng.uniform(0.0, plan.end_spread_s, plan.ranks))
        if plan.end is None:
            self._gone_s = self._ended_s.copy()
        self._silence_some(rng)

    # --- what a collector sees ----------------------------------------------------------------

    def heartbeats(self, now_s: float) -> HeartbeatTable:
        """What the ranks have said by ``now_s``: as old as the newest heartbeat of each."""
        plan = self.plan
        beat_s = self._newest_beats_s(now_s)
        lines = [self._line(rank, beat_s[rank]) for rank in range(plan.ranks)]
        end = plan.end if plan.fault is None else "preempted"
        code = OUTCOMES.index(end) if end else NOT_ENDED
        has_ended = (self._ended_s <= now_s) & (end is not None) & ~self._is_unheard
        return HeartbeatTable(
            ranks=np.arange(plan.ranks),
            silent_s=now_s - beat_s,
            stalled_s=np.array([now_s - progress_s for _, _, progress_s in lines]),
            step=np.array([step for step, _, _ in lines], np.int64),
            section=np.array([section for _, section, _ in lines], np.int32),
            sections=SECTIONS,
            is_working=np.array([section != NO_OPEN_SECTION for _, section, _ in lines]),
            ended=np.where(has_ended, code, NOT_ENDED).astype(np.int32),
            ended_s=np.where(has_ended, now_s - self._ended_s, np.nan),
            node=plan.nodes.astype(np.int32),
            began_s=np.where(np.isnan(beat_s), np.nan, now_s - self._beat_offset_s),
            first_step=np.array(
                [self._first_step(rank, beat_s[rank]) for rank in range(plan.ranks)]
            ),
        )

    def tables(self, until_s: float) -> Iterator[StepTable]:
        """The tables of blocks of steps that were complete by ``until_s``; each once."""
        while self._reported + _BLOCK <= len(self._steps):
            block = self._steps[self._reported : self._reported + _BLOCK]
            if not np.nanmax(block[-1].ended_s) <= until_s:
                return
            self._reported += _BLOCK
            yield self._table(block)

    # --- how it goes --------------------------------------------------------------------------

    def _step(self, number: int, start_s: float, rng: np.random.Generator) -> _Step:
        plan = self.plan
        begun_s = np.full((plan.ranks, len(SECTIONS)), np.nan)
        ended_s = np.full((plan.ranks, len(SECTIONS)), np.nan)
        at_s = np.full(plan.ranks, start_s)

        def run(section: int, seconds: float, *, is_joint: bool = False) -> None:
            nonlocal at_s
            own = seconds * np.exp(rng.normal(0.0, plan.noise, plan.ranks))
            begun_s[:, section] = at_s
            at_s = at_s + own
            if is_joint:
                at_s = np.full(plan.ranks, at_s.max())
            ended_s[:, section] = at_s
            at_s = at_s + 1e-4

        is_hanging = plan.fault is not None and number == plan.first_step + plan.at_step
        compiles_s = plan.compile_s if number == plan.first_step else 0.0
        run(_DATA, 0.05 * plan.step_s)
        if is_hanging and plan.fault != "joined_but_stuck":
            self._stop_some(begun_s, ended_s, rng)
            at_s = np.where(np.isinf(ended_s[:, _DATA]), np.inf, at_s)
        run(_FORWARD, 0.3 * plan.step_s + compiles_s)
        run(_BACKWARD, 0.6 * plan.step_s, is_joint=True)
        if is_hanging:
            stopped = np.isinf(ended_s[:, _DATA])
            begun_s[stopped, _FORWARD:] = ended_s[stopped, _FORWARD:] = np.nan
            ended_s[~stopped, _BACKWARD] = np.inf
            if not stopped.all():
                self.hung_at_s = min(self.hung_at_s, float(np.nanmin(begun_s[:, _BACKWARD])))
            return _Step(number, begun_s, ended_s)
        run(_OPTIMIZER, 0.05 * plan.step_s)
        if plan.checkpoint_every and (number + 1) % plan.checkpoint_every == 0:
            run(_SAVE, plan.checkpoint_s, is_joint=True)
        if plan.eval_every and (number + 1) % plan.eval_every == 0:
            run(_EVAL, plan.eval_s, is_joint=True)
        return _Step(number, begun_s, ended_s)

    def _stop_some(self, begun_s: Floats, ended_s: Floats, rng: np.random.Generator) -> None:
        """Who is to blame stops in its data section; whoever dies is not heard again."""
        plan = self.plan
        victim = int(rng.integers(plan.ranks))
        culprits = [victim]
        if plan.fault in {"host_loss", "host_gone"}:
            culprits = np.flatnonzero(plan.nodes == plan.nodes[victim]).tolist()
        self.culprits = tuple(culprits)
        ended_s[culprits, _DATA] = np.inf
        self.hung_at_s = float(begun_s[culprits, _DATA].min())
        if plan.fault != "never_joined":
            self._gone_s[culprits] = self.hung_at_s

    def _end_others(self, rng: np.random.Generator) -> None:
        """A launcher sees that some are gone, at once or after a while, and ends the rest."""
        after_s = {"killed": (0.05, 3.0), "host_gone": (25.0, 200.0)}.get(self.plan.fault or "")
        if after_s is not None:
            rest = [rank for rank in range(self.plan.ranks) if rank not in self.culprits]
            first_s = self.hung_at_s + rng.uniform(*after_s)
            self._ended_s[rest] = first_s + rng.uniform(0.0, 2.0, len(rest))

    def _silence_some(self, rng: np.random.Generator) -> None:
        """Last words that do not arrive: of all ranks of a node, or of two nodes' ranks each one;
        the others must be more."""
        nodes = self.plan.nodes
        some = rng.permutation(np.unique(nodes))[: {"node": 1, "some": 2}.get(self.plan.unheard, 0)]
        if self.plan.unheard == "node":
            silent = np.flatnonzero(nodes == some[0])
            silent = silent if len(silent) > 1 else silent[:0]
        else:
            silent = np.array([np.flatnonzero(nodes == node)[0] for node in some], np.int64)
            silent = silent if len(silent) > 1 else silent[:0]
        if len(silent) < self.plan.ranks and self.plan.end == "preempted":
            self._is_unheard[silent] = True

    # --- what a rank says ---------------------------------------------------------------------

    def _newest_beats_s(self, now_s: float) -> Floats:
        plan = self.plan
        last_s = np.minimum(np.minimum(now_s, self._gone_s), self._ended_s)
        beats = np.floor((last_s - self._beat_offset_s) / plan.heartbeat_s)
        beat_s: Floats = self._beat_offset_s + beats * plan.heartbeat_s
        return np.where(beats < 0, np.nan, beat_s)

    def _line(self, rank: int, beat_s: float) -> tuple[int, int, float]:
        """(step, open section, last progress) as the rank told them at ``beat_s``."""
        tale = self._tales.get(rank)
        if tale is None:
            tale = self._tales[rank] = _Tale.of(self._steps, rank)
        return tale.at(beat_s)

    def _first_step(self, rank: int, until_s: float) -> int:
        """The first step that a rank told of by then."""
        if rank in self._first_steps:
            return self._first_steps[rank]
        beat_s = float(self._beat_offset_s[rank])
        while beat_s <= until_s:
            step, _, _ = self._line(rank, beat_s)
            if step != NO_STEP:
                self._first_steps[rank] = step
                return step
            beat_s += self.plan.heartbeat_s
        return NO_STEP

    def _table(self, block: list[_Step]) -> StepTable:
        begun_s = np.stack([step.begun_s for step in block])
        ended_s = np.stack([step.ended_s for step in block])
        seconds = ended_s - begun_s
        ranks = self.plan.ranks
        return StepTable(
            steps=np.array([step.number for step in block]),
            sources=tuple(
                Source(run_id="run", rank=r, world_size=ranks, session_id=f"{self.plan.session}{r}")
                for r in range(ranks)
            ),
            sections=tuple(Section(name) for name in SECTIONS),
            seconds=seconds,
            runs=np.where(np.isnan(seconds), 0, 1).astype(np.int32),
            run_cv=np.full((ranks, len(SECTIONS)), np.nan),
            tokens=np.full(seconds.shape[:2], np.nan),
            start_ns=(np.nanmin(begun_s, axis=2) * 1e9).astype(np.int64),
            end_ns=(np.nanmax(ended_s, axis=2) * 1e9).astype(np.int64),
            world_size=ranks,
        )


def random_plan(seed: int, fault: HangFault | None = None) -> HangPlan:
    """A world as they are: small or large, fast or slow, with pauses; it ends in any way, or hangs
    after it has done at least 60 steps."""
    rng = np.random.default_rng([seed, 77])
    step_s = float(np.exp(rng.uniform(np.log(0.1), np.log(20.0))))
    steps = int(rng.integers(120, 300))
    plan = HangPlan(
        seed=seed,
        ranks=int(rng.choice([4, 8, 16, 64])),
        ranks_per_node=int(rng.choice([1, 4, 8])),
        steps=steps,
        step_s=step_s,
        noise=float(rng.uniform(0.005, 0.1)),
        compile_s=float(rng.choice([0.0, 30.0, 600.0, 1_800.0])),
        checkpoint_every=int(rng.choice([0, 20, 50])),
        checkpoint_s=float(np.exp(rng.uniform(np.log(1.0), np.log(300.0)))),
        eval_every=int(rng.choice([0, 30, 70])),
        eval_s=float(np.exp(rng.uniform(np.log(1.0), np.log(300.0)))),
        end=rng.choice(["ok", "cancelled", "preempted", "failed"]).item(),
        end_spread_s=float(rng.choice([0.1, 2.0, 15.0])),
        unheard=rng.choice(["", "node", "some"]).item(),
    )
    if fault is None:
        return plan
    return replace(plan, fault=fault, at_step=int(rng.integers(60, steps - 20)))
