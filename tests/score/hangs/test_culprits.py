"""Because of whom a world stands still."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.detect.hangs.states import HeartbeatTable, blame, rank_states
from otel_straggler.detect.scores.settings import HangSettings

STALLED = {"stalled_s": dict.fromkeys(range(4), 200.0)}


def result(heartbeats: HeartbeatTable) -> tuple[str, list[int], list[int]] | None:
    states = rank_states(heartbeats, np.full(len(heartbeats), 100.0), HangSettings())
    its = blame(heartbeats, states)
    if its is None:
        return None
    return its.kind, heartbeats.ranks[its.culprits].tolist(), heartbeats.ranks[its.victims].tolist()


@pytest.mark.parametrize(
    ("columns", "kind", "culprits", "victims"),
    [
        ({}, "joined_but_stuck", [], [0, 1, 2, 3]),
        ({"section": {2: "data"}}, "never_joined", [2], [0, 1, 3]),
        ({"section": {2: ""}}, "never_joined", [2], [0, 1, 3]),
        ({"step": {1: 99}}, "never_joined", [1], [0, 2, 3]),
        ({"step": {1: 99}, "section": {2: "data"}}, "never_joined", [1], [0, 2, 3]),
        ({"silent_s": {3: 60.0}}, "lost", [3], [0, 1, 2]),
        ({"silent_s": {3: 60.0}, "section": {2: "data"}}, "lost", [3], [0, 1, 2]),
        ({"ended": {0: "ok"}}, "left_early", [0], [1, 2, 3]),
    ],
)
def test_who_is_behind_is_to_blame_not_who_complains(
    heartbeats_of: Any, columns: Any, kind: str, culprits: list[int], victims: list[int]
) -> None:
    """Lost ranks first; then those with the least progress; then none."""
    assert result(heartbeats_of(**STALLED, **columns)) == (kind, culprits, victims)


def test_a_world_that_gets_on_blames_nobody(heartbeats_of: Any) -> None:
    """Also where one rank is behind the others."""
    assert result(heartbeats_of(section={2: "data"})) is None


@given(
    step=st.lists(st.integers(98, 101), min_size=4, max_size=4),
    section=st.lists(st.sampled_from(["", "data", "forward", "backward"]), min_size=4, max_size=4),
    silent=st.lists(st.sampled_from([1.0, 60.0]), min_size=4, max_size=4),
    order=st.permutations(range(4)),
)
def test_blame_does_not_depend_on_the_order_of_ranks(
    heartbeats_of: Any, step: list[int], section: list[str], silent: list[float], order: list[int]
) -> None:
    """Renumbered ranks get the same blame; a culprit is never a victim."""

    def by(numbers: list[int]) -> HeartbeatTable:
        at = dict(enumerate(numbers))
        made: HeartbeatTable = heartbeats_of(
            **STALLED,
            step={r: step[n] for r, n in at.items()},
            section={r: section[n] for r, n in at.items()},
            silent_s={r: silent[n] for r, n in at.items()},
        )
        return made

    kind, culprits, victims = result(by([0, 1, 2, 3])) or ("", [], [])
    assert not set(culprits) & set(victims)
    again = result(by(list(order))) or ("", [], [])
    assert again[0] == kind
    assert sorted(order[r] for r in again[1]) == culprits
    assert sorted(order[r] for r in again[2]) == victims
