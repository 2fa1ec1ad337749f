"""Ranks and sections, each with its place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.scores.medians import Groups
from otel_straggler.detect.verdicts.world import World

from .worlds import by_hand, ranks, silent, take_ranks, take_sections, usual, with_sources, world_of


@settings(max_examples=25)
@given(st.permutations(range(6)), st.permutations(range(3)), st.integers(1, 6), st.integers(1, 3))
def test_a_table_is_put_in_the_order_of_the_world(
    rows: list[int], columns: list[int], n_rows: int, n_columns: int
) -> None:
    """Whatever order it has, and whoever is missing."""
    (table,) = by_hand(usual(5, 6))
    world = world_of(table)
    part = take_sections(take_ranks(table, rows[:n_rows]), columns[:n_columns])
    assert not world.update(part)
    aligned = world.align(part)
    assert aligned.sources == table.sources
    assert aligned.sections == table.sections
    there = np.ix_(range(5), sorted(rows[:n_rows]), sorted(columns[:n_columns]))
    np.testing.assert_array_equal(aligned.seconds[there], table.seconds[there])
    np.testing.assert_array_equal(aligned.runs[there], table.runs[there])
    assert np.isfinite(aligned.seconds).sum() == 5 * n_rows * n_columns
    assert (aligned.runs > 0).sum() == 5 * n_rows * n_columns
    known = sorted(rows[:n_rows])
    np.testing.assert_array_equal(aligned.start_ns[:, known], table.start_ns[:, known])
    assert (aligned.end_ns > 0).sum() == 5 * n_rows


def test_ranks_and_sections_that_appear_get_places_of_their_own() -> None:
    """And those that were there keep theirs."""
    (table,) = by_hand(usual(5, 4))
    world = world_of(take_sections(take_ranks(table, [2, 0]), [1]))
    assert world.update(table)
    assert [source.rank for source in world.sources] == [2, 0, 1, 3]
    assert [section.name for section in world.sections] == ["forward", "data", "sync"]
    np.testing.assert_array_equal(world.align(table).seconds[:, 0, 0], table.seconds[:, 2, 1])


@pytest.mark.parametrize(
    ("change", "is_other"),
    [
        ({"session_id": "new"}, False),
        ({"world_size": 99}, False),
        ({"role": "critic"}, True),
        ({"parallel": (("pipeline", 1),)}, True),
        ({"node": "elsewhere"}, True),
        ({"device": "GPU-1"}, True),
    ],
)
def test_a_world_is_another_when_places_change(change: dict[str, object], is_other: bool) -> None:
    """A rank that sits elsewhere has another memory; a late word about something else has not."""
    (table,) = by_hand(usual(5, 4))
    world = world_of(table)
    reported = with_sources(table, lambda s: replace(s, **change) if s.rank == 1 else s)  # type: ignore[arg-type]
    assert world.update(reported) == is_other
    assert world.sources[1] == reported.sources[1]


def test_ranks_without_a_node_are_hosts_of_their_own() -> None:
    """Not all on one host without a name."""
    (table,) = by_hand(usual(5, 4), sources=[replace(s, node="") for s in ranks(4)])
    assert len(world_of(table).hosts) == 4


def test_subjects_lead_back_to_their_rows() -> None:
    """For ranks and hosts, in a named group too."""
    sources = [replace(s, group="actor") for s in ranks(4, per_node=2)]
    (table,) = by_hand(usual(5, 4), sources=sources)
    world = world_of(table)
    assert [world.row_of_rank[name] for name in world.rank_subjects] == [0, 1, 2, 3]
    assert list(world.row_of_host) == ["actor:host/node-0", "actor:host/node-1"]
    assert world.is_reported


def test_the_size_that_was_told_last_is_expected() -> None:
    """0 is not told."""
    (table,) = by_hand(usual(5, 4), world_size=16)
    world = world_of(table)
    world.update(replace(table, world_size=0))
    assert world.expected == 16


def test_inferred_roles_are_dropped_when_ranks_are_others() -> None:
    """They were read from other ranks' times."""
    (table,) = by_hand(usual(5, 6), sources=[silent(source) for source in ranks(6)])
    world: World = world_of(take_ranks(table, range(5)))
    world.use_inferred(Groups.of([0, 0, 1, 1, 1]))
    assert world.is_inferred
    world.update(table)
    assert not world.is_inferred
    assert len(world.peers) == 1
