"""Ways that take turns within one run, so that all see the same noise of the machine."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping

Way = Callable[[], object]


def take_turns(
    ways: Mapping[str, Way],
    rounds: int,
    clock_ns: Callable[[], int],
    *,
    before: Callable[[], object] = list,
    before_each: Callable[[], object] = list,
    after_each: Callable[[], object] = list,
) -> dict[str, list[int]]:
    """Nanoseconds of each way in each round; every second round in the opposite order.

    Args:
        ways: what to measure, by name.
        rounds: of all ways.
        clock_ns: of the wall or of the processor.
        before: a round. Garbage is collected then, too.
        before_each, after_each: way, outside of its time.
    """
    taken: dict[str, list[int]] = {name: [] for name in ways}
    for at in range(rounds):
        before()
        gc.collect()
        for name in list(ways) if at % 2 else reversed(list(ways)):
            before_each()
            begin_ns = clock_ns()
            ways[name]()
            taken[name].append(clock_ns() - begin_ns)
            after_each()
    return taken
