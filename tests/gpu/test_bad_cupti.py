"""A libcupti that cannot be used costs one line in the log, and nothing else."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import (
    configure,
    gpu_timing,
    section,
    semconv,
    set_gpu_timing,
    shutdown,
    step,
)
from otel_straggler.client.gpu import current_timer, tiers
from otel_straggler.testing import CapturedRequests

CALLS = (
    "cuptiGetVersion",
    "cuptiActivityRegisterCallbacks",
    "cuptiActivityEnable",
)
"""Those without which no kernel can be timed in any way."""
CODES = {
    1: "cupti_failed",
    14: "not_compatible",
    15: "not_initialized",
    27: "not_supported",
    33: "virtualized",
    35: "insufficient_privileges",
    39: "multiple_subscribers",
    40: "virtualized",
    41: "confidential",
    42: "not_supported",
    43: "not_supported",
    999: "cupti_unknown",
}
Train = Callable[..., list[str]]


@pytest.fixture
def sink() -> Iterator[CapturedRequests]:
    with CapturedRequests() as captured:
        yield captured


@pytest.fixture
def train(
    gpu: Any,
    sink: CapturedRequests,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> Train:
    """Ten steps with sections; what was logged of GPU timing."""
    monkeypatch.setattr(tiers, "_TIMERS", {})

    def train(**more: Any) -> list[str]:
        with caplog.at_level(logging.INFO, "otel_straggler"):
            session = configure(
                endpoint=sink.url, run_id="r", rank=0, strict=True, gpu_timing="cupti",
                heartbeat_s=0.05, flush_s=0.05, **more,
            )  # fmt: skip
            assert session._gpu is not None
            for _ in range(3):  # each looks again
                assert session._gpu._thread is not None
                assert session._gpu._thread.do(session._gpu._wake, 10)
            for n in range(10):
                with step(n), section("forward"):
                    gpu.launch("gemm", 1_000)
            now = gpu_timing  # which may change while we wait: kernels come back
            sink.wait_for(lambda s: reported(s)[-1:] == [(now().tier, now().reason)])
        lines = [r.getMessage() for r in caplog.records]
        return [line for line in lines if "GPU" in line and "watch it at" not in line]

    return train


def reported(sink: CapturedRequests) -> list[tuple[Any, Any]]:
    """Tier and reason, as each heartbeat says them."""
    return [
        (p.attributes[semconv.GPU_TIMING_TIER], p.attributes.get(semconv.GPU_TIMING_REASON, ""))
        for p in sink.points(semconv.RANK_INFO)
    ]


def check_spans(sink: CapturedRequests) -> None:
    """All have arrived, timed by the host."""
    shutdown()
    spans = [span for span in sink.spans() if span.name == "forward"]
    assert [span.attributes[semconv.STEP] for span in spans] == list(range(10))
    assert {span.attributes[semconv.TIME_BASIS] for span in spans} == {semconv.HOST_BASIS}


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("call", CALLS)
def test_a_refusal_is_told_once_and_training_goes_on(
    call: str, code: int, gpu: Any, train: Train, sink: CapturedRequests
) -> None:
    """Whatever call of CUPTI refuses, and why ever: the line names it, the cause and a remedy."""
    gpu.fail(call, code)
    try:
        [line] = train()
    finally:
        gpu.fail(call, 0)
    state = gpu_timing()
    assert (state.tier, state.wanted, state.reason) == ("off", "cupti", CODES[code])
    assert line.startswith(f"GPU timing is off ({CODES[code]}): {call} gave {code}: ")
    assert semconv.GPU_TIMING_REASONS[CODES[code]].remedy in line
    check_spans(sink)


@pytest.mark.parametrize(
    "call", ["cuptiActivitySetAttribute", "cuptiActivityRegisterTimestampCallback"]
)
def test_what_can_be_done_without_is_done_without(call: str, gpu: Any, train: Train) -> None:
    """An attribute that this libcupti does not know is no reason to time nothing."""
    gpu.fail(call, 1)
    try:
        first, *_ = train()
    finally:
        gpu.fail(call, 0)
    assert first.startswith("GPU timing is off (unproven): kernel records were asked for")
    current_timer().flush()
    assert gpu_timing().tier == "cupti"


def test_a_file_that_is_no_library(
    tmp_path: Path, train: Train, sink: CapturedRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable is named, and what the loader says of the file."""
    file = tmp_path / "notes.txt"
    file.write_text("not a library\n")
    monkeypatch.setenv("OTEL_STRAGGLER_CUPTI", str(file))
    [line] = train()
    assert "OTEL_STRAGGLER_CUPTI names a library that cannot be loaded" in line
    assert "notes.txt" in line
    assert gpu_timing().reason == "broken_cupti"
    check_spans(sink)


def test_a_library_that_is_no_libcupti(
    tmp_path: Path, train: Train, sink: CapturedRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first function that is missing is named."""
    source = tmp_path / "empty.c"
    source.write_text("int nothing;\n")
    library = tmp_path / "libempty.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-x", "c", str(source), "-o", str(library)],
                   check=True)  # fmt: skip
    monkeypatch.setenv("OTEL_STRAGGLER_CUPTI", str(library))
    [line] = train()
    assert "libcupti has no cuptiGetVersion" in line
    assert gpu_timing().reason == "broken_cupti"
    check_spans(sink)


def test_a_libcupti_that_is_too_old(gpu: Any, train: Train, sink: CapturedRequests) -> None:
    """Both versions are named: what it has and what is needed."""
    gpu.set("version", 17)
    try:
        [line] = train()
    finally:
        gpu.set("version", 0)
    assert "interface version 17; expected at least 18" in line
    assert gpu_timing().reason == "old_cupti"
    check_spans(sink)


def test_without_a_driver_it_waits_quietly(
    train: Train, sink: CapturedRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch may be about to load it; nothing of CUPTI is called before."""
    monkeypatch.setattr(
        "otel_straggler.client.gpu.surroundings.Surroundings.driver_path",
        lambda self: "libno_such_driver.so",
    )
    [line] = train()
    assert line.startswith("GPU timing is off (no_driver): no CUDA driver is loaded")
    check_spans(sink)


def test_another_client_that_takes_over_is_noticed(
    gpu: Any, train: Train, sink: CapturedRequests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are its own; ours would be missing, so times are the host's until it has gone."""
    monkeypatch.setenv("KINETO_USE_DAEMON", "1")
    train()
    assert gpu_timing().uses_cupti
    gpu.give_to_another()
    for n in range(10, 14):
        with step(n), section("forward"):
            gpu.launch("gemm", 1_000)
        current_timer().flush()
    sink.wait_for(lambda s: reported(s)[-1] == ("off", "takeover"))
    assert "another profiler takes" in gpu_timing().detail
    assert set_gpu_timing("cupti").uses_cupti


@pytest.mark.parametrize("module", ["torch", "grpc"])
def test_asking_for_the_state_loads_nothing(module: str) -> None:
    """gpu_timing() of a process that did not configure."""
    program = (
        "import sys, otel_straggler; assert otel_straggler.gpu_timing().tier == 'off';"
        f"sys.exit({module!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
