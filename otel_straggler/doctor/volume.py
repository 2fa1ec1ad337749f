"""How much telemetry a run makes: measured where the collector has rows of it, else assumed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from otel_straggler.doctor.findings import Finding, info, ok, warning
from otel_straggler.record.handshake import BYTES_PER_SPAN

SPAN_BUDGET = 200.0
"""Spans a second of one rank."""
HEARTBEAT_BYTES_PER_S = 1_000 / 5.0
_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Volume:
    """What the busiest rank sends, how many ranks there are, and how this is known."""

    spans_per_s: float
    ranks: int
    basis: str

    @property
    def bytes_per_day(self) -> float:
        """Of one rank, uncompressed, heartbeats included."""
        return (self.spans_per_s * BYTES_PER_SPAN + HEARTBEAT_BYTES_PER_S) * _DAY_S


def measured(window: dict[str, Any]) -> Volume | None:
    """From a window of the report; None if it says too little."""
    rows: Counter[str] = Counter()
    for column in window.get("section_counts", {}).values():
        rows.update({rank: count or 0 for rank, count in column.items()})
    seconds = ((window.get("end_ns") or 0) - (window.get("start_ns") or 0)) / 1e9
    if not rows or seconds <= 0:
        return None
    spans = max(rows.values()) + (window.get("n_steps") or 0)
    ranks = max(window.get("world_size") or 0, len(rows))
    return Volume(spans / seconds, ranks, f"measured over the newest window, {seconds:.1f} s")


def assumed(sections_per_step: float, step_s: float, ranks: int) -> Volume:
    """From what the user says of a step; each step has a span of its own."""
    basis = f"assuming {sections_per_step:g} sections a step and steps of {step_s:g} s"
    return Volume((sections_per_step + 1) / step_s, ranks, basis)


def check_volume(volume: Volume) -> Finding:
    total = volume.bytes_per_day * volume.ranks
    sentence = (
        f"{volume.spans_per_s:.1f} spans/s and {readable(volume.bytes_per_day)} a day from one "
        f"rank, {readable(total)} a day from {volume.ranks} ({volume.basis})."
    )
    value = {
        "spans_per_second_per_rank": round(volume.spans_per_s, 3),
        "bytes_per_day_per_rank": round(volume.bytes_per_day),
        "bytes_per_day": round(total),
        "ranks": volume.ranks,
        "basis": volume.basis,
    }
    if volume.spans_per_s > SPAN_BUDGET:
        remedy = "Mark fewer, larger sections: a loop in one section, not a section in the loop."
        more = f"{sentence} The budget is {SPAN_BUDGET:.0f} spans/s of a rank."
        return warning("volume.spans", more, remedy, value)
    if volume.basis.startswith("assuming"):
        hint = "otel-straggler doctor --sections-per-step N --step-seconds S"
        return info("volume.spans", sentence, value, hint)
    return ok("volume.spans", sentence, value)


def readable(count: float) -> str:
    """
    >>> readable(25_920_000), readable(3e13)
    ('25.9 MB', '30.0 TB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
