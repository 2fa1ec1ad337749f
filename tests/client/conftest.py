"""What the client's tests share: a sink, a clean process, an exporter ticked by hand."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from otel_straggler import shutdown
from otel_straggler.client.collectives import ddp_logger
from otel_straggler.client.collectives.ddp_logger import DdpTimers
from otel_straggler.client.collectives.waits import Waits
from otel_straggler.client.guard import GUARD
from otel_straggler.client.python_export import Exporter
from otel_straggler.client.recording import RECORDER
from otel_straggler.client.topology import TOPOLOGY
from otel_straggler.config import ClientSettings, OtlpProtocol
from otel_straggler.native import VARIABLE
from otel_straggler.testing import FakeClock

from .ddp_fakes import Clock, Fakes, fake_ddp
from .sinks import GrpcSink, HttpSink

EXIT_DEADLINE = "OTEL_STRAGGLER_EXIT_DEADLINE_S"
MakeExporter = Callable[..., Exporter]


@pytest.fixture(autouse=True)
def _clean_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test sees the environment, session or topology of another."""
    for prefix in ("OTEL_", "SLURM_", "TORCHELASTIC_", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_"):
        for name in [n for n in os.environ if n.startswith(prefix)]:
            if name != VARIABLE:
                monkeypatch.delenv(name)
    # Two seconds by default: less than a busy machine may stand still.
    monkeypatch.setenv(EXIT_DEADLINE, "20")
    TOPOLOGY.reset()
    yield
    shutdown()
    RECORDER.disable()
    while still_open := RECORDER.open_here():
        for timer, *_ in reversed(still_open):
            timer.__exit__(None, None, None)
    RECORDER.drain()
    TOPOLOGY.reset()
    GUARD.begin(is_strict=False)


@pytest.fixture
def protocol() -> OtlpProtocol:
    """What the sink speaks. A module whose tests hold for both overrides it."""
    return "http/protobuf"


@pytest.fixture
def sink(protocol: OtlpProtocol) -> Iterator[HttpSink | GrpcSink]:
    with GrpcSink() if protocol == "grpc" else HttpSink() as captured:
        yield captured  # type: ignore[misc]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def settings(sink: HttpSink | GrpcSink) -> ClientSettings:
    """Settings of rank 3 of a run of 8."""
    return ClientSettings(
        run_id="run-1",
        rank=3,
        world_size=8,
        local_rank=1,
        node="node-a",
        service_name="job",
        traces=sink.endpoint("traces"),
        metrics=sink.endpoint("metrics"),
    )


@pytest.fixture
def make_exporter(settings: ClientSettings, clock: FakeClock) -> MakeExporter:
    """Begin to record; give an exporter without a thread, with other settings where named."""

    def make(**changes: object) -> Exporter:
        RECORDER.enable()
        return Exporter(
            replace(settings, **changes),  # type: ignore[arg-type]
            RECORDER,
            topology=lambda: TOPOLOGY.current,
            other_losses=GUARD.counts,
            clock=clock,
            rng=lambda: 0.5,
        )

    return make


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fakes]:
    """DDP, whose timers are read while the test runs."""
    RECORDER.enable()
    result = Fakes(fake_ddp(), Waits(), None)  # type: ignore[arg-type]
    result.timers = DdpTimers(
        result.ddp, result.waits, lambda: result.is_grad_enabled, lambda: result.is_capturing
    )
    monkeypatch.setattr(ddp_logger, "perf_counter_ns", Clock())
    yield result
    result.timers.restore()
