"""Sections, encode, scan and report with tiny doses: each tells its ratio to its budget."""

from __future__ import annotations

import pytest

from benchmarks.harness.nvrx import is_installed
from otel_straggler.native import NATIVE

needs_nvrx = pytest.mark.skipif(
    not is_installed(), reason="nvidia-resiliency-ext is not installed: it would be compared with"
)
needs_native = pytest.mark.skipif(
    NATIVE is None, reason="the extension was not built: its costs were not measured"
)


@pytest.fixture(scope="module")
def sections(benchmark):
    return benchmark("sections", "--rounds", "1")


@pytest.fixture(scope="module")
def report(benchmark):
    return benchmark("report", "--rounds", "1", "--sections", "2", "200")


def test_sections_tells_every_way_in_one_run(sections):
    """Ours by object, by name and propagated, plain Python, two clock readings, the SDK's span."""
    ns = sections[0]["ns"]
    ways = {"clock_pair", "reused", "by_name", "propagated", "python_reused", "sdk_span"}
    assert ways <= ns.keys()
    for how in ("named", "many_names", "nested", "wrapped", "unnamed", "sampled"):
        assert f"detector_{how}" in ns
        assert (f"nvrx_{how}" in ns) == is_installed()


def test_sections_has_budgets_of_each_way(sections):
    """Against NVRx, the SDK's span and ourselves; without NVRx its own are not measured."""
    result, sentences = sections
    assert len(result["budgets"]) == 9
    for name, measured in result["budgets"].items():
        assert name in sentences
        assert ("ratio_to_budget" in measured) == (is_installed() or "nvrx" not in name)


def test_a_peer_that_is_absent_is_said_to_be_absent(sections):
    """True, or a sentence with the way to have it."""
    result, _ = sections
    assert result["nvrx"] is True or "make bench-peers" in result["nvrx"]


@needs_native
@pytest.mark.parametrize(("name", "max_ns"), [("encode", 200.0), ("scan", 100.0)])
def test_encode_and_scan_have_a_budget_in_nanoseconds(benchmark, name, max_ns):
    """Of processor time per span."""
    result, sentences = benchmark(name, "--rounds", "1")
    ((budget, measured),) = result["budgets"].items()
    assert (measured["budget"], measured["unit"]) == (max_ns, "ns")
    assert measured["ratio_to_budget"] == pytest.approx(measured["measured"] / max_ns, abs=1e-3)
    assert budget in sentences


@pytest.mark.nightly  # four ranks with torch
def test_report_tells_wall_and_cpu_of_ours(report):
    """For every number of sections, with or without a peer."""
    assert report[0]["report"].keys() == {f"4 ranks x {n} sections" for n in (2, 200)}
    for measured in report[0]["report"].values():
        assert measured["own_ms"] > 0
        assert measured["own_cpu_ms"] > 0


@needs_nvrx
@pytest.mark.nightly
def test_report_has_a_ratio_to_nvrx_and_to_the_budget(report):
    """A quarter of its time is 1.0; the scores are the same."""
    result, _ = report
    reported = result["report"]["4 ranks x 200 sections"]["own_over_nvrx_ms"]["median"]
    ((_, measured),) = result["budgets"].items()
    assert measured["ratio_to_budget"] == pytest.approx(reported * 4, abs=1e-3)
    assert result["agreement"]["scores_compared"] > 1_000
    assert result["agreement"]["largest_relative_difference"] < 1e-5
