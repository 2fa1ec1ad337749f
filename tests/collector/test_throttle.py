"""How often something may happen."""

from __future__ import annotations

import pytest

from otel_straggler.throttle import Throttle


class Clock:
    """A clock that a test sets."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_what_takes_long_by_chance_does_not_count() -> None:
    """Of the last two works the shorter one does; one that goes on to take long counts."""
    now, cpu = Clock(), iter((0.0, 10.0, 100.0, 600.0, 700.0, 1_200.0))
    throttle = Throttle(0.1, now_s=now, cpu_s=cpu.__next__, counts_typical=True)
    due = []
    for at_s in (0.0, 1_000.0, 2_000.0):
        now.now_s = at_s
        with throttle.spending_cpu():
            pass
        now.now_s = at_s + 100.0
        due.append(throttle.wait_s() == 0.0)
    assert due == [True, True, False]


def test_work_that_fails_is_spent_too() -> None:
    """It took as long."""
    throttle = Throttle(0.25, now_s=Clock(), cpu_s=iter((0.0, 1.0)).__next__)
    try:
        with throttle.spending_cpu():
            raise KeyError
    except KeyError:
        assert throttle.wait_s() == 4.0


def test_a_burst_is_what_was_saved_and_no_more() -> None:
    """After however long a while."""
    now = Clock()
    throttle = Throttle(2.0, burst=1.0, now_s=now)
    assert [throttle.passes() for _ in range(3)] == [True, True, False]
    now.now_s += 1_000.0
    assert [throttle.passes() for _ in range(3)] == [True, True, False]


def test_what_is_let_in_may_overdraw() -> None:
    """The rest waits for it."""
    throttle = Throttle(2.0, burst=1.0)
    assert throttle.wait_s(0.0) == 0.0
    throttle.spend(5.0)
    assert [throttle.wait_s(at_s) > 0.0 for at_s in (0.0, 1.0, 2.0)] == [True, True, False]


def test_a_clock_that_goes_back_stands_still() -> None:
    """Nobody waits longer for it."""
    throttle = Throttle(1.0)
    throttle.wait_s(100.0)
    throttle.spend(1.0)
    assert throttle.wait_s(50.0) == 1.0
    assert throttle.wait_s(101.0) == 0.0


def test_what_is_cheap_happens_at_a_lower_rate_but_not_much_later() -> None:
    """A work of 10 ms at 10 % may happen again after 0.1 s, at 2 % after 0.5 s; one of 60 ms would
    be after 3 s, and is after 1 s; one of 0.2 s after 2 s, as it must."""
    for work_s, after_s in ((0.01, 0.5), (0.06, 1.0), (0.2, 2.0)):
        throttle = Throttle(0.1, now_s=lambda: 5.0, spare_per_s=0.02, spare_s=1.0)
        assert throttle.wait_s() == 0.0
        throttle.spend(work_s)
        assert throttle.wait_s() == pytest.approx(after_s)
