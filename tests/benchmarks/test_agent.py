"""Costs of heartbeats and sections with a tiny dose."""

from __future__ import annotations

from benchmarks.harness.nvrx import is_installed


def test_heartbeats_and_sections_are_compared_with_nvrx_and_measured_with_a_stopped_agent(
    benchmark,
):
    """Without NVRx, with its stand-in alone."""
    result, sentences = benchmark("agent", "--rounds", "1")
    for what in ("heartbeat", "section"):
        for whose in (f"ours_{what}", f"ours_{what}_agent_stopped", f"send_only_{what}"):
            assert result["ns"][whose] > 0
        assert (f"nvrx_{what}" in result["ns"]) == is_installed()
    assert len(result["budgets"]) == 6
    for name, measured in result["budgets"].items():
        assert name in sentences
        assert ("ratio_to_budget" in measured) == (is_installed() or "nvrx" not in name)
