"""How often DDP is asked to time an iteration: by what that costs, and the same on all ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.client.collectives.ddp_sampling import (
    ALWAYS,
    DECIDES_EVERY,
    FIRST_DECISION,
    LADDER,
    MAX_PART,
    Sampling,
)

US, MS = 1_000, 1_000_000
COSTS = st.integers(0, 10**9)


def after(
    iterations: int, cost_ns: int, iteration_ns: int, sampling: Sampling | None = None,
    first: int = 1,
) -> Sampling:  # fmt: skip
    """What was decided where a sample takes this much more than 50 µs."""
    sampling = sampling or Sampling()
    for iteration in range(first, first + iterations):
        more_ns = cost_ns if sampling.covers(iteration) else 0
        sampling.observe(iteration, iteration_ns, 50 * US + more_ns)
    return sampling


@pytest.mark.parametrize(
    ("cost_ns", "iteration_ns", "rate"),
    [
        (20 * US, 100 * MS, 1),  # a loop that waits for its GPU anyway: the read alone
        (20 * US, 10 * MS, 10),
        (20 * US, 1 * MS, 100),
        (40 * MS, 100 * MS, 100),  # a host that runs ahead would wait for 40 ms each time
        (400 * US, 100 * MS, 10),
        (0, 1 * MS, 1),
        (0, 0, 100),  # how long iterations take is not known
    ],
)
def test_samples_take_at_most_a_thousandth_of_the_time(
    cost_ns: int, iteration_ns: int, rate: int
) -> None:
    """Else DDP samples as it does by itself, every hundredth iteration."""
    assert after(FIRST_DECISION, cost_ns, iteration_ns).rate == rate


@given(COSTS, st.integers(1, 10**10))
def test_whatever_it_costs_the_rate_stays_within_the_budget_or_is_ddps_own(
    cost_ns: int, iteration_ns: int
) -> None:
    """At every decision."""
    sampling = after(500, cost_ns, iteration_ns)
    assert sampling.rate in LADDER
    assert sampling.rate == LADDER[-1] or cost_ns <= MAX_PART * iteration_ns * sampling.rate


@given(st.tuples(COSTS, COSTS), st.integers(1, 10**10))
def test_what_a_rank_samples_rarely_is_a_part_of_what_another_samples_often(
    costs_ns: tuple[int, int], iteration_ns: int
) -> None:
    """So that their samples can be compared without a message."""
    rare, often = sorted(
        (after(FIRST_DECISION, cost_ns, iteration_ns) for cost_ns in costs_ns),
        key=lambda sampling: -sampling.rate,
    )
    covered = [{n for n in range(1, 400) if sampling.covers(n)} for sampling in (rare, often)]
    assert covered[0] <= covered[1]


def test_decisions_are_made_at_the_same_iterations_by_all() -> None:
    """Every hundredth, and once before."""
    sampling = Sampling()
    changed = [
        n
        for n in range(1, 1_000)
        if sampling.observe(n, 100 * MS, 50 * US + (20 * US if n < 450 else 50 * MS))
    ]
    assert changed
    assert all(n == FIRST_DECISION or n % DECIDES_EVERY == 0 for n in changed)


def test_a_rate_at_the_edge_of_the_budget_does_not_change_all_the_time() -> None:
    """It takes half of the cost to sample more often again."""
    sampling = after(FIRST_DECISION, 20 * US, 100 * MS)
    assert sampling.rate == 1
    assert after(100, 90 * US, 100 * MS, sampling, FIRST_DECISION + 1).rate == 1
    assert after(100, 200 * US, 100 * MS, sampling, 121).rate == 10
    assert after(300, 90 * US, 100 * MS, sampling, 221).rate == 10


def test_slow_first_iterations_say_nothing() -> None:
    """Whatever was compiled or tuned in them."""
    sampling = Sampling()
    for iteration in range(1, FIRST_DECISION + 1):
        is_warm = iteration > 5
        spent_ns = 20 * US if is_warm else 10**10
        sampling.observe(iteration, 100 * MS if is_warm else 10**10, spent_ns)
    assert sampling.rate == 1
    assert ALWAYS > 5
