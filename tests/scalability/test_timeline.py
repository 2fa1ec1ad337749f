"""Where the time of a GPU goes: unions of intervals, and traces of torch.profiler."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.model.observation import kernel_class_of
from otel_straggler.recordings.trace_events import read_traces
from otel_straggler.scalability.gpu_traces import rank_trace
from otel_straggler.scalability.inputs import read_kineto_traces
from otel_straggler.scalability.timeline import COMMUNICATION, COMPUTE, MEMORY, Union, time_shares

from ..recordings.shared_data import shared
from .made import kernel, step, trace_text

_INTERVALS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(-2, 12)).map(lambda each: (each[0], sum(each))),
    max_size=12,
)


def covered(intervals: list[tuple[int, int]]) -> set[int]:
    return {at for begin, end in intervals for at in range(begin, end)}


def union(intervals: list[tuple[int, int]]) -> Union:
    columns = np.array(intervals, float).reshape(-1, 2)
    return Union.of(columns[:, 0], columns[:, 1])


@given(_INTERVALS, _INTERVALS)
def test_unions_and_overlaps_are_those_of_sets(
    one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    """Whatever the intervals, also empty and reversed ones."""
    assert union(one).length == len(covered(one))
    assert union(one).overlap(union(other)) == len(covered(one) & covered(other))


def test_communication_that_computation_hides_is_not_exposed() -> None:
    """10 s: 4 compute, 4 communicate of which 1 is hidden, 1 copies, 2 idle."""
    begin = np.array([0.0, 3.0, 8.0, 9.0])
    end = np.array([4.0, 7.0, 9.0, 9.0])
    kind = np.array([COMPUTE, COMMUNICATION, MEMORY, COMPUTE])
    shares = time_shares(begin, np.array([*end[:3], 10.0]), kind)
    assert shares is not None
    result = shares.as_json()
    expected = {
        "idle": 0.1, "compute": 0.5, "other": 0.4, "communication": 0.4,
        "exposed_communication": 0.3, "overlap": 0.25, "span_s": 10.0,
    }  # fmt: skip
    assert result == pytest.approx(expected)


def test_nothing_on_the_gpu_has_no_shares() -> None:
    """Not zeros."""
    nothing = np.array([])
    assert time_shares(nothing, nothing, np.array([], np.int64)) is None


@pytest.mark.parametrize(
    ("rank", "idle", "compute", "other"), [(0, 53.56, 17.71, 28.74), (1, 54.72, 22.57, 22.72)]
)
def test_published_traces_have_their_known_shares(
    rank: int, idle: float, compute: float, other: float
) -> None:
    """Those of HolisticTraceAnalysis, within 0.1 points; HTA leaves the last step out, too."""
    import gzip

    path = shared("kineto_two_ranks") / f"sampled_rank-{rank}.json.gz"
    with gzip.open(path) as file:
        (each,) = read_kineto_traces(file, str(path), pytest.fail)
    trace = rank_trace(each, str(path))
    assert (trace.rank, trace.world_size, trace.on_gpu) == (rank, 128, True)
    assert trace.shares is not None
    shares = [
        100.0 * each for each in (trace.shares.idle, trace.shares.compute, trace.shares.other)
    ]
    assert shares == pytest.approx([idle, compute, other], abs=0.1)


COMMUNICATING = (
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclSymkDevKernel_AllGather_LL(ncclSymkDevWorkArgs4K)",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
    "two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 8>",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8>",
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport",
    "multimem_all_gather_kernel",
    "userbuffers_fp16_sum_inplace_gpu_rw",
    "mscclKernel_Sum_half_LL",
)


@pytest.mark.parametrize("name", COMMUNICATING)
def test_kernels_of_all_generations_communicate(name: str) -> None:
    """Those of NCCL by three names, and custom all-reduces."""
    assert kernel_class_of(name) == "nccl"


@pytest.mark.parametrize(
    "name",
    ["triton_red_fused_all_reduce_0", "sm90_xmma_gemm_bf16", "void at::native::reduce_kernel"],
)
def test_kernels_that_only_sound_alike_compute(name: str) -> None:
    """A reduction over a tensor is no all-reduce."""
    assert kernel_class_of(name) == "compute"


def test_a_trace_without_a_gpu_is_of_the_hosts_operators() -> None:
    """Operators compute; gloo's annotations communicate."""
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 60, "pid": 1, "tid": 1},
        {"ph": "X", "cat": "cpu_op", "name": "c10d::allreduce_", "ts": 60, "dur": 5, "pid": 1},
        {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "ts": 50, "dur": 50},
    ]
    shares = rank_trace(read_traces(trace_text(events, rank=0), "t", Counter())[0], "t").shares
    assert shares is not None
    assert (shares.compute, shares.exposed_communication) == (
        pytest.approx(0.6),
        pytest.approx(0.4),
    )


def test_the_last_of_several_steps_is_left_out() -> None:
    """What it launched may not have ended; a single step is all there is."""
    events = [*step(1, 0, 100), *step(2, 100, 100), kernel("gemm", 10, 50), kernel("gemm", 110, 90)]
    both = rank_trace(read_traces(trace_text(events), "t", Counter())[0], "t")
    assert (both.steps, both.step_s, len(both.begin_s)) == (1, pytest.approx(1e-4), 1)
    only = rank_trace(read_traces(trace_text(events[:1] + events[2:3]), "t", Counter())[0], "t")
    assert (only.steps, len(only.begin_s)) == (1, 1)
