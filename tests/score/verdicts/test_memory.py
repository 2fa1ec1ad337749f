"""What outlives a world of ranks."""

from __future__ import annotations

import numpy as np
import pytest

from otel_straggler.collector.history.codec import decode_blob, encode_blob
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.memory import Memory, Tracks
from otel_straggler.detect.verdicts.run_engine import OwnPast
from otel_straggler.detect.verdicts.world import World

from .worlds import by_hand, ranks, take_ranks, usual, world_of

HOUR_NS = 3600 * 10**9
NOBODY = np.zeros(8, bool), np.zeros(1, bool)


def tracks_of(world: World, excess: float = 0.0, rank: int = 3) -> Tracks:
    """Twenty steps in which one rank is beyond the others."""
    tracks = Tracks.of(world, VerdictSettings())
    steps = np.random.default_rng(0).normal(0, 0.005, (20, world.n_ranks, len(world.sections) + 2))
    steps[:, rank] += excess
    for at in range(0, 20, 5):
        tracks.ranks.observe(steps[at : at + 5])
    return tracks


def learned(world: World, memory: Memory, held: tuple[np.ndarray, np.ndarray] = NOBODY) -> Memory:
    for hour in range(4):
        memory.learn(tracks_of(world, 0.04), world, held, hour * HOUR_NS)
    return memory


def reference(memory: Memory, world: World) -> np.ndarray:
    tracks = Tracks.of(world, VerdictSettings())
    memory.seed(tracks, world, 4 * HOUR_NS)
    return tracks.ranks.reference


def world(n: int = 8) -> World:
    (table,) = by_hand(usual(5, n))
    return world_of(table)


def stored(memory: Memory, tracks: Tracks | None = None) -> Memory:
    """As after a restart."""
    there = Memory()
    there.restore(decode_blob(encode_blob(memory.state(tracks, world())), where="test"))
    return there


def test_what_is_normal_for_a_device_survives() -> None:
    """A restart of the collector, and a new world with the same devices."""
    memory = learned(world(), Memory())
    for remembered in (memory, stored(memory)):
        result = reference(remembered, world())
        assert result[3] == pytest.approx(0.04, abs=0.005)
        assert result[0] == pytest.approx(0.0, abs=0.005)


def test_what_is_normal_goes_with_the_device_and_not_with_the_rank() -> None:
    """Renumbered, the other way round."""
    there = world_of(by_hand(usual(5, 8), sources=ranks(8)[::-1])[0])
    result = reference(learned(world(), Memory()), there)
    assert result[4] == pytest.approx(0.04, abs=0.005)
    assert result[3] == pytest.approx(0.0, abs=0.005)


def test_who_is_in_trouble_teaches_nothing() -> None:
    """Slowness does not become normal."""
    held = np.arange(8) == 3
    result = reference(learned(world(), Memory(), (held, NOBODY[1])), world())
    assert np.isnan(result[3]).all()
    assert np.isfinite(result[2]).all()


def test_devices_that_are_new_have_no_past() -> None:
    """Only they."""
    memory = learned(world(4), Memory(), (np.zeros(4, bool), NOBODY[1]))
    result = reference(memory, world(8))
    assert np.isnan(result[4:]).all()
    assert np.isfinite(result[:4]).all()


def test_the_statistic_of_an_onset_goes_on_once() -> None:
    """After a restart, by device and quantity; a later world begins at 0."""
    tracks = tracks_of(world(), 0.2)
    assert tracks.ranks.g[3].max() > 5.0
    memory = stored(Memory(), tracks)
    part = world_of(take_ranks(by_hand(usual(5, 8))[0], [3, 0]))
    seeded = Tracks.of(part, VerdictSettings())
    memory.seed(seeded, part, 0)
    np.testing.assert_array_equal(seeded.ranks.g[0], tracks.ranks.g[3])
    np.testing.assert_array_equal(seeded.ranks.g[1], tracks.ranks.g[0])
    again = Tracks.of(part, VerdictSettings())
    memory.seed(again, part, 0)
    assert not again.ranks.g.any()


def test_a_collector_that_dies_before_its_first_block_hands_on_what_it_was_given() -> None:
    """The statistic of an onset too."""
    tracks = tracks_of(world(), 0.2)
    memory = stored(stored(Memory(), tracks))
    seeded = Tracks.of(world(), VerdictSettings())
    memory.seed(seeded, world(), 0)
    np.testing.assert_array_equal(seeded.ranks.g, tracks.ranks.g)


def test_what_is_normal_for_groups_survives() -> None:
    """Their work, their waiting and their step."""
    memory, past = Memory(), OwnPast((1, 3))
    past.reference[:] = [[0.1, 0.2, 0.3]]
    for hour in range(4):
        memory.learn_groups(past.reference, world(), hour * HOUR_NS)
    there = OwnPast((1, 3))
    there.seed(stored(memory).group_reference(world(), 4 * HOUR_NS))
    np.testing.assert_allclose(there.reference, [[0.1, 0.2, 0.3]])
