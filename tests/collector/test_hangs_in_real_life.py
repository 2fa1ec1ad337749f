"""What happens to real jobs: nobody is called for it, and a hang afterwards is still found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .moving_ranks import Cluster, late_by, twice_and_out_of_order

HEALTHY = {"starting", "ok", "late", "training", "finished"}
RANKS = 8
REVERSED = [f"node-{3 - number // 2}" for number in range(RANKS)]


@pytest.fixture
def cluster(kit: Any) -> Cluster:
    """Eight ranks on four nodes that have trained long enough to be known."""
    made = Cluster(kit)
    made.begin(RANKS)
    made.start()
    made.learn()
    made.train(20.0)
    return made


def newer_attempt(its: Cluster) -> None:
    its.begin(RANKS, attempt=1)
    its.start(step=50)


def same_attempt(its: Cluster) -> None:
    its.begin(RANKS)
    its.start(step=50)


def renumbered(its: Cluster) -> None:
    its.begin(RANKS, nodes=REVERSED, attempt=1)
    its.start(step=50)


def renumbered_within_an_attempt(its: Cluster) -> None:
    its.begin(RANKS, nodes=REVERSED)
    its.start(step=50)


def one_rank_moved(its: Cluster) -> None:
    """The others wait for it while it loads and compiles."""
    its.replace(5, RANKS, node="spare")
    its.live(40.0)
    its.ranks["", 5].step = its.ranks["", 4].step
    its.progress(its.ranks["", 5])
    its.live(600.0)
    its.train(40.0)


def one_rank_moved_to_a_node_whose_clock_is_behind(its: Cluster) -> None:
    its.replace(5, RANKS, node="spare", clock_s=-900.0)
    its.live(300.0)
    its.ranks["", 5].step = its.ranks["", 4].step
    its.train(40.0)


def shrunk(its: Cluster) -> None:
    its.begin(6)
    its.start(step=50)


def shrunk_with_a_newer_attempt(its: Cluster) -> None:
    its.begin(6, attempt=1)
    its.start(step=50)


def grown(its: Cluster) -> None:
    its.begin(12)
    its.start(step=50)


def wrong_clocks(its: Cluster) -> None:
    its.begin(RANKS, attempt=1)
    for number, rank in enumerate(its.ranks.values()):
        rank.clock_s = (number - 4) * 100.0
    its.start(step=50)


def clocks_that_are_set(its: Cluster) -> None:
    """One by two minutes forward, one back."""
    its.ranks["", 1].clock_s += 120.0
    its.ranks["", 2].clock_s -= 120.0
    its.train(700.0)


def clocks_that_drift(its: Cluster) -> None:
    """By 50 parts in a million for ten days, four hours at a time."""
    for _ in range(60):
        for sign, rank in zip((1, -1), its.ranks.values(), strict=False):
            rank.clock_s += sign * 0.72
        its.now_s += 14_100.0
        its.seen, seen = set(), its.seen
        its.train(15.0)  # the collector itself was away meanwhile
        its.seen = seen
        its.train(15.0)


def heartbeats_late(its: Cluster) -> None:
    for rank in its.ranks.values():
        rank.delivered_after = late_by(14.5)
    its.train(600.0)


def heartbeats_twice_and_out_of_order(its: Cluster) -> None:
    for rank in its.ranks.values():
        rank.delivered_after = twice_and_out_of_order()
    its.train(600.0)


def declared_checkpoint(its: Cluster) -> None:
    """Five minutes, never seen before; the others wait in it too."""
    for rank in its.ranks.values():
        rank.section, rank.phase = "save", "checkpoint"
        rank.progress_at_s = its.now_s
    its.live(300.0)
    for rank in its.ranks.values():
        rank.phase = ""
    its.train(20.0)


def undeclared_checkpoint_seen_once(its: Cluster) -> None:
    """Thousands of runs ago."""
    its.begin(RANKS)
    its.start(step=0)
    its.learn([*[0.1] * 20, 300.0, *[0.1] * 379])
    its.train(20.0)
    its.live(300.0)
    its.train(20.0)


CASES: list[Callable[[Cluster], None]] = [
    newer_attempt,
    same_attempt,
    renumbered,
    renumbered_within_an_attempt,
    one_rank_moved,
    one_rank_moved_to_a_node_whose_clock_is_behind,
    shrunk,
    shrunk_with_a_newer_attempt,
    grown,
    wrong_clocks,
    clocks_that_are_set,
    clocks_that_drift,
    heartbeats_late,
    heartbeats_twice_and_out_of_order,
    declared_checkpoint,
    undeclared_checkpoint_seen_once,
]


@pytest.mark.parametrize("case", CASES)
def test_nobody_is_called_and_a_hang_afterwards_is_found(
    cluster: Cluster, case: Callable[[Cluster], None]
) -> None:
    """Never stuck or lost while all is well; then rank 2 does not join, and is named."""
    case(cluster)
    assert cluster.seen <= HEALTHY
    result = cluster.hang(2, 500.0 if case is undeclared_checkpoint_seen_once else 150.0)
    assert (result["state"], result["why"], result["culprits"]) == ("stuck", "never_joined", [2])
    assert result["victims"] == len(cluster.ranks) - 1


@pytest.mark.parametrize("case", CASES)
def test_a_rank_that_dies_afterwards_is_lost(
    cluster: Cluster, case: Callable[[Cluster], None]
) -> None:
    """Whatever its clock says, and however late the others are."""
    case(cluster)
    del cluster.ranks["", 3]
    cluster.train(45.0)
    result = cluster.look()
    assert (result["state"], result["culprits"]) == ("partly_lost", [3])
    assert result["ranks"]["lost"] == 1


def test_of_two_groups_only_the_one_that_hangs_is_called(kit: Any) -> None:
    """Actor and critic of one run."""
    its = Cluster(kit)
    for group in ("actor", "critic"):
        its.begin(RANKS, group=group)
    its.start()
    its.learn()
    its.train(20.0)
    assert its.seen <= HEALTHY
    result = its.hang(6, group="actor")
    assert (result["state"], result["culprits"]) == ("stuck", [6])
    result = its.look("critic")
    assert (result["state"], result["ranks"], result["why"]) == ("training", {"ok": RANKS}, None)


@pytest.mark.parametrize("clock_s", [-900.0, 0.0, 900.0])
def test_nothing_looks_fresh_that_is_not(cluster: Cluster, clock_s: float) -> None:
    """Heartbeats that were held up on their way are as old as they are, whatever the clock."""
    cluster.begin(RANKS, attempt=1)
    rank = cluster.ranks["", 4]
    rank.clock_s = clock_s
    cluster.start(loads_s=10.0, compiles_s=10.0)
    assert cluster.age_s(4) < 6.0
    rank.delivered_after = lambda: (14.0,)
    cluster.train(60.0)
    assert 9.0 <= cluster.age_s(4) <= 20.0
