"""Traces of torch.profiler: steps, sections, kernels and ranks of them."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_straggler.errors import InputError
from otel_straggler.model.observation import CUPTI, NO_KERNEL, ObservationBatch
from otel_straggler.recordings.files import Recording, RecordingReader, read_recording

from .shared_data import shared

Json = dict[str, Any]
STEP_US = 1_000.0


def event(kind: str, name: str, ts: float, dur: float, **more: Any) -> Json:
    return {"ph": "X", "cat": kind, "name": name, "pid": 7, "tid": 7, "ts": ts, "dur": dur, **more}


def step_of(number: int, slow: float = 1.0) -> list[Json]:
    """A step of 1 ms: loading, forward with a nested annotation, and the rest; three kernels."""
    at = number * STEP_US
    annotated = [
        event("user_annotation", f"ProfilerStep#{number}", at, STEP_US),
        event("user_annotation", "enumerate(DataLoader)#_Iter.__next__", at + 10, 90),
        event("user_annotation", "## forward ##", at + 200, 300),
        event("user_annotation", "nested", at + 250, 100),
        event("gpu_user_annotation", f"ProfilerStep#{number}", at + 5, 2_000, pid=0),
    ]
    kernels = [("gemm", 210, 300, 100 * slow), ("gemm", 220, 350, 100 * slow)]
    kernels += [("ncclDevKernel_AllReduce", 700, 720, 200), ("before", -50, 0, 10)]
    for index, (name, launched, begin, length) in enumerate(kernels):
        key = {"correlation": 10 * number + index}
        annotated += [
            event("kernel", name, at + begin, length, pid=0, tid=9, args=key),
            event("cuda_runtime", "cudaLaunchKernel", at + launched, 5, tid=8, args=key),
        ]
    return annotated


def trace(rank: int | None = 0, steps: int = 2, slow: float = 1.0, **header: Any) -> Json:
    events = [{"ph": "M", "name": "process_name", "pid": 7}]
    events += [each for number in range(1, steps + 1) for each in step_of(number, slow)]
    if rank is not None:
        header["distributedInfo"] = {"rank": rank, "world_size": 128}
    return {"schemaVersion": 1, **header, "traceEvents": events}


def read(document: object, name: str = "run.json") -> Recording:
    return read_recording(io.BytesIO(json.dumps(document).encode()), name)


def refusal(document: object, name: str = "run.json") -> str:
    with pytest.raises(InputError) as refused:
        read(document, name)
    return str(refused.value)


def sections(batch: ObservationBatch, step: int) -> dict[str, float]:
    """Seconds of each section of a step."""
    rows = np.flatnonzero((batch.kernel == NO_KERNEL) & (batch.step == step))
    return {batch.sections[batch.section[row]].name: float(batch.duration_s[row]) for row in rows}


def test_a_step_becomes_its_outermost_sections_and_the_rest() -> None:
    """On the thread of the step; what is nested counts once."""
    recording = read(trace(rank=3))
    batch = recording.batch
    assert recording.form == "kineto"
    assert [source.rank for source in batch.sources] == [3]
    assert sections(batch, 1) == pytest.approx(
        {"enumerate(DataLoader)#_Iter.__next__": 90e-6, "forward": 3e-4, "rest of the step": 61e-5}
    )
    kinds = {section.name: section.kind for section in batch.sections}
    assert list(kinds.values()) == ["data", "compute", "compute"]


def test_kernels_belong_to_the_section_that_launched_them() -> None:
    """Whenever they run, and whichever thread launched them; overlap counts once as busy."""
    batch = read(trace()).batch
    assert batch.gpu is not None
    rows = np.flatnonzero(batch.kernel != NO_KERNEL)
    placed = [
        (batch.kernels[batch.kernel[r]].name, batch.sections[batch.section[r]].name) for r in rows
    ]
    assert placed.count(("gemm", "forward")) == 4
    assert placed.count(("ncclDevKernel_AllReduce", "rest of the step")) == 2
    assert placed.count(("before", "rest of the step")) == 1  # of step 2, launched in step 1
    forward = next(
        row
        for row in range(len(batch))
        if batch.sections[batch.section[row]].name == "forward" and batch.kernel[row] == NO_KERNEL
    )
    gpu = batch.gpu
    assert gpu.basis[forward] == CUPTI
    times = (gpu.busy_s[forward], gpu.kernel_s[forward], gpu.nccl_s[forward])
    assert times == pytest.approx((150e-6, 200e-6, 0.0))


def test_kernels_outside_of_the_steps_are_left_out_with_a_note() -> None:
    """Of the warm-up of a profiler."""
    notes: list[str] = []
    content = io.BytesIO(json.dumps(trace()).encode())
    read_recording(content, "run.json", note=notes.append)
    assert notes == ["run.json: 1 kernels launched outside of the steps are left out"]


def test_collectives_of_the_cpu_are_waiting() -> None:
    """Gloo runs them on another thread; what lies within a section is part of it."""
    document = trace(steps=1)
    for begin, length in ((1_450, 100), (1_520, 100), (1_900, 50)):
        document["traceEvents"].append(
            event("user_annotation", "gloo:all_reduce", begin, length, tid=11)
        )
    batch = read(document).batch
    assert sections(batch, 1) == pytest.approx(
        {
            "enumerate(DataLoader)#_Iter.__next__": 90e-6,
            "forward": 3e-4,
            "rest of the step": 44e-5,
            "collectives": 17e-5,
        }
    )
    assert {s.name: s.kind for s in batch.sections}["collectives"] == "wait"


def test_a_step_without_annotations_is_one_section() -> None:
    """The least that a profiler writes; its kernels tell work from waiting."""
    document = trace(steps=1)
    document["traceEvents"] = [
        each for each in document["traceEvents"] if each.get("cat") != "user_annotation"
    ]
    document["traceEvents"].append(event("user_annotation", "ProfilerStep#1", STEP_US, STEP_US))
    assert sections(read(document).batch, 1) == {"step": 1e-3}


def test_the_base_time_host_and_gpu_are_those_of_the_header() -> None:
    """As newer versions of torch write them."""
    header = {"baseTimeNanoseconds": 10**18, "host_name": "node-3"}
    batch = read(trace(deviceProperties=[{"name": "H100"}], **header)).batch
    assert (batch.sources[0].node, batch.sources[0].device_model) == ("node-3", "H100")
    assert batch.start_ns.min() == 10**18 + round(STEP_US * 1e3)


@pytest.mark.parametrize("name", ["trace_rank3.json", "rank-3.pt.trace.json", "x.rank_3.json.gz"])
def test_the_name_of_a_file_may_say_its_rank(name: str) -> None:
    """Without a process group when the profiler started, the trace does not."""
    assert read(trace(rank=None), f"/some/where/{name}").batch.sources[0].rank == 3


def test_a_list_of_events_is_a_trace() -> None:
    """Chrome's other form."""
    assert len(sections(read(trace()["traceEvents"], "rank0.json").batch, 2)) == 3


def test_a_trace_of_no_rank_is_refused() -> None:
    """With what to do."""
    message = refusal(trace(rank=None))
    assert message.startswith("run.json: got 'a trace without a rank'; expected distributedInfo")
    assert "trace_rank0.json, trace_rank1.json" in message


def test_a_trace_without_steps_is_refused() -> None:
    """One step is all that could be said."""
    document = trace(steps=0)
    assert "call prof.step() after every training step." in refusal(document)


def test_a_trace_of_several_processes_is_refused() -> None:
    """Merged traces do not say which rank is which."""
    document = trace(steps=1)
    same = event("user_annotation", "ProfilerStep#1", STEP_US, STEP_US, pid=8)
    other = event("user_annotation", "ProfilerStep#2", STEP_US, STEP_US, pid=8)
    for added in (same, other):
        message = refusal(document | {"traceEvents": [*document["traceEvents"], added]})
        assert "give a directory of one file per rank, or name the processes" in message


@pytest.mark.parametrize("where", ["id", "name"])
def test_a_trace_of_several_ranks_is_read_where_its_processes_name_them(where: str) -> None:
    """As tools that merge traces do: in the id of each process, or in its name."""
    merged: list[Json] = []
    for rank in (0, 1):
        label = f"[Rank {rank}] 7" if where == "id" else 100 + rank
        gpu = f"[Rank {rank}] 0" if where == "id" else 200 + rank
        events = trace(rank, slow=1.0 + rank)["traceEvents"]
        merged += [{**each, "pid": gpu if each["pid"] == 0 else label} for each in events]
        if where == "name":
            for process in (label, gpu):
                merged.append({"ph": "M", "name": "process_name", "pid": process,
                               "args": {"name": f"python, rank {rank}"}})  # fmt: skip
    batch = read({"distributedInfo": {"rank": 0, "world_size": 2}, "traceEvents": merged}).batch
    assert [source.rank for source in batch.sources] == [0, 1]
    kernels = batch.take(np.flatnonzero(batch.kernel != NO_KERNEL))
    gemm = np.array([kernel.name == "gemm" for kernel in kernels.kernels])[kernels.kernel]
    took = [kernels.duration_s[gemm & (kernels.source == code)] for code in (0, 1)]
    assert [np.unique(each).tolist() for each in took] == [[1e-4], [2e-4]]


@pytest.mark.parametrize("cut", [300, 1_000, -1])
def test_a_trace_that_is_cut_off_is_refused(cut: int) -> None:
    """The training was killed while it was written."""
    content = json.dumps(trace()).encode()[:cut]
    with pytest.raises(InputError, match=r"run.json:1: got .*expected valid JSON.*cut off\?"):
        read_recording(io.BytesIO(content), "run.json")


@pytest.mark.parametrize(
    "broken",
    [
        {"ts": None}, {"ts": "x"}, {"ts": 1e300}, {"ts": float("nan")}, {"dur": 0}, {"dur": -1},
        {"args": 3}, {"cat": 7}, {"name": None},
    ],
)  # fmt: skip
def test_a_broken_event_costs_only_itself(broken: Json) -> None:
    """What has no time is counted."""
    document = trace()
    document["traceEvents"] += [{**each, **broken} for each in step_of(9)[1:]]
    recording = read(document)
    assert np.unique(recording.batch.step).tolist() == [1, 2]
    assert bool(recording.not_scored) == ("ts" in broken or "dur" in broken)


def test_a_directory_of_traces_is_one_run(tmp_path: Path) -> None:
    """Named after it; the same rank twice is an error."""
    reader = RecordingReader(str(tmp_path / "job-7"), is_directory=True)
    for rank in (0, 1):
        content = gzip.compress(json.dumps(trace(rank)).encode())
        reader.read(io.BytesIO(content), f"job-7/{rank}")
    assert [(s.run_id, s.rank) for s in reader.recording().batch.sources] == [
        ("job-7", 0),
        ("job-7", 1),
    ]
    with pytest.raises(InputError, match=r"2: got 'step 1 of rank 1, which job-7/1 has as well'"):
        reader.read(io.BytesIO(content), "job-7/2")


def test_published_traces_of_two_ranks_are_read() -> None:
    """Their compute and communication kernels, and two steps."""
    folder = shared("kineto_two_ranks")
    reader = RecordingReader(str(folder), is_directory=True)
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            reader.read(file, str(path))
    batch = reader.recording().batch
    assert [source.rank for source in batch.sources] == [0, 1]
    assert np.unique(batch.step).tolist() == [551, 552]
    names = {batch.sections[code].name for code in np.unique(batch.section)}
    assert {"data_load", "forward", "backward", "optimizer"} < names
    assert (batch.kernel != NO_KERNEL).sum() > 2_000
    assert {kernel.kernel_class for kernel in batch.kernels} == {"compute", "nccl", "memory"}
