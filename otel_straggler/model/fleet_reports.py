"""Reports of nodes to a supervisor: what an agent or a launcher says about its node's ranks."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, cast, get_args

from otel_straggler.errors import InputError
from otel_straggler.model.names import MAX_NAME, clean_name

ReportKind = Literal["rank_hung", "rank_exited", "attempt_ended", "agent_started", "agent_ended"]
REPORT_KINDS: Final[tuple[ReportKind, ...]] = get_args(ReportKind)
REPORTS_PATH: Final = "/v1/reports"
"""Where a supervisor takes reports."""
MAX_TEXT: Final = 2_000
MAX_RANK: Final = 10_000_000
_REMEDY: Final = "See docs/operate/supervisor.md, 'Reports'."


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReport:
    """One report about one node.

    Attributes:
        id: unique; the same report sent again has the same one, and is acted on once.
        rank: global rank, if it is about one.
        at_unix_s: when it happened, seconds since 1970 by the node's clock.
        reason: one word for policies, such as ``heartbeat_timeout``, ``SIGKILL`` or ``ok``.
        text: for people.
    """

    kind: ReportKind
    id: str
    run_id: str
    attempt: int
    node: str
    rank: int | None = None
    at_unix_s: float
    reason: str = ""
    text: str = ""


def new_report_id() -> str:
    """An id that no other report has."""
    return uuid.uuid4().hex


def report_json(report: FleetReport) -> bytes:
    """The body of ``POST /v1/reports``."""
    return json.dumps(asdict(report)).encode()


def read_report(body: bytes | Mapping[str, Any]) -> FleetReport:
    """The report of a body. Texts are cleaned as all names from outside; unknown fields are
    ignored, so that a newer agent may say more.

    Raises:
        InputError: it is none.
    """
    values = body if isinstance(body, Mapping) else _object(body)
    kind = values.get("kind")
    if kind not in REPORT_KINDS:
        raise _wrong("kind", kind, f"one of {', '.join(REPORT_KINDS)}")
    rank = values.get("rank")
    at_unix_s = values.get("at_unix_s")
    if isinstance(at_unix_s, bool) or not isinstance(at_unix_s, (int, float)):
        raise _wrong("at_unix_s", at_unix_s, "seconds since 1970")
    if not (math.isfinite(at_unix_s) and 0 <= at_unix_s < 1e11):
        raise _wrong("at_unix_s", at_unix_s, "seconds since 1970")
    return FleetReport(
        kind=cast("ReportKind", kind),
        id=_name(values, "id"),
        run_id=_name(values, "run_id"),
        attempt=_whole(values, "attempt"),
        node=_name(values, "node"),
        rank=None if rank is None else _whole(values, "rank"),
        at_unix_s=float(at_unix_s),
        reason=_text(values, "reason", MAX_NAME),
        text=_text(values, "text", MAX_TEXT),
    )


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        keys = ", ".join(field.name for field in fields(FleetReport))
        shown = body[:100].decode("utf-8", "replace")
        raise _wrong("body", shown, f"a JSON object with {keys}")
    return values


def _name(values: Mapping[str, Any], key: str) -> str:
    """A text that names something: not empty, and whole."""
    value = values.get(key)
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_NAME:
        raise _wrong(key, value, f"a text of 1 to {MAX_NAME} characters")
    return clean_name(value.encode("utf-8", "replace").decode())


def _text(values: Mapping[str, Any], key: str, max_chars: int) -> str:
    value = values.get(key, "")
    if not isinstance(value, str):
        raise _wrong(key, value, "a text")
    return clean_name(value.encode("utf-8", "replace").decode(), max_chars)


def _whole(values: Mapping[str, Any], key: str) -> int:
    value = values.get(key)
    if type(value) is not int or not 0 <= value <= MAX_RANK:
        raise _wrong(key, value, f"a whole number from 0 to {MAX_RANK}")
    return value


def _wrong(key: str, value: object, expected: str) -> InputError:
    shown = value if len(repr(value)) <= 200 else f"{repr(value)[:200]}..."
    return InputError.of(f"report: {key}", shown, expected, _REMEDY)
