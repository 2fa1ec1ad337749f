"""From sections of the public face to spans with GPU times: both exporters, a fake libcupti."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_straggler import configure, flush, section, semconv, shutdown, step
from otel_straggler.client import session
from otel_straggler.client.recording import RECORDER, RECORDING
from otel_straggler.native import NATIVE
from otel_straggler.testing import CapturedRequests, CapturedSpan

from .fake_cupti import FakeGpu, build

pytestmark = pytest.mark.skipif(
    NATIVE is None,
    reason="the extension was not built: it would show that spans carry GPU times",
)
GPU_KEYS = {
    semconv.GPU_KERNEL_TIME,
    semconv.GPU_BUSY_TIME,
    semconv.GPU_NCCL_TIME,
    semconv.GPU_KERNEL_COUNT,
}


@pytest.fixture(scope="module")
def fake(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    return FakeGpu(build(tmp_path_factory.mktemp("cupti")))


class Training:
    """A process that trains, as the owner of the GPU's timing sets it up.

    Attributes:
        gpu: what launches.
        sink: what was sent.
        by_launches: how the timer knows whose a kernel is; else by marks.
        timer: of kernels.
    """

    def __init__(self, gpu: FakeGpu, sink: CapturedRequests, by_launches: bool) -> None:
        assert NATIVE is not None
        self.native: Any = NATIVE
        self.gpu = gpu
        self.sink = sink
        self.by_launches = by_launches
        self.timer: Any = NATIVE.KernelTimer(gpu.path, "", gpu.path, by_launches, False, False)

    def begin(self, **more: Any) -> None:
        given: dict[str, Any] = {
            "endpoint": self.sink.url, "run_id": "r", "rank": 3, "span_budget": 0,
            "heartbeat_s": 0.1, "flush_s": 0.05, "handle_sigterm": False, "strict": True,
            "exit_deadline_s": 20.0,
        }  # fmt: skip
        configure(**given | more)
        self.time_kernels()

    def time_kernels(self) -> None:
        self.native.set_gpu_timer(self.timer)
        assert self.timer.start() == ""
        self.timer.start_thread()

    def stop_timing(self) -> None:
        self.timer.stop_thread()
        self.timer.stop(time.monotonic_ns())
        self.native.set_gpu_timer(None)

    def end(self) -> dict[str, CapturedSpan]:
        """After the GPU was synchronised. The last span of each name."""
        RECORDER.end_step()
        self.timer.flush()
        self.timer.flush()
        self.native.set_gpu_complete(True)
        shutdown()
        return {span.name: span for span in self.sink.spans()}

    def lost(self) -> dict[str, int]:
        points = self.sink.points(semconv.RECORDS_DROPPED)
        return {point.attributes[semconv.REASON]: int(point.value) for point in points}


@pytest.fixture(params=["native", "python"])
def sink(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CapturedRequests]:
    """What the exporter of this kind sends."""
    if request.param == "python":
        monkeypatch.setattr(session, "why_python", lambda _: "a test asks for it")
    with CapturedRequests() as captured:
        yield captured


@pytest.fixture(params=["marks", "launches"])
def training(
    request: pytest.FixtureRequest, fake: FakeGpu, sink: CapturedRequests
) -> Iterator[Training]:
    fake.reset()
    training = Training(fake, sink, request.param == "launches")
    yield training
    shutdown()
    training.stop_timing()


def gpu_of(span: CapturedSpan) -> tuple[int, ...]:
    """Kernel time, busy time, NCCL time, count; empty if it has none."""
    keys = (
        semconv.GPU_KERNEL_TIME,
        semconv.GPU_BUSY_TIME,
        semconv.GPU_NCCL_TIME,
        semconv.GPU_KERNEL_COUNT,
    )
    assert (semconv.GPU_KERNEL_COUNT in span.attributes) == (basis(span) == semconv.CUPTI_BASIS)
    return tuple(span.attributes[key] for key in keys if key in span.attributes)


def basis(span: CapturedSpan) -> Any:
    return span.attributes[semconv.TIME_BASIS]


def test_every_span_has_the_kernels_launched_in_it(training: Training) -> None:
    """By whatever thread; a section that fails too."""
    training.begin()
    launch = training.gpu.launch
    step(1)
    launch("zero_grad", 1)
    with section("forward"):
        launch("gemm", 10)
        with section("attention"):
            launch("softmax", 100)
    with section("backward"):
        thread = threading.Thread(target=launch, args=("gemm_grad", 1_000))
        thread.start()
        thread.join()
    with section("reduce", kind="wait"):
        launch("ncclDevKernel_AllReduce_Sum", 10_000)
    with suppress(ZeroDivisionError), section("update"):
        launch("adam", 100_000)
        raise ZeroDivisionError
    launch("log", 1_000_000)
    spans = training.end()
    assert {name: gpu_of(span) for name, span in spans.items()} == {
        "attention": (100, 100, 0, 1),
        "forward": (110, 110, 0, 2),
        "backward": (1_000, 1_000, 0, 1),
        "reduce": (10_000, 10_000, 10_000, 1),
        "update": (100_000, 100_000, 0, 1),
        "step": (1_111_111, 1_111_111, 10_000, 7),
    }
    assert spans["update"].is_error
    assert training.lost() == {}


def test_a_section_in_another_thread_has_its_own_kernels_or_none(training: Training) -> None:
    """A prefetching thread. Marks cannot see it: its span then has the host's time, not zero."""
    training.begin()

    def prefetch() -> None:
        with section("decode", kind="data"):
            training.gpu.launch("decode", 10, stream=8)

    with step(1), section("forward"):
        training.gpu.launch("gemm", 100)
        thread = threading.Thread(target=prefetch)
        thread.start()
        thread.join()
    spans = training.end()
    is_seen = training.by_launches
    assert gpu_of(spans["decode"]) == ((10, 10, 0, 1) if is_seen else ())
    assert gpu_of(spans["forward"])[0] == (100 if is_seen else 110)
    assert gpu_of(spans["step"])[0] == 110
    assert training.lost() == {}


def test_a_section_without_kernels_says_so(training: Training) -> None:
    """Zero is a measurement, unlike no number."""
    training.begin()
    with step(1):
        training.gpu.launch("gemm", 10)
        with section("load", kind="data"):
            pass
    spans = training.end()
    assert gpu_of(spans["load"]) == (0, 0, 0, 0)


def test_spans_go_out_with_their_numbers_while_training_goes_on(training: Training) -> None:
    """Nobody flushes; the GPU is behind the host.

    The last run before a pause of the training thread has no numbers, as is documented: by marks, a
    run's are known once something was launched after it, and flushed. Where the machine makes such
    a pause, the run before it is left out.
    """
    training.begin()
    launched_s: list[float] = []

    def train() -> int:
        with step(len(launched_s)), section("forward"):
            training.gpu.launch("gemm", 1_000)
            launched_s.append(time.monotonic())
        time.sleep(0.01)
        return sum(span.name == "forward" for span in training.sink.spans())

    end_s = time.monotonic() + 30
    while train() < 50:
        assert time.monotonic() < end_s
    forward = [span for span in training.sink.spans() if span.name == "forward"]
    assert [span.attributes[semconv.SEQ] for span in forward] == list(range(len(forward)))
    of_runs = zip(forward, itertools.pairwise(launched_s), strict=False)
    measured = [gpu_of(span) for span, (at_s, next_s) in of_runs if next_s - at_s < 1]
    assert len(measured) > 40
    assert set(measured) == {(1_000, 1_000, 0, 1)}


def test_without_a_timer_spans_wait_for_nothing(training: Training) -> None:
    """They have the host's time and say so."""
    training.begin()
    training.stop_timing()
    with step(1), section("forward"):
        training.gpu.launch("gemm", 10)
    spans = training.end()
    assert {basis(span) for span in spans.values()} == {semconv.HOST_BASIS}
    assert not GPU_KEYS & spans["forward"].attributes.keys()


def test_late_numbers_are_missing_and_counted(training: Training) -> None:
    """A flush sends the spans all the same, in its time; the host's time is no substitute."""
    training.begin()
    training.gpu.set("hold", 1)
    with step(1), section("forward"):
        training.gpu.launch("gemm", 10)
    assert flush(20.0)
    spans = {span.name: span for span in training.sink.spans()}
    assert {basis(span) for span in spans.values()} == {semconv.HOST_BASIS}
    assert not GPU_KEYS & spans["forward"].attributes.keys()
    training.gpu.set("hold", 0)
    training.end()
    assert training.lost() == {"gpu_missing": 2, "gpu_late": 1}
    assert Counter(span.name for span in training.sink.spans()) == {"forward": 1, "step": 1}


def test_kernels_that_cupti_drops_leave_no_number_that_is_too_small(training: Training) -> None:
    """What was open then is missing; what comes later is timed again."""
    training.begin()
    training.gpu.set("drop_every", 2)
    with step(1):
        for _ in range(10):
            training.gpu.launch("gemm", 10)
    training.timer.flush()
    training.gpu.set("drop_every", 0)
    time.sleep(0.001)
    with step(2):
        training.gpu.launch("gemm", 10)
    training.end()
    spans = [span for span in training.sink.spans() if span.name == "step"]
    assert [gpu_of(span) for span in spans] == [(), (10, 10, 0, 1)]
    lost = training.lost()
    assert lost["gpu_missing"] == 1
    assert lost["gpu_dropped"] > 0


def test_records_in_any_order_give_the_same_numbers(training: Training) -> None:
    """Several streams end when they like."""
    training.begin()
    training.gpu.set("shuffle", 30)
    for n in range(20):
        with step(n):
            for _ in range(n):
                training.gpu.launch("gemm", 10)
    training.end()
    spans = [span for span in training.sink.spans() if span.name == "step"]
    assert [gpu_of(span)[3] for span in spans] == list(range(20))


def test_another_profiler_takes_the_records(training: Training) -> None:
    """What went to it is missing here, and counted."""
    training.begin()
    training.gpu.launch("gemm", 10)
    training.timer.flush()
    training.gpu.give_to_another()
    with step(1):
        training.gpu.launch("gemm", 10)
    assert flush(1.0)
    (span,) = training.sink.spans()
    assert gpu_of(span) == ()
    shutdown()
    assert training.lost()["gpu_missing"] == 1


def test_timing_may_be_taken_away_and_come_back(training: Training) -> None:
    """Every span once, in order; those of the time between have the host's time."""
    training.begin()
    for n in range(30):
        if n == 10:
            training.timer.flush()
            training.timer.flush()
            training.stop_timing()
        if n == 20:
            training.time_kernels()
        with step(n), section("forward"):
            training.gpu.launch("gemm", 10)
    training.end()
    forward = [span for span in training.sink.spans() if span.name == "forward"]
    assert [span.attributes[semconv.SEQ] for span in forward] == list(range(30))
    timed = [n for n in range(30) if gpu_of(forward[n])]
    assert {n: gpu_of(forward[n]) for n in timed} == dict.fromkeys(timed, (10, 10, 0, 1))
    assert not set(timed) & set(range(10, 20))
    assert set(timed) >= set(range(20, 30))
    assert len(timed) + training.lost().get("gpu_missing", 0) / 2 >= 20


def test_a_section_that_is_open_when_timing_begins_is_missing(training: Training) -> None:
    """Half of its kernels were not seen; runs inside it are whole."""
    training.begin()
    training.stop_timing()
    with section("fit"):
        training.time_kernels()
        with section("forward"):
            training.gpu.launch("gemm", 10)
    spans = training.end()
    assert (gpu_of(spans["forward"]), gpu_of(spans["fit"])) == ((10, 10, 0, 1), ())
    assert training.lost() == {"gpu_missing": 1}


def test_a_coroutine_has_the_time_of_the_host(training: Training) -> None:
    """Others run on its thread meanwhile: whose a kernel is, nobody knows. The step has it."""
    training.begin()

    @section("decode")
    async def decode() -> None:
        training.gpu.launch("gemm", 10)
        await asyncio.sleep(0)
        training.gpu.launch("gemm", 10)

    async def both() -> None:
        await asyncio.gather(decode(), decode())

    with step(1), section("forward"):
        training.gpu.launch("gemm", 100)
        asyncio.run(both())
    spans = training.end()
    assert {name: gpu_of(span) for name, span in spans.items()} == {
        "decode": (),
        "forward": (140, 140, 0, 5),
        "step": (140, 140, 0, 5),
    }
    assert training.lost() == {}


def test_a_child_leaves_the_parents_gpu_alone(training: Training) -> None:
    """A DataLoader's worker, forked in the middle of a section."""
    training.begin()
    with step(1), section("forward"):
        training.gpu.launch("gemm", 10)
        child = os.fork()
        if child == 0:
            with section("decode"):
                pass
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        training.gpu.launch("gemm", 10)
    spans = training.end()
    assert gpu_of(spans["forward"]) == (20, 20, 0, 2)
    assert "decode" not in spans


def test_who_listens_in_the_process_does_not_wait(training: Training) -> None:
    """The report gets runs when they end; their spans go out when the GPU has ended them too."""
    training.begin(flush_s=60.0)
    training.gpu.set("hold", 1)
    received: list[str] = []
    listener = lambda records: received.extend(record[0][0].name for record in records)  # noqa: E731
    RECORDING.listen(listener)
    with section("forward"):
        training.gpu.launch("gemm", 10)
    RECORDING.unlisten(listener)
    assert received == ["forward"]
    training.gpu.set("hold", 0)
    assert gpu_of(training.end()["forward"]) == (10, 10, 0, 1)


def test_an_applications_provider_gets_spans_at_once(training: Training) -> None:
    """Ours have the numbers; sections that are current spans for user code have them too."""
    exported = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exported))
    training.begin(tracer_provider=provider, propagate_context=True)
    with step(1), section("forward"):
        training.gpu.launch("gemm", 10)
        with section("attention"):
            training.gpu.launch("softmax", 100)
    spans = training.end()
    assert {name: gpu_of(span)[0] for name, span in spans.items()} == {
        "attention": 100,
        "forward": 110,
        "step": 110,
    }
    seen = {span.name: span.attributes or {} for span in exported.get_finished_spans()}
    assert seen["forward"][semconv.TIME_BASIS] == semconv.HOST_BASIS
    provider.shutdown()


def test_hot_sections_are_folded_with_the_sum_of_their_kernels(training: Training) -> None:
    """Above the span budget one span stands for many runs, and has the kernels of all."""
    training.begin(span_budget=1)
    for n in range(20):
        with step(n):
            for _ in range(100):
                with section("layer"):
                    training.gpu.launch("gemm", 10)
        time.sleep(0.02)
    training.end()
    spans = [span for span in training.sink.spans() if span.name == "layer"]
    runs = [span.attributes.get(semconv.FOLD_COUNT, 1) for span in spans]
    assert (sum(runs), len(runs) < 2_000) == (2_000, True)
    reported = [(gpu_of(span), n) for span, n in zip(spans, runs, strict=True) if gpu_of(span)]
    assert [gpu for gpu, _ in reported] == [(10 * n, 10 * n, 0, n) for _, n in reported]
    assert len(spans) - len(reported) <= 2  # a machine that stands still for 2 s makes one missing
    assert set(training.lost()) <= {"gpu_missing"}
