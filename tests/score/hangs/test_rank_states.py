"""What each rank is called, and what the run is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from otel_straggler.score.hangs.rank_states import rank_states
from otel_straggler.score.hangs.run_state import run_state
from otel_straggler.score.hangs.settings import HangSettings
from otel_straggler.score.hangs.signs import RANK_STATES, Signs

NAN = float("nan")
ALL = range(4)


def states_of(signs: Signs, timeout_s: float = 100.0) -> list[str]:
    codes = rank_states(signs, np.full(len(signs), timeout_s), HangSettings())
    return [RANK_STATES[code] for code in codes]


def run_of(signs: Signs, timeout_s: float = 100.0) -> str:
    return run_state(signs, rank_states(signs, np.full(len(signs), timeout_s), HangSettings()))


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
        ({"ended": {1: "failed"}, "stalled_s": {1: 900.0}}, "finished"),
        ({"ended": {1: "unknown"}}, "lost"),
    ],
)
def test_a_rank_is_called_by_what_it_last_said(signs_of: Any, columns: Any, state: str) -> None:
    """Alive without progress is stuck, silent is lost, and only a told end is an end."""
    found = states_of(signs_of(**columns))
    assert found[1] == state
    assert [found[r] for r in (0, 2, 3)] == ["ok"] * 3


def test_nobody_is_stuck_while_nobody_works(signs_of: Any) -> None:
    """A notebook that waits for its user, with no section and no step open, is not a hang."""
    idle = dict.fromkeys(ALL, False)
    quiet = signs_of(
        is_working=idle, section=dict.fromkeys(ALL, ""), stalled_s=dict.fromkeys(ALL, 9e3)
    )
    assert states_of(quiet) == ["ok"] * 4


def test_a_rank_between_sections_is_stuck_while_another_waits_for_it(signs_of: Any) -> None:
    """It is in no section itself: in the user's own code."""
    columns = {"is_working": {2: False}, "section": {2: ""}, "stalled_s": dict.fromkeys(ALL, 200.0)}
    assert states_of(signs_of(**columns)) == ["stuck"] * 4


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
        ({"ended": dict.fromkeys(ALL, "unknown")}, "lost"),
        ({"ended": {0: "failed", 1: "ok", 2: "ok", 3: "ok"}}, "failed"),
        ({"ended": {0: "preempted", 1: "failed", 2: "preempted", 3: "preempted"}}, "failed"),
    ],
)
def test_a_run_is_called_by_its_ranks(signs_of: Any, columns: Any, state: str) -> None:
    """A recorded failure explains the silence of the others; "ok" of one rank does not."""
    assert run_of(signs_of(**columns)) == state
