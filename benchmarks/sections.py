"""What a section costs in the training thread, compared with its peers, in one run.

    python -m benchmarks.sections        (with NVRx where it is installed: make bench-peers)

Prints JSON: processor time of this thread per section, in nanoseconds, of each way to time one,
less that of an empty loop, and for each budget the ratio of two ways, and that to the budget (1.0 =
just met). Only ratios count: rounds take turns, so that all see the same noise, and the median of a
round is taken. The ring is emptied between rounds, as a thread of its own would do it; what
``Detector`` empties on the spot counts.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.harness import nvrx
from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, not_measured, print_result
from benchmarks.harness.turns import take_turns
from otel_straggler import section, step
from otel_straggler.client import python_recorder
from otel_straggler.client.recording import FORM, RECORDER, RECORDING, WHY_PYTHON
from otel_straggler.client.sdk_spans import SpanBuilder
from otel_straggler.client.sdk_traces import SdkTraces
from otel_straggler.client.topology import Topology
from otel_straggler.config import ClientSettings, Endpoint
from otel_straggler.detector import PULL_EVERY, CallableId, Detector
from otel_straggler.otlp.ids import SpanIds

RUNS = 5_000
NAMES = [f"section {n}" for n in range(100)]
ATTRIBUTES = {
    "straggler.section": "forward",
    "straggler.section.kind": "compute",
    "straggler.time_basis": "host",
    "training.step": 7,
    "straggler.seq": 12_345,
}
DETECTED = ("named", "many_names", "nested", "wrapped", "unnamed", "sampled")
"""How code written against NVRx opens sections; each here and there."""
BUDGETS = (
    ("reused", "nvrx_named", 15),
    ("reused", "sdk_span", 100),
    *((f"detector_{how}", f"nvrx_{how}", 8) for how in DETECTED),
    ("detector_sampled", "detector_named", 1),
)
"""(what, compared with what, how many times cheaper it is to be); see the design."""
Way = Callable[[], None]


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        del spans
        return SpanExportResult.SUCCESS


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=61)
    rounds = parser.parse_args().rounds
    costs = _costs(rounds)
    result = {
        **about("nvidia-resiliency-ext", "opentelemetry-sdk"),
        "recorder": FORM,
        "why_python": WHY_PYTHON,
        "nvrx": nvrx.is_installed() or nvrx.NOT_INSTALLED,
        "rounds": rounds,
        "runs_per_round": RUNS,
        "ns": {name: round(ns, 1) for name, ns in costs.items()},
    }
    print_result(result, _budgets(costs))


def _costs(rounds: int) -> dict[str, float]:
    """Nanoseconds per section of each way, in the order of their meaning."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Nowhere(), max_queue_size=100_000))
    forward, python_forward = section("forward"), python_recorder.PythonTimer("forward", "compute")
    ways: dict[str, Way] = {
        "empty_loop": _empty,
        "clock_pair": _clock_pair,
        "reused": _around(lambda: forward, is_reused=True),
        "by_name": _by_name,
        "sized": _around(lambda: forward.run(tokens=4096)),
        "nested": _nested,
        "python_reused": _around(lambda: python_forward, is_reused=True),
        "sdk_span": _of_sdk(provider),
    }
    if FORM == "native":
        ways["propagated"] = _propagated(provider)
    Detector.initialize()
    RECORDER.empty_here(None)
    ways |= {name: _emptied(way) for name, way in _detected("detector", Detector).items()}
    if nvrx.is_installed():
        ways |= _detected("nvrx", nvrx.their_detector())
    step(7)
    python_recorder.RECORDER.enable()
    took = _alternate(ways, rounds, between=provider.force_flush)
    Detector.shutdown()
    python_recorder.RECORDER.disable()
    off = _alternate({"empty_loop": _empty, "off": ways["reused"]}, rounds, between=list)
    provider.shutdown()
    costs = {name: ns - took["empty_loop"] for name, ns in took.items() if name != "empty_loop"}
    return {**costs, "before_configure": off["off"] - off["empty_loop"]}


def _budgets(costs: dict[str, float]) -> dict[str, Any]:
    result = {}
    for name, peer, times in BUDGETS:
        key = f"{name} / {peer} <= 1/{times}"
        if peer in costs:
            result[key] = judge(costs[name] / costs[peer], 1 / times, "")
        else:
            result[key] = not_measured(nvrx.NOT_INSTALLED)
    return result


def _around(make: Callable[[], AbstractContextManager[Any]], *, is_reused: bool = False) -> Way:
    """A loop of ``with``: around one object, or around a new one each time. ``make`` is one call
    of Python more than a user's line has."""

    def reused() -> None:
        timer = make()
        for _ in range(RUNS):
            with timer:
                pass

    def recreated() -> None:
        for _ in range(RUNS):
            with make():
                pass

    return reused if is_reused else recreated


def _emptied(way: Way) -> Way:
    """As ``Detector`` does it: the thread that times also empties the ring, every so often."""

    def emptied() -> None:
        RECORDER.empty_here(RECORDING.pull, PULL_EVERY)
        way()
        RECORDER.empty_here(None)

    return emptied


def _by_name() -> None:
    for _ in range(RUNS):
        with section("forward"):
            pass


def _detected(whose: str, detector: Any) -> dict[str, Way]:
    """The same loops over our ``Detector`` or NVRx's, both without kernels."""

    class Model:
        def forward(self) -> None:
            """Nothing to time."""

    model, name = Model(), CallableId(Model, "forward")
    detector.wrap_callables([name], profile_cuda=False)
    sampled = _around(lambda: detector.detection_section("sampled", profile_cuda=False))

    def named() -> None:
        for _ in range(RUNS):
            with detector.detection_section("forward", profile_cuda=False):
                pass

    def many_names() -> None:
        for _ in range(RUNS // len(NAMES)):
            for each in NAMES:
                with detector.detection_section(each, profile_cuda=False):
                    pass

    def nested() -> None:
        for _ in range(RUNS):
            with (
                detector.detection_section("outer", profile_cuda=False),
                detector.detection_section("inner", profile_cuda=False),
            ):
                pass

    def wrapped() -> None:
        for _ in range(RUNS):
            model.forward()

    def unnamed() -> None:
        for _ in range(RUNS):
            with detector.detection_section(profile_cuda=False):
                pass

    def every_tenth() -> None:
        detector.profiling_interval = 10
        sampled()
        detector.profiling_interval = 1

    ways = named, many_names, nested, wrapped, unnamed, every_tenth
    return {f"{whose}_{how}": way for how, way in zip(DETECTED, ways, strict=True)}


def _of_sdk(provider: TracerProvider) -> Way:
    tracer = provider.get_tracer("benchmark")

    def sdk_span() -> None:
        for _ in range(RUNS):
            with tracer.start_as_current_span("forward", attributes=ATTRIBUTES):
                pass

    return sdk_span


def _empty() -> None:
    for _ in range(RUNS):
        pass


def _clock_pair() -> None:
    clock = time.perf_counter_ns
    for _ in range(RUNS):
        clock()
        clock()


def _nested() -> None:
    """Two sections, one in the other; the price of both."""
    outer, inner = section("outer"), section("inner")
    for _ in range(RUNS):
        with outer, inner:
            pass


def _propagated(provider: TracerProvider) -> Way:
    from otel_straggler.client.propagation import Propagation

    nowhere = Endpoint(url="http://127.0.0.1/", is_enabled=False)
    settings = ClientSettings(
        run_id="r",
        world_size=8,
        traces=nowhere,
        metrics=nowhere,
        tracer_provider=provider,
        sdk_spans_per_s=1e12,
    )
    builder = SpanBuilder(provider, _raise)
    propagation = Propagation(SdkTraces(settings, builder, SpanIds(), Topology), _raise)
    forward = section("forward")
    numbers = iter(range(8, 10**9))

    def propagated() -> None:
        propagation.install()
        step(next(numbers))
        try:
            for _ in range(RUNS):
                with forward:
                    pass
        finally:
            propagation.uninstall()

    return propagated


def _alternate(
    ways: dict[str, Way], rounds: int, between: Callable[[], object]
) -> dict[str, float]:
    """Nanoseconds per run of each way: the median over rounds that take turns. Of the processor:
    on a busy machine the clock on the wall stops for long rounds more than for short ones."""
    took = take_turns(
        ways, rounds, time.thread_time_ns, before=between, after_each=_empty_the_rings
    )
    return {name: statistics.median(times) / RUNS for name, times in took.items()}


def _empty_the_rings() -> None:
    RECORDER.drain()
    python_recorder.RECORDER.drain()


def _raise(error: Exception) -> None:
    raise error


if __name__ == "__main__":
    os.environ.pop("OTEL_STRAGGLER_ENDPOINT", None)  # nothing is sent
    main()
