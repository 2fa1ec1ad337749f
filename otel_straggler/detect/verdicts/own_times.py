"""Own time of ranks in the steps of one table, for charts: by the clocks that verdicts go by."""

from __future__ import annotations

from otel_straggler.detect.verdicts.clocks import (
    ClockSelector,
    chosen_seconds,
    without_shared_gpus,
)
from otel_straggler.detect.verdicts.world import World
from otel_straggler.model.observation import Floats
from otel_straggler.model.step_table import StepTable


def own_seconds(table: StepTable) -> Floats:
    """(T, R, S) seconds of own work: without waiting in collectives, or on the GPU, where nearly
    all peers report that; else the whole duration. NaN where a rank ran nothing, or lacks the clock
    of its peers. Of sections that wait it is the waiting.

    Cost: O(T R S), nothing without such times.
    """
    if table.gpu is None:
        return table.seconds
    world = World()
    world.update(table)
    block = without_shared_gpus(world.align(table), world.shares_gpu)
    clocks = ClockSelector()
    clocks.learn(block, world)
    return chosen_seconds(block, world, clocks.basis[world.peers.code])
