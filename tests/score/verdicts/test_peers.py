"""Who is compared with whom, where it is told and where it is not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.verdicts.world import (
    describe_peers,
    inferred_groups,
    is_reported,
    peer_groups,
)
from otel_straggler.model.rank import Source

SEEDS = st.integers(0, 2**32 - 1)
NOISE = 0.01


def source(rank: int, role: str = "default", **parallel: int) -> Source:
    return Source(run_id="r", rank=rank, role=role, parallel=tuple(parallel.items()))


def partition(codes: list[int]) -> set[frozenset[int]]:
    return {frozenset(i for i, c in enumerate(codes) if c == code) for code in set(codes)}


def test_peers_differ_in_their_data_rank_only() -> None:
    """Another stage, another role or another place in the tensor group is other work."""
    sources = [
        source(0, data=0, pipeline=0),
        source(1, data=1, pipeline=0),
        source(2, data=0, pipeline=1),
        source(3, "critic", data=0, pipeline=0),
        source(4, pipeline=1, data=7),
    ]
    assert peer_groups(sources).code.tolist() == [0, 0, 1, 2, 1]


def test_the_order_in_which_dimensions_are_told_does_not_matter() -> None:
    """One framework says tensor first, another pipeline."""
    sources = [source(0, tensor=1, pipeline=2), source(1, pipeline=2, tensor=1)]
    assert len(peer_groups(sources)) == 1


def test_a_role_or_a_place_is_a_description() -> None:
    """The default role alone is none."""
    assert not is_reported([source(0), source(1)])
    assert is_reported([source(0), source(1, "actor")])
    assert is_reported([source(0), source(1, data=1)])


@settings(max_examples=40)
@given(SEEDS, st.integers(3, 12), st.integers(3, 12))
def test_ranks_with_times_far_apart_are_roles_whoever_comes_first(
    seed: int, a: int, b: int
) -> None:
    """Two stages, one of them half as long again; the ranks in any order."""
    rng = np.random.default_rng(seed)
    logs = np.concatenate([np.zeros(a), np.full(b, np.log(1.5))])
    logs = (logs + rng.uniform(-NOISE, NOISE, a + b))[:, None]
    order = rng.permutation(a + b)
    result = partition(inferred_groups(logs[order], NOISE).code.tolist())
    first = frozenset(np.flatnonzero(order < a).tolist())
    assert result == {first, frozenset(range(a + b)) - first}


@settings(max_examples=40)
@given(SEEDS, st.integers(1, 20), st.floats(1e-6, 1e6))
def test_equal_ranks_are_one_role_in_every_unit(seed: int, rows: int, factor: float) -> None:
    """Differences under 10 % are noise, whatever the times are measured in."""
    rng = np.random.default_rng(seed)
    seconds = np.exp(rng.uniform(-0.02, 0.02, (rows, 3))) * factor
    assert len(inferred_groups(np.log(seconds), NOISE)) == 1


@pytest.mark.parametrize("slow", [1, 2])
def test_one_or_two_that_stand_apart_are_suspects_and_no_role(slow: int) -> None:
    """Else every slow rank would be a role of its own."""
    logs = np.zeros((8, 1))
    logs[:slow] = 1.0
    assert len(inferred_groups(logs, NOISE)) == 1


def test_three_that_stand_apart_are_a_role() -> None:
    """The price of not being told."""
    logs = np.zeros((8, 1))
    logs[:3] = 1.0
    assert partition(inferred_groups(logs, NOISE).code.tolist()) == {
        frozenset({0, 1, 2}),
        frozenset({3, 4, 5, 6, 7}),
    }


@pytest.mark.parametrize("empty", [np.nan, -np.inf])
def test_ranks_without_a_section_are_a_role_if_they_are_three(empty: float) -> None:
    """The last stage computes the loss, the others do not; no time and no row are the same."""
    logs = np.zeros((6, 2))
    logs[:3, 1] = empty
    assert len(inferred_groups(logs, NOISE)) <= 2
    assert inferred_groups(np.full((4, 2), empty), NOISE).code.tolist() == [0] * 4


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_too_few_for_roles_are_one_group(rows: int) -> None:
    """There is nothing to tell apart."""
    assert len(inferred_groups(np.zeros((rows, 2)), NOISE)) == min(rows, 1)


@pytest.mark.parametrize(
    ("gap", "noise", "groups"), [(0.09, 0.01, 1), (0.11, 0.01, 2), (0.11, 0.02, 1), (0.13, 0.02, 2)]
)
def test_roles_lie_a_tenth_apart_and_six_times_the_noise(
    gap: float, noise: float, groups: int
) -> None:
    """Both."""
    logs = np.array([0.0, 0.0, 0.0, gap, gap, gap])[:, None]
    assert len(inferred_groups(logs, noise)) == groups


def test_a_rank_between_two_roles_goes_to_the_one_that_is_nearest() -> None:
    """Each of two alone has what one role takes in one section, and the other in the other."""
    logs = np.array([[0.0, 0.0]] * 3 + [[0.0, 0.5], [1.0, 0.0]] + [[1.0, 0.5]] * 3)
    assert inferred_groups(logs, NOISE).code.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    logs[3, 0] = logs[4, 0] = np.nan  # what is not known says nothing
    assert inferred_groups(logs, NOISE).code.tolist() == [0, 0, 0, 1, 0, 1, 1, 1]


def test_peers_are_called_by_role_and_place() -> None:
    """Of the default role the place is enough."""
    index = (("pipeline", 3), ("tensor", 1))
    assert describe_peers(("default", index)) == "pipeline 3, tensor 1"
    assert describe_peers(("actor", index)) == "actor, pipeline 3, tensor 1"
    assert describe_peers(("default", ())) == "default"
