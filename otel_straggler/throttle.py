"""How often something may happen: log lines, spans for others, work that costs processor time; and
how many strangers may wait at a door."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

Visitor = TypeVar("Visitor", bound=Hashable)


class Throttle:
    """Lets in what a rate has room for. What is let in may take more than was left: what comes next
    then waits. For one thread; two may lose each other's spending now and then.

    Args:
        per_s: units that may be spent in a second on average: times, spans, processor seconds.
        burst: units beyond that which may be spent at once after a quiet while.
        now_s, cpu_s: clocks; the second of the thread that does the work.
        counts_typical: of the processor times of the last two works the shorter one is spent: what
            else the interpreter did meanwhile, such as collecting garbage, is no reason to wait for
            a multiple of it.
        spare_per_s, spare_s: what would be let in again sooner is spent at this lower rate, as long
            as nobody waits longer than ``spare_s`` for that.

    >>> throttle = Throttle(per_s=0.5, now_s=iter((0.0, 1.0, 2.0, 3.0)).__next__)
    >>> [throttle.passes() for _ in range(4)]
    [True, False, True, False]
    """

    def __init__(
        self,
        per_s: float,
        burst: float = 0.0,
        *,
        now_s: Callable[[], float] = time.monotonic,
        cpu_s: Callable[[], float] = time.thread_time,
        counts_typical: bool = False,
        spare_per_s: float = math.inf,
        spare_s: float = 0.0,
    ) -> None:
        self._s_per_unit = 1.0 / per_s
        self._credit_s = burst / per_s
        self._now_s = now_s
        self._cpu_s = cpu_s
        self._counts_typical = counts_typical
        self._spare_s_per_unit = 1.0 / spare_per_s
        self._spare_s = spare_s
        self._last_cpu_s = math.inf
        self._paid_until_s = self._latest_s = -math.inf

    def wait_s(self, at_s: float | None = None) -> float:
        """Seconds until there is room; 0 if there is.

        Args:
            at_s: on whatever clock, instead of now; one that goes back counts as standing still.
        """
        self._latest_s = max(self._latest_s, self._now_s() if at_s is None else at_s)
        self._paid_until_s = max(self._paid_until_s, self._latest_s - self._credit_s)
        return max(0.0, self._paid_until_s - self._latest_s)

    def spend(self, units: float) -> None:
        """What was let in took so much."""
        spare_s = min(units * self._spare_s_per_unit, self._spare_s)
        self._paid_until_s += max(units * self._s_per_unit, spare_s)

    def passes(self) -> bool:
        """Whether it may happen once now; if so, that is spent."""
        has_room = self.wait_s() == 0.0
        if has_room:
            self.spend(1.0)
        return has_room

    @contextmanager
    def spending_cpu(self) -> Iterator[None]:
        """Spend the processor seconds that the work within takes, also if it fails."""
        self.wait_s()
        began_s = self._cpu_s()
        try:
            yield
        finally:
            took_s = self._cpu_s() - began_s
            self.spend(min(took_s, self._last_cpu_s) if self._counts_typical else took_s)
            self._last_cpu_s = took_s


class Places(Generic[Visitor]):
    """Places for connections that have not proved yet who they are: few, and fewer for each
    address. A newcomer always gets one: the oldest of its address gives way, else the oldest of the
    address that has most. So who floods takes places from itself. For one thread.

    Args:
        all_of_them, of_one: places, and those that one address may have.

    >>> places = Places[str](all_of_them=3, of_one=2)
    >>> [places.enter(name, name[0]) for name in ("a1", "a2", "a3", "b1", "c1")]
    [None, None, 'a1', None, 'a2']
    """

    def __init__(self, all_of_them: int, of_one: int) -> None:
        self._all, self._of_one = all_of_them, of_one
        self._address_of: dict[Visitor, Hashable] = {}
        self._count = Counter[Hashable]()

    def __len__(self) -> int:
        return len(self._address_of)

    def __iter__(self) -> Iterator[Visitor]:
        """Those that have a place."""
        return iter(self._address_of)

    def __contains__(self, visitor: object) -> bool:
        return visitor in self._address_of

    def enter(self, visitor: Visitor, address: Hashable) -> Visitor | None:
        """Give it a place; who has to go for that, and has no place from now on."""
        gone = None
        if self._count[address] >= self._of_one:
            gone = self._oldest_of(address)
        elif len(self) >= self._all:
            gone = self._oldest_of(self._count.most_common(1)[0][0])
        if gone is not None:
            self.leave(gone)
        self._address_of[visitor] = address
        self._count[address] += 1
        return gone

    def leave(self, visitor: Visitor) -> None:
        """It has proved who it is, or has gone. Safe to call twice."""
        address = self._address_of.pop(visitor, None)
        if address is not None:
            self._count[address] -= 1
            if not self._count[address]:
                del self._count[address]

    def _oldest_of(self, address: Hashable) -> Visitor:
        return next(who for who, its in self._address_of.items() if its == address)
