"""What a supervisor may act upon: an alert of Alertmanager, or a report of a node."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from otel_straggler.collector.alerting.alert_json import WEBHOOK_VERSION, fingerprint
from otel_straggler.errors import InputError
from otel_straggler.model.fleet_reports import FleetReport
from otel_straggler.model.names import MAX_NAME, clean_name
from otel_straggler.secret import of_kind
from otel_straggler.supervisor.xids import xid_in

HOST_LABELS: Final = ("node", "host", "hostname", "Hostname", "kubernetes_node")
DEVICE_LABELS: Final = ("hw_id", "UUID", "gpu_uuid", "pci_bus_id", "gpu", "device")
RUN_LABELS: Final = ("run_id",)
XID_LABELS: Final = ("xid", "xid_code", "error_type")
"""Labels of alerts, in order of precedence: ours, then those of DCGM and others."""
MAX_ALERTS: Final = 1_000
_OF_RANKS: Final = ("rank_hung", "rank_exited")
"""Kinds of reports whose reason may be an XID."""
_MAX_LABELS: Final = 64
_MAX_VALUE: Final = 1_000
_REMEDY: Final = "Is it the webhook of an Alertmanager, version 4? docs/operate/supervisor.md"
_TIME: Final = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One alert, or one report.

    Attributes:
        id: of the alert its fingerprint and start, of the report its own. At most one action ever
            follows from one id.
        name: of the alert, or the report's kind.
        at_unix_s: since when.
        device: of the host: a GPU, else a rank; empty if it is about the whole host.
        code: the XID, else the name.
        xid: of NVIDIA's driver, if it names one.
        is_resolved: the alert no longer fires.
        text: for people.
        traceparent: W3C trace context of what it came from; empty if unknown.
    """

    id: str
    source: Literal["alert", "report"]
    name: str
    at_unix_s: float
    labels: Mapping[str, str]
    host: str = ""
    device: str = ""
    code: str = ""
    run_id: str = ""
    xid: int | None = None
    is_resolved: bool = False
    text: str = ""
    traceparent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """The alerts of a webhook, and how many were no alerts, by reason."""

    causes: tuple[Cause, ...]
    rejected: Mapping[str, int]


def read_webhook(payload: Any) -> Webhook:
    """The causes of Alertmanager's webhook, version 4. The fingerprint must be that of the labels:
    an id is computed, never believed.

    Raises:
        InputError: it is no such webhook.
    """
    version = payload.get("version") if isinstance(payload, Mapping) else None
    if version != WEBHOOK_VERSION:
        shown = version if isinstance(version, int | float) else of_kind(version)
        raise InputError.of("webhook: version", shown, f'"{WEBHOOK_VERSION}"', _REMEDY)
    alerts = payload.get("alerts")
    if not isinstance(alerts, list) or len(alerts) > MAX_ALERTS:
        shown = f"{len(alerts)} alerts" if isinstance(alerts, list) else of_kind(alerts)
        raise InputError.of("webhook: alerts", shown, f"a list of at most {MAX_ALERTS}", _REMEDY)
    causes: list[Cause] = []
    rejected: dict[str, int] = {}
    for each in alerts:
        result = _of_alert(each)
        if isinstance(result, Cause):
            causes.append(result)
        else:
            rejected[result] = rejected.get(result, 0) + 1
    return Webhook(causes=tuple(causes), rejected=rejected)


def cause_of_report(report: FleetReport) -> Cause:
    """
    The cause that a report is."""
    labels = {
        "run_id": report.run_id,
        "attempt": str(report.attempt),
        "node": report.node,
        "reason": report.reason,
        **({} if report.rank is None else {"rank": str(report.rank)}),
    }
    names_xid = report.kind in _OF_RANKS and report.reason.lower().startswith("xid")
    xid = xid_in(report.reason) if names_xid else None
    return Cause(
        id=f"report:{report.id}",
        source="report",
        name=report.kind,
        at_unix_s=report.at_unix_s,
        labels=labels,
        host=report.node,
        device="" if report.rank is None else f"rank {report.rank}",
        code=report.kind if xid is None else f"xid_{xid}",
        run_id=report.run_id,
        xid=xid,
        text=report.text,
    )


def cause_json(cause: Cause) -> dict[str, Any]:
    """JSON's types only; :func:`cause_of_json` reads it."""
    return asdict(cause)


def cause_of_json(values: Mapping[str, Any]) -> Cause:
    """The cause of :func:`cause_json`."""
    return Cause(**values)


def seconds_of_time(text: str) -> float:
    """Seconds since 1970 of a time as Go writes it.

    >>> seconds_of_time("2026-09-21T14:13:20.25Z"), seconds_of_time("2026-09-21T16:13:20+02:00")
    (1790000000.25, 1790000000.0)

    Raises ValueError if it is none.
    """
    whole_s, part_ns = divmod(_nanoseconds(text), 1_000_000_000)
    return whole_s + part_ns / 1e9


def _nanoseconds(text: str) -> int:
    result = _TIME.fullmatch(text)
    if result is None:
        raise ValueError(f"{text!r:.60} is no time")
    zone = "+00:00" if result[3] == "Z" else result[3]
    whole = dt.datetime.fromisoformat(result[1] + zone).timestamp()
    return int(whole) * 1_000_000_000 + int((result[2] or "0").ljust(9, "0"))


def _of_alert(alert: Any) -> Cause | str:
    """The cause, or why it is none."""
    labels = _texts(alert.get("labels")) if isinstance(alert, Mapping) else None
    if not labels or not labels.get("alertname"):
        return "malformed"
    try:
        starts_at_ns = _nanoseconds(str(alert.get("startsAt")))
    except (ValueError, OverflowError):
        return "malformed"
    status = alert.get("status")
    if status not in ("firing", "resolved"):
        return "malformed"
    computed = fingerprint(labels)
    if alert.get("fingerprint") != computed:
        return "fingerprint"
    return _cause(labels, _texts(alert.get("annotations")) or {}, computed, starts_at_ns, status)


def _cause(
    raw: Mapping[str, str],
    annotations: Mapping[str, str],
    computed: str,
    starts_at_ns: int,
    status: str,
) -> Cause:
    labels = {name: clean_name(value, _MAX_VALUE) for name, value in raw.items()}
    name = labels["alertname"]
    xid = next((x for key in XID_LABELS if (x := xid_in(labels.get(key, ""))) is not None), None)
    rank = labels.get("rank", "")
    return Cause(
        id=f"alert:{computed}:{starts_at_ns}",
        source="alert",
        name=name,
        at_unix_s=starts_at_ns / 1e9,
        labels=labels,
        host=_first(labels, HOST_LABELS),
        device=_first(labels, DEVICE_LABELS) or (f"rank {rank}" if rank else ""),
        code=name if xid is None else f"xid_{xid}",
        run_id=_first(labels, RUN_LABELS),
        xid=xid,
        is_resolved=status == "resolved",
        text=clean_name(annotations.get("summary", ""), _MAX_VALUE),
        traceparent=annotations.get("traceparent", "")[:100],
    )


def _first(labels: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _texts(values: Any) -> dict[str, str] | None:
    """A mapping of texts, of a size that an Alertmanager sends, with printable names; else None."""
    if not isinstance(values, Mapping) or len(values) > _MAX_LABELS:
        return None
    if not all(isinstance(k, str) and isinstance(v, str) for k, v in values.items()):
        return None
    if not all(name.isprintable() and len(name) <= MAX_NAME for name in values):
        return None
    return dict(values)
