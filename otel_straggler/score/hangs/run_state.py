"""The state of a run as a whole, from those of its ranks."""

from __future__ import annotations

from typing import Literal

import numpy as np

from otel_straggler.model.observation import Codes
from otel_straggler.score.hangs.signs import FINISHED, LATE, LOST, OK, STARTING, STUCK, Signs
from otel_straggler.semconv import OUTCOMES

RunState = Literal[
    "starting",
    "training",
    "stuck",
    "partly_lost",
    "lost",
    "finished",
    "cancelled",
    "preempted",
    "failed",
    "forgotten",
]
ENDS: tuple[RunState, ...] = ("finished", "cancelled", "preempted", "failed")
HANGS: tuple[RunState, ...] = ("stuck", "partly_lost", "lost")

_END_OF: dict[str, RunState] = {
    "ok": "finished",
    "cancelled": "cancelled",
    "preempted": "preempted",
    "failed": "failed",
}
_WORST_FIRST = ("failed", "preempted", "cancelled", "ok")


def run_state(signs: Signs, states: Codes) -> RunState:
    """What to call a run.

    An end that one rank has recorded explains why the others fall silent: a traceback, Ctrl-C or a
    scheduler's signal reaches some ranks first, and the launcher kills the rest. So a run with a
    rank that failed, was cancelled or preempted has ended so, unless another still works.

    Args:
        signs: of all expected ranks.
        states: (R,) of ``rank_states``.
    """
    ended = {OUTCOMES[code] for code in set(signs.ended[signs.has_ended].tolist())}
    is_alive = np.isin(states, (OK, LATE, STUCK)) | ((states == STARTING) & ~_unheard(signs))
    for outcome in _WORST_FIRST:
        explains = outcome != "ok" or not (states == LOST).any()
        if outcome in ended and explains and not is_alive.any():
            return _END_OF[outcome]
    if (states == LOST).any():
        return "partly_lost" if is_alive.any() else "lost"
    if (states == STUCK).any():
        return "stuck"
    return "training" if np.isin(states, (OK, LATE, FINISHED)).any() else "starting"


def _unheard(signs: Signs) -> np.typing.NDArray[np.bool_]:
    unheard: np.typing.NDArray[np.bool_] = np.isnan(signs.silent_s)
    return unheard
