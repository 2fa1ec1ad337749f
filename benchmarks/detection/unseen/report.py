"""Records of unseen runs as tables, targets, a JSON document, and Markdown."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

import otel_straggler
from benchmarks.detection.methods import OURS
from benchmarks.detection.metrics import Events, percentile, ratio
from benchmarks.detection.report import table, target_table, without_nan
from benchmarks.detection.summary import Row
from benchmarks.detection.unseen.families import CALIBRATED_RANKS, Family
from benchmarks.detection.unseen.running import LimitRecord, UnseenRecord

SCHEMA = 1
BINS = ((0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.0))
QUIET_SD, QUIET_CORRELATION, MIN_RANKS = 0.03, 0.7, 8
"""Where +10 and +15 % must be found."""
TITLES = {
    "families": "By family",
    "overall": "The worst family next to the mean",
    "doses": "F1 of a slow rank by size, AR noise of at most 3 %, from 8 ranks up",
    "correlation": "By correlation of AR noise: healthy runs (0.5 to 12 %), and a slow rank of +10"
    " to +50 % (at most 3 %, from 8 ranks up)",
    "limits": "At the stated detection limit",
}
RATE, PAGES = "false alarms / 1,000 rank-hours", "pages / 1,000 rank-hours"


def document(
    families: Sequence[Family],
    records: Sequence[UnseenRecord],
    limits: Sequence[LimitRecord],
    **facts: Any,
) -> dict[str, Any]:
    """All that is reported, and what it rests on. NaN is None."""
    rows = [_family(family, records) for family in families]
    tables = {
        "families": rows,
        "overall": _overall(rows),
        "doses": _doses(records),
        "correlation": _by_correlation(records),
        "limits": _limits(limits),
    }
    result = {
        "schema": SCHEMA,
        **facts,
        "versions": {
            "otel-straggler": otel_straggler.__version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "scipy")},
        },
        "targets": check_targets(tables, records) if facts["method"] == OURS else [],
        "tables": {name: rows for name, rows in tables.items() if rows},
        "runs": [record.as_json() for record in records],
    }
    return dict(without_nan(result))


def markdown(result: dict[str, Any]) -> str:
    """The targets and all tables of a document."""
    rows = result["tables"]["families"]
    runs, hours = (sum(row[name] for row in rows) for name in ("runs", "rank-hours"))
    opening = (
        f"{result['method']}, seed {result['seed']}: {runs:,} runs of {len(rows)} families,"
        f" {hours:,} rank-hours; {result['wall_s']:.0f} s with {result['processes']} processes."
    )
    parts = [opening, *result["notes"]]
    if result["targets"]:
        parts += ["### Targets on unseen noise", target_table(result["targets"])]
    for name, title in TITLES.items():
        if name in result["tables"]:
            parts += [f"### {title}", table(result["tables"][name])]
    return "\n\n".join(parts) + "\n"


# --- tables ------------------------------------------------------------------------------------


def _sum(records: Iterable[UnseenRecord], name: str) -> int:
    return sum(getattr(record, name) for record in records)


def _events(records: Sequence[UnseenRecord]) -> Events:
    return Events(*(_sum(records, name) for name in ("found", "false", "missed")))


def _family(family: Family, records: Sequence[UnseenRecord]) -> Row:
    mine = [record for record in records if record.family == family.name]
    hours = sum(record.rank_hours for record in mine)
    events, delays = _events(mine), [delay for record in mine for delay in record.delays]
    return {
        "family": family.name,
        "noise": family.origin,
        "nobody is slow": "yes" if family.is_healthy else "",
        "runs": len(mine),
        "rank-hours": round(hours),
        RATE: 1000 * ratio(events.false, hours),
        PAGES: 1000 * ratio(_sum(mine, "pages"), hours),
        "runs with a false alarm": sum(record.false > 0 for record in mine),
        "found": None if family.is_healthy else events.detected,
        "missed": None if family.is_healthy else events.missed,
        "false": events.false,
        "f1": float("nan") if family.is_healthy else events.f1,
        "delay p50": percentile(delays, 50),
        "delay p95": percentile(delays, 95),
        "top-1": ratio(_sum(mine, "top1"), _sum(mine, "ranked")),
        "ends right": ratio(_sum(mine, "endings_right"), _sum(mine, "endings")),
        "wrong causes": _sum(mine, "wrong_causes"),
    }


def _overall(rows: Sequence[Row]) -> list[Row]:
    """Mean and worst over families, of each measure."""
    healthy = [row for row in rows if row["nobody is slow"]]
    faulty = [row for row in rows if not row["nobody is slow"]]
    return [
        *(_mean_and_worst(healthy, name, f"{name}, nobody is slow", max) for name in (RATE, PAGES)),
        *(
            _mean_and_worst(faulty, name, f"{name} of slow ranks and hosts", min)
            for name in ("f1", "top-1")
        ),
    ]


def _mean_and_worst(rows: Sequence[Row], column: str, name: str, worst: Any) -> Row:
    known = [row for row in rows if row[column] == row[column]]
    values = [row[column] for row in known]
    which = worst(known, key=lambda row: row[column], default=None)
    return {
        "measure": name,
        "families": len(known),
        "mean": ratio(sum(values), len(values)),
        "worst": which[column] if which else float("nan"),
        "worst family": which["family"] if which else None,
    }


def _of_ar(records: Sequence[UnseenRecord]) -> list[UnseenRecord]:
    return [r for r in records if r.family.startswith("fault/ar-") and r.ranks >= MIN_RANKS]


def _is_quiet(record: UnseenRecord) -> bool:
    return record.sd <= QUIET_SD and record.correlation <= QUIET_CORRELATION


def _doses(records: Sequence[UnseenRecord]) -> list[Row]:
    chosen = _of_ar(records)
    return [
        {
            "slowdown": f"+{100 * size - 100:.0f} %",
            "runs, correlation <= 0.7": sum(_is_quiet(r) for r in of_size),
            "f1, correlation <= 0.7": _events([r for r in of_size if _is_quiet(r)]).f1,
            "runs, correlation > 0.7": sum(not _is_quiet(r) for r in of_size),
            "f1, correlation > 0.7": _events([r for r in of_size if not _is_quiet(r)]).f1,
        }
        for size in sorted({record.size for record in chosen})
        for of_size in [[record for record in chosen if record.size == size]]
    ]


def _by_correlation(records: Sequence[UnseenRecord]) -> list[Row]:
    faulty = _of_ar(records)
    healthy = [record for record in records if record.family == "healthy/ar"]
    rows = [
        _bin(f"{low:g} to {high:g}", *(_between(some, low, high) for some in (healthy, faulty)))
        for low, high in BINS
    ]
    return [row for row in rows if row["healthy runs"] or row["runs"]]


def _between(records: Sequence[UnseenRecord], low: float, high: float) -> list[UnseenRecord]:
    return [record for record in records if low <= record.correlation < high]


def _bin(name: str, healthy: Sequence[UnseenRecord], faulty: Sequence[UnseenRecord]) -> Row:
    delays, events = [delay for record in faulty for delay in record.delays], _events(faulty)
    hours = sum(record.rank_hours for record in healthy)
    return {
        "correlation": name,
        "healthy runs": len(healthy),
        RATE: 1000 * ratio(_sum(healthy, "false"), hours),
        "runs": len(faulty),
        "found": events.detected,
        "missed": events.missed,
        "false": events.false,
        "f1": events.f1,
        "delay p50": percentile(delays, 50),
        "delay p95": percentile(delays, 95),
    }


def _limits(limits: Sequence[LimitRecord]) -> list[Row]:
    rows = []
    for ranks in CALIBRATED_RANKS:
        here = [record for record in limits if record.ranks == ranks]
        stated = [record for record in here if record.limit == record.limit]
        if here:
            rows.append(
                {
                    "ranks": ranks,
                    "runs": len(here),
                    "state a limit": len(stated),
                    "limit p50": percentile([record.limit for record in stated], 50),
                    "found": sum(record.is_found for record in stated),
                    "recall": ratio(sum(record.is_found for record in stated), len(stated)),
                    "false": sum(record.false for record in here),
                }
            )
    return rows


# --- targets -----------------------------------------------------------------------------------


def check_targets(tables: dict[str, list[Row]], records: Sequence[UnseenRecord]) -> list[Row]:
    """Name, wanted, value, whether it is met; a target that no run measures is not."""
    alarms, pages, _, top1 = tables["overall"]
    limits = [row["recall"] for row in tables["limits"] if row["recall"] == row["recall"]]
    causes = [row["wrong causes"] for row in tables["families"]]
    return [
        _at_most("false alarms / 1,000 rank-hours, worst family without a slow rank", 1, alarms),
        _at_most("pages / 1,000 rank-hours, worst family without a slow rank", 0, pages),
        _f1(records, 1.15, 0.95),
        _f1(records, 1.10, 0.90),
        _at_least("culprit first, mean of families with a slow rank", 0.97, top1["mean"]),
        _at_least("recall at the stated limit, worst size", 0.9, min(limits, default=float("nan"))),
        _target("wrong causes of chores (episodes)", "0", sum(causes), not sum(causes)),
    ]


def _f1(records: Sequence[UnseenRecord], size: float, wanted: float) -> Row:
    chosen = [r for r in _of_ar(records) if r.size == size and _is_quiet(r)]
    name = f"F1, +{100 * size - 100:.0f} %, noise <= 3 %, correlation <= 0.7, from 8 ranks up"
    return _at_least(name, wanted, _events(chosen).f1)


def _at_most(name: str, maximum: float, row: Row) -> Row:
    return _target(name, f"<= {maximum:g}", row["worst"], row["worst"] <= maximum)


def _at_least(name: str, minimum: float, value: float) -> Row:
    return _target(name, f">= {minimum:g}", value, value >= minimum)


def _target(name: str, wanted: str, value: float, is_met: bool) -> Row:
    return {"target": name, "wanted": wanted, "value": float(value), "is_met": bool(is_met)}
