"""Hang detector of one world: from heartbeats to states that last. A stuck or lost rank or run
stays so until it makes progress, comes back, or has recorded its end; silence is no recovery."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from otel_straggler.detect.hangs.collectives import HangFindings
from otel_straggler.detect.hangs.correction import corrected, located
from otel_straggler.detect.hangs.episodes import Episodes, Hang, IdleGpus, Standstill, standstill
from otel_straggler.detect.hangs.states import (
    ENDED,
    ENDS,
    HANGS,
    LATE,
    LOST,
    RANK_STATES,
    STARTING,
    STUCK,
    Blame,
    HeartbeatTable,
    RankState,
    RunState,
    blame,
    rank_states,
    run_state,
)
from otel_straggler.detect.hangs.timeouts import BETWEEN, Timeouts
from otel_straggler.detect.scores.settings import HangSettings
from otel_straggler.model.observation import NO_STEP, Codes, Floats
from otel_straggler.model.step_table import StepTable

_MAX_SESSIONS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HangStatus:
    """States of one world at one moment.

    Attributes:
        state, since_s: of the run, and since when (the detector's clock).
        ranks: (R,) rank numbers.
        rank_states: (R,) codes into ``RANK_STATES``; rank_since_s: (R,) since when.
        timeout_s: (R,) of the current section.
        blame: None while nobody waits, and once the run has ended.
        hung_since_s: since when it is stuck or lost; NaN if neither. A run that comes back without
            progress is in the same hang.
        before: earlier hangs, oldest first, without ``before_left_out`` short ones.
        findings: what flight records say, while ranks wait; None without any.
    """

    state: RunState
    since_s: float
    ranks: np.typing.NDArray[np.int64]
    rank_states: Codes
    rank_since_s: Floats
    timeout_s: Floats
    blame: Blame | None = None
    hung_since_s: float = math.nan
    before: tuple[Hang, ...] = ()
    before_left_out: int = 0
    findings: HangFindings | None = None

    def on_clock(self, ahead_s: float) -> HangStatus:
        """The same with times of a clock that is ``ahead_s`` ahead."""
        if not ahead_s:
            return self
        return replace(
            self,
            since_s=self.since_s + ahead_s,
            rank_since_s=self.rank_since_s + ahead_s,
            hung_since_s=self.hung_since_s + ahead_s,
            before=tuple(hang.on_clock(ahead_s) for hang in self.before),
        )

    @property
    def is_hung(self) -> bool:
        return self.state in HANGS

    def state_of(self, rank: int) -> RankState:
        """Raises: KeyError if there is no such rank."""
        result = np.flatnonzero(self.ranks == rank)
        if len(result) == 0:
            raise KeyError(rank)
        return RANK_STATES[int(self.rank_states[result[0]])]


@dataclass(slots=True)
class HangDetector:
    """Owned by one thread; time is an argument, on a clock that does not go back."""

    settings: HangSettings = field(default_factory=HangSettings)
    _attempt: int = -1
    _sessions: frozenset[str] = frozenset()
    _learnt_step: int = NO_STEP
    _first_step: int = NO_STEP
    _reached: tuple[int, int] | None = None
    _restored: tuple[int, int] | None = None
    _hung_since_s: float = math.nan
    _progress_s: float = -math.inf
    _resumed_s: float = -math.inf
    _ended_at_s: float = -math.inf
    _state: RunState = "starting"
    _since_s: float = float("nan")
    _ranks: dict[int, tuple[int, float]] = field(default_factory=dict)
    _idle: IdleGpus = field(default_factory=IdleGpus)
    episodes: Episodes = field(default_factory=Episodes)
    _timeouts: Timeouts = field(init=False)

    def __post_init__(self) -> None:
        self._timeouts = Timeouts(self.settings)

    def learn(self, table: StepTable, attempt: int) -> None:
        """Learn the times of some steps, except the first ones of an attempt, of new sessions, and
        after steps went back: they compile."""
        step = int(table.steps[0])
        sessions = frozenset((f"{attempt}", *(source.session_id for source in table.sources)))
        if not sessions <= self._sessions or step <= self._learnt_step:
            self._first_step = step
        is_small = len(self._sessions) < _MAX_SESSIONS
        self._sessions = self._sessions | sessions if is_small else sessions
        self._learnt_step = step
        if step >= self._first_step + self.settings.warm_steps:
            self._timeouts.learn(table)

    def evaluate(
        self,
        heartbeats: HeartbeatTable,
        attempt: int,
        now_s: float,
        findings: HangFindings | None = None,
    ) -> HangStatus:
        """The states at ``now_s``; a newer attempt begins with new states, and keeps the timeouts.
        Cost: O(ranks + distinct sections).

        Args:
            findings: what flight records say of the hang; they name culprits where heartbeats show
                no difference, and correct them.
        """
        if attempt != self._attempt:
            self._attempt, self._ranks, self._ended_at_s = attempt, {}, -math.inf
        timeout_s = self._timeouts_of(heartbeats, now_s)
        states = rank_states(heartbeats, timeout_s, self.settings)
        self._excuse_outdated(heartbeats, states, timeout_s, now_s)
        state = self._settle(heartbeats, states, now_s)
        since_s = np.array(
            [
                self._since(r, s, now_s)
                for r, s in zip(heartbeats.ranks.tolist(), states.tolist(), strict=True)
            ]
        )
        self._record_hang(heartbeats, state, now_s)
        if state != self._state or np.isnan(self._since_s):
            self._state, self._since_s = state, now_s
        by_heartbeats = None if state in ENDS else blame(heartbeats, states)
        if by_heartbeats is None:
            findings = None
        elif findings is not None:
            findings = located(findings, heartbeats)
        result = HangStatus(
            state=self._state,
            since_s=self._since_s,
            ranks=heartbeats.ranks,
            rank_states=states,
            rank_since_s=since_s,
            timeout_s=timeout_s,
            blame=corrected(by_heartbeats, findings, heartbeats, states),
            findings=findings,
            hung_since_s=self._hung_since_s if state in HANGS else math.nan,
        )
        current = _standstill(result, heartbeats, now_s)
        if result.is_hung:
            self._idle.observe(current)
        self.episodes.observe(
            state,
            current,
            result.blame,
            heartbeats,
            attempt=attempt,
            hung_since_s=self._hung_since_s,
            progress_s=_progress_s(heartbeats, now_s),
            now_s=now_s,
        )
        return replace(
            result,
            before=self.episodes.before(is_hung=result.is_hung),
            before_left_out=self.episodes.left_out,
        )

    @property
    def idle_gpu_s(self) -> float:
        """GPU seconds lost in hangs of this world, the present one included."""
        return self._idle.total_s

    def _settle(self, heartbeats: HeartbeatTable, states: Codes, now_s: float) -> RunState:
        """The state of the run; changes those of ranks that it explains."""
        # An end of the run that was recorded explains who was silent by then, also to those who
        # come back before the others.
        states[(states == LOST) & (now_s - heartbeats.silent_s <= self._ended_at_s)] = ENDED
        self._await_replaced(heartbeats, states)
        state = run_state(heartbeats, states, self.settings, was_hung=self._state in HANGS)
        if state in ENDS:
            self._ended_at_s = now_s
            states[states == LOST] = ENDED
        elif state not in HANGS:
            # The run ends just now, and nobody can say yet how.
            states[(states == LOST) | (states == STUCK)] = LATE
        return state

    def _excuse_outdated(
        self, heartbeats: HeartbeatTable, states: Codes, timeout_s: Floats, now_s: float
    ) -> None:
        """When a hang is over, one rank reports its progress first. The newest heartbeats of the
        others are of before, so these are late, not stuck, until they send the next one. Where some
        ranks never stopped, their progress says nothing about those that are stuck."""
        is_stuck = states == STUCK
        progress_s = _progress_s(heartbeats, now_s)
        stood_still_s = progress_s - self._progress_s
        if self._state in HANGS and stood_still_s > timeout_s[is_stuck].min(initial=math.inf):
            self._resumed_s = progress_s
        self._progress_s = max(self._progress_s, progress_s)
        states[is_stuck & (now_s - heartbeats.silent_s < self._resumed_s)] = LATE

    def _await_replaced(self, heartbeats: HeartbeatTable, states: Codes) -> None:
        """A restart within an attempt brings new processes one by one: a rank that fell silent
        before the first of them has some time to come back, unless it was lost already."""
        for at in np.flatnonzero(states == LOST).tolist():
            known = self._ranks.get(int(heartbeats.ranks[at]))
            later_s = heartbeats.began_s[heartbeats.began_s < heartbeats.silent_s[at]]
            is_soon = len(later_s) > 0 and later_s.max() < self.settings.restart_s
            if is_soon and (known is None or known[0] != LOST):
                states[at] = STARTING

    def _record_hang(self, heartbeats: HeartbeatTable, state: RunState, now_s: float) -> None:
        """A hang is new if there was progress since the last one began."""
        progress_s = _progress_s(heartbeats, now_s)
        is_new = math.isnan(self._hung_since_s) or progress_s > self._hung_since_s
        if state in HANGS and is_new and self._state not in HANGS:
            self._hung_since_s = now_s

    def _since(self, rank: int, state: int, now_s: float) -> float:
        known = self._ranks.get(rank)
        if known is None or known[0] != state:
            known = self._ranks[rank] = (state, now_s)
        return known[1]

    def _timeouts_of(self, heartbeats: HeartbeatTable, now_s: float) -> Floats:
        names = [*heartbeats.sections, BETWEEN]  # the last current for no section, whose code is -1
        by_code = np.array([self._timeouts.timeout_s(name, now_s) for name in names])
        of_each: Floats = by_code[heartbeats.section]
        if self._is_warm(heartbeats):
            return of_each
        return np.full(len(heartbeats), max(self.settings.start_timeout_s, 0.0))

    def _is_warm(self, heartbeats: HeartbeatTable) -> bool:
        """Whether all ranks have done the first steps of their sessions, which compile. One that
        reports no step counts for its first hour only."""
        is_live = ~heartbeats.has_ended & (heartbeats.silent_s <= self.settings.lost_after_s)
        first_step = np.where(
            heartbeats.first_step == NO_STEP, heartbeats.step, heartbeats.first_step
        )
        is_warm = (heartbeats.step != NO_STEP) & (
            heartbeats.step >= first_step + self.settings.warm_steps
        )
        if self._restored is not None and self._restored[0] == self._attempt:
            is_warm |= (heartbeats.step != NO_STEP) & (first_step >= self._restored[1])
        is_old = heartbeats.began_s > self.settings.start_timeout_s
        matters = is_live & ~(is_old & (heartbeats.step == NO_STEP))
        is_all = bool(is_warm[matters].all()) and bool(is_warm.any())
        if is_all:
            self._reached = (
                self._attempt,
                int(heartbeats.step[matters & is_warm].min(initial=2**62)),
            )
        return is_all

    # --- over restarts of the process --------------------------------------------------------

    def state(self, ahead_s: float = 0.0) -> dict[str, Any]:
        """State in JSON types, with times of a clock that is ``ahead_s`` ahead."""
        hung_since_s = None if math.isnan(self._hung_since_s) else self._hung_since_s + ahead_s
        return {
            "timeouts": self._timeouts.state(),
            "reached": self._reached,
            "hung_since_s": hung_since_s,
            "idle": self._idle.state(ahead_s),
            "episodes": self.episodes.state(ahead_s),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`. Ranks of the same attempt beyond it have compiled already.
        Raises: ValueError, KeyError, TypeError if it is no state."""
        reached = state["reached"]
        restored = None if reached is None else (int(reached[0]), int(reached[1]))
        hung_since_s = state["hung_since_s"]
        hung_since_s = math.nan if hung_since_s is None else float(hung_since_s)
        idle = IdleGpus.restored(state.get("idle", (0.0, 0.0, None)))
        episodes = Episodes.restored(state.get("episodes", {}))
        self._timeouts.restore(state["timeouts"])
        self._restored = self._reached = restored
        self._hung_since_s = hung_since_s
        self._idle = idle
        self.episodes = episodes

    def present(self, ahead_s: float = 0.0) -> dict[str, float]:
        """What :meth:`resume` needs besides the newest status, likewise."""
        return {
            "attempt": self._attempt,
            "progress_s": self._progress_s + ahead_s,
            "resumed_s": self._resumed_s + ahead_s,
            "ended_at_s": self._ended_at_s + ahead_s,
        }

    def resume(self, newest: HangStatus, present: Mapping[str, Any], now_s: float) -> None:
        """Continue in the states of the newest evaluation, which last until a rank says otherwise;
        after :meth:`restore`. ``now_s``: no state has lasted since later than this.
        Raises: ValueError, KeyError, TypeError if it is no state."""
        attempt = int(present["attempt"])
        names = ("progress_s", "resumed_s", "ended_at_s")
        progress_s, resumed_s, ended_at_s = (float(present[name]) for name in names)
        columns = (newest.ranks, newest.rank_states, np.minimum(newest.rank_since_s, now_s))
        rows = zip(*(column.tolist() for column in columns), strict=True)
        self._ranks = {rank: (state, since_s) for rank, state, since_s in rows}
        self._attempt, self._progress_s = attempt, progress_s
        self._resumed_s, self._ended_at_s = resumed_s, ended_at_s
        self._state, self._since_s = newest.state, min(newest.since_s, now_s)


def _progress_s(heartbeats: HeartbeatTable, now_s: float) -> float:
    """When any rank last made progress; -inf if none ever did."""
    stalled_s = heartbeats.stalled_s[~np.isnan(heartbeats.stalled_s)]
    return now_s - float(stalled_s.min()) if len(stalled_s) else -math.inf


def _standstill(result: HangStatus, heartbeats: HeartbeatTable, now_s: float) -> Standstill | None:
    return standstill(
        result.state,
        result.ranks,
        result.blame,
        received=heartbeats.ranks,
        silent_s=heartbeats.silent_s,
        stalled_s=heartbeats.stalled_s,
        known_since_s=result.hung_since_s,
        now_s=now_s,
    )


def is_hung(result: HangStatus, lost_quorum: float) -> bool:
    """Whether the run is stuck or lost; or partly lost, with ``lost_quorum`` of its expected ranks
    lost or a survivor stuck. Cost: O(ranks) for a run that is partly lost."""
    if result.state != "partly_lost":
        return result.state in ("stuck", "lost")
    states = result.rank_states
    lost = int(np.count_nonzero(states == LOST))
    return lost >= lost_quorum * len(states) or bool((states == STUCK).any())


@dataclass(slots=True)
class HungRun:
    """Whether a run is hung, over evaluations. When a frozen host resumes, its rank lets the others
    make progress before its next heartbeat: the run stays hung until then, so that the end is
    reported once. It is over ``lost_after_s`` after the survivors made progress."""

    settings: HangSettings
    _last_s: float = -math.inf

    def evaluate(self, result: HangStatus, now_s: float) -> bool:
        """Whether it is hung at ``now_s``."""
        if is_hung(result, self.settings.lost_quorum):
            self._last_s = now_s
            return True
        is_of_late = 0.0 <= now_s - self._last_s <= self.settings.lost_after_s
        return result.state == "partly_lost" and is_of_late
