"""What ``propagate_context`` and the application's own TracerProvider cost, in one run.

    python -m benchmarks.propagation_cost

Prints JSON. ``call``: on the training thread, ``with section:`` plain, with a provider, and with
propagation on top, and ``start_as_current_span`` of the SDK. ``thread``: CPU per span in the
thread that builds the SDK's spans, compared with the SDK's own creation of the same spans; both end
in a batch processor whose exporter does nothing. Ratios count; rounds take turns.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.harness.turns import take_turns
from benchmarks.sections import ATTRIBUTES
from otel_straggler import section, step
from otel_straggler.client.propagation import Propagation
from otel_straggler.client.recording import RECORDER
from otel_straggler.client.sdk_feed import SdkSink
from otel_straggler.client.sdk_spans import SpanBuilder
from otel_straggler.client.sdk_traces import SdkTraces
from otel_straggler.client.topology import Topology
from otel_straggler.config import ClientSettings, Endpoint
from otel_straggler.otlp.ids import SpanIds

ROUNDS = 21
RUNS = 2_000
STEPS, SECTIONS = 40, 15
NO_LIMIT = 1e12


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        del spans
        return SpanExportResult.SUCCESS


def main() -> None:
    """Measure and print."""
    print(json.dumps({"call": _call(), "thread": _thread()}, indent=2))


def _call() -> dict[str, float]:
    provider = _provider()
    tracer = provider.get_tracer("benchmark")
    forward = section("forward")
    builder = SpanBuilder(provider, _raise)
    traces = SdkTraces(_settings(provider), builder, SpanIds(), Topology)
    propagation = Propagation(traces, _raise)
    RECORDER.enable()

    def empty() -> None:
        for _ in range(RUNS):
            pass

    def own() -> None:
        for _ in range(RUNS):
            with forward:
                pass

    def propagated() -> None:
        propagation.install()
        step(next(numbers))
        try:
            own()
        finally:
            propagation.uninstall()

    def sdk() -> None:
        for _ in range(RUNS):
            with tracer.start_as_current_span("forward", attributes=ATTRIBUTES):
                pass

    numbers = iter(range(10**9))
    candidates = {"own": own, "propagated": propagated, "sdk": sdk, "empty": empty}
    times = _alternate(candidates, RUNS, between=RECORDER.drain, clock=time.perf_counter_ns)
    RECORDER.disable()
    provider.shutdown()
    cost = {name: taken - times["empty"] for name, taken in times.items()}
    return {
        "section_ns": cost["own"],
        "propagated_section_ns": cost["propagated"],
        "sdk_span_ns": cost["sdk"],
        "propagated_over_plain": cost["propagated"] / cost["own"],
        "sdk_over_propagated": cost["sdk"] / cost["propagated"],
    }


def _thread() -> dict[str, float]:
    provider = _provider()
    tracer = provider.get_tracer("benchmark")
    records = _records()
    sink = SdkSink(_settings(provider), SpanIds(), Topology, sleep=lambda _: None)
    sink.generation = RECORDER.session.generation

    def own() -> None:
        sink.put(records)
        sink.tick(time.monotonic())

    def sdk() -> None:
        for _ in range(STEPS):
            with tracer.start_as_current_span("step", attributes=ATTRIBUTES):
                for _ in range(SECTIONS):
                    with tracer.start_as_current_span("forward", attributes=ATTRIBUTES):
                        pass

    def flush() -> None:
        provider.force_flush()

    times = _alternate(
        {"own": own, "sdk": sdk}, len(records), between=flush, clock=time.thread_time_ns
    )
    RECORDER.disable()
    provider.shutdown()
    return {
        "sink_us_per_span": times["own"] / 1e3,
        "sdk_us_per_span": times["sdk"] / 1e3,
        "sink_over_sdk": times["own"] / times["sdk"],
        "share_of_a_core_at_100_per_s": times["own"] * 100 / 1e9,
    }


def _records() -> list:  # type: ignore[type-arg]
    RECORDER.enable()
    for n in range(STEPS):
        with step(n):
            for at in range(SECTIONS):
                with section(f"section {at}"):
                    pass
    return RECORDER.drain()


def _provider() -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_Nowhere(), max_queue_size=100_000))
    return provider


def _settings(provider: TracerProvider) -> ClientSettings:
    nowhere = Endpoint(url="http://127.0.0.1/", is_enabled=False)
    return ClientSettings(
        run_id="r",
        world_size=8,
        traces=nowhere,
        metrics=nowhere,
        tracer_provider=provider,
        sdk_spans_per_s=NO_LIMIT,
    )


def _raise(error: Exception) -> None:
    raise error


def _alternate(
    candidates: dict[str, Callable[[], None]],
    runs: int,
    between: Callable[[], object],
    clock: Callable[[], int],
) -> dict[str, float]:
    """Nanoseconds per run of each candidate: the median over rounds that take turns."""
    taken = take_turns(candidates, ROUNDS, clock, after_each=between)
    return {name: statistics.median(times) / runs for name, times in taken.items()}


if __name__ == "__main__":
    main()
