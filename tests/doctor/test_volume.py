"""How much telemetry there will be."""

from __future__ import annotations

from otel_straggler.doctor.recording import assumed, check_volume, measured


def test_an_assumption_is_stated() -> None:
    """With the options that change it."""
    finding = check_volume(assumed(4, 0.5, 8))
    assert finding.status == "info"
    assert "assuming 4 sections a step and steps of 0.5 s" in finding.sentence
    assert finding.value["spans_per_second_per_rank"] == 10.0
    assert finding.value["bytes_per_day"] == 8 * finding.value["bytes_per_day_per_rank"]
    assert "--sections-per-step" in finding.remedy


def test_more_than_the_budget_is_a_warning() -> None:
    """200 spans a second of one rank."""
    assert check_volume(assumed(9, 0.05, 1)).status == "info"
    finding = check_volume(assumed(10, 0.05, 1))
    assert finding.status == "warning"
    assert "budget is 200 spans/s" in finding.sentence


def test_a_window_says_what_the_busiest_rank_sends() -> None:
    """Its section runs, and a span for each step."""
    window = {
        "start_ns": 0,
        "end_ns": 10_000_000_000,
        "n_steps": 20,
        "world_size": 4,
        "section_counts": {"a": {"0": 20, "1": None}, "b": {"0": 60, "1": 20}},
    }
    volume = measured(window)
    assert volume is not None
    assert (volume.spans_per_s, volume.ranks) == (10.0, 4)
    assert check_volume(volume).status == "ok"
    assert measured({**window, "end_ns": 0}) is None
    assert measured({"section_counts": {}}) is None
