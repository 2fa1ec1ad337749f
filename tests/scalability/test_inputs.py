"""What a scalability report reads, and what it skips."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_straggler import semconv
from otel_straggler.collector.history.history import History, Summary
from otel_straggler.collector.views.run_summary import summary_value
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.model.rank_metrics import GpuUsage
from otel_straggler.scalability.inputs import ScalingInputs
from otel_straggler.scalability.runs import GPUS, NODES, RANKS, ScalingRun
from otel_straggler.semconv import Metric
from otel_straggler.simulate.writers import as_json_line, encode_requests, frame

from .made import kernel, sensors, step, trace_text, training

Read = Callable[..., dict[str, ScalingRun]]
EPOCHS = "epoch_id,time,name,nodes\n"
SAMPLES = (
    "sample_idx,utilization,power,local_rank,node_idx,num_global_gpus,strategy,probing_interval\n"
)
OPERATORS = (
    "name,node_id,self_cuda_time_total,cuda_time_total,calls,strategy,num_gpus,global_rank\n"
)


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def read(notes: list[str]) -> Read:
    """Reads paths; runs by name."""

    def read_all(*paths: Path) -> dict[str, ScalingRun]:
        inputs = ScalingInputs(notes.append, lambda _: nullcontext(lambda _: None))
        inputs.read(map(str, paths))
        return {run.name: run for run in inputs.runs()}

    return read_all


def metrics_line(request: bytes) -> str:
    message = ExportMetricsServiceRequest.FromString(request)
    return MessageToJson(message, indent=None, use_integers_for_enums=True) + "\n"


def test_itwinais_epoch_times_are_read_with_their_repeats(tmp_path: Path, read: Read) -> None:
    """An epoch that comes again belongs to another run."""
    (tmp_path / "epochs.csv").write_text(EPOCHS + "1,10,ddp,2\n2,8,ddp,2\n1,12,ddp,2\n")
    runs = read(tmp_path)
    assert {name: run.epochs_s for name, run in runs.items()} == {
        "epochs": (10.0, 8.0),
        "epochs #2": (12.0,),
    }
    assert runs["epochs"].key == ("ddp", NODES, 2)


def test_epochs_may_say_how_much_they_worked(tmp_path: Path, read: Read) -> None:
    """Columns that itwinai does not have."""
    header = EPOCHS.replace("\n", ",samples,tokens\n")
    (tmp_path / "a.csv").write_text(header + "1,10,ddp,2,500,\n2,10,ddp,2,500,7\n")
    run = read(tmp_path)["a"]
    assert run.samples_per_s == 50.0
    assert run.tokens_per_s != run.tokens_per_s


def test_itwinais_samples_of_gpus_give_energy(tmp_path: Path, read: Read) -> None:
    """360 W for two probes of a second each are 0.2 Wh; intervals may differ."""
    rows = "0,40,360,0,0,2,ddp,1\n1,60,360,0,0,2,ddp,1\n0,50,180,1,0,2,ddp,4\n"
    (tmp_path / "ddp_2.csv").write_text(SAMPLES + rows)
    run = read(tmp_path)["ddp_2"]
    assert run.key == ("ddp", GPUS, 2)
    assert (run.utilization, run.power_w) == (pytest.approx(0.5), pytest.approx(540.0))
    assert run.energy_wh == pytest.approx(0.4)


def test_itwinais_operators_give_its_fraction_of_all_ranks(tmp_path: Path, read: Read) -> None:
    """Steps of the profiler are no operators."""
    for rank, took in (0, 10), (1, 30):
        rows = f"aten::mm,0,{took},1,1,ddp,2,{rank}\nnccl:all_reduce,0,20,1,1,ddp,2,{rank}\n"
        rows += f"ProfilerStep*,0,999,1,1,ddp,2,{rank}\n"
        (tmp_path / f"ddp_2_{rank}.csv").write_text(OPERATORS + rows)
    run = read(tmp_path)["ddp_2"]
    assert run.key == ("ddp", GPUS, 2)
    assert run.computation == pytest.approx(0.5)


def test_rows_without_numbers_are_left_out_with_a_note(
    tmp_path: Path, read: Read, notes: list[str]
) -> None:
    """Whatever is in them."""
    (tmp_path / "a.csv").write_text(EPOCHS + "1,ten,ddp,2\n2,nan,ddp,2\n3,5,ddp,0\n4\n5,5,ddp,2\n")
    assert read(tmp_path)["a"].epochs_s == (5.0,)
    assert len(notes) == 1
    assert "4 rows without the numbers that they need are left out" in notes[0]


def test_what_is_missing_or_no_recording_is_noted_and_skipped(
    tmp_path: Path, read: Read, notes: list[str]
) -> None:
    """A report of the rest, never a crash."""
    (tmp_path / "good.csv").write_text(EPOCHS + "1,10,ddp,2\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "words.txt").write_text("hello\n")
    (tmp_path / "noise.bin").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "cut.json.gz").write_bytes(gzip.compress(b"x" * 9_000)[:20])
    (tmp_path / "not.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 2_000)
    (tmp_path / "folder").mkdir()
    assert list(read(tmp_path / "nowhere", tmp_path / "folder", tmp_path)) == ["good"]
    assert len(notes) == 7
    assert "there is no such file or folder" in notes[0]
    assert "there is no file in it" in notes[1]


@pytest.mark.parametrize("form", ["json", "proto", "gz"])
def test_spans_give_epochs_steps_and_tokens(tmp_path: Path, read: Read, form: str) -> None:
    """The slowest rank counts for an epoch, and the section with most tokens for a step."""
    requests = list(encode_requests(training("run-1", 2, 0.2, 5.0)))
    content = "".join(map(as_json_line, requests)).encode()
    if form == "proto":
        content = b"".join(map(frame, requests))
    path = tmp_path / "spans"
    path.write_bytes(gzip.compress(content) if form == "gz" else content)
    run = read(path)["run-1"]
    assert run.key == ("resnet", RANKS, 2)
    assert run.epochs_s == (pytest.approx(5.0),)
    assert run.step_s == pytest.approx(0.2)
    assert run.tokens_per_s == pytest.approx(2 * 100 / 0.2)


@pytest.mark.parametrize("form", ["json", "proto"])
def test_sensors_give_utilization_and_energy_of_all_gpus(
    tmp_path: Path, read: Read, form: str
) -> None:
    """By the counter of one GPU, and by the power of the other, which has none."""
    requests = [
        *sensors("run-1", 0, semconv.HW_ENERGY, [(0, 1_000.0), (2, 1_720.0)]),
        *sensors("run-1", 0, semconv.HW_POWER, [(0, 300.0), (2, 300.0)]),
        *sensors("run-1", 1, semconv.HW_POWER, [(0, 360.0), (1, 360.0), (2, 360.0)]),
        *sensors("run-1", 1, semconv.HW_GPU_UTILIZATION, [(0, 0.5), (1, 0.7)],
                 **{str(semconv.STRATEGY): "fsdp"}),
        *sensors("run-1", 0, Metric(semconv.SAMPLES_TOTAL, "1", "counter", ""),
                 [(0, 0.0), (2, 100.0)]),
    ]  # fmt: skip
    path = tmp_path / "metrics"
    if form == "json":
        path.write_text("".join(map(metrics_line, requests)))
    else:
        path.write_bytes(b"".join(map(frame, requests)))
    run = read(path)["run-1"]
    assert run.energy_wh == pytest.approx(0.4)
    assert (run.power_w, run.utilization) == (pytest.approx(660.0), pytest.approx(0.6))
    assert (run.strategy, run.size, run.samples_per_s) == ("fsdp", 2, pytest.approx(50.0))


def test_spans_and_sensors_of_a_run_in_several_files_are_one_run(
    tmp_path: Path, read: Read
) -> None:
    """As the Collector writes them: one file for each signal."""
    (tmp_path / "traces.json").write_text(
        "".join(map(as_json_line, encode_requests(training("run-1", 2, 0.2))))
    )
    energy = sensors("run-1", 0, semconv.HW_ENERGY, [(0, 0.0), (2, 720.0)])
    (tmp_path / "metrics.json").write_text("".join(map(metrics_line, energy)))
    runs = read(tmp_path)
    assert list(runs) == ["run-1"]
    assert (runs["run-1"].energy_wh, runs["run-1"].step_s) == (
        pytest.approx(0.2),
        pytest.approx(0.2),
    )


def test_a_history_gives_the_time_of_steps(tmp_path: Path, read: Read) -> None:
    """Of every run in it."""
    history = History(tmp_path / "history.db", wall_s=lambda: 1_790_000_000.0)
    history.open()
    for ranks, step_s in (2, 0.2), (4, 0.1):
        scorer = Scorer(ScoreSettings(window_steps=5))
        scorer.observe(training(f"run-{ranks}", ranks, step_s), 0)
        history.put(windows=scorer.close_all())
    history.close()
    runs = read(tmp_path / "history.db")
    assert [runs[f"run-{n}"].key for n in (2, 4)] == [("resnet", RANKS, n) for n in (2, 4)]
    assert runs["run-2"].step_s == pytest.approx(0.2, rel=0.1)
    assert runs["run-4"].step_s == pytest.approx(0.1, rel=0.1)


def test_a_history_gives_what_the_gpus_of_a_run_used(tmp_path: Path, read: Read) -> None:
    """From its summary, of all groups; where there were no sensors it is unknown."""
    history = History(tmp_path / "history.db", wall_s=lambda: 1_790_000_000.0)
    history.open()
    scorer = Scorer(ScoreSettings(window_steps=5))
    for run_id in ("with", "without"):
        scorer.observe(training(run_id, 2, 0.2), 0)
    history.put(windows=scorer.close_all())
    summaries = []
    for group, part in (("", 0.6), ("critic", 0.2)):
        usage = GpuUsage(gpus=2, utilization=part, power_w=100.0, energy_wh=1.5)
        view = WorldView(run_id="with", group=group, now_s=1.0, gpus=usage)
        make = partial(summary_value, view)
        summaries.append(Summary(run_id="with", job="resnet", group=group, make=make))
    history.put(summaries=summaries)
    history.close()
    runs = read(tmp_path / "history.db")
    run = runs["with"]
    assert (run.power_w, run.energy_wh) == (200.0, 3.0)
    assert run.utilization == pytest.approx(0.4)
    assert np.isnan(runs["without"].energy_wh)


def test_traces_of_the_ranks_of_a_run_are_put_together(tmp_path: Path, read: Read) -> None:
    """The folder is the run, and its name without the size the strategy."""
    folder = tmp_path / "ddp_2" / "torch-traces"
    folder.mkdir(parents=True)
    for rank, busy in (0, 40), (1, 60):
        events = [*step(1, 0, 100), kernel("gemm", 0, busy), kernel("gemm", 99, 1)]
        text = trace_text(events, rank, 2)
        (folder / f"worker_{rank}.json.gz").write_bytes(gzip.compress(text.encode()))
    run = read(tmp_path)["ddp_2"]
    assert run.key == ("ddp", RANKS, 2)
    assert run.time is not None
    assert run.time.compute == pytest.approx((41 + 61) / 200)
    assert run.step_s == pytest.approx(1e-4)


def test_a_trace_that_was_cut_off_counts_as_far_as_it_goes(
    tmp_path: Path, read: Read, notes: list[str]
) -> None:
    """Also within gzip."""
    events = [kernel("gemm", 0, 40), kernel("gemm", 60, 40), *([kernel("gemm", 100, 1)] * 5_000)]
    text = trace_text(events, 0, 1)
    (tmp_path / "ddp_1").mkdir()
    (tmp_path / "ddp_1" / "a.json").write_text(text[: text.index('"ts": 100,')])
    run = read(tmp_path)["ddp_1"]
    assert run.time is not None
    assert run.time.compute == pytest.approx(0.8)
    assert "cut off" in notes[0]
    packed = gzip.compress(text.encode())
    (tmp_path / "ddp_1" / "a.json").write_bytes(packed[: len(packed) // 2])
    assert read(tmp_path)["ddp_1"].time is not None
    assert "damaged" in notes[1]


def test_a_trace_without_anything_in_it_is_no_run(tmp_path: Path, read: Read) -> None:
    """There is nothing to compare."""
    (tmp_path / "a.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": []}))
    assert read(tmp_path) == {}
