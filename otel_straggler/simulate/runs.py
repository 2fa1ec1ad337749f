"""Runs of any size with known faults, made some steps at a time.

Local work is drawn first; then the ranks wait for each other as in a real run. The same plan gives
the same numbers, whatever the size of the blocks in which they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b

from otel_straggler.model.observation import ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable
from otel_straggler.simulate.blocks import make_blocks
from otel_straggler.simulate.faults import Fault
from otel_straggler.simulate.labels import Label, build_labels, node_name
from otel_straggler.simulate.layout import Layout
from otel_straggler.simulate.noise import Draws
from otel_straggler.simulate.plan import RunPlan
from otel_straggler.simulate.rows import build_rows
from otel_straggler.simulate.sensors import GPU_MODEL, gpu_uuid
from otel_straggler.simulate.tables import build_table
from otel_straggler.simulate.timeline import Attempt, build_timeline

__all__ = ["Fault", "Label", "Layout", "RunPlan", "SimulatedRun", "generate"]


class SimulatedRun:
    """A run that is made when it is read; reading it twice gives the same twice.

    Attributes:
        plan: what was asked for.
        labels: what is wrong with it.
    """

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self._draws = Draws(plan.seed)
        self._timeline = build_timeline(plan, self._draws)
        self.labels: tuple[Label, ...] = build_labels(plan, self._timeline)
        self._sources = tuple(_sources(plan, attempt) for attempt in self._timeline.attempts)

    @property
    def sources(self) -> tuple[Source, ...]:
        """Ranks of the newest attempt."""
        return self._sources[-1]

    def tables(self, block_steps: int = 5) -> Iterator[StepTable]:
        """Tables of up to so many steps; none reaches over a restart.

        Memory: one table at a time, about 200 bytes x steps x ranks.
        """
        for block in make_blocks(self.plan, self._draws, self._timeline, block_steps):
            yield build_table(self.plan, block, self._sources[block.attempt.number])

    def batches(
        self, steps_at_once: int = 20, *, counts_microbatches: bool = False
    ) -> Iterator[ObservationBatch]:
        """The same run as rows, in order of their starts within a batch.

        Args:
            steps_at_once: steps of a batch; none reaches over a restart.
            counts_microbatches: forward and backward are one row with a count in ``runs``;
                otherwise one row for each microbatch.

        Memory: one batch at a time, about 200 bytes a row.
        """
        for block in make_blocks(self.plan, self._draws, self._timeline, steps_at_once):
            sources = self._sources[block.attempt.number]
            yield build_rows(self.plan, block, sources, counts_microbatches=counts_microbatches)


def generate(plan: RunPlan) -> SimulatedRun:
    """Make the run of a plan.

    >>> run = generate(RunPlan(layout=Layout(dp=4), steps=10,
    ...                        faults=(Fault.parse("compute:1.5@rank2:step5"),)))
    >>> [table.seconds.shape for table in run.tables()], sorted(run.labels[0].ranks)
    ([(5, 4, 5), (5, 4, 5)], [2])
    """
    return SimulatedRun(plan)


def _sources(plan: RunPlan, attempt: Attempt) -> tuple[Source, ...]:
    return tuple(_source(plan, attempt, rank) for rank in range(plan.layout.ranks))


def _source(plan: RunPlan, attempt: Attempt, rank: int) -> Source:
    slot = int(attempt.slot[rank])
    session = f"{plan.seed}|{plan.run_id}|{plan.start_ns}|{attempt.number}|{rank}"
    source = Source(
        run_id=plan.run_id,
        rank=rank,
        job="simulation",
        attempt=attempt.number,
        node=node_name(plan, slot),
        session_id=blake2b(session.encode(), digest_size=8).hexdigest(),
        local_rank=slot % plan.ranks_per_node,
        world_size=plan.layout.ranks,
        parallel=plan.layout.place(rank) if plan.tells_topology else (),
    )
    if not plan.tells_hardware:
        return source
    return replace(source, device=gpu_uuid(source), device_model=GPU_MODEL)
