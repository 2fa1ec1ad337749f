"""`python -m benchmarks.export` with a tiny dose: it says what it was built to say."""

from __future__ import annotations

import pytest

from otel_straggler.native import NATIVE


@pytest.fixture(scope="module")
def reported(benchmark):
    """(result, sentences) of one group of short blocks at one rate."""
    return benchmark("export", "--groups", "1", "--block-s", "0.2", "--rates", "500")


def test_every_way_is_measured_in_the_same_run(reported):
    """Ours in both forms, and the stock SDK beside them."""
    expected = {"python", "sdk"} | ({"native"} if NATIVE is not None else set())
    assert reported[0]["ways"].keys() == expected


def test_wake_ups_are_told_as_ratios_of_pairs(reported):
    """Two pairs a group, quiet and exporting side by side; median with its interval."""
    for way in reported[0]["ways"].values():
        wake_up = way["wake_up"]["500"]
        for key in ("p50", "p99", "longest"):
            ratio = wake_up[f"{key}_ratio"]
            assert ratio["pairs"] == reported[0]["pairs_per_rate"] == 2
            assert ratio["least"] <= ratio["median"] <= ratio["most"]
            assert wake_up[f"{key}_us_quiet"] > 0
        assert wake_up["p99_ratio_calm_half"]["pairs"] == 1


def test_cpu_is_told_per_span_and_per_rate(reported):
    """Off the training thread, at once and at the rate."""
    for way in reported[0]["ways"].values():
        assert way["cpu"]["flushed_at_once"]["export_ns"] > 0
        at_rate = way["cpu"]["at_rate"]["500"]
        assert at_rate["export_ns_per_span"] > 0
        assert at_rate["export_core_share_per_10000_spans_per_s"] > 0


def test_every_span_of_ours_arrives_in_the_sink(reported):
    """What is measured is the whole way: a span that is not sent costs nothing."""
    for name, way in reported[0]["ways"].items():
        assert way["spans_made"] > 0
        if name != "sdk":  # whose queue may overflow
            assert abs(way["spans_made"] - way["spans_arrived"]) <= 1  # the step that is open


def test_each_form_of_ours_is_judged_by_the_budget(reported):
    """The budget by name, met or missed, in JSON and in a sentence."""
    result, sentences = reported
    assert len(result["budgets"]) == 2
    for name, measured in result["budgets"].items():
        assert "wake-up p99" in name
        if "not_measured" in measured:
            continue
        assert measured["ratio_to_budget"] == pytest.approx(measured["measured"] / 2.0, abs=1e-3)
        assert measured["is_met"] == (name not in result["missed"])
        assert f"budget {'met' if measured['is_met'] else 'MISSED'}: {name}" in sentences
