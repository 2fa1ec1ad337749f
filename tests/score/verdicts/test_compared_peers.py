"""A verdict counts the peers that were compared, not all that there are."""

from __future__ import annotations

import numpy as np
import pytest

from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.verdict import Verdict
from tests.score.verdicts.worlds import by_hand, usual, with_waiting

RANKS, STEPS, SLOW, FORWARD = 24, 100, 5, 1


def run_verdicts(silent: slice, *, sections: slice, slow: slice = slice(SLOW, SLOW + 1)) -> Verdict:
    """The verdict on who takes twice as long in forward, while others tell nothing of some."""
    work_s = usual(STEPS, RANKS)[..., :2]
    work_s[:, slow, FORWARD] *= 2.0
    seconds = with_waiting(work_s)
    seconds[:, silent, sections] = np.nan
    judge = VerdictEngine()
    for table in by_hand(seconds, world_size=RANKS):
        judge.observe(table)
    judge.finish()
    verdict = judge.changes[-1]
    assert (verdict.state, verdict.section) == ("confirmed", "forward")
    return verdict


@pytest.mark.parametrize("sections", [slice(None), slice(FORWARD, FORWARD + 1)])
def test_ranks_that_tell_nothing_are_not_counted(sections: slice) -> None:
    """Neither those of which nothing comes nor those that do not tell this section."""
    verdict = run_verdicts(slice(21, 24), sections=sections)
    assert (verdict.rank, verdict.n_peers) == (SLOW, 20)
    assert "as long as its 20 peers" in verdict.sentence


def test_where_all_tell_all_are_counted() -> None:
    """All but the rank itself."""
    assert run_verdicts(slice(0, 0), sections=slice(None)).n_peers == RANKS - 1


def test_a_host_is_compared_with_the_ranks_of_others_that_tell() -> None:
    """Sixteen ranks on two other hosts, three of them silent."""
    verdict = run_verdicts(slice(21, 24), sections=slice(None), slow=slice(0, 8))
    assert verdict.scope == "host"
    assert verdict.n_peers == 13
