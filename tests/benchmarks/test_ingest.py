"""`python -m benchmarks.ingest` with a tiny dose: it says what it was built to say."""

from __future__ import annotations

import pytest

from benchmarks.ingest.cases import STAGES, Case, cases_of
from benchmarks.ingest.doses import dose

FEW = r"^http 512, 4 ranks: (receive|score|forward|upb.*)$|^grpc 512, 4 ranks: score"


@pytest.fixture(scope="module")
def reported(benchmark):
    """(result, sentences) of a few cases with four ranks."""
    return benchmark("ingest", "--rounds", "1", "--ranks", "4", "--dose", "1", "--only", FEW)


def test_every_case_has_cpu_per_span_and_a_rate(reported):
    """Two protocols, three stages and the peers, in one run."""
    cases = reported[0]["cases"]
    assert len(cases) == 6
    for measured in cases.values():
        assert measured["cpu_us_per_span"] > 0
        assert measured["spans_per_s"] > 0
        assert measured["cpu_us_per_span_of_rounds"] == [measured["cpu_us_per_span"]]


def test_the_dose_is_stated(reported):
    """Ranks, spans and bytes: scoring costs more per span where few ranks share it."""
    (stated,) = reported[0]["doses"]
    assert stated["spans"] == stated["ranks"] * stated["steps"] * 5
    assert stated["bytes_per_span"] > 100


def test_ours_is_told_as_a_ratio_to_the_smallest_receivers(reported):
    """Under the same load; a case without a peer has no ratio."""
    ratios = reported[0]["ratio_to_peers"]
    assert ratios.keys() == {f"http 512, 4 ranks: {s}" for s in ("receive", "score", "forward")}
    for ratio in ratios.values():
        assert ratio.keys() == {"upb parse, receive", "upb read, receive"}


def test_the_stages_are_told_apart(reported):
    """What scoring and forwarding add to receiving."""
    cases, (added,) = reported[0]["cases"], reported[0]["us_per_span_of_stages"].values()
    costs = [cases[f"http 512, 4 ranks: {s}"]["cpu_us_per_span"] for s in ("receive", "score")]
    assert added["receive"] == costs[0]
    assert added["+ score"] == pytest.approx(costs[1] - costs[0], abs=1e-3)
    assert "+ forward" in added


def test_the_budget_is_told_as_a_ratio(reported):
    """1.0 us for receiving, scoring and forwarding."""
    result, sentences = reported
    ((name, measured),) = result["budgets"].items()
    forward = result["cases"]["http 512, 4 ranks: forward"]["cpu_us_per_span"]
    assert (measured["measured"], measured["budget"], measured["unit"]) == (forward, 1.0, "us")
    assert measured["ratio_to_budget"] == forward
    assert name in sentences


def test_the_full_set_has_every_stage_for_every_number_of_ranks():
    """And transports and peers for the middle one."""
    cases = cases_of([16, 256, 1_024], has_rotel=True)
    names = [case.name for case in cases]
    assert len(set(names)) == len(names)
    for ranks in (16, 256, 1_024):
        assert {f"http 512, {ranks} ranks: {stage}" for stage in STAGES[:3]} <= set(names)
    for load in ("grpc 512", "grpc 16", "http 16", "http 16 gzip"):
        assert f"{load}, 256 ranks: score" in names
    assert {"http 512, 256 ranks: forward sampled", "http 512, 256 ranks: rotel, forward"} <= set(
        names
    )


def test_a_dose_is_made_once_and_has_the_spans_it_states():
    """Requests of at most so many spans, of one rank each."""
    made = Case(4, "score").dose(0.1)
    assert made is dose(4, 512, 0.1)
    assert len(made.bodies) == 4
    assert made.spans == 4 * made.steps * 5
