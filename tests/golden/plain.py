"""Answers as small trees that can be compared and read: times that depend on the machine are left
out, long columns of numbers are summed up, everything else stands as it was answered."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from otel_straggler import semconv

Json = Any

VOLATILE = {
    "snapshot": "digest of all that is shown",
    "version": "of the package",
}
"""Fields that are left out of every answer, and why."""
VOLATILE_METRICS = {
    "straggler_collector_queue_bytes": "what waits now",
    "straggler_collector_notifications_total": "requests hold as much as time allows",
    "straggler_collector_history_size_bytes": "depends on SQLite",
    "straggler_collector_history_oldest_timestamp_seconds": "either of two saves comes first",
    "straggler_collector_build_info": "of the package and of Python",
    "straggler_collector_page_info": "of this host, at a free port",
    **{
        metric.prometheus_name: "of this process"
        for metric in vars(semconv).values()
        if isinstance(metric, semconv.Metric) and metric.name.startswith("process.")
    },
}
"""Families that are left out of /metrics, and why."""
GRID_S = 5.0
"""An alert starts with the evaluation that first sees it, of which there may be several before the
clock's next piece."""
FEW = 4
MAX_KINDS = 4
LINE = 140
LONG = 40
_DIGITS = 10
_TOLERANCE = 1e-8
_TIMES_FROM = 1e8
"""Larger numbers are points in time, which count to the millisecond."""
_TIME_TOLERANCE = 1e-12
_SAMPLE = re.compile(r"([a-z_:0-9]+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def plain(value: Json) -> Json:
    """An answer as a small tree."""
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, Mapping):
        kept = {str(name): each for name, each in value.items() if name not in VOLATILE}
        if len(kept) >= FEW and all(name.lstrip("-").isdigit() for name in kept):
            return {"keys": " ".join(kept), "values": _column(list(kept.values()))}
        return {name: plain(each) for name, each in kept.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _column(value) if len(value) > FEW else [plain(each) for each in value]
    return value


def _column(values: Sequence[Json]) -> Json:
    """Many values: numbers summed up so that their order counts, objects by their fields, the rest
    by how often it is there. Only numbers are one text, "~n: least most sum weighed"."""
    reported: Json = {}
    numbers = [(index, v) for index, v in enumerate(values, 1) if _is_number(v)]
    if numbers:
        every = [v for _, v in numbers]
        weighed = math.fsum(index * v for index, v in numbers)
        sums = min(every), max(every), math.fsum(every), weighed
        reported[""] = f"~{len(every)}: " + " ".join(str(_number(each)) for each in sums)
    objects = [v for v in values if isinstance(v, Mapping)]
    for name in dict.fromkeys(name for each in objects for name in each if name not in VOLATILE):
        held = [each[name] for each in objects if name in each]
        reported[f".{name}"] = _column(held) if len(held) > 1 else plain(held[0])
    lists = [v for v in values if isinstance(v, Sequence) and not isinstance(v, str)]
    if lists:
        reported["[n]"] = _column([len(each) for each in lists])
        reported["[]"] = _column([item for each in lists for item in each])
    others = Counter(json.dumps(v) for v in values if v is None or isinstance(v, (str, bool)))
    if others:
        maximum = MAX_KINDS if max(map(len, others)) < LONG else 1
        shown = [f"{count} {what}" for what, count in list(others.items())[:maximum]]
        more = len(others) - len(shown)
        reported["="] = ", ".join(shown) + (f" and {more} others" if more else "")
    return next(iter(reported.values())) if list(reported) in ([""], ["="]) else reported


def _is_number(value: Json) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: float) -> Json:
    if isinstance(value, int) or not math.isfinite(value):
        return value if isinstance(value, int) else str(value)
    return float(f"{value:.{_DIGITS if abs(value) < _TIMES_FROM else 2 * _DIGITS}g}")


def metrics_by_run(text: str) -> dict[str, Json]:
    """Families of every run ("" for the collector's own): all samples of small ones, of others
    their values as a column and which labels there are."""
    families: dict[str, dict[str, list[tuple[dict[str, str], float]]]] = {}
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line)
        if match is None or match[1] in VOLATILE_METRICS:
            continue
        labels = dict(_LABEL.findall(match[2] or ""))
        run_id = labels.pop("run_id", "")
        assert labels.pop("collector", "golden") == "golden"
        labels.pop("cluster", None)
        families.setdefault(run_id, {}).setdefault(match[1], []).append((labels, float(match[3])))
    return {
        run_id: {name: _family(samples) for name, samples in its.items()}
        for run_id, its in families.items()
    }


def _family(samples: list[tuple[dict[str, str], float]]) -> Json:
    samples = sorted(samples, key=lambda sample: sorted(sample[0].items()))
    if len(samples) <= FEW:
        return {" ".join(f"{k}={v}" for k, v in labels.items()): _number(value)
                for labels, value in samples}  # fmt: skip
    reported = {"values": _column([value for _, value in samples])}
    for name in dict.fromkeys(name for labels, _ in samples for name in labels):
        values = sorted({labels[name] for labels, _ in samples if name in labels})
        reported[f"{{{name}}}"] = " ".join(values[:8]) + (f" ({len(values)})" if values[8:] else "")
    return reported


def headers(text: str) -> list[str]:
    """HELP and TYPE of every family."""
    return sorted({line for line in text.splitlines() if line.startswith("# ")})


def alerts_by_run(alerts: Mapping[str, Json], now: str, start_s: float) -> dict[str, Json]:
    """Of every alert of a run how many there are, their labels, and all of the first."""
    result: dict[str, dict[str, list[Json]]] = {}
    for key in sorted(alerts):
        alert = dict(alerts[key])
        alert["startsAt"] = _on_grid(alert["startsAt"], start_s)
        alert["endsAt"] = "fires" if alert["endsAt"] > now else _on_grid(alert["endsAt"], start_s)
        labels = alert["labels"]
        of_run = result.setdefault(labels.get("run_id", ""), {})
        of_run.setdefault(labels["alertname"], []).append(alert)
    return {
        run_id: {
            name: {"all": _column(each), "first": plain(each[0])} for name, each in its.items()
        }
        for run_id, its in result.items()
    }


def _on_grid(time: str, start_s: float) -> float:
    at_s = datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
    return math.floor((at_s - start_s) / GRID_S) * GRID_S


def differences(expected: Json, result: Json, path: str = "") -> Iterator[str]:
    """Where two trees differ; numbers may by the last digits, which depend on the processor."""
    if isinstance(expected, dict) and isinstance(result, dict):
        for name in dict.fromkeys((*expected, *result)):
            if name not in result or name not in expected:
                yield f"{path}/{name}: {'is gone' if name not in result else 'is new'}"
            else:
                yield from differences(expected[name], result[name], f"{path}/{name}")
    elif isinstance(expected, list) and isinstance(result, list) and len(expected) == len(result):
        for number, pair in enumerate(zip(expected, result)):  # noqa: B905
            yield from differences(*pair, f"{path}/{number}")
    elif not _are_same(expected, result):
        yield f"{path}: {json.dumps(expected)[:200]} -> {json.dumps(result)[:200]}"


def _are_same(one: Json, other: Json) -> bool:
    numbers = (int, float)
    if isinstance(one, numbers) and isinstance(other, numbers):
        tolerance = _TOLERANCE if abs(one) < _TIMES_FROM else _TIME_TOLERANCE
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=1e-12)
    if isinstance(one, str) and isinstance(other, str) and one.startswith("~"):
        text, others = one.split(), other.split()
        return text[:1] == others[:1] and all(
            _are_same(float(a), float(b)) for a, b in zip(text[1:], others[1:], strict=True)
        )
    return bool(one == other)


def changes(before: Json, after: Json) -> Json:
    """What of a tree is another than before, as a tree."""
    return {
        name: changes(before[name], each)
        if isinstance(each, dict) and isinstance(before.get(name), dict)
        else each
        for name, each in after.items()
        if name not in before or before[name] != each
    } | {name: "is gone" for name in before if name not in after}


def as_text(tree: Json, indent: str = "") -> str:
    """JSON, what is short on one line."""
    if not isinstance(tree, dict):
        return json.dumps(tree, ensure_ascii=False)
    whole = json.dumps(tree, ensure_ascii=False, sort_keys=True)
    if len(whole) + len(indent) <= LINE:
        return whole
    inner = indent + " "
    parts = (f"{inner}{json.dumps(k)}: {as_text(v, inner)}" for k, v in sorted(tree.items()))
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
