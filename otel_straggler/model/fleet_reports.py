"""Reports of nodes to a supervisor: what an agent or a launcher says about its node's ranks."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, fields
from typing import Final, Literal, cast, get_args

from otel_straggler.model.json_body import JsonBody
from otel_straggler.model.names import MAX_NAME, clean_name

ReportKind = Literal["rank_hung", "rank_exited", "attempt_ended", "agent_started", "agent_ended"]
REPORT_KINDS: Final[tuple[ReportKind, ...]] = get_args(ReportKind)
REPORTS_PATH: Final = "/v1/reports"
"""Where a supervisor takes reports."""
RENEW_S: Final = 300.0
"""An agent that has nothing else to report says so often that it is still there."""
MAX_TEXT: Final = 2_000
MAX_RANK: Final = 10_000_000
_MAX_UNIX_S: Final = 1e11
_REMEDY: Final = "See docs/operate/supervisor.md, 'Reports'."


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReport:
    """One report about one node.

    Attributes:
        id: unique; the same report sent again has the same one, and is acted on once. Of
            ``agent_started`` it says that the agent is still there.
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


def read_report(body: bytes) -> FleetReport:
    """The report of a body. Texts are cleaned as all names from outside; unknown fields are
    ignored, so that a newer agent may say more.

    Raises:
        InputError: it is none.
    """
    keys = ", ".join(field.name for field in fields(FleetReport))
    values = JsonBody(body, _REMEDY, where="report: ", expected=f"a JSON object with {keys}")
    kind = values.get("kind")
    if kind not in REPORT_KINDS:
        raise values.wrong("kind", kind, f"one of {', '.join(REPORT_KINDS)}")
    return FleetReport(
        kind=cast("ReportKind", kind),
        id=values.name("id"),
        run_id=values.name("run_id"),
        attempt=values.whole("attempt", MAX_RANK),
        node=values.name("node"),
        rank=values.whole("rank", MAX_RANK) if "rank" in values else None,
        at_unix_s=values.number("at_unix_s", 0.0, _MAX_UNIX_S, "seconds since 1970"),
        reason=_text(values, "reason", MAX_NAME),
        text=_text(values, "text", MAX_TEXT),
    )


def _text(values: JsonBody, key: str, max_chars: int) -> str:
    value = values.get(key, "")
    if not isinstance(value, str):
        raise values.wrong(key, value, "a text")
    return clean_name(value.encode("utf-8", "replace").decode(), max_chars)
