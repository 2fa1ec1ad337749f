"""From findings to one candidate: in which section, why, how dear."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.candidates import (
    Candidate,
    CostedFindings,
    StepCost,
    spiking,
)
from otel_straggler.detect.verdicts.stalls import Spikes
from otel_straggler.detect.verdicts.track import Track
from otel_straggler.model.observation import Floats, Section

RANKS, STEPS = 8, 100
SECTIONS = [
    Section("data", "data"),
    Section("forward", "compute"),
    Section("backward", "compute"),
]
PRICES_S = np.array([2.0, 0.1, 0.6, 1.3, 2.2])
"""Of the local work, the sections, and the step that lateness is a part of."""
SLOW = 3


def priced(factor: float = 1.0) -> StepCost:
    return StepCost(
        columns_s=np.tile(factor * PRICES_S, (RANKS, 1)), step_s=np.full(RANKS, factor * 2.2)
    )


def tracked(size: dict[int, float]) -> Track:
    """One rank is beyond its peers by so much in these columns, from the 50th step on."""
    excess = np.random.default_rng(0).normal(0.0, 0.01, (STEPS, RANKS, len(PRICES_S)))
    for column, value in size.items():
        excess[50:, SLOW, column] += value
    track = Track((RANKS, len(PRICES_S)), VerdictSettings())
    for at in range(0, STEPS, 5):
        track.observe(excess[at : at + 5])
    return track


def findings(size: dict[int, float], factor: float = 1.0) -> CostedFindings:
    nobody = np.zeros(RANKS, bool)
    return CostedFindings(
        tracked(size), np.zeros(RANKS), priced(factor), SECTIONS, 0.01, was_named=nobody
    )


def named(size: dict[int, float], factor: float = 1.0) -> Candidate:
    costed = findings(size, factor)
    assert np.flatnonzero(costed.flagged.any(axis=1)).tolist() == [SLOW]
    return costed.candidate(SLOW)


def test_the_section_that_holds_most_of_the_loss_is_named() -> None:
    """In forward it takes 1.5 times 0.6 s: 0.3 s of 2 s of work."""
    one = named({0: np.log(2.3 / 2.0), 2: np.log(1.5), 4: np.log(1 + 0.3 / 2.2)})
    assert one.section == SECTIONS[1]
    assert one.cause == "slow_gpu"
    assert np.exp(one.effect) == pytest.approx(1.5, rel=0.02)
    assert (one.peers_s, one.own_s) == pytest.approx((0.6, 0.9), rel=0.02)
    assert one.lost_s == pytest.approx(0.3, rel=0.05)
    assert not one.is_late


def test_a_candidate_is_as_sure_as_the_surest_of_its_findings() -> None:
    """And counts from the least that any of them had to reach."""
    costed = findings({0: 0.2, 2: 0.2, 3: 0.2})
    flagged = costed.flagged[SLOW]
    assert flagged.sum() == 3
    one = costed.candidate(SLOW)
    assert one.z == costed.findings.z[SLOW][flagged].max()
    assert one.floor == costed.findings.floor[SLOW][flagged].min()


def test_where_several_sections_lose_the_whole_step_is_named() -> None:
    """With the cause of those that lose most."""
    gpu = named({0: np.log(1.2), 2: np.log(1.2), 3: np.log(1.2)})
    assert (gpu.section, gpu.cause) == (None, "slow_gpu")
    assert np.exp(gpu.effect) == pytest.approx(1.2, rel=0.02)
    host = named({0: np.log(1.15), 1: np.log(3.0), 2: np.log(1.16)})
    assert (host.section, host.cause) == (None, "slow_host")


def test_time_that_is_in_no_section_is_a_late_arrival() -> None:
    """Others wait for a fifth of a step, and the rank's own sections are as ever."""
    one = named({4: np.log(1.2)})
    assert (one.is_late, one.cause, one.section) == (True, "late_arrival", None)
    assert one.lost_s == pytest.approx(0.2 * 2.2, rel=0.05)


def test_who_is_late_for_a_measured_reason_is_slow() -> None:
    """Half of what it costs lies in a section."""
    one = named({0: np.log(1.15), 2: np.log(1.5), 4: np.log(1 + 0.4 / 2.2)})
    assert not one.is_late


def test_what_costs_less_than_a_hundredth_of_the_step_is_left_out() -> None:
    """Data loading that takes 1.15 times 0.1 s."""
    costed = findings({1: np.log(1.15)})
    assert costed.findings.beyond[SLOW, 1]
    assert not costed.flagged.any()


@settings(max_examples=10)
@given(st.floats(1e-6, 1e6))
def test_a_candidate_does_not_depend_on_the_unit(factor: float) -> None:
    """But for its seconds."""
    size = {0: np.log(2.3 / 2.0), 2: np.log(1.5)}
    here, there = named(size), named(size, factor)
    assert (there.section, there.cause, there.effect) == (here.section, here.cause, here.effect)
    assert there.lost_s == pytest.approx(factor * here.lost_s)
    assert there.own_s == pytest.approx(factor * here.own_s)


def stalling(columns: dict[int, float], prices: StepCost | None = None) -> Candidate:
    lost_s = np.zeros((RANKS, len(PRICES_S)))
    for column, value in columns.items():
        lost_s[SLOW, column] = value
    z, z_limit = np.where(lost_s > 0, 9.0, 0.0), np.full(lost_s.shape[1], 4.0)
    spikes = Spikes(beyond=lost_s > 0.0, z=z, z_limit=z_limit, lost_s=lost_s)
    recent: Floats = np.zeros(len(PRICES_S))
    return spiking(SLOW, spikes, prices or priced(), SECTIONS, recent, lambda *_: None)


def test_stalls_are_named_by_the_section_that_holds_them() -> None:
    """Or by the host: a stall of everything is not the GPU's."""
    data = stalling({0: 0.1, 1: 0.1})
    assert (data.section, data.cause) == (SECTIONS[0], "slow_host")
    assert np.exp(data.effect) == pytest.approx(2.0)
    spread = stalling({0: 0.1, 1: 0.05, 2: 0.05})
    assert (spread.section, spread.cause) == (None, "unknown")
    late = stalling({4: 0.1})
    assert (late.is_late, late.cause) == (True, "late_arrival")


def test_stalls_of_a_job_with_one_section_are_that_sections() -> None:
    """Where there is one, it holds them."""
    lost_s = np.array([[0.1, 0.1, 0.0]])
    z, z_limit = 9.0 * np.ones((1, 3)), np.full(3, 4.0)
    spikes = Spikes(beyond=lost_s > 0.0, z=z, z_limit=z_limit, lost_s=lost_s)
    prices = StepCost(columns_s=np.array([[2.0, 0.1, 2.2]]), step_s=np.array([2.2]))
    one = spiking(0, spikes, prices, SECTIONS[:1], np.zeros(3), lambda *_: None)
    assert one.section == SECTIONS[0]


@pytest.mark.parametrize("price", [0.0, np.nan])
def test_stalls_in_a_section_that_nobody_runs_now_have_no_size(price: float) -> None:
    """They are named by what has a price."""
    prices = priced()
    prices.columns_s[:, 1] = price
    one = stalling({0: 0.1, 1: 0.1}, prices)
    assert one.section is None
    assert np.isfinite(one.effect)
