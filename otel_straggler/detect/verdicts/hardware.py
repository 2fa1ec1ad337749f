"""What sensors of GPUs and hosts say about a verdict: they confirm it, or speak against it.

A verdict comes from times alone, and never changes because of a sensor: a sentence with the number
is added to it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from otel_straggler.model.verdict import CALLED_SLOW, RunVerdicts, Verdict

_CLOCK: Final = 0.97
"""Of the peers' clock: a lower one is lower, not noise. Chosen."""
_THROTTLED: Final = 0.05
"""Part of the time from which a GPU is called throttled."""
_PRESSURE: Final = 0.1
_LOAD: Final = 1.5
"""Per CPU, and times the peers'."""
_BUSY: Final = 0.8
_TIMES_PEERS: Final = 2.0
_WORKS: Final = 0.5
"""Part of the time in which a GPU ran kernels: the clock of an idle one says nothing."""
_MAX_SENTENCES: Final = 2
_MIN_EXCESS: Final = 1.05
"""Slowdown from which an unchanged clock speaks against the GPU."""
_REASONS: Final = {
    "thermal": "for heat",
    "power": "for power",
    "board": "by a limit of its board",
    "reliability": "for its voltage",
    "sync_boost": "with its group",
}
_ERRORS: Final = {
    "ecc_uncorrected": "uncorrected memory errors",
    "rows_remapped_uncorrected": "memory rows remapped for uncorrected errors",
    "row_remap_failed": "failed remappings of memory rows",
    "nvlink_recovery": "NVLink recoveries",
}
"""Those that are faults; corrected ones are usual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareReading:
    """Newest values of one rank's GPU, and of its host if the rank reports it. NaN = unknown.

    Attributes:
        utilization: part of the time in which a kernel ran.
        throttled: part of the time, by reason.
        errors: since the driver was loaded, by ``error.type``; those above 0.
        memory_pressure: part of the time in which some task of the host waited for memory.
        disk_busy: part of the time in which the busiest disk worked.
    """

    node: str = ""
    sm_clock_hz: float = math.nan
    utilization: float = math.nan
    throttled: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    pcie_lanes: float = math.nan
    load_per_cpu: float = math.nan
    memory_pressure: float = math.nan
    disk_busy: float = math.nan


Readings: TypeAlias = Mapping[int, HardwareReading]
"""By rank."""


def is_explainable(verdict: Verdict) -> bool:
    """Whether sensors may say something about it: a rank or host that is slow, or may be."""
    is_slow = verdict.state in CALLED_SLOW or verdict.state == "suspect"
    return is_slow and verdict.scope in {"rank", "host"}


def with_hardware(run_verdicts: RunVerdicts, of_group: Mapping[str, Readings]) -> RunVerdicts:
    """With what sensors say at the end of the newest sentence about each subject."""
    newest = {verdict.subject_id: n for n, verdict in enumerate(run_verdicts.changes)}
    changes = [*run_verdicts.changes]
    for n in newest.values():
        changes[n] = _explained(changes[n], of_group.get(changes[n].group, {}))
    return replace(run_verdicts, changes=tuple(changes))


def _explained(verdict: Verdict, readings: Readings) -> Verdict:
    text = hardware_text(verdict, readings) if is_explainable(verdict) else ""
    if not text:
        return verdict
    end = "" if not verdict.sentence or verdict.sentence[-1] in ".!?" else "."
    return replace(verdict, sentence=f"{verdict.sentence}{end} {text}".strip())


def hardware_text(verdict: Verdict, readings: Readings) -> str:
    """At most two sentences about the subject's GPU and host; empty if they say nothing.

    >>> hot = HardwareReading(node="n1", sm_clock_hz=1.41e9, throttled={"thermal": 0.9})
    >>> peer = HardwareReading(node="n0", sm_clock_hz=1.98e9)
    >>> slow = Verdict(run_id="r", subject_id="x", scope="rank", rank=1, node="n1",
    ...     state="confirmed", cause="slow_gpu", slowdown=1.4, on_gpu=True)
    >>> hardware_text(slow, {0: peer, 1: hot, 2: peer})
    'Its GPU runs at 1,410 MHz, those of its peers at 1,980 MHz; it is throttled for heat.'
    """
    on_host = [r for r in readings.values() if r.node == verdict.node]
    elsewhere = [r for r in readings.values() if r.node != verdict.node]
    own, others = on_host, elsewhere
    if verdict.scope == "rank":
        own = [r for rank, r in readings.items() if rank == verdict.rank]
        others = [r for rank, r in readings.items() if rank != verdict.rank]
    sentences = (*_gpu_sentences(verdict, own, others), *_host_sentences(on_host, elsewhere))
    return " ".join(sentences[:_MAX_SENTENCES])


def _gpu_sentences(
    verdict: Verdict, own: Sequence[HardwareReading], others: Sequence[HardwareReading]
) -> Iterator[str]:
    if not own or not others:
        return
    yield from _errors(own, others)
    yield from _clock(verdict, own, others)
    lanes, usual_lanes = _lowest(own, "pcie_lanes"), _usual(others, "pcie_lanes")
    if lanes < usual_lanes:
        yield f"Its PCIe link has {lanes:.0f} lanes, those of its peers {usual_lanes:.0f}."


def _host_sentences(
    own: Sequence[HardwareReading], others: Sequence[HardwareReading]
) -> Iterator[str]:
    """One rank of each host reports it."""
    pressure, usual = _highest(own, "memory_pressure"), _usual(others, "memory_pressure")
    if pressure >= _PRESSURE and not pressure < _TIMES_PEERS * usual:
        yield (
            f"Tasks on its host wait for memory {_percent(pressure)} of the time"
            f"{_on_others(usual, _percent)}."
        )
    load, usual = _highest(own, "load_per_cpu"), _usual(others, "load_per_cpu")
    if load >= _LOAD and not load < _LOAD * usual:
        yield f"The load of its host is {load:.1f} per CPU{_on_others(usual, _one_digit)}."
    busy, usual = _highest(own, "disk_busy"), _usual(others, "disk_busy")
    if busy >= _BUSY and not busy < _TIMES_PEERS * usual:
        yield (
            f"The busiest disk of its host works {_percent(busy)} of the time"
            f"{_on_others(usual, _percent)}."
        )


def _errors(own: Sequence[HardwareReading], others: Sequence[HardwareReading]) -> Iterator[str]:
    """Errors that no peer's GPU has."""
    usual = {kind for reading in others for kind in reading.errors}
    counts: dict[str, float] = {}
    for reading in own:
        for kind, count in reading.errors.items():
            if kind not in usual:
                counts[kind] = counts.get(kind, 0.0) + count
    for kind, count in sorted(counts.items()):
        if kind.startswith("xid_"):
            yield f"Its GPU has reported XID {kind.removeprefix('xid_')}."
        elif kind in _ERRORS:
            yield f"Its GPU has {count:,.0f} {_ERRORS[kind]}, those of its peers none."


def _clock(
    verdict: Verdict, own: Sequence[HardwareReading], others: Sequence[HardwareReading]
) -> Iterator[str]:
    clock, usual = _lowest(own, "sm_clock_hz"), _usual(others, "sm_clock_hz")
    if not math.isfinite(clock) or not math.isfinite(usual):
        return
    throttled = _throttled(own)
    if clock < _CLOCK * usual:
        because = f"; it is throttled {throttled}" if throttled else ""
        yield f"Its GPU runs at {_mhz(clock)}, those of its peers at {_mhz(usual)}{because}."
    elif throttled and not _throttled(others):
        yield f"Its GPU is throttled {throttled}, those of its peers are not."
    elif (
        verdict.cause == "slow_gpu"
        and verdict.slowdown >= _MIN_EXCESS
        and _lowest(own, "utilization") >= _WORKS
    ):
        yield (
            f"Its GPU runs at {_mhz(clock)} like those of its peers, so its clock is not the cause."
        )


def _throttled(readings: Sequence[HardwareReading]) -> str:
    """Why, of the reason with most time; empty if not."""
    parts: dict[str, float] = {}
    for reading in readings:
        for reason, part in reading.throttled.items():
            parts[reason] = max(part, parts.get(reason, 0.0))
    if not parts:
        return ""
    reason = max(parts, key=lambda name: parts[name])
    return _REASONS.get(reason, f"({reason})") if parts[reason] >= _THROTTLED else ""


def _values(readings: Sequence[HardwareReading], name: str) -> list[float]:
    values = (getattr(reading, name) for reading in readings)
    return [value for value in values if math.isfinite(value)]


def _lowest(readings: Sequence[HardwareReading], name: str) -> float:
    return min(_values(readings, name), default=math.nan)


def _highest(readings: Sequence[HardwareReading], name: str) -> float:
    return max(_values(readings, name), default=math.nan)


def _usual(readings: Sequence[HardwareReading], name: str) -> float:
    values = _values(readings, name)
    return statistics.median(values) if values else math.nan


def _on_others(usual: float, text: Callable[[float], str]) -> str:
    return f" ({text(usual)} on the other hosts)" if math.isfinite(usual) else ""


def _mhz(clock_hz: float) -> str:
    return f"{clock_hz / 1e6:,.0f} MHz"


def _percent(part: float) -> str:
    return f"{part:.0%}".replace("%", " %")


def _one_digit(value: float) -> str:
    return f"{value:.1f}"
