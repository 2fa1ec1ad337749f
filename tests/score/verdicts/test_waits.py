"""Culprit and victims from durations alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.scores.medians import Groups
from otel_straggler.detect.verdicts.waits import WaitDetector, WaitLedger, lateness
from otel_straggler.model.observation import Section

SEEDS = st.integers(0, 2**32 - 1)
FORWARD, BACKWARD = Section("forward", "compute"), Section("backward", "compute")
ALL = Groups.of([0] * 8)


def work(seed: int, steps: int = 20, ranks: int = 8) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).normal(0.0, 0.03, (steps, ranks, 2)))


def meeting(seconds: np.ndarray) -> np.ndarray:
    """Backward ends for all when the last has come."""
    total = seconds.sum(axis=2)
    waited = total.max(axis=1, keepdims=True) - total
    return np.stack([seconds[..., 0], seconds[..., 1] + waited], axis=2)


def observe(seconds: np.ndarray, sections: list[Section] | None = None) -> WaitDetector:
    result = WaitDetector()
    late_s = seconds - np.nanmedian(seconds, axis=1, keepdims=True)
    for at in range(0, len(late_s), 5):
        result.observe(late_s[at : at + 5], sections or [FORWARD, BACKWARD])
    return result


@settings(max_examples=20)
@given(SEEDS, st.floats(1e-6, 1e6))
def test_a_section_in_which_ranks_meet_is_found_by_its_times(seed: int, factor: float) -> None:
    """Also where nobody said that it waits, in every unit, whatever the order of ranks is."""
    seconds = factor * meeting(work(seed))
    assert observe(seconds).behaves == {"backward"}
    order = np.random.default_rng(seed).permutation(8)
    assert observe(seconds[:, order]).behaves == {"backward"}


@settings(max_examples=20)
@given(SEEDS)
def test_local_work_does_not_wait(seed: int) -> None:
    """Ranks that are a little slow for ever do not look like ranks that wait."""
    offsets = np.exp(np.random.default_rng(seed).normal(0, 0.02, (1, 8, 1)))
    assert observe(work(seed) * offsets).behaves == set()


def test_a_section_that_waits_no_more_is_local_again() -> None:
    """After a change of the configuration, within some blocks."""
    seconds = np.concatenate([meeting(work(0)), work(1, 300)])
    assert observe(seconds).behaves == set()


@settings(max_examples=20)
@given(SEEDS, st.integers(0, 7), st.floats(1.05, 3.0))
def test_the_work_of_a_slow_rank_does_not_wait_although_it_waited_little_before(
    seed: int, rank: int, factor: float
) -> None:
    """A step that begins with the waiting for the one before: short there, long afterwards."""
    seconds = work(seed, 60)
    seconds[:, rank, 1] *= factor
    total = seconds.sum(axis=2)
    waited = total.max(axis=1, keepdims=True) - total
    seconds = np.stack([0.1 + waited[:-1], seconds[1:, :, 0], seconds[1:, :, 1]], axis=2)
    for kind in ("wait", "compute"):
        sections = [Section("sync", kind), FORWARD, BACKWARD]
        assert not observe(seconds, sections).behaves & {"forward", "backward"}


def test_a_block_of_no_steps_changes_nothing() -> None:
    detector = observe(meeting(work(0)))
    before = set(detector.behaves)
    assert not detector.observe(np.empty((0, 8, 2)), [FORWARD, BACKWARD])
    assert detector.behaves == before


def test_a_section_waits_if_it_says_so() -> None:
    """And a checkpoint never does, whatever its times are."""
    result = observe(meeting(work(0)), [FORWARD, Section("backward", "checkpoint")])
    assert result.behaves == set()
    assert result.waits(Section("sync", "wait"))
    assert not result.waits(FORWARD)


@pytest.mark.parametrize(
    "seconds", [np.zeros((20, 8, 2)), np.full((20, 8, 2), np.nan), np.ones((20, 1, 2))]
)
def test_nothing_can_be_said_where_all_are_equal(seconds: np.ndarray) -> None:
    """Zeros, no time, one rank."""
    assert observe(np.nan_to_num(seconds)).behaves == set()


@settings(max_examples=20)
@given(SEEDS, st.integers(0, 7), st.floats(0.0, 5.0))
def test_who_comes_later_is_no_less_late(seed: int, rank: int, more: float) -> None:
    """Its peers wait longer, and are no later than before."""
    arrived = work(seed).sum(axis=2)
    later = arrived.copy()
    later[:, rank] += more
    before, after = (
        lateness(a.max(axis=1, keepdims=True) - a, np.full(a.shape, 2.0), ALL)
        for a in (arrived, later)
    )
    others = np.arange(8) != rank
    assert (after[:, rank] >= before[:, rank] - 1e-9).all()
    assert (after[:, others] <= before[:, others] + 1e-9).all()


def test_lateness_is_a_part_of_the_step() -> None:
    """The peers wait a fifth of a step for the one that does not wait; nobody is earlier than
    nine tenths of a step."""
    waited_s = np.array([[0.0, 0.4, 0.4, 0.4, 90.0]])
    result = lateness(waited_s, np.full((1, 5), 2.0), Groups.of([0] * 5))
    np.testing.assert_allclose(result, np.log([[1.2, 1.0, 1.0, 1.0, 0.1]]))


@settings(max_examples=20)
@given(SEEDS, st.floats(1e-6, 1e6))
def test_the_ledger_adds_up_whatever_the_unit_and_the_order(seed: int, factor: float) -> None:
    """What was suffered is each time over the shortest; somebody caused it."""
    waited_s = factor * np.random.default_rng(seed).random((10, 8))
    names = [f"rank/{row}" for row in range(8)]
    ledger = WaitLedger()
    ledger.add(names, waited_s, ALL)
    over = waited_s - waited_s.min(axis=1, keepdims=True)
    assert sum(ledger.suffered_s.values()) == pytest.approx(over.sum())
    assert sum(ledger.caused_s.values()) == pytest.approx(np.median(over, axis=1).sum())
    order = np.random.default_rng(seed).permutation(8)
    other = WaitLedger()
    other.add([names[row] for row in order], waited_s[:, order], ALL)
    assert other.caused_s == pytest.approx(ledger.caused_s)
    assert other.suffered_s == pytest.approx(ledger.suffered_s)


def test_who_comes_last_has_caused_what_its_peers_waited() -> None:
    """In each group of peers; a rank that sent nothing is not to blame."""
    waited_s = np.array([[0.0, 2.0, 3.0, np.nan, 1.0, 1.5], [5.0, 1.0, 3.0, np.nan, 1.0, 1.0]])
    ledger = WaitLedger()
    ledger.add([f"r{row}" for row in range(6)], waited_s, Groups.of([0, 0, 0, 1, 1, 1]))
    assert ledger.caused_s == {"r0": 2.0, "r1": 2.0, "r2": 0.0, "r3": 0.0, "r4": 0.25, "r5": 0.0}
    assert ledger.suffered_s == {"r0": 4.0, "r1": 2.0, "r2": 5.0, "r3": 0.0, "r4": 0.0, "r5": 0.5}


def test_a_rank_without_peers_waits_for_nobody() -> None:
    """Its collective has no other side here."""
    ledger = WaitLedger()
    ledger.add(["r0", "r1"], np.ones((3, 2)), Groups.of([0, 1]))
    assert set(ledger.caused_s.values()) == {0.0}
