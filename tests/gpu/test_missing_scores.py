"""Why a GPU score is NaN: each reason of the closed list, by what a program did on the fake GPU."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from otel_straggler.client.gpu.reasons import GpuTimingState
from otel_straggler.detector import Detector, Report
from otel_straggler.model.missing_gpu_scores import MISSING_GPU_SCORES, number_of_reason
from otel_straggler.native import NATIVE
from otel_straggler.report.collected import CollectedReports
from otel_straggler.semconv import GPU_TIMING_REASONS

pytestmark = pytest.mark.skipif(
    NATIVE is None, reason="the extension was not built: it would show why scores are missing"
)


@pytest.fixture(autouse=True)
def _no_detector() -> Iterator[None]:
    yield
    Detector.shutdown()


def report() -> Report:
    result = Detector.generate_report()
    assert result is not None
    return result


def codes(result: Report) -> tuple[str, str]:
    """Of this rank; a score that is missing has a code and a line, and no other has."""
    scores = result.gpu_relative_perf_scores[0], result.gpu_individual_perf_scores[0]
    found = (
        result.gpu_relative_missing.get(0, ""),
        result.gpu_individual_missing.get(0, ""),
    )
    assert [math.isnan(score) for score in scores] == [bool(code) for code in found]
    line = result.why_no_gpu_scores()
    assert "\n" not in line
    for code in filter(None, found):
        assert f"({code})" in line
        assert MISSING_GPU_SCORES[code].remedy in line
    return found


def run(gpu: Any, kernel: str = "", times: int = 5, **options: Any) -> None:
    for _ in range(times):
        with Detector.detection_section("fwd", **options):
            if kernel:
                gpu.launch(kernel, 1_000)


@pytest.mark.parametrize(
    ("torch", "code"),
    [(None, "no_torch"), (SimpleNamespace(version=None, cuda=SimpleNamespace()), "no_cuda")],
)
def test_without_cuda_nothing_is_timed(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, torch: Any, code: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    Detector.initialize()
    run(gpu, "gemm")
    result = report()
    assert codes(result) == (code, code)
    assert "no GPU scores of rank 0: kernels are not timed, because " in result.why_no_gpu_scores()


def test_cuda_that_is_not_in_use_yet_is_waited_for(gpu: Any) -> None:
    cuda = sys.modules["torch"].cuda
    cuda.is_initialized = lambda: False  # type: ignore[method-assign]
    Detector.initialize()
    run(gpu, "gemm")
    assert codes(report()) == ("cuda_unused", "cuda_unused")


def test_a_tier_that_was_refused_gives_its_reason(gpu: Any) -> None:
    """The same as gpu_timing()."""
    gpu.fail("cuptiActivityEnable", 35)
    Detector.initialize()
    run(gpu, "gemm")
    gpu.fail("cuptiActivityEnable", 0)
    assert codes(report()) == ("insufficient_privileges", "insufficient_privileges")


def test_timing_that_was_switched_off_says_so(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_STRAGGLER_GPU_TIMING", "off")
    Detector.initialize()
    run(gpu, "gemm")
    assert codes(report()) == ("asked", "asked")


def test_sections_without_profile_cuda_ask_for_no_kernels(gpu: Any) -> None:
    Detector.initialize()
    run(gpu, "gemm", profile_cuda=False)
    assert codes(report()) == ("not_profiled", "not_profiled")


def test_kernels_that_do_not_count_are_not_none(gpu: Any) -> None:
    """None ever, or none in this window; in sections without profile_cuda; collectives alone; and
    then one that counts: a number, once it ran five times also against its own past."""
    Detector.initialize()
    run(gpu)
    assert codes(report()) == ("unproven", "unproven")
    run(gpu, "ncclDevKernel_AllReduce")
    assert codes(report()) == ("not_compute", "not_compute")
    run(gpu)
    assert codes(report()) == ("no_kernels", "no_kernels")
    with Detector.detection_section("data", profile_cuda=False):
        gpu.launch("gemm", 1_000)
    assert codes(report()) == ("outside_sections", "outside_sections")
    run(gpu, "gelu", times=3)
    assert codes(report()) == ("", "few_executions")
    run(gpu, "gelu", times=3)
    assert codes(report()) == ("", "")


def test_kernels_without_a_section_are_not_silently_none(
    gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a driver whose marks do not come back: all are counted lost."""
    Detector.initialize()
    state = GpuTimingState(tier="cupti", wanted="cupti", reason="", counts={"lost": 7})
    monkeypatch.setattr("otel_straggler.report.window.gpu_timing", lambda: state)
    run(gpu)
    assert codes(report()) == ("unattributed", "unattributed")
    assert codes(report()) == ("no_kernels", "no_kernels")  # none more is lost


def test_a_report_of_a_collector_says_what_its_scores_show() -> None:
    """NaN of both: no kernel times came; of the relative one alone: no other rank ran them."""
    window = {
        "ranks": {str(n): {"node": "n"} for n in range(3)},
        "sections": {},
        "gpu_relative_scores": {"0": 1.0, "1": None, "2": None},
        "gpu_individual_scores": {"0": 1.0, "1": 1.0, "2": None},
        "section_relative_scores": {},
        "section_individual_scores": {},
    }
    source = CollectedReports(url="http://x", run_id="r", group="", own_rank=0, is_whole=True)
    result = source.report_of(window)
    assert result.gpu_relative_missing == {1: "none_in_common", 2: "not_received"}
    assert result.gpu_individual_missing == {2: "not_received"}


def test_a_reason_that_the_list_lacks_does_not_end_a_collective() -> None:
    assert number_of_reason("of tomorrow") == number_of_reason("not_known")


def test_every_reason_is_in_the_reference() -> None:
    """Those of GPU timing are listed with the names on the wire."""
    pages = Path(__file__).parents[2] / "docs" / "reference"
    if not pages.is_dir():
        pytest.skip("no documentation here: it would show that it lists every reason")
    page = (pages / "scores.md").read_text(encoding="utf-8")
    own = MISSING_GPU_SCORES.keys() - GPU_TIMING_REASONS.keys()
    assert [code for code in own if f"| `{code}` |" not in page] == []
