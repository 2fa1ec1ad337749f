"""The state of a run as a whole, from those of its ranks."""

from __future__ import annotations

from typing import Literal

import numpy as np

from otel_straggler.model.observation import Codes
from otel_straggler.score.hangs.settings import HangSettings
from otel_straggler.score.hangs.signs import (
    FINISHED,
    LATE,
    LOST,
    OK,
    STARTING,
    STUCK,
    Bools,
    Signs,
)
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


def run_state(
    signs: Signs, states: Codes, settings: HangSettings, *, was_hung: bool = False
) -> RunState:
    """What to call a run.

    An end that one rank has recorded explains why the others fall silent: a traceback or Ctrl-C
    reaches some ranks first, and the launcher kills the rest. So a run with a rank that failed or
    was cancelled has ended so, unless another still works. Of a preemption see :func:`_died_first`.

    Args:
        signs: of all expected ranks.
        states: (R,) of ``rank_states``.
        settings: how far apart ends may be that belong together.
        was_hung: people know already that something is wrong; until then a run that ends just now
            is in training.
    """
    ended = {OUTCOMES[code] for code in set(signs.ended[signs.has_ended].tolist())}
    is_lost = states == LOST
    is_alive = np.isin(states, (OK, LATE, STUCK)) | ((states == STARTING) & ~_unheard(signs))
    for outcome in _WORST_FIRST:
        if outcome in ended and not is_alive.any() and _explains(outcome, signs, is_lost, settings):
            return _END_OF[outcome]
    if not was_hung and _is_ending(signs, is_alive, is_lost, settings):
        return "training"
    if is_lost.any():
        return "partly_lost" if is_alive.any() else "lost"
    if (states == STUCK).any():
        return "stuck"
    return "training" if np.isin(states, (OK, LATE, FINISHED)).any() else "starting"


def _explains(outcome: str, signs: Signs, is_lost: Bools, settings: HangSettings) -> bool:
    """Whether this end of some ranks says why the others are silent."""
    if outcome == "preempted":
        return not _died_first(signs, is_lost, settings)
    return outcome != "ok" or not is_lost.any()


def _died_first(signs: Signs, is_lost: Bools, settings: HangSettings) -> bool:
    """Whether a rank died without a word before the others were ended by SIGTERM.

    Schedulers end all ranks so, and of some the last word may be lost on its way. But a launcher
    also ends the rest when one rank was killed. A rank died first

    - if it had been silent for longer than ``ending_s`` by then, unless for so long
      (``told_s``) that people were told, and who ends the run then knows;
    - if it fell silent just before, and ranks without a last word are on its node only, and not the
      whole of it: those of its neighbours arrived. The only rank of a node counts as well.

    Of whole nodes, and of ranks here and there, the last words were lost. So were those of who
    lived on after the first SIGTERM.
    """
    first_s = np.max(signs.ended_s[signs.ended == _PREEMPTED])
    earlier_s = np.where(is_lost, signs.silent_s - first_s, 0.0)
    if ((earlier_s > settings.ending_s) & (earlier_s <= settings.told_s)).any():
        return True
    is_wordless = is_lost & (earlier_s <= settings.ending_s)
    nodes = np.unique(signs.node[is_wordless])
    if len(nodes) != 1 or not (earlier_s[is_wordless] > 0.0).any():
        return False
    of_node = signs.node == nodes[0]
    return bool((of_node & ~is_wordless).any() or of_node.sum() == 1)


def _is_ending(signs: Signs, is_alive: Bools, is_lost: Bools, settings: HangSettings) -> bool:
    """Whether ranks are silent because the run ends just now: somebody has recorded its end, and
    nobody has been heard for long since."""
    is_told = signs.has_ended & (signs.ended != _OK)
    if not is_told.any() or not is_alive.any():
        return False
    first_s = np.max(signs.ended_s[is_told])
    nobody_later = (signs.silent_s[is_alive] >= first_s - settings.ending_s).all()
    nobody_before = (signs.silent_s[is_lost] <= first_s + settings.ending_s).all()
    return bool(nobody_later and nobody_before)


def _unheard(signs: Signs) -> Bools:
    unheard: Bools = np.isnan(signs.silent_s)
    return unheard


_OK, _PREEMPTED = OUTCOMES.index("ok"), OUTCOMES.index("preempted")
