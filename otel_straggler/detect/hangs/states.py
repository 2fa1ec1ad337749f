"""States of ranks and runs, from the ranks' newest heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from otel_straggler.detect.scores.settings import HangSettings
from otel_straggler.model.observation import NO_STEP, Bools, Codes, Floats, Ints
from otel_straggler.semconv import OUTCOMES

RankState = Literal["starting", "ok", "late", "stuck", "lost", "finished", "failed", "ended"]
RANK_STATES: tuple[RankState, ...] = (
    "starting",
    "ok",
    "late",
    "stuck",
    "lost",
    "finished",
    "failed",
    "ended",
)
STARTING, OK, LATE, STUCK, LOST, FINISHED, FAILED, ENDED = range(len(RANK_STATES))
"""From ``FINISHED`` on a rank is over; a history has kept these codes."""

NOT_ENDED = -1
NO_OPEN_SECTION = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeartbeatTable:
    """R ranks of one world (run, group, newest attempt). Times are ages on the collector's clock.

    Attributes:
        ranks: (R,) ascending.
        silent_s: (R,) since the newest heartbeat; NaN: never seen, though expected.
        stalled_s: (R,) since the newest progress; NaN: it reported none.
        step: (R,) last step begun, ``NO_STEP`` if none; first_step: the first of its session.
        section: (R,) code of the innermost open section, ``NO_OPEN_SECTION`` if none is open.
        sections: names with phase, in the order in which they run within a step as far as known.
        is_working: (R,) a section or a step is open.
        ended: (R,) index into ``OUTCOMES``, ``NOT_ENDED`` while it has not; ended_s: since then,
            NaN likewise.
        node: (R,) a number for each node: the index of its name in ``nodes``, if it has one.
        began_s: (R,) since its session began; NaN: never seen.
    """

    ranks: Ints
    silent_s: Floats
    stalled_s: Floats
    step: Ints
    section: Codes
    sections: Sequence[str]
    is_working: Bools
    ended: Codes
    ended_s: Floats
    node: Codes
    began_s: Floats
    first_step: Ints
    nodes: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.ranks)

    @property
    def has_ended(self) -> Bools:
        """Whether a rank recorded its end, with an outcome or without."""
        recorded: Bools = self.ended != NOT_ENDED
        return recorded


def rank_states(heartbeats: HeartbeatTable, timeout_s: Floats, settings: HangSettings) -> Codes:
    """(R,) codes into ``RANK_STATES``. ``timeout_s`` (R,) is of the ranks' current sections.
    finished, failed: it recorded that it ended so; ended: it recorded any other end. lost: no
    heartbeat for ``lost_after_s``. stuck: alive, without progress for longer than its timeout, with
    pending work of its own or of a rank that may wait for it. late: the same for a part of the
    timeout. starting: never seen, or alive and never began a step or a section."""
    state = np.full(len(heartbeats), OK, np.int32)
    is_known = ~np.isnan(heartbeats.silent_s)
    has_begun = (heartbeats.step != NO_STEP) | heartbeats.is_working
    state[~is_known | ~has_begun] = STARTING
    is_pending = heartbeats.is_working | bool(np.any(heartbeats.is_working & ~heartbeats.has_ended))
    overdue = np.where(is_pending, heartbeats.stalled_s, 0.0) / timeout_s
    state[overdue > settings.late_part] = LATE
    state[overdue > 1.0] = STUCK
    state[heartbeats.silent_s > settings.lost_after_s] = LOST
    state[heartbeats.has_ended] = ENDED
    state[heartbeats.ended == _OK] = FINISHED
    state[heartbeats.ended == _FAILED] = FAILED
    return state


def are_over(states: Codes) -> Bools:
    """(R,) whether a rank has ended, however."""
    over: Bools = states >= FINISHED
    return over


HangKind = Literal["lost", "left_early", "never_joined", "joined_but_stuck"]


@dataclass(frozen=True, slots=True, eq=False)
class Blame:
    """Why a world stands still.

    Attributes:
        kind: see above.
        culprits: (R,) whom it waits for; none where all have joined.
        victims: (R,) who wait.
    """

    kind: HangKind
    culprits: Bools
    victims: Bools


def blame(heartbeats: HeartbeatTable, states: Codes) -> Blame | None:
    """Because of whom a world stands still; None while nobody waits: no rank is stuck or lost.

    A rank that is lost keeps all others waiting. If all are alive, those with the least progress,
    by (step, section), have not joined what the others wait in; where all have come equally far
    they have joined and make no progress: the network, a GPU, or the storage they share. A rank
    that ended well while others wait for it has left too early.

    Args:
        states: (R,) of :func:`rank_states`.

    Cost: O(R). Source: FT-HSDP, Aegis, MegaScale: it is the rank that does *not* complain.
    """
    is_stuck, is_lost = states == STUCK, states == LOST
    if not (is_stuck.any() or is_lost.any()):
        return None
    waits = is_stuck | (states == LATE)
    if is_lost.any():
        return Blame("lost", is_lost, waits)
    alive = ~are_over(states)
    index = _indexes(heartbeats)
    behind = alive & (index == index[alive].min())
    if behind.sum() < alive.sum():
        return Blame("never_joined", behind, waits & ~behind)
    if not alive.all():
        return Blame("left_early", ~alive, waits)
    return Blame("joined_but_stuck", np.zeros(len(heartbeats), bool), waits)


def _indexes(heartbeats: HeartbeatTable) -> Ints:
    """Progress of each rank: by step, then by section in the order of the step."""
    width = len(heartbeats.sections) + 1
    first = heartbeats.step.min()
    indexes: Ints = (heartbeats.step - first) * width + heartbeats.section + 1
    return indexes


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
    "ended",
    "forgotten",
]
ENDS: tuple[RunState, ...] = ("finished", "cancelled", "preempted", "failed", "ended")
HANGS: tuple[RunState, ...] = ("stuck", "partly_lost", "lost")

_END_OF: dict[str, RunState] = {
    "ok": "finished",
    "cancelled": "cancelled",
    "preempted": "preempted",
    "failed": "failed",
    "unknown": "ended",
}
_WORST_FIRST = ("failed", "preempted", "cancelled", "unknown", "ok")


def run_state(
    heartbeats: HeartbeatTable, states: Codes, settings: HangSettings, *, was_hung: bool = False
) -> RunState:
    """State of a run with all expected ranks. An end that one rank has recorded explains why the
    others are silent: a traceback or Ctrl-C reaches some ranks first, and the launcher kills the
    rest. So a run with a rank that failed or was cancelled has ended so, unless another still
    works. Ranks that are preempted because another one died or left are those of a failed run: see
    :func:`_died_first` and :func:`_left_first`. Until ``was_hung`` a run
    that ends just now is in training."""
    ended = {OUTCOMES[code] for code in set(heartbeats.ended[heartbeats.has_ended].tolist())}
    is_lost = states == LOST
    # Also once the end of the run has explained why they are silent.
    is_wordless = is_lost | ((states == ENDED) & ~heartbeats.has_ended)
    is_alive = np.isin(states, (OK, LATE, STUCK)) | ((states == STARTING) & ~_unheard(heartbeats))
    for outcome in _WORST_FIRST:
        if (
            outcome in ended
            and not is_alive.any()
            and _explains(outcome, heartbeats, is_lost, is_wordless, settings)
        ):
            is_launchers = outcome == "preempted" and _left_first(heartbeats, settings)
            return "failed" if is_launchers else _END_OF[outcome]
        if outcome == "preempted" and outcome in ended and not is_alive.any():
            return "failed"  # a rank died, and its launcher ended the others
    if not was_hung and _is_ending(heartbeats, is_alive, is_lost, settings):
        return "training"
    if is_lost.any():
        return "partly_lost" if is_alive.any() else "lost"
    if (states == STUCK).any():
        return "stuck"
    is_on = np.isin(states, (OK, LATE)) | are_over(states)
    return "training" if is_on.any() else "starting"


def _explains(
    outcome: str,
    heartbeats: HeartbeatTable,
    is_lost: Bools,
    is_wordless: Bools,
    settings: HangSettings,
) -> bool:
    """Whether this end of some ranks explains why the others are silent."""
    if outcome == "preempted":
        return not _died_first(heartbeats, is_wordless, settings)
    return outcome not in {"ok", "unknown"} or not is_lost.any()


def _died_first(heartbeats: HeartbeatTable, is_lost: Bools, settings: HangSettings) -> bool:
    """Whether a rank died silently before SIGTERM ended the others: a launcher kills the rest after
    one rank was killed. True if a rank had been silent for longer than ``ending_s`` by then (after
    ``reported_s`` it was reported, and whoever ended the run knew); or if it fell silent just
    before, and silent ranks are on its node only, but not all of that node (or the node has one
    rank). Lost last messages of whole nodes and of scattered ranks prove nothing."""
    first_s = np.max(heartbeats.ended_s[heartbeats.ended == _PREEMPTED])
    earlier_s = np.where(is_lost, heartbeats.silent_s - first_s, 0.0)
    if ((earlier_s > settings.ending_s) & (earlier_s <= settings.reported_s)).any():
        return True
    is_wordless = is_lost & (earlier_s <= settings.ending_s)
    nodes = np.unique(heartbeats.node[is_wordless])
    if len(nodes) != 1 or not (earlier_s[is_wordless] > 0.0).any():
        return False
    of_node = heartbeats.node == nodes[0]
    return bool((of_node & ~is_wordless).any() or of_node.sum() == 1)


def _left_first(heartbeats: HeartbeatTable, settings: HangSettings) -> bool:
    """Whether a program exited without an outcome just before SIGTERM ended the others: a launcher
    ends the rest because of an exit code, which is not reported (``raise SystemExit(1)``)."""
    left_s = heartbeats.ended_s[heartbeats.ended == _UNKNOWN]
    first_s = np.max(heartbeats.ended_s[heartbeats.ended == _PREEMPTED])
    return bool(((left_s > first_s) & (left_s <= first_s + settings.ending_s)).any())


def _is_ending(
    heartbeats: HeartbeatTable, is_alive: Bools, is_lost: Bools, settings: HangSettings
) -> bool:
    """Whether the run ends just now: an end is recorded, and all were heard until about then."""
    is_reported = heartbeats.has_ended & ~np.isin(heartbeats.ended, (_OK, _UNKNOWN))
    if not is_reported.any() or not is_alive.any():
        return False
    first_s = np.max(heartbeats.ended_s[is_reported])
    nobody_later = (heartbeats.silent_s[is_alive] >= first_s - settings.ending_s).all()
    nobody_before = (heartbeats.silent_s[is_lost] <= first_s + settings.ending_s).all()
    return bool(nobody_later and nobody_before)


def _unheard(heartbeats: HeartbeatTable) -> Bools:
    unheard: Bools = np.isnan(heartbeats.silent_s)
    return unheard


_OK, _FAILED, _PREEMPTED, _UNKNOWN = (
    OUTCOMES.index(name) for name in ("ok", "failed", "preempted", "unknown")
)
