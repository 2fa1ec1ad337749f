"""Half of the peers are slow: by how much, and how many are told."""

from __future__ import annotations

import math

import numpy as np
import pytest

from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.verdict import Verdict
from tests.score.verdicts.worlds import by_hand, ranks, usual, with_waiting

RANKS, FORWARD, TIMES = 16, 1, 1.3


def confirmed(slow: list[int], *, per_node: int = 4) -> list[Verdict]:
    """Who is called slow where these take 1.3 times as long in forward from the 50th step on."""
    work_s = usual(160, RANKS)[..., :2]
    work_s[50:, slow, FORWARD] *= TIMES
    judge = VerdictEngine()
    for table in by_hand(with_waiting(work_s), sources=ranks(RANKS, per_node=per_node)):
        judge.observe(table)
    judge.finish()
    newest = {change.subject_id: change for change in judge.changes}
    return [verdict for verdict in newest.values() if verdict.state == "confirmed"]


@pytest.mark.parametrize("count", [8, 6])
def test_each_is_named_by_all_of_what_it_is_slow(count: int) -> None:
    """Against those who are not: the median of all lies halfway."""
    result = confirmed(list(range(0, 2 * count, 2)))
    assert [verdict.rank for verdict in result] == list(range(0, 2 * count, 2))
    for verdict in result:
        assert verdict.slowdown == pytest.approx(TIMES, rel=0.02)
        assert verdict.own_s == pytest.approx(verdict.slowdown * verdict.peers_s)
        assert verdict.loss_share == pytest.approx((TIMES - 1.0) / 1.5, abs=0.06)
        assert verdict.n_peers == RANKS - count
        assert f"{count - 1} more of its peers" in verdict.sentence


def test_who_has_told_nothing_of_late_is_not_called_alike() -> None:
    """Two that are silent for 60 steps are neither slow nor compared."""
    seconds = usual(160, RANKS)[..., :2]
    seconds[50:, :12:2, FORWARD] *= TIMES
    seconds = with_waiting(seconds)
    seconds[100:, [13, 15]] = np.nan
    judge = VerdictEngine()
    for table in by_hand(seconds, sources=ranks(RANKS, per_node=4)):
        judge.observe(table)
    newest = {change.subject_id: change for change in judge.changes}
    result = [verdict for verdict in newest.values() if verdict.state == "confirmed"]
    assert len(result) == 6
    for verdict in result:
        assert verdict.n_peers == RANKS - 6 - 2
        assert "like 5 more of its peers" in verdict.sentence


def test_of_few_slow_ones_each_is_compared_with_all_others() -> None:
    """Two of sixteen do not move a median, and say nothing of each other."""
    for verdict in confirmed([0, 5]):
        assert (verdict.n_peers, "more of its peers" in verdict.sentence) == (RANKS - 1, False)


def test_a_host_that_is_half_of_its_peers_is_named_by_all_of_it() -> None:
    """Its eight ranks against the eight of the other."""
    [verdict] = confirmed(list(range(8)), per_node=8)
    assert (verdict.scope, verdict.node, verdict.n_peers) == ("host", "node-0", 8)
    assert verdict.slowdown == pytest.approx(TIMES, rel=0.02)
    assert not math.isnan(verdict.loss_share)
    assert "more of its peers" not in verdict.sentence


@pytest.mark.parametrize(("count", "within"), [(3, 0.018), (4, 0.012)])
def test_one_of_few_is_named_by_all_of_what_it_is_slow(count: int, within: float) -> None:
    """Not by what the median of all says, in which it takes the place of one that is not slow: by
    as much that lies too high as the others differ from step to step."""
    slowdowns = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        work_s = usual(200, count)[..., :2] * np.exp(rng.normal(0.0, 0.06, (200, count, 2)))
        work_s[100:, 1, FORWARD] *= TIMES
        judge = VerdictEngine()
        for table in by_hand(with_waiting(work_s), sources=ranks(count)):
            judge.observe(table)
        judge.finish()
        newest = {change.subject_id: change for change in judge.changes}
        [verdict] = [one for one in newest.values() if one.state == "confirmed"]
        assert (verdict.rank, verdict.n_peers) == (1, count - 1)
        assert "more of its peers" not in verdict.sentence
        slowdowns.append(verdict.slowdown)
    assert np.mean(slowdowns) == pytest.approx(TIMES, rel=within)
