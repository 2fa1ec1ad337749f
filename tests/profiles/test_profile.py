"""`profile()`: which steps it records, what it writes, and what it reports of that."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

import otel_straggler as ots
from otel_straggler import semconv
from otel_straggler.client.steps import STEP_LISTENERS
from otel_straggler.errors import ConfigError
from otel_straggler.testing import CapturedRequests

torch = pytest.importorskip("torch", reason="no torch: it would show what a profile records")

LIGHT: dict[str, Any] = {
    "record_shapes": False, "profile_memory": False, "with_stack": False, "with_flops": False,
    "with_modules": False,
}  # fmt: skip
SOON: dict[str, Any] = {"skip_first": 0, "active": 1}
"""The second step is recorded, and no other."""


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without a session, a run is named by its launcher; nobody listens to steps afterwards."""
    monkeypatch.setenv("OTEL_STRAGGLER_RUN_ID", "my run")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    yield
    assert not STEP_LISTENERS.are_there


def train(steps: int, first: int = 0) -> None:
    weight = torch.ones(8, 8)
    for number in range(first, first + steps):
        ots.step(number)
        weight @ weight


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_each_cycle_writes_the_steps_that_it_recorded(tmp_path: Path) -> None:
    """Skipped, waited for, warmed up, and recorded, by the steps of the loop alone."""
    with ots.profile(
        tmp_path, skip_first=3, wait=1, warmup=1, active=2, repeat=2, **LIGHT
    ) as profile:
        train(20)
    assert names(tmp_path) == [
        f"my-run.attempt0.rank3.steps{steps}.{kind}"
        for steps in ("5-6", "9-10")
        for kind in ("chrome_trace.json", "profiler_list.dat")
    ]
    assert sorted(path.name for path in profile.paths) == names(tmp_path)
    trace = json.loads(profile.paths[0].read_text())["traceEvents"]
    assert sum(event["name"] == "aten::mm" for event in trace) == 2
    table = profile.paths[1].read_text()
    assert re.search(r"aten::mm .* 2 *\n", table)
    assert "Memory requirement: " in table


def test_by_default_eight_steps_are_recorded_after_the_first_ten_and_one_of_warm_up(
    tmp_path: Path,
) -> None:
    """The first ones are unlike all others, and of one or two steps `trace` names nobody."""
    with ots.profile(tmp_path, **LIGHT):
        train(30)
    trace, _ = names(tmp_path)
    assert trace == "my-run.attempt0.rank3.steps11-18.chrome_trace.json"
    events = json.loads((tmp_path / trace).read_text())["traceEvents"]
    assert sum(event["name"].startswith("ProfilerStep#") for event in events) >= 8


def test_what_was_recorded_when_the_loop_ends_is_written(tmp_path: Path) -> None:
    """Also of a cycle that is not complete, and after an exception."""
    with (
        contextlib.suppress(ZeroDivisionError),
        ots.profile(tmp_path, skip_first=0, active=100, **LIGHT),
    ):
        train(3, first=7)
        raise ZeroDivisionError
    assert names(tmp_path)[0] == "my-run.attempt0.rank3.steps8-9.chrome_trace.json"


@pytest.mark.parametrize(
    ("steps", "told"),
    [(5, "5 steps began inside it, and the first 11 are never recorded"), (0, "0 steps began")],
)
def test_a_loop_too_short_for_a_profile_writes_nothing_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, steps: int, told: str
) -> None:
    with ots.profile(tmp_path, **LIGHT):
        train(steps)
    assert names(tmp_path) == []
    (line,) = (each for each in caplog.messages if "nothing was recorded" in each)
    assert told in line
    assert ("skip_first=0" if steps else "Call step()") in line


def test_names_never_collide(tmp_path: Path) -> None:
    """The same run, attempt, rank and steps again: a number is added."""
    for _ in range(2):
        with ots.profile(tmp_path, **SOON, **LIGHT):
            train(3)
    assert [name for name in names(tmp_path) if name.endswith(".json")] == [
        "my-run.attempt0.rank3.steps1-1.2.chrome_trace.json",
        "my-run.attempt0.rank3.steps1-1.chrome_trace.json",
    ]


def test_the_defaults_write_stacks_too_and_traces_for_tensorboard_if_asked(tmp_path: Path) -> None:
    """Everything that torch.profiler can record: shapes, memory, stacks, flops, modules."""
    with ots.profile(tmp_path, tensorboard=True, **SOON):
        train(3)
    stem = "my-run.attempt0.rank3.steps1-1"
    expected = [f"{stem}.profiler_list.dat", f"{stem}.pt.trace.json", f"{stem}.stacks.txt"]
    assert names(tmp_path) == expected
    assert (tmp_path / "tensorboard" / f"{stem}.pt.trace.json").is_file()
    assert "test_profile.py" in (tmp_path / f"{stem}.stacks.txt").read_text()
    assert "FLOPs" in (tmp_path / f"{stem}.profiler_list.dat").read_text()


def test_it_decorates_a_function_that_trains(tmp_path: Path) -> None:
    """Each call is a profile of its own."""

    @ots.profile(tmp_path, **SOON, **LIGHT)
    def fit(first: int) -> str:
        train(3, first)
        return "trained"

    assert (fit(0), fit(10)) == ("trained", "trained")
    steps = [re.search(r"steps(\d+)", name)[1] for name in names(tmp_path)]  # type: ignore[index]
    assert steps == ["1", "1", "11", "11"]


def test_every_file_is_an_event_that_belongs_to_the_span_of_its_last_step(tmp_path: Path) -> None:
    """With path, size and hash."""
    with CapturedRequests() as sink:
        ots.configure(endpoint=sink.url, run_id="profiled", rank=2, world_size=4)
        with ots.profile(tmp_path, skip_first=0, active=2, **LIGHT) as profile:
            train(4)
        ots.shutdown()
        requests = [
            ExportLogsServiceRequest.FromString(each.body)
            for each in sink.requests
            if each.path == "/v1/logs"
        ]
        steps = {
            span.attributes[semconv.STEP]: span
            for span in sink.spans()
            if span.name == semconv.STEP_SPAN
        }
    records = [each.resource_logs[0].scope_logs[0].log_records[0] for each in requests]
    assert [record.event_name for record in records] == ["straggler.profile.written"] * 2
    kinds = []
    for record, path in zip(records, profile.paths, strict=True):
        values = {a.key: a.value.string_value or a.value.int_value for a in record.attributes}
        content = path.read_bytes()
        kinds.append(values[semconv.PROFILE_KIND])
        assert values[semconv.FILE_PATH] == str(path)
        assert values[semconv.FILE_SIZE] == len(content)
        assert values[semconv.PROFILE_SHA256] == hashlib.sha256(content).hexdigest()
        assert values[semconv.STEP] == 2
        assert (record.trace_id, record.span_id) == (
            steps[2].trace_id,
            steps[2].span_id,
        )
    assert kinds == ["trace", "operators"]
    assert requests[0].resource_logs[0].resource.attributes


def test_a_profiler_that_is_at_work_already_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, and nothing is written."""
    with torch.profiler.profile() as theirs, ots.profile(tmp_path, repeat=0, **SOON, **LIGHT):
        train(5)
    assert names(tmp_path) == []
    assert [each for each in caplog.messages if "profile" in each] == [
        "no steps are profiled: torch.profiler is at work already"
    ]
    assert any(event.key == "aten::mm" for event in theirs.key_averages())


def test_of_two_profiles_the_first_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ots.profile(tmp_path / "a", **SOON, **LIGHT), ots.profile(tmp_path / "b", **SOON, **LIGHT):
        train(3)
    assert names(tmp_path / "a")
    assert not (tmp_path / "b").exists()
    assert "no steps are profiled: another profile of this package is open" in caplog.messages


def test_a_folder_that_cannot_be_written_stops_no_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "prof").write_text("a file")
    with ots.profile(tmp_path / "prof", **SOON, **LIGHT) as profile:
        train(3)
    assert profile.paths == []
    assert "nothing can be written" in caplog.text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"active": 0}, r"profile\(active=...\): got 0; expected a number of steps of at least 1"),
        ({"wait": -1}, r"profile\(wait=...\): got -1"),
        ({"warmup": 1.5}, r"profile\(warmup=...\): got 1.5"),
    ],
)
def test_a_wrong_number_of_steps_is_an_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ots.profile(**given)


# --- a command line ------------------------------------------------------------------------------


def test_the_arguments_of_a_program_switch_it_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--profiling --ptensorboard --prof_dir DIR`; what else there is, is the program's."""
    given = ["--epochs", "3", "--profiling", "--ptensorboard", "--prof_dir", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["train.py", *given])
    with ots.profile.from_arguments(**SOON, **LIGHT):
        train(3)
    assert any(name.endswith(".pt.trace.json") for name in names(tmp_path))


def test_without_the_argument_nothing_is_profiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default folder is `prof`, and even that is not created."""
    monkeypatch.chdir(tmp_path)
    parser = argparse.ArgumentParser()
    ots.profile.add_arguments(parser)
    for arguments in ([], parser.parse_args([])):
        with ots.profile.from_arguments(arguments):
            assert not STEP_LISTENERS.are_there
            train(3)
    assert names(tmp_path) == []
    with ots.profile.from_arguments(parser.parse_args(["--profiling"]), **SOON, **LIGHT):
        train(3)
    assert names(tmp_path / "prof")


# --- DeepSpeed's flops ---------------------------------------------------------------------------


class FakeFlopsProfiler:
    """The calls of DeepSpeed's flops profiler (0.19)."""

    calls: ClassVar[list[str]] = []

    def __init__(self, model: Any) -> None:
        self.calls.append(f"of {model}")

    def start_profile(self) -> None:
        self.calls.append("start")

    def stop_profile(self) -> None:
        self.calls.append("stop")

    def print_model_profile(self, *, profile_step: int, output_file: str) -> None:
        self.calls.append(f"print step {profile_step}")
        Path(output_file).write_text("flops of the model")

    def end_profile(self) -> None:
        self.calls.append("end")


@pytest.fixture
def deepspeed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for the package; the calls of its profiler."""
    FakeFlopsProfiler.calls = []
    module: Any = ModuleType("deepspeed.profiling.flops_profiler")
    module.FlopsProfiler = FakeFlopsProfiler
    monkeypatch.setitem(sys.modules, "deepspeed", ModuleType("deepspeed"))
    monkeypatch.setitem(sys.modules, "deepspeed.profiling", ModuleType("deepspeed.profiling"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return FakeFlopsProfiler.calls


def test_deepspeed_counts_the_flops_of_the_first_recorded_step(
    tmp_path: Path, deepspeed: list[str]
) -> None:
    with ots.profile(tmp_path, skip_first=0, active=2, model="model", **LIGHT):
        train(6)
    assert deepspeed == ["of model", "start", "stop", "print step 1", "end"]
    [path] = tmp_path.glob("*.profiler_ds.txt")
    assert path.read_text() == "flops of the model"


def test_a_flops_profiler_that_fails_stops_nothing(
    tmp_path: Path, deepspeed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no module")

    monkeypatch.setattr(FakeFlopsProfiler, "start_profile", fail)
    with ots.profile(tmp_path, model="model", **SOON, **LIGHT):
        train(4)
    assert deepspeed == ["of model"]
    assert len(names(tmp_path)) == 2


# --- steps that are followed ---------------------------------------------------------------------


def test_a_listener_that_raises_is_called_once_and_the_step_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[int] = []

    def listen(number: int) -> None:
        seen.append(number)
        raise ValueError(number)

    STEP_LISTENERS.add(listen)
    train(3)
    assert seen == [0]
    assert "steps are not followed any more" in caplog.text


def test_the_same_step_again_is_no_further_step() -> None:
    """A trainer and the loop may both call `step()`."""
    seen: list[int] = []
    listen: Callable[[int], None] = seen.append
    STEP_LISTENERS.add(listen)
    for number in (4, 4, 5):
        ots.step(number)
    STEP_LISTENERS.remove(listen)
    ots.step(6)
    assert seen == [4, 5]
