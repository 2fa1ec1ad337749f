"""`python -m benchmarks.hostile` with a tiny dose: that it still runs, and has its figures."""

from __future__ import annotations


def test_a_row_has_its_figures(benchmark):
    """With a collector, an attacker, and an honest run, each on its own."""
    tiny = ("--seconds", "1", "--scale", "0.01", "--only", "event_streams")
    measured, sentences = benchmark("hostile", *tiny)
    row = measured["rows"]["event_streams"]
    assert (row["row"], row["got_in"]) == ("V13", 1.0)
    assert row["heartbeats"] > 0
    assert row["memory_above_idle_mib"] < 256
    names = {name.partition(": ")[2] for name in measured["budgets"]}
    assert names == {"heartbeat", "windows late", "memory", "kept out"}
    assert all(name in sentences for name in measured["budgets"])
