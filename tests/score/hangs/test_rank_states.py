"""What each rank is called, and what the run is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otel_straggler.detect.hangs.states import RANK_STATES, HeartbeatTable, rank_states, run_state
from otel_straggler.detect.scores.settings import HangSettings

NAN = float("nan")
ALL = range(4)


def states_of(heartbeats: HeartbeatTable, timeout_s: float = 100.0) -> list[str]:
    codes = rank_states(heartbeats, np.full(len(heartbeats), timeout_s), HangSettings())
    return [RANK_STATES[code] for code in codes]


def run_of(heartbeats: HeartbeatTable, timeout_s: float = 100.0) -> str:
    its = HangSettings()
    return run_state(
        heartbeats, rank_states(heartbeats, np.full(len(heartbeats), timeout_s), its), its
    )


@pytest.mark.parametrize(
    ("columns", "state"),
    [
        ({}, "ok"),
        ({"stalled_s": {1: 49.0}}, "ok"),
        ({"stalled_s": {1: 51.0}}, "late"),
        ({"stalled_s": {1: 101.0}}, "stuck"),
        ({"silent_s": {1: 19.0}}, "ok"),
        ({"silent_s": {1: 21.0}}, "lost"),
        ({"silent_s": {1: 21.0}, "stalled_s": {1: 101.0}}, "lost"),
        ({"silent_s": {1: NAN}, "stalled_s": {1: NAN}}, "starting"),
        ({"step": {1: -1}, "section": {1: ""}, "is_working": {1: False}}, "starting"),
        ({"ended": {1: "ok"}, "silent_s": {1: 900.0}}, "finished"),
        ({"ended": {1: "failed"}, "stalled_s": {1: 900.0}}, "failed"),
        ({"ended": {1: "unknown"}}, "ended"),
    ],
)
def test_a_rank_is_called_by_what_it_last_said(
    heartbeats_of: Any, columns: Any, state: str
) -> None:
    """Alive without progress is stuck, silent is lost, and only a told end is an end."""
    result = states_of(heartbeats_of(**columns))
    assert result[1] == state
    assert [result[r] for r in (0, 2, 3)] == ["ok"] * 3


def test_nobody_is_stuck_while_nobody_works(heartbeats_of: Any) -> None:
    """A notebook that waits for its user, with no section and no step open, is not a hang."""
    idle = dict.fromkeys(ALL, False)
    quiet = heartbeats_of(
        is_working=idle, section=dict.fromkeys(ALL, ""), stalled_s=dict.fromkeys(ALL, 9e3)
    )
    assert states_of(quiet) == ["ok"] * 4


def test_a_rank_between_sections_is_stuck_while_another_waits_for_it(heartbeats_of: Any) -> None:
    """It is in no section itself: in the user's own code."""
    columns = {"is_working": {2: False}, "section": {2: ""}, "stalled_s": dict.fromkeys(ALL, 200.0)}
    assert states_of(heartbeats_of(**columns)) == ["stuck"] * 4


@pytest.mark.parametrize(
    ("columns", "state"),
    [
        ({}, "training"),
        ({"stalled_s": dict.fromkeys(ALL, 101.0)}, "stuck"),
        ({"silent_s": {1: 21.0}}, "partly_lost"),
        ({"silent_s": dict.fromkeys(ALL, 21.0)}, "lost"),
        ({"silent_s": dict.fromkeys(ALL, NAN)}, "starting"),
        ({"ended": dict.fromkeys(ALL, "ok")}, "finished"),
        ({"ended": dict.fromkeys(ALL, "cancelled")}, "cancelled"),
        ({"ended": dict.fromkeys(ALL, "preempted")}, "preempted"),
        ({"ended": {0: "failed"}, "silent_s": {1: 50.0, 2: 50.0, 3: 50.0}}, "failed"),
        ({"ended": {0: "failed"}}, "training"),
        ({"ended": {0: "ok"}, "silent_s": {1: 50.0, 2: 50.0, 3: 50.0}}, "lost"),
        ({"ended": dict.fromkeys(ALL, "unknown")}, "ended"),
        ({"ended": {0: "unknown", 1: "ok", 2: "ok", 3: "ok"}}, "ended"),
        ({"ended": {0: "unknown"}}, "training"),
        ({"ended": {0: "unknown"}, "silent_s": {1: 50.0, 2: 50.0, 3: 50.0}}, "lost"),
        ({"ended": {0: "unknown", 1: "failed", 2: "unknown", 3: "unknown"}}, "failed"),
        ({"ended": {0: "failed", 1: "ok", 2: "ok", 3: "ok"}}, "failed"),
        ({"ended": {0: "preempted", 1: "failed", 2: "preempted", 3: "preempted"}}, "failed"),
    ],
)
def test_a_run_is_called_by_its_ranks(heartbeats_of: Any, columns: Any, state: str) -> None:
    """A recorded failure explains the silence of the others; "ok" of one rank does not."""
    assert run_of(heartbeats_of(**columns)) == state


SIX = {1: "preempted", 2: "preempted", 3: "preempted", 4: "preempted", 5: "preempted"}


@pytest.mark.parametrize(
    ("silent_s", "nodes", "state"),
    [
        # rank 0 alone says nothing; all others were ended by SIGTERM 100 s ago
        (104.0, (0, 0, 0, 1, 1, 1), "failed"),  # its neighbours spoke: it was killed first
        (104.0, (0, 1, 1, 1, 1, 1), "failed"),  # the only rank of its node
        (130.0, (0, 0, 0, 1, 1, 1), "failed"),  # it died long before
        (390.0, (0, 0, 0, 1, 1, 1), "failed"),
        (410.0, (0, 0, 0, 1, 1, 1), "preempted"),  # told of for five minutes
        (96.0, (0, 0, 0, 1, 1, 1), "preempted"),  # killed after it had outlived the SIGTERM
        (21.0, (0, 0, 0, 1, 1, 1), "preempted"),
    ],
)
def test_a_run_in_which_a_rank_died_before_the_others_were_ended_has_failed(
    heartbeats_of: Any, silent_s: float, nodes: tuple[int, ...], state: str
) -> None:
    """A launcher ends the rest when a rank was killed: that is a crash, not a preemption."""
    reported = dict.fromkeys(SIX, 100.0)
    heartbeats = heartbeats_of(
        ranks=6,
        ended=SIX,
        ended_s=reported,
        silent_s={0: silent_s, **reported},
        node=dict(enumerate(nodes)),
    )
    assert run_of(heartbeats) == state


@pytest.mark.parametrize(
    ("silent", "nodes"),
    [
        ((0, 1, 2), (0, 0, 0, 1, 1, 1)),  # what a node has said did not arrive
        ((0, 3), (0, 0, 0, 1, 1, 1)),  # here and there
        ((0, 3), (0, 1, 2, 3, 4, 5)),
    ],
)
def test_last_words_that_were_lost_page_nobody(
    heartbeats_of: Any, silent: tuple[int, ...], nodes: tuple[int, ...]
) -> None:
    """A scheduler has ended them all."""
    reported = {rank: 100.0 for rank in range(6) if rank not in silent}
    heartbeats = heartbeats_of(
        ranks=6,
        ended=dict.fromkeys(reported, "preempted"),
        ended_s=reported,
        silent_s={**dict.fromkeys(silent, 104.0), **reported},
        node=dict(enumerate(nodes)),
    )
    assert run_of(heartbeats) == "preempted"


def test_a_failure_explains_who_was_killed_with_it(heartbeats_of: Any) -> None:
    """One rank's traceback, SIGTERM for some, nothing from another."""
    ended = {0: "failed", 1: "preempted", 2: "preempted"}
    heartbeats = heartbeats_of(ended=ended, ended_s=dict.fromkeys(ended, 50.0), silent_s={3: 52.0})
    assert run_of(heartbeats) == "failed"


@pytest.mark.parametrize(("left_s", "state"), [(51.0, "failed"), (90.0, "preempted")])
def test_an_exit_without_outcome_just_before_sigterm_ended_the_others_is_a_failure(
    heartbeats_of: Any, left_s: float, state: str
) -> None:
    """A launcher ends the others because of an exit code; a scheduler ends them for other reasons,
    some time after a rank has left."""
    ended = {0: "unknown", 1: "preempted", 2: "preempted", 3: "preempted"}
    ended_s = {0: left_s, 1: 50.0, 2: 50.0, 3: 50.0}
    assert run_of(heartbeats_of(ended=ended, ended_s=ended_s)) == state


@pytest.mark.parametrize("outcome", ["failed", "cancelled", "preempted"])
@pytest.mark.parametrize(
    ("reported_s", "alive_s", "lost_s", "state"),
    [
        (18.0, 6.0, 22.0, "training"),  # the run ends just now: wait for the rest
        (18.0, 2.0, 22.0, "partly_lost"),  # the rest works on
        (18.0, 6.0, 60.0, "partly_lost"),  # lost before
    ],
)
def test_a_run_is_not_called_partly_lost_while_it_ends(
    heartbeats_of: Any, outcome: str, reported_s: float, alive_s: float, lost_s: float, state: str
) -> None:
    """Of ranks that end within a second of each other some are silent for longer than others."""
    silent_s = {0: reported_s, 1: lost_s, 2: alive_s, 3: alive_s}
    heartbeats = heartbeats_of(ended={0: outcome}, silent_s=silent_s)
    assert run_of(heartbeats) == state
