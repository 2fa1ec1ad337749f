"""The hang judge of one world: from what its ranks say to states that last.

A rank or run that was called stuck or lost stays so until it progresses, comes back, or has
recorded how it ended; that nothing is heard any more is no recovery.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from otel_straggler.model.observation import NO_STEP, Codes, Floats
from otel_straggler.model.step_table import StepTable
from otel_straggler.score.hangs.culprits import Blame, blame
from otel_straggler.score.hangs.rank_states import rank_states
from otel_straggler.score.hangs.run_state import RunState, run_state
from otel_straggler.score.hangs.settings import HangSettings
from otel_straggler.score.hangs.signs import RANK_STATES, RankState, Signs
from otel_straggler.score.hangs.timeouts import BETWEEN, Timeouts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """The states of one world at one moment.

    Attributes:
        state, since_s: of the run, and since when (the judge's clock).
        ranks: (R,) rank numbers.
        rank_states: (R,) codes into ``RANK_STATES``.
        rank_since_s: (R,) since when each is in its state.
        timeout_s: (R,) what each may take for what it does now.
        blame: because of whom; None while nobody waits.
    """

    state: RunState
    since_s: float
    ranks: np.typing.NDArray[np.int64]
    rank_states: Codes
    rank_since_s: Floats
    timeout_s: Floats
    blame: Blame | None = None

    def state_of(self, rank: int) -> RankState:
        """Raises: KeyError if there is no such rank."""
        found = np.flatnonzero(self.ranks == rank)
        if len(found) == 0:
            raise KeyError(rank)
        return RANK_STATES[int(self.rank_states[found[0]])]


@dataclass(slots=True)
class HangJudge:
    """Owned by one thread; time is an argument, on a clock that does not go back."""

    settings: HangSettings = field(default_factory=HangSettings)
    _attempt: int = -1
    _first_steps: dict[int, int] = field(default_factory=dict)
    _state: RunState = "starting"
    _since_s: float = float("nan")
    _ranks: dict[int, tuple[int, float]] = field(default_factory=dict)
    _timeouts: Timeouts = field(init=False)

    def __post_init__(self) -> None:
        self._timeouts = Timeouts(self.settings)

    def learn(self, table: StepTable, attempt: int) -> None:
        """Take the times of some steps of an attempt, without the first ones, which compile."""
        first_step = self._first_steps.setdefault(attempt, int(table.steps[0]))
        if int(table.steps[0]) >= first_step + self.settings.warm_steps:
            self._timeouts.learn(table)

    def look(self, signs: Signs, attempt: int, now_s: float) -> Found:
        """The states at ``now_s``. Cost: O(ranks + distinct sections).

        Args:
            attempt: of the ranks; a newer one begins with new states, and keeps the timeouts.
        """
        if attempt != self._attempt:
            self._attempt, self._ranks = attempt, {}
        timeout_s = self._timeouts_of(signs, now_s)
        states = rank_states(signs, timeout_s, self.settings)
        since_s = np.array(
            [
                self._since(r, s, now_s)
                for r, s in zip(signs.ranks.tolist(), states.tolist(), strict=True)
            ]
        )
        state = run_state(signs, states)
        if state != self._state or np.isnan(self._since_s):
            self._state, self._since_s = state, now_s
        return Found(
            state=self._state,
            since_s=self._since_s,
            ranks=signs.ranks,
            rank_states=states,
            rank_since_s=since_s,
            timeout_s=timeout_s,
            blame=blame(signs, states),
        )

    def _since(self, rank: int, state: int, now_s: float) -> float:
        known = self._ranks.get(rank)
        if known is None or known[0] != state:
            known = self._ranks[rank] = (state, now_s)
        return known[1]

    def _timeouts_of(self, signs: Signs, now_s: float) -> Floats:
        names = [*signs.sections, BETWEEN]  # the last stands for no section, whose code is -1
        by_code = np.array([self._timeouts.timeout_s(name, now_s) for name in names])
        of_each: Floats = by_code[signs.section]
        return np.where(self._are_warm(signs), of_each, self.settings.start_timeout_s)

    def _are_warm(self, signs: Signs) -> np.typing.NDArray[np.bool_]:
        """Which ranks have done the first steps of the attempt, which compile."""
        told = signs.step[signs.step != NO_STEP]
        if len(told) == 0:
            return np.zeros(len(signs), bool)
        first_step = self._first_steps.setdefault(self._attempt, int(told.min()))
        warm: np.typing.NDArray[np.bool_] = signs.step >= first_step + self.settings.warm_steps
        return warm
