"""Alerts in the JSON of Alertmanager: API v2, and webhooks, version 4."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from otel_straggler.model.alert import Alert

Json: TypeAlias = dict[str, Any]

WEBHOOK_VERSION: Final = "4"
_NO_TIME: Final = "0001-01-01T00:00:00Z"
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_SEPARATOR: Final = b"\xff"


def fingerprint(labels: Mapping[str, str]) -> str:
    """The fingerprint of a label set, as in Prometheus and Alertmanager: FNV-1a, 64 bits.

    >>> fingerprint({})
    'cbf29ce484222325'
    """
    text = b"".join(
        part.encode("utf-8", "replace") + _SEPARATOR
        for name in sorted(labels)
        for part in (name, labels[name])
    )
    value = _FNV_OFFSET
    for byte in text:
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def rfc3339(at_s: float) -> str:
    """A time as Go reads it, to the millisecond.

    >>> rfc3339(1_790_000_000.25)
    '2026-09-21T14:13:20.250Z'
    """
    at = dt.datetime.fromtimestamp(at_s, dt.timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def seconds_of_rfc3339(text: str) -> float:
    """Whole seconds since 1970 of a time that Go wrote in UTC.

    >>> seconds_of_rfc3339("2026-09-21T14:13:20.250Z")
    1790000000.0

    Raises ValueError if it is no such time.
    """
    return dt.datetime.strptime(text[:19] + "+0000", "%Y-%m-%dT%H:%M:%S%z").timestamp()


def posted_alert(alert: Alert, ends_at_s: float, page: str) -> Json:
    """One alert of ``POST /api/v2/alerts``.

    Args:
        ends_at_s: when it ends unless it is sent again.
        page: address of the collector for people; may be empty.
    """
    run_id = alert.labels.get("run_id")
    of_run = f"?run={quote(run_id, safe='')}" if run_id else ""
    return {
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "startsAt": rfc3339(alert.starts_at_s),
        "endsAt": rfc3339(max(ends_at_s, alert.starts_at_s)),
        "generatorURL": f"{page}/v1/report{of_run}" if page else "",
    }


def webhook_payload(alerts: Sequence[Alert], *, left_out: int, page: str) -> Json:
    """A message of Alertmanager to a webhook, without grouping; ``left_out`` counts further
    alerts."""
    return {
        "version": WEBHOOK_VERSION,
        "groupKey": "{}:{}",
        "truncatedAlerts": left_out,
        "status": "firing" if any(each.ends_at_s is None for each in alerts) else "resolved",
        "receiver": "otel-straggler",
        "groupLabels": {},
        "commonLabels": _common([each.labels for each in alerts]),
        "commonAnnotations": _common([each.annotations for each in alerts]),
        "externalURL": page,
        "alerts": [_sent_alert(each, page) for each in alerts],
    }


def shown_alert(alert: Alert) -> Json:
    """An alert in a report."""
    return {
        "name": alert.name,
        "since_ns": round(alert.starts_at_s * 1e9),
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
    }


def _sent_alert(alert: Alert, page: str) -> Json:
    ended_s = alert.ends_at_s
    return {
        "status": "firing" if ended_s is None else "resolved",
        **posted_alert(alert, ended_s or 0.0, page),
        "endsAt": _NO_TIME if ended_s is None else rfc3339(ended_s),
        "fingerprint": fingerprint(alert.labels),
    }


def _common(many: Sequence[Mapping[str, str]]) -> dict[str, str]:
    if not many:
        return {}
    first, *others = many
    return {k: v for k, v in first.items() if all(each.get(k) == v for each in others)}
