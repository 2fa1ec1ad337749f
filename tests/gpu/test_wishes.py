"""What may be asked for: by argument, by variable, and while the program runs."""

from __future__ import annotations

from typing import Any

import pytest

from otel_straggler import configure, section, semconv, set_gpu_timing, shutdown, step
from otel_straggler.client.gpu import current_timer
from otel_straggler.client.gpu.owner import GpuTiming, why_never
from otel_straggler.client.gpu.reasons import Refusal
from otel_straggler.client.settings import resolve_settings
from otel_straggler.errors import ConfigError
from otel_straggler.testing import CapturedRequests

from .scripted import settings


def test_nothing_is_asked_for_by_default() -> None:
    """Auto, half a percent of a step, and torch's libcupti."""
    result = resolve_settings({}, {})
    assert (result.gpu_timing, result.gpu_overhead, result.cupti_path) == ("auto", 0.005, "")


def test_the_environment_asks_as_an_argument_does() -> None:
    """The argument wins."""
    env = {
        "OTEL_STRAGGLER_GPU_TIMING": " CUPTI ",
        "OTEL_STRAGGLER_GPU_OVERHEAD": "0",
        "OTEL_STRAGGLER_CUPTI": "/opt/libcupti.so",
    }
    result = resolve_settings({}, env)
    assert (result.gpu_timing, result.gpu_overhead) == ("cupti", 0.0)
    assert result.cupti_path == "/opt/libcupti.so"
    result = resolve_settings({"gpu_timing": "events", "gpu_overhead": 0.5}, env)
    assert (result.gpu_timing, result.gpu_overhead) == ("events", 0.5)


@pytest.mark.parametrize(
    ("given", "env", "message"),
    [
        ({"gpu_timing": "on"}, {}, r"gpu_timing=.*'on'.*one of auto, off, events, cupti"),
        ({}, {"OTEL_STRAGGLER_GPU_TIMING": "yes"}, r"OTEL_STRAGGLER_GPU_TIMING.*'yes'"),
        ({"gpu_overhead": -0.1}, {}, r"gpu_overhead=.*-0.1.*from 0 to 1"),
        ({"gpu_overhead": True}, {}, r"gpu_overhead=.*True"),
        ({}, {"OTEL_STRAGGLER_GPU_OVERHEAD": "1%"}, r"OTEL_STRAGGLER_GPU_OVERHEAD.*'1%'"),
        ({}, {"OTEL_STRAGGLER_GPU_OVERHEAD": "nan"}, r"OTEL_STRAGGLER_GPU_OVERHEAD"),
    ],
)
def test_a_wrong_wish_is_refused(given: dict[str, Any], env: dict[str, str], message: str) -> None:
    """With what was given, and what may be."""
    with pytest.raises(ConfigError, match=message):
        resolve_settings(given, env)


def test_a_session_without_spans_of_its_own_times_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody would get the numbers."""
    monkeypatch.setattr("otel_straggler.client.gpu.owner.WHY_PYTHON", "")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    assert why_never(resolve_settings({})) == Refusal("not_sent")
    monkeypatch.delenv("OTEL_TRACES_EXPORTER")
    assert why_never(resolve_settings({})) is None


def test_without_the_native_part_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the reason says why it is not there."""
    monkeypatch.setattr("otel_straggler.client.gpu.owner.WHY_PYTHON", "it is off")
    refusal = why_never(settings())
    assert refusal is not None
    assert refusal.code == "no_extension"
    assert "it is off" in refusal.message


@pytest.mark.parametrize(
    ("more", "never"), [({"gpu_timing": "off"}, None), ({}, Refusal("not_sent"))]
)
def test_nothing_runs_where_nothing_is_to_be_timed(
    more: dict[str, Any], never: Refusal | None
) -> None:
    """No thread, no look at torch."""
    timing = GpuTiming(settings(**more), never)
    timing.start()
    assert timing._thread is None
    assert timing.described() == ("off", "asked" if never is None else never.code)
    timing.close(1.0)


def test_timing_is_switched_while_sections_run(gpu: Any) -> None:
    """Off, on and off again: each section has what was on while it ran."""
    with CapturedRequests() as sink:
        configure(endpoint=sink.url, run_id="r", rank=0, strict=True, flush_s=0.05)
        assert set_gpu_timing("off").reason == "asked"
        for n, tier in enumerate(("off", "cupti", "off")):
            state = set_gpu_timing(tier)
            assert (state.uses_cupti, state.wanted) == (tier == "cupti", tier)
            with step(n), section("forward"):
                gpu.launch("gemm", 1_000)
            if tier == "cupti":
                assert state.counts["is_tracing"] == 1
                current_timer().flush()
                with section("behind"):  # which shows that the GPU is beyond the one before
                    gpu.launch("gemm", 1_000)
                sink.wait_for(lambda s: "forward" in [span.name for span in s.spans()][2:])
        shutdown()
    basis = [s.attributes[semconv.TIME_BASIS] for s in sink.spans() if s.name == "forward"]
    assert basis == [semconv.HOST_BASIS, semconv.CUPTI_BASIS, semconv.HOST_BASIS]
