"""Sections timed by CUDA events, from Python, on a fake CUDA driver."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler import configure, flush, section, semconv, shutdown, step
from otel_straggler.client import session
from otel_straggler.client.recording import RECORDER
from otel_straggler.native import NATIVE
from otel_straggler.testing import CapturedRequests

from .fake_cuda import FakeCuda, build
from .test_kernel_timer import MISSING, RECORD

pytestmark = pytest.mark.skipif(
    NATIVE is None,
    reason="the extension was not built: it would show that sections are timed by CUDA events",
)

OFF, TIMED_BY_EVENTS = 0, 4
PATIENCE_NS = 2_000_000_000


@pytest.fixture(scope="module")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> FakeCuda:
    """One for all tests: a library that is loaded stays."""
    return FakeCuda(build(tmp_path_factory.mktemp("cuda")))


@pytest.fixture
def make_timer(cuda: FakeCuda) -> Iterator[Callable[..., Any]]:
    """Time the sections of this process by events from now on."""
    assert NATIVE is not None
    cuda.begin()
    made: list[Any] = []

    def make(*more: Any, ask: Any = cuda.current_stream, device: int = -1) -> Any:
        timer = NATIVE.EventTimer(cuda.path, ask, device, *more)
        NATIVE.set_gpu_timer(timer)
        assert timer.start() == ""
        RECORDER.enable()
        made.append(timer)
        return timer

    yield make
    cuda.set("full", 0)
    RECORDER.disable()
    RECORDER.drain()
    NATIVE.set_gpu_timer(None)
    for timer in made:
        timer.stop(0)
    assert cuda.get("never") == 0, "the driver was initialised or waited for"


@pytest.fixture
def timer(make_timer: Callable[..., Any]) -> Any:
    return make_timer()


def ready(timer: Any, later_ns: int = 0) -> list[Any]:
    """Runs that have ended, as far as they are ready when so much more time has passed."""
    timer.add(RECORDER.drain().block)
    return list(np.frombuffer(timer.take_ready(time.monotonic_ns() + later_ns), RECORD))


def busy_ns(runs: list[Any]) -> dict[str, int]:
    """Of runs that were timed, by the name of the section."""
    names = RECORDER.sections
    for run in runs:
        assert (run["state"], run["kernel_time_ns"], run["kernel_count"]) == (
            TIMED_BY_EVENTS,
            -1,
            0,
        )
    return {names[int(run["section"])][0]: int(run["busy_time_ns"]) for run in runs}


def test_without_a_driver_the_reason_is_told() -> None:
    """A laptop, a login node: one sentence, and nothing is loaded."""
    assert NATIVE is not None
    timer = NATIVE.EventTimer("libno_such_driver.so", None, -1)
    assert "no CUDA driver is loaded in this process (libno_such_driver.so)" in timer.start()
    assert timer.reason() == timer.start()
    with pytest.raises(RuntimeError, match="no CUDA driver"):
        timer.state()
    with pytest.raises(RuntimeError, match="no CUDA driver"):
        NATIVE.set_gpu_timer(timer)


def test_arguments_that_make_no_sense_are_refused(cuda: FakeCuda) -> None:
    """With the value and what was expected."""
    assert NATIVE is not None
    make: Any = NATIVE.EventTimer
    with pytest.raises(TypeError, match="current_stream: expected a function"):
        make(cuda.path, 7, -1)
    with pytest.raises(ValueError, match="max_pairs: 0; expected 1 to 8192"):
        make(cuda.path, None, -1, 0)
    with pytest.raises(ValueError, match="127 bytes of records; expected a multiple of 128"):
        make(cuda.path, None, -1).add(bytes(127))


def test_sections_and_steps_have_the_time_of_their_stream(timer: Any, cuda: FakeCuda) -> None:
    """As a training loop is written; what lies between sections is the step's alone."""
    step(1)
    cuda.launch(1)
    with section("forward"):
        cuda.launch(10_000)
        with section("attention"):
            cuda.launch(200_000)
        cuda.launch(3_000_000)
    with section("backward"):
        cuda.launch(40_000_000)
    RECORDER.end_step()
    assert ready(timer) == []
    cuda.advance(50_000_000)
    assert busy_ns(ready(timer)) == {
        "attention": 200_000,
        "forward": 3_210_000,
        "backward": 40_000_000,
        "step": pytest.approx(43_210_001, abs=4),  # a float of milliseconds
    }
    assert set(cuda.asked) == {0}


def test_a_section_that_fails_is_timed_too(timer: Any, cuda: FakeCuda) -> None:
    """The exception goes on, and the events of the next section are its own."""

    @section("broken")
    def fails() -> None:
        cuda.launch(5_000)
        raise ValueError("loss is NaN")

    with pytest.raises(ValueError, match="NaN"):
        fails()
    with section("whole"):
        cuda.launch(70_000)
    cuda.advance(75_000)
    assert busy_ns(ready(timer)) == {"broken": 5_000, "whole": 70_000}


def test_threads_have_their_own_current_device(timer: Any, cuda: FakeCuda) -> None:
    """A thread without a context has no GPU time; one with another device is timed on that."""

    def prefetch() -> None:
        with section("decode"):
            pass

    def evaluate() -> None:
        cuda.use(other)
        cuda.stream = other_stream
        with section("evaluate"):
            cuda.launch(6_000)

    other = cuda.make_context(1)
    other_stream = cuda.make_stream(other)
    for work in (prefetch, evaluate):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    cuda.advance(6_000)
    decode, evaluated = ready(timer)
    assert decode["state"] == OFF
    assert busy_ns([evaluated]) == {"evaluate": 6_000}
    assert cuda.asked[-1] == 1
    assert timer.state()["without_context"] == 1


def test_only_the_device_that_was_named_is_timed(make_timer: Any, cuda: FakeCuda) -> None:
    """A section on another one is missing, and counted."""
    timer = make_timer(device=3)
    with section("elsewhere"):
        cuda.launch(10)
    (run,) = ready(timer)
    assert run["state"] == MISSING
    assert timer.state()["other_device"] == 1
    assert timer.state()["missing_runs"] == 1


def test_a_section_that_changes_stream_or_device_is_missing(timer: Any, cuda: FakeCuda) -> None:
    """Two events of two streams have no time between them."""
    with section("other stream"):
        cuda.stream = cuda.make_stream(cuda.context)
    with section("other device"):
        cuda.use(cuda.make_context(1))
    cuda.use(cuda.context)
    assert [run["state"] for run in ready(timer)] == [MISSING, MISSING]
    assert timer.state()["moved"] == 2


def test_a_graph_that_is_captured_holds_none_of_our_events(timer: Any, cuda: FakeCuda) -> None:
    """Sections inside are missing; the capture goes on, whoever asks about events meanwhile."""
    with section("before"):
        cuda.launch(10)
    cuda.advance(10)
    cuda.capture(True)
    with section("captured"):
        cuda.launch(10)
    before, captured = ready(timer)
    assert (before["state"], captured["state"]) == (TIMED_BY_EVENTS, MISSING)
    cuda.capture(False)
    assert (cuda.get("captured"), cuda.get("spoiled")) == (0, 0)
    assert timer.state()["capturing"] == 1


def test_more_sections_than_events_are_missing_and_none_waits(
    make_timer: Any, cuda: FakeCuda
) -> None:
    """The GPU is far behind: 4 pairs of events, 10 sections."""
    timer = make_timer(4)
    for _ in range(10):
        with section("forward"):
            cuda.launch(1_000)
    cuda.advance(10_000)
    assert [run["state"] for run in ready(timer)] == [TIMED_BY_EVENTS] * 4 + [MISSING] * 6
    assert timer.state()["overruns"] == 6
    assert cuda.get("events") == 8


def test_a_number_that_comes_too_late_is_missing(timer: Any, cuda: FakeCuda) -> None:
    """After two seconds; host time never takes its place, and later runs are timed."""
    with section("forward"):
        cuda.launch(1_000)
    assert ready(timer, PATIENCE_NS * 9 // 10) == []
    (run,) = ready(timer, PATIENCE_NS + 1)
    assert (run["state"], run["busy_time_ns"]) == (MISSING, 0)
    assert timer.state()["late"] == 1
    cuda.advance(1_000)
    with section("forward"):
        cuda.launch(500)
    cuda.advance(500)
    assert busy_ns(ready(timer)) == {"forward": 500}


def test_a_lost_gpu_ends_timing_with_a_reason_and_training_goes_on(
    timer: Any, cuda: FakeCuda
) -> None:
    """CUDA's error 700: it stays training's own to find."""
    with section("forward"):
        cuda.launch(10)
    cuda.break_down(700)
    with section("backward"):
        pass
    with section("optimizer"):
        pass
    assert [run["state"] for run in ready(timer)] == [MISSING, MISSING, OFF]
    assert "gave 700: a kernel of the program failed" in timer.reason()
    assert (timer.state()["is_on"], timer.state()["error"]) == (0, 700)


def test_timing_can_be_stopped_and_started_again(timer: Any, cuda: FakeCuda) -> None:
    """Sections across the gap are missing, sections within it have no GPU time."""
    with section("open"):
        timer.stop(0)
        with section("between"):
            pass
        assert timer.start() == ""
    with section("after"):
        cuda.launch(30)
    cuda.advance(30)
    between, across, after = ready(timer)
    assert (between["state"], across["state"]) == (OFF, MISSING)
    assert busy_ns([after]) == {"after": 30}


def test_a_stream_that_nobody_can_name_is_missing(make_timer: Any, cuda: FakeCuda) -> None:
    """Whatever the function raises or gives stays out of training."""
    answers: list[Any] = [RuntimeError("no stream"), "text", -1, None]

    def ask(_: int) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    timer = make_timer(ask=ask)
    for _ in range(len(answers)):
        with section("forward"):
            cuda.launch(10)
    assert [run["state"] for run in ready(timer)] == [MISSING] * 4
    assert timer.state()["stream_unknown"] == 4


def test_without_torch_the_legacy_stream_is_timed(make_timer: Any, cuda: FakeCuda) -> None:
    """``current_stream`` is None."""
    timer = make_timer(ask=None)
    cuda.stream = 0
    with section("forward"):
        cuda.launch(123_000)
    cuda.advance(123_000)
    assert busy_ns(ready(timer)) == {"forward": 123_000}


def test_other_threads_go_on_while_the_queue_of_the_gpu_is_full(timer: Any, cuda: FakeCuda) -> None:
    """A GPU that hangs blocks who gives it work, and nobody who could tell of it."""

    def train() -> None:
        cuda.use(cuda.context)
        with section("stuck"):
            pass

    cuda.set("full", 1)
    thread = threading.Thread(target=train)
    thread.start()
    while cuda.get("inside") == 0:  # the thread waits in the driver; we have the GIL
        time.sleep(0.001)
    assert ready(timer) == []
    cuda.set("full", 0)
    thread.join()
    assert busy_ns(ready(timer)) == {"stuck": 0}


def test_a_section_inside_the_question_for_the_stream_is_no_trouble(
    make_timer: Any, cuda: FakeCuda
) -> None:
    """A finaliser may run at any call of Python and open a section of its own."""
    is_asking: list[bool] = []

    def ask(device: int) -> int:
        if not is_asking:
            is_asking.append(True)
            with section("finaliser"):
                cuda.launch(7)
            is_asking.clear()
        return cuda.current_stream(device)

    timer = make_timer(ask=ask)
    with section("forward"):
        cuda.launch(1_000)
    cuda.advance(10_000)
    runs = [run for run in ready(timer) if run["busy_time_ns"] >= 1_000]
    assert busy_ns(runs) == {"forward": 1_007}


@settings(deadline=None)
@given(
    script=st.lists(
        st.one_of(
            st.tuples(st.just("begin"), st.integers(1, 2**40)),
            st.just(("end", 0)),
            st.tuples(st.just("launch"), st.integers(0, 100_000)),
            st.just(("read", 0)),
        ),
        max_size=60,
    )
)
def test_any_script_gives_the_numbers_of_a_plain_model(
    cuda: FakeCuda, script: list[tuple[str, int]]
) -> None:
    """However sections nest and whenever somebody reads: each has what was launched inside."""
    assert NATIVE is not None
    cuda.begin()
    cuda.set("busy", 1)
    timer = NATIVE.EventTimer(cuda.path, cuda.current_stream, -1, 64)
    assert timer.start() == ""
    open_runs: list[tuple[int, int]] = []
    expected: dict[int, int] = {}
    result: list[Any] = []
    span = 0

    def end() -> None:
        run = np.zeros((), RECORD)
        run["span"], run["start_ns"] = open_runs.pop()
        run["end_ns"] = time.monotonic_ns()
        timer.ended(int(run["span"]))
        timer.add(run.tobytes())

    for what, number in script:
        if what == "begin":
            span += 1
            expected[span] = 0
            open_runs.append((span, time.monotonic_ns()))
            timer.begun(span)
        elif what == "end" and open_runs:
            end()
        elif what == "launch":
            cuda.launch(number)
            for inner, _ in open_runs:
                expected[inner] += number
        elif what == "read":
            result.extend(np.frombuffer(timer.take_ready(time.monotonic_ns()), RECORD))
    while open_runs:
        end()
    timer.stop(time.monotonic_ns() + PATIENCE_NS)
    result.extend(np.frombuffer(timer.take_all(True), RECORD))
    assert all(run["state"] == TIMED_BY_EVENTS for run in result)
    assert {int(run["span"]): int(run["busy_time_ns"]) for run in result} == expected


EXIT = """
import atexit, ctypes, os, sys, threading, time
from otel_straggler._native import EventTimer
from otel_straggler import section
from otel_straggler.native import NATIVE
from otel_straggler.client.recording import RECORDER
gpu = ctypes.CDLL(sys.argv[1])
gpu.fake_cuda_context.restype = gpu.fake_cuda_get.restype = ctypes.c_void_p
context = ctypes.c_void_p(gpu.fake_cuda_context(0))
gpu.fake_cuda_set_current(context)
if sys.argv[2] == "hung":  # until after the timer's own end
    atexit.register(gpu.fake_cuda_set, b"full", ctypes.c_uint64(0))
timer = EventTimer(sys.argv[1], lambda device: 0, -1)
NATIVE.set_gpu_timer(timer)
assert timer.start() == ""
RECORDER.enable()
def train(most=None):
    gpu.fake_cuda_set_current(context)
    while most is None or (most := most - 1) > 0:
        with section("forward"):
            pass
train(1000)
threading.Thread(target=train, daemon=True).start()
child = os.fork()
if child == 0:
    with section("in the child"):
        pass
    calls = gpu.fake_cuda_get(b"in_child")
    os._exit(0 if "forked child" in timer.start() and not calls else 1)
assert os.waitpid(child, 0)[1] == 0
RECORDER.drain()
if sys.argv[2] == "stopped":
    timer.stop(0)
if sys.argv[2] == "hung":
    gpu.fake_cuda_set(b"full", ctypes.c_uint64(1))
    while not gpu.fake_cuda_get(b"inside"):
        timer.take_ready(time.monotonic_ns())
"""


@pytest.mark.parametrize("end", ["stopped", "running", "hung"])
def test_a_process_may_fork_and_end_while_sections_are_timed(cuda: FakeCuda, end: str) -> None:
    """DataLoader workers are left alone, and a thread that trains to the end ends nothing."""
    for _ in range(3):
        answer = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", EXIT, cuda.path, end],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("exporter", ["native", "python"])
def test_spans_carry_the_time_of_the_gpu_and_say_how_it_was_taken(
    timer: Any, cuda: FakeCuda, exporter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the section to OTLP; one that could not be timed has host time alone, and says so."""
    if exporter == "python":
        monkeypatch.setattr(session, "why_python", lambda _: "a test asks for it")
    with CapturedRequests() as sink:
        configure(
            endpoint=sink.url,
            run_id="r",
            rank=0,
            strict=True,
            span_budget=0,
            flush_s=0.05,
            handle_sigterm=False,
        )
        try:
            with step(1), section("forward"):
                cuda.launch(2_000_000)
            cuda.advance(2_000_000)
            cuda.capture(True)
            with step(2), section("captured"):
                pass
            cuda.capture(False)
            flush(timeout_s=10)
            spans = {span.name: span.attributes for span in sink.spans()}
        finally:
            shutdown()
    assert spans["forward"][semconv.TIME_BASIS] == "events"
    assert spans["forward"][semconv.GPU_BUSY_TIME] == 2_000_000
    assert semconv.GPU_KERNEL_TIME not in spans["forward"]
    assert semconv.GPU_KERNEL_COUNT not in spans["forward"]
    assert semconv.GPU_BUSY_TIME not in spans["captured"]
    assert spans["captured"].get(semconv.TIME_BASIS) != "events"


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_compiled_region_records_no_events(timer: Any, cuda: FakeCuda) -> None:
    """Sections inside what torch.compile traces are nothing at all; the one around it is timed."""
    torch = pytest.importorskip("torch")

    def inside(x: Any) -> Any:
        with section("traced"):
            return x + 1

    compiled = torch.compile(inside, backend="eager", fullgraph=True)
    for _ in range(3):
        with section("around"):
            compiled(torch.ones(2))
    assert cuda.get("cuEventRecord") == 6
    assert busy_ns(ready(timer)) == {"around": 0}
