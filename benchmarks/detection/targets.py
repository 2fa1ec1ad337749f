"""What the benchmark must show of our verdicts, and whether it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.detection.cases import REPORTED
from benchmarks.detection.methods import OURS
from benchmarks.detection.metrics import percentile, ratio
from benchmarks.detection.records import RunRecord
from benchmarks.detection.summary import Choice, Selected, is_local_fault, is_low_noise, is_sudden

Target = dict[str, Any]
NVRX = "nvrx .75"


def check_targets(runs: Sequence[RunRecord]) -> list[Target]:
    """One line each: name, wanted, value, low, high, is_met, and NVRx's value for comparison.

    A target that no run measures has the value NaN and is not met.
    """
    return [
        _f1(runs, "F1, 15 % and more, noise <= 2.5 %", 0.98, ("loud", "quiet")),
        _f1(runs, "F1, 10 %, noise <= 2.5 %", 0.98, ("ten",)),
        _f1(runs, "F1, 5-8 %, noise <= 2.5 %", 0.90, ("masked 5-8 %",)),
        _f1(runs, "F1, 15 % and more, any noise", 0.98, ("loud", "quiet"), is_any_noise=True),
        _false_alarms(runs, "false alarms / 1,000 rank-hours, healthy", ("healthy",), 1.0),
        _false_alarms(
            runs,
            "false alarms / 1,000 rank-hours, all without a slow rank",
            ("healthy", "negative", "structure"),
            1.0,
        ),
        _negatives(runs),
        _delay(runs),
        _top1(runs, "culprit first, collectives inside sections, noise <= 2.4 %", "synchronised"),
        _top1(
            runs,
            "culprit first, waiting in collectives reported, noise <= 2.4 %",
            "synchronised" + REPORTED,
        ),
        _causes(runs),
        _wrong(
            runs, "wrong ranks confirmed with asynchronous launches (episodes)", ("asynchronous",)
        ),
        _wrong(
            runs,
            "wrong ranks confirmed where waiting in collectives is reported (episodes)",
            ("asynchronous" + REPORTED, "synchronised" + REPORTED),
        ),
    ]


def _f1(
    runs: Sequence[RunRecord],
    name: str,
    wanted: float,
    bands: tuple[str, ...],
    *,
    is_any_noise: bool = False,
) -> Target:
    def choice(run: RunRecord) -> bool:
        return is_local_fault(run) and run.band in bands and (is_any_noise or is_low_noise(run))

    value = Selected.of(runs, OURS, choice).f1()
    nvrx = Selected.of(runs, NVRX, choice).f1()[0]
    return _target(name, f">= {wanted:g}", value, value[0] >= wanted, nvrx)


def _false_alarms(
    runs: Sequence[RunRecord], name: str, families: tuple[str, ...], maximum: float
) -> Target:
    def choice(run: RunRecord) -> bool:
        return run.family in families

    value = Selected.of(runs, OURS, choice).false_per_1000_rank_hours()
    nvrx = Selected.of(runs, NVRX, choice).false_per_1000_rank_hours()[0]
    return _target(name, f"<= {maximum:g}", value, value[0] <= maximum, nvrx)


def _negatives(runs: Sequence[RunRecord]) -> Target:
    def choice(run: RunRecord) -> bool:
        return run.family in ("negative", "structure")

    return _none(
        runs, "ranks and hosts confirmed by imbalance, pauses, restarts (episodes)", choice
    )


def _wrong(runs: Sequence[RunRecord], name: str, timings: tuple[str, ...]) -> Target:
    def choice(run: RunRecord) -> bool:
        return run.timing in timings

    return _none(runs, name, choice)


def _none(runs: Sequence[RunRecord], name: str, choice: Choice) -> Target:
    chosen = Selected.of(runs, OURS, choice)
    false = chosen.events().false if chosen.runs else float("nan")
    nvrx = Selected.of(runs, NVRX, choice).events().false
    return _target(name, "0", [false], false == 0, nvrx)


def _delay(runs: Sequence[RunRecord]) -> Target:
    def p95(method: str) -> float:
        chosen = Selected.of(
            runs,
            method,
            lambda r: is_sudden(r) and is_low_noise(r) and r.band in ("loud", "quiet", "ten"),
        )
        return percentile([x for record in chosen.records for x in record.delays], 95)

    value = p95(OURS)
    return _target(
        "delay of 10 % and more, steps, p95, noise <= 2.5 %",
        "<= 20",
        [value],
        value <= 20,
        p95(NVRX),
    )


def _top1(runs: Sequence[RunRecord], name: str, timing: str) -> Target:
    def choice(run: RunRecord) -> bool:
        return (
            run.family == "fault"
            and run.timing == timing
            and is_low_noise(run)
            and run.is_localisable
        )

    value = Selected.of(runs, OURS, choice).part("top1", "ranked")
    nvrx = Selected.of(runs, NVRX, choice).part("top1", "ranked")[0]
    return _target(name, ">= 0.97", value, value[0] >= 0.97, nvrx)


def _causes(runs: Sequence[RunRecord]) -> Target:
    """Of the faults that were found, and of all imbalances, links and uniform slowdowns."""
    chosen = Selected.of(runs, OURS, lambda r: r.timing == "local")
    columns = [
        [r.causes_right + r.structures_right, r.causes_text + r.structures] for r in chosen.records
    ]
    value = chosen.with_interval(columns, lambda sums: ratio(sums[0], sums[1]))
    return _target("cause right", ">= 0.9", value, value[0] >= 0.9, float("nan"))


def _target(name: str, wanted: str, value: list[float], is_met: bool, nvrx: float) -> Target:
    low, high = value[1:] if len(value) == 3 else (float("nan"), float("nan"))
    return {
        "target": name,
        "wanted": wanted,
        "value": float(value[0]),
        "low": low,
        "high": high,
        "is_met": bool(is_met),
        "nvrx": float(nvrx),
    }
