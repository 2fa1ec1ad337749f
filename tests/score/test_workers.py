"""Ranks as workers of a pipeline, and their compute time in tables of steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from otel_straggler.detect.verdicts.pipeline import find_workers, microbatches_of, worker_seconds
from otel_straggler.model.rank import Source

from .step_tables import step_table

TRAINING = {"forward": "compute", "backward": "compute", "all_reduce": "wait", "adam": "compute"}
MEGATRON = [(("data", d), ("pipeline", p)) for p in range(2) for d in range(3)]


def ranks(*parallel: dict[str, int]) -> list[Source]:
    return [
        Source(run_id="r", rank=i, parallel=tuple(each.items())) for i, each in enumerate(parallel)
    ]


def test_tensor_ranks_of_a_worker_share_its_place() -> None:
    """Four ranks, two workers."""
    result = find_workers(ranks(*(
        {"data": d, "pipeline": 0, "tensor": t} for d in (0, 1) for t in (0, 1)
    )))  # fmt: skip
    assert result is not None
    assert result.shape == (2, 1)
    assert result.ranks_of(1, 0).tolist() == [2, 3]


def test_ranks_without_any_dimension_are_data_ranks() -> None:
    """Plain data parallel: one stage."""
    result = find_workers(ranks({}, {}, {}))
    assert result is not None
    assert (result.shape, result.data.tolist()) == ((3, 1), [0, 1, 2])


def test_ranks_that_tell_no_data_rank_are_numbered_within_their_tensor_rank() -> None:
    """Tensor ranks of a worker stay together."""
    result = find_workers(ranks(*({"pipeline": 0, "tensor": t} for t in (0, 1, 0, 1))))
    assert result is not None
    assert result.data.tolist() == [0, 0, 1, 1]


def test_data_ranks_need_not_begin_at_zero() -> None:
    """A part of the job reports: ranks 4 and 6 of the data dimension."""
    result = find_workers(ranks({"data": 6}, {"data": 4}))
    assert result is not None
    assert (result.data_ranks, result.data.tolist()) == ((4, 6), [1, 0])


@pytest.mark.parametrize("parallel", [
    ({"pipeline": 0}, {}), ({"data": 0, "pipeline": 0}, {"pipeline": 1}),
])  # fmt: skip
def test_a_layout_that_only_some_ranks_tell_is_none(parallel: tuple[dict[str, int], ...]) -> None:
    """Half a map is worse than none."""
    assert find_workers(ranks(*parallel)) is None


def test_several_roles_without_stages_are_no_pipeline() -> None:
    """Trainer and sampler are not workers of one another; no rank at all is nothing either."""
    assert find_workers([Source(run_id="r", rank=i, role=f"role-{i}") for i in (0, 1)]) is None
    assert find_workers([]) is None


def test_forward_and_backward_count_and_waiting_and_the_optimizer_do_not() -> None:
    """What runs once a step is not part of a schedule of 8 microbatches."""
    seconds = np.broadcast_to([1.0, 2.0, 50.0, 7.0], (3, 6, 4))
    table = step_table(seconds, TRAINING, runs=[8, 8, 1, 1], parallel=MEGATRON)
    workers = find_workers(table.sources)
    assert workers is not None
    assert worker_seconds(table, workers).tolist() == np.full((3, 3, 2), 3.0).tolist()
    assert microbatches_of(table, workers) == 8


def test_without_stages_all_compute_counts() -> None:
    """There is no schedule; the slowest rank decides."""
    seconds = np.broadcast_to([1.0, 2.0, 50.0, 7.0], (3, 2, 4))
    table = step_table(seconds, TRAINING, runs=[8, 8, 1, 1])
    workers = find_workers(table.sources)
    assert workers is not None
    assert worker_seconds(table, workers).tolist() == np.full((3, 2, 1), 10.0).tolist()


def test_the_microbatches_of_whole_steps_are_assumed_and_that_is_said() -> None:
    """Four per stage, so that a bubble of no job at all (one microbatch) is not taken as real."""
    table = step_table(np.ones((2, 6, 4)), TRAINING, parallel=MEGATRON)
    workers = find_workers(table.sources)
    assert workers is not None
    assert microbatches_of(table, workers) == 8


def test_a_rank_that_told_half_of_its_sections_is_unknown_in_that_step() -> None:
    """Backward is missing: the worker is not twice as fast. Its tensor peer stands in."""
    seconds = np.ones((4, 4, 2))
    seconds[1, 0, 1] = np.nan
    seconds[2, 2:, 1] = np.nan
    parallel = [(("data", r // 2), ("tensor", r % 2)) for r in range(4)]
    sections = {"forward": "compute", "backward": "compute"}
    table = step_table(seconds, sections, parallel=parallel)
    workers = find_workers(table.sources)
    assert workers is not None
    result = worker_seconds(table, workers)[:, :, 0]
    assert result[1].tolist() == [2.0, 2.0]
    assert np.isnan(result[2]).tolist() == [False, True]


def test_a_section_that_only_some_stages_have_makes_nobody_unknown() -> None:
    """The last stage computes the loss."""
    seconds = np.ones((4, 6, 2))
    seconds[:, :3, 1] = np.nan
    sections = {"forward": "compute", "loss": "compute"}
    table = step_table(seconds, sections, runs=[4, 4], parallel=MEGATRON)
    workers = find_workers(table.sources)
    assert workers is not None
    assert worker_seconds(table, workers)[0].tolist() == [[1.0, 2.0]] * 3


def test_without_a_compute_section_no_worker_is_known() -> None:
    """All NaN."""
    table = step_table(np.ones((2, 2, 1)), {"all_reduce": "wait"})
    workers = find_workers(table.sources)
    assert workers is not None
    assert np.isnan(worker_seconds(table, workers)).all()
    assert microbatches_of(table, workers) == 1


def test_the_commonest_number_of_runs_is_that_of_the_microbatches() -> None:
    """A step that was cut short, or of which telemetry was lost, does not change it."""
    table = step_table(np.ones((5, 2, 4)), TRAINING, runs=[8, 8, 1, 1])
    runs = table.runs.copy()
    runs[0, 0, :2], runs[1, 1, :2] = 3, 0
    workers = find_workers(ranks({"data": 0, "pipeline": 0}, {"data": 0, "pipeline": 1}))
    assert workers is not None
    assert microbatches_of(replace(table, runs=runs), workers) == 8
    often = replace(table, runs=np.where(runs > 3, 3, runs + 5).astype(np.int32))
    assert microbatches_of(often, workers) == 6  # of an optimizer that runs as often
