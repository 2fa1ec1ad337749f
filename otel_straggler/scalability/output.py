"""A scalability report as JSON, as CSV, and as lines and tables for a terminal."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from otel_straggler.scalability.projection import MODEL
from otel_straggler.scalability.scaling import ScalingPoint, ScalingReport, Statistic

Json = dict[str, Any]
VERSION = 1
_NOT_FASTER = 0.98
"""Of the best speedup: below it, more ranks are slower than fewer."""
_STATISTICS = (
    *("epoch_s", "step_s", "samples_per_s", "tokens_per_s", "speedup"),
    *("utilization", "power_w", "energy_wh", "computation"),
)
_TIME = ("idle", "compute", "other", "communication", "exposed_communication", "overlap")


def report_json(report: ScalingReport) -> Json:
    """NaN is null; deviations are between repeats."""
    return {
        "schema_version": VERSION,
        "points": [_point_json(point) for point in report.points],
        "projections": [
            {
                "strategy": strategy,
                "unit": unit,
                "size": each.size,
                "time_s": each.time_s,
                "low_s": each.low_s,
                "high_s": each.high_s,
                "serial": each.serial,
                "model": MODEL,
            }
            for (strategy, unit), each in report.projections.items()
        ],
    }


def _point_json(point: ScalingPoint) -> Json:
    time = None if point.time is None else point.time.as_json()
    return {
        "strategy": point.key.strategy,
        "unit": point.key.unit,
        "size": point.key.size,
        "runs": list(point.runs),
        "epochs": point.epochs,
        "basis": point.basis,
        **{
            name: {"mean": _known(each.mean), "deviation": _known(each.deviation)}
            for name in _STATISTICS
            for each in (getattr(point, name),)
        },
        "efficiency": _known(point.efficiency),
        "gpu_time": None if time is None else {name: _known(each) for name, each in time.items()},
    }


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def report_csv(report: ScalingReport) -> str:
    """One row per strategy and size; empty cells are unknown."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    statistics = [f"{name}{part}" for name in _STATISTICS for part in ("", "_deviation")]
    rows.writerow(["strategy", "unit", "size", "runs", "epochs", "basis", *statistics,
                   "efficiency", *(f"gpu_{name}" for name in _TIME)])  # fmt: skip
    for point in report.points:
        values = [v for name in _STATISTICS for v in _pair(getattr(point, name))]
        time = [math.nan if point.time is None else getattr(point.time, name) for name in _TIME]
        rows.writerow([
            _plain(point.key.strategy), point.key.unit, point.key.size, len(point.runs),
            point.epochs, point.basis,
            *(_cell(v) for v in (*values, point.efficiency, *time)),
        ])  # fmt: skip
    return text.getvalue()


def _pair(each: Statistic) -> tuple[float, float]:
    return each.mean, each.deviation


def _cell(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else ""


def _plain(text: str) -> str:
    """A spreadsheet takes what begins like this for a formula."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


# --- terminal ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of text; the first column is the strategy."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def tables(report: ScalingReport) -> Iterator[Table]:
    """Those of which anything is known."""
    for title, columns, cells in _TABLES:
        rows = [
            (point.key.strategy, str(point.key.size), point.key.unit, *(c(point) for c in cells))
            for point in report.points
        ]
        known = [row for row in rows if any(cell.strip("-") for cell in row[3:])]
        if known:
            yield Table(title, ("strategy", "size", "of", *columns), known)


def projection_lines(report: ScalingReport) -> Iterator[str]:
    """A sentence for each strategy of which two sizes are known."""
    bases = {(p.key.strategy, p.key.unit): p.basis for p in report.points if p.basis}
    for (strategy, unit), each in report.projections.items():
        basis = bases.get((strategy, unit), "")
        if "/s" in basis:  # the time of one sample or token
            values = [None if s is None else 1.0 / s if s else math.inf
                      for s in (each.time_s, each.high_s, each.low_s)]  # fmt: skip
            what, texts = basis, ["?" if v is None else f"{v:,.3g}" for v in values]
        else:
            values = [each.time_s, each.low_s, each.high_s]
            what, texts = basis, ["?" if v is None else f"{v:.3g} s" for v in values]
        sure = f" (95 %: {texts[1]} to {texts[2]})" if each.low_s is not None else ""
        unsure = "" if sure else "; two sizes allow no interval"
        yield (
            f"{strategy}: at {each.size} {unit} the {what} would be {texts[0]}{sure}; "
            f"serial part {each.serial:.1%} by Amdahl's law{unsure}"
        )
        yield from _slower_than_fewer(report, strategy, unit)


def _slower_than_fewer(report: ScalingReport, strategy: str, unit: str) -> Iterator[str]:
    """The law knows no slowdown by more ranks: said where one was measured."""
    points = [
        point
        for point in report.points
        if (point.key.strategy, point.key.unit) == (strategy, unit) and point.speedup.is_known
    ]
    last, best = points[-1], max(points, key=lambda point: point.speedup.mean)
    if last.speedup.mean < _NOT_FASTER * best.speedup.mean:
        yield (
            f"{strategy}: {last.key.size} {unit} are slower than {best.key.size} by their "
            f"{last.basis}, which the law cannot explain: find out why before you add more"
        )


def _number(name: str, scale: float = 1.0, unit: str = "", digits: int = 2) -> Callable[..., str]:
    def cell(point: ScalingPoint) -> str:
        each: Statistic = getattr(point, name)
        if not each.is_known:
            return "-"
        spread = "" if math.isnan(each.deviation) else f" ±{each.deviation * scale:.{digits}f}"
        return f"{each.mean * scale:,.{digits}f}{spread}{unit}"

    return cell


def _share(name: str) -> Callable[[ScalingPoint], str]:
    def cell(point: ScalingPoint) -> str:
        value = math.nan if point.time is None else getattr(point.time, name)
        return "-" if math.isnan(value) else f"{value:.1%}"

    return cell


def _efficiency(point: ScalingPoint) -> str:
    return "-" if math.isnan(point.efficiency) else f"{point.efficiency:.1%}"


_TABLES: Sequence[tuple[str, tuple[str, ...], tuple[Callable[[ScalingPoint], str], ...]]] = (
    (
        "Epoch time",
        ("runs", "avg epoch time", "speedup", "efficiency"),
        (
            lambda point: str(len(point.runs)) if point.epoch_s.is_known else "-",
            _number("epoch_s", unit=" s"),
            lambda point: _number("speedup", digits=3)(point) if point.epoch_s.is_known else "-",
            lambda point: _efficiency(point) if point.epoch_s.is_known else "-",
        ),
    ),
    (
        "Throughput",
        ("step time", "samples/s", "tokens/s", "speedup", "efficiency", "speedup rests on"),
        (
            _number("step_s", 1e3, " ms"),
            _number("samples_per_s", digits=1),
            _number("tokens_per_s", digits=1),
            lambda point: _number("speedup", digits=3)(point) if _has_throughput(point) else "-",
            lambda point: _efficiency(point) if _has_throughput(point) else "-",
            lambda point: (point.basis or "-") if _has_throughput(point) else "-",
        ),
    ),
    (
        "GPU utilization, power and energy",
        ("utilization", "power", "energy"),
        (
            _number("utilization", 100.0, " %", 1),
            _number("power_w", unit=" W", digits=1),
            _number("energy_wh", unit=" Wh", digits=3),
        ),
    ),
    (
        "Computation against other (operators)",
        ("computation",),
        (_number("computation", 100.0, " %"),),
    ),
    (
        "Time of the GPU (of the host where no kernel ran)",
        ("idle", "compute", "other", "communication", "exposed", "hidden part"),
        tuple(_share(name) for name in _TIME),
    ),
)


def _has_throughput(point: ScalingPoint) -> bool:
    return any(each.is_known for each in (point.step_s, point.samples_per_s, point.tokens_per_s))
