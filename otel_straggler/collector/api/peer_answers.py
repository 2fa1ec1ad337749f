"""What another shard answers, checked before anybody here sees it.

A shard is trusted with which runs it has, and with what is shown of these. It is not trusted to
answer at all, in time, in the right size or form, about another run than the one that is asked for,
or with text that is safe to show.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, TypeAlias

from otel_straggler.alerts.catalogue import NAMES
from otel_straggler.collector.views.answer_type import TONES
from otel_straggler.model.alert import Alert
from otel_straggler.model.names import clean_name
from otel_straggler.otlp.clients.client import Response
from otel_straggler.setting import is_number
from otel_straggler.strict_json import parse_json

Json: TypeAlias = dict[str, Any]

MAX_BYTES: Final = 32 * 1024 * 1024
"""Of one answer; a timeline of 10,000 ranks takes six MB."""
MAX_RUNS: Final = 20_000
MAX_ALERTS: Final = 1_000
_MAX_LABELS: Final = 64
_MAX_WHOLE: Final = 2**63
_MAX_TEXT: Final = 1_000
_MAX_LINES: Final = 50
_MAX_SHOWN: Final = 40
_WEB: Final = re.compile(r"https?://[^\s\"'<>]{1,2000}")
_TEXTS: Final = ("job", "state", "headline")
_TIMES: Final = ("began_at_s", "received_at_s", "finished_at_s")
_COUNTS: Final = ("world_size", "ranks_reporting", "slowdown", "alerts")
_LATEST_S: Final = 1e11
_LABEL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class RunList(NamedTuple):
    """The live runs of a shard, by name. ``now_s``: seconds since 1970 on its clock."""

    collector: str
    now_s: float
    page_url: str
    runs: dict[str, Json]


def read_answer(response: Response) -> Json:
    """The JSON object of an answer.

    Raises:
        ValueError: it is no success (which a redirect is not either: it is not followed), too
            large or nested too deeply, no object, or has a number that no float can hold.
    """
    if not response.is_success:
        raise ValueError(clean_name(response.error or f"HTTP {response.status}", _MAX_TEXT))
    if len(response.body) >= MAX_BYTES:
        raise ValueError(f"it answers with more than {MAX_BYTES} bytes")
    try:
        answer = parse_json(response.body, None)
    except ValueError as error:
        raise ValueError(f"its answer is {clean_name(str(error), 100)}") from None
    if not isinstance(answer, dict):
        raise ValueError("its answer is no JSON object")
    return answer


def read_run_list(response: Response) -> RunList:
    """The answer to ``/v1/runs``: what is known here of each run, and nothing else of it.

    Raises:
        ValueError: it is none.
    """
    answer = read_answer(response)
    rows, now_s = answer.get("runs"), answer.get("now_s")
    if not isinstance(rows, list) or len(rows) > MAX_RUNS:
        raise ValueError(f"its runs are no list of up to {MAX_RUNS}")
    if not is_number(now_s) or not 0.0 <= now_s <= _LATEST_S:  # type: ignore[operator]
        raise ValueError(f"its now_s is {_shown(now_s)}, no seconds since 1970")
    entries = [_entry(row, now_s) for row in rows]  # type: ignore[arg-type]
    page_url = answer.get("page_url")
    return RunList(
        collector=clean_name(_text(answer, "collector") or ""),
        now_s=float(now_s),  # type: ignore[arg-type]
        page_url=page_url if isinstance(page_url, str) and _WEB.fullmatch(page_url) else "",
        runs={entry["run_id"]: entry for entry in entries if entry["is_live"]},
    )


def read_alerts(response: Response, run_id: str) -> list[Alert]:
    """The alerts of one run in the answer to ``/v1/report``: those that we know, and about no other
    run.

    Raises:
        ValueError: they are none.
    """
    runs = read_answer(response).get("runs")
    of_run = runs.get(run_id) if isinstance(runs, dict) else None
    rows = of_run.get("alerts", []) if isinstance(of_run, dict) else []
    if not isinstance(rows, list) or len(rows) > MAX_ALERTS:
        raise ValueError(f"its alerts are no list of up to {MAX_ALERTS}")
    return [
        alert
        for alert in map(_alert, rows)
        if alert.labels.get("run_id") == run_id and alert.labels.get("alertname") in NAMES
    ]


def about(answer: Json, run_id: str | None) -> Json:
    """An answer about one run.

    Raises:
        ValueError: it names another run, or none.
    """
    of_run = answer.get("run")
    named = of_run.get("run_id") if isinstance(of_run, dict) else answer.get("run_id")
    if named != run_id:
        raise ValueError(f"it answers about run {_shown(named)}")
    return answer


def reason_of(response: Response) -> str:
    """What a shard says of a run, group, rank or section that it has not."""
    try:
        return clean_name(str(parse_json(response.body)["error"]), _MAX_TEXT)
    except (ValueError, TypeError, KeyError):
        return "its shard does not have it"


def _entry(row: Any, now_s: float) -> Json:
    if not isinstance(row, dict):
        raise ValueError(f"a run of its list is {_shown(row)}")
    run_id = row.get("run_id")
    if not isinstance(run_id, str) or not isinstance(row.get("is_live"), bool):
        raise ValueError(f"a run of its list is named {_shown(run_id)}, or not said to be live")
    tone = row.get("tone", "unknown")
    if tone not in TONES:
        raise ValueError(f"tone of run {_shown(run_id)} is {_shown(tone)}")
    entry: Json = {"run_id": clean_name(run_id), "is_live": row["is_live"], "tone": tone}
    entry |= {name: _text(row, name) for name in _TEXTS}
    entry |= {name: _number(row, name, _LATEST_S) for name in _TIMES}
    entry |= {name: _number(row, name, _MAX_WHOLE) for name in _COUNTS}
    received_at_s = entry["received_at_s"]
    entry["received_at_s"] = None if received_at_s is None else min(received_at_s, now_s)
    return entry


def _alert(row: Any) -> Alert:
    labels, annotations, since_ns = (
        row.get(name) if isinstance(row, dict) else None
        for name in ("labels", "annotations", "since_ns")
    )
    if not is_number(since_ns) or not 0 <= since_ns <= _MAX_WHOLE:  # type: ignore[operator]
        raise ValueError(f"since_ns of one of its alerts is {_shown(since_ns)}")
    return Alert(
        labels=_texts(labels), annotations=_texts(annotations), starts_at_s=since_ns / 1e9  # type: ignore[operator]
    )  # fmt: skip


def _texts(values: Any) -> dict[str, str]:
    if not isinstance(values, dict) or len(values) > _MAX_LABELS:
        raise ValueError(f"labels or annotations of one of its alerts are {_shown(values)}")
    if not all(_LABEL.fullmatch(name) for name in values):
        raise ValueError(f"one of its alerts has a label {_shown(list(values))}")
    return {name: _lines(values, name) for name in values}


def _lines(values: Json, name: str) -> str:
    """A text that may have several lines, as descriptions of alerts do."""
    value = values[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} of one of its alerts is {_shown(value)}, no text")
    return "\n".join(clean_name(line, _MAX_TEXT) for line in value.split("\n")[:_MAX_LINES])


def _text(values: Json, name: str) -> str | None:
    value = values.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is {_shown(value)}, no text")
    return None if value is None else clean_name(value, _MAX_TEXT)


def _number(values: Json, name: str, maximum: float) -> float | int | None:
    value = values.get(name)
    if value is None or (is_number(value) and 0 <= value <= maximum):
        return value
    raise ValueError(f"{name} is {_shown(value)}, no number up to {maximum:g}")


def _shown(value: object) -> str:
    """A short and safe text, of however large a value."""
    if isinstance(value, str | int | float | None):
        return clean_name(repr(value)[:_MAX_SHOWN])
    return f"a {type(value).__name__}"
