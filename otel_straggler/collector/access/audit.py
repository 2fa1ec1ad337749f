"""One line for each change that a person makes, and for refused attempts: who, from where, what."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from otel_straggler.collector.access.refusals import REASONS, Refusals
from otel_straggler.collector.access.roles import Peer, Principal
from otel_straggler.throttle import Throttle

_log = logging.getLogger("otel_straggler.audit")
_LONGEST: Final = 1_000
_REFUSALS_PER_S, _REFUSALS_AT_ONCE = 0.1, 10.0
_INFO, _WARN = 9, 13
"""OTLP's numbers of severities."""


@dataclass(slots=True)
class _Flood:
    """Refusals of one sender for one reason, of which few are lines."""

    throttle: Throttle
    left_out: int = field(default=0)


class Audit:
    """The audit trail: lines of ``key=value`` in the log ``otel_straggler.audit``; values are JSON.
    Thread-safe.

    Args:
        export: called with each line as an OTLP logs request in JSON; must not wait.

    Attributes:
        refusals: their counts, and the newest for people.
    """

    def __init__(
        self,
        export: Callable[[bytes], None] | None = None,
        *,
        wall_ns: Callable[[], int] = time.time_ns,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._export = export
        self._wall_ns = wall_ns
        self.refusals = Refusals(monotonic_s)
        self._throttle = partial(Throttle, _REFUSALS_PER_S, _REFUSALS_AT_ONCE, now_s=monotonic_s)
        self._floods: dict[tuple[str, str], _Flood] = {}
        self._lock = threading.Lock()

    def changed(self, who: Principal, peer: Peer, what: str, status: int, body: bytes) -> None:
        """Record a request to change something, with its answer's status."""
        content = body[:_LONGEST].decode("utf-8", "replace")
        self._write(_INFO, _fields(who, peer, what, status) | {"body": content})

    def acted(self, fields: dict[str, Any]) -> None:
        """Record what a program of ours does by itself, and why."""
        self._write(_INFO, fields)

    def refused(
        self, who: Principal, peer: Peer, what: str, status: int, reason: str, run_id: str = ""
    ) -> None:
        """Record an attempt that was refused; of a flood, one line in ten seconds for each sender
        and reason.

        Args:
            reason: one of ``REASONS``, or the limit of a grant, which counts for itself.
            run_id: that it names, where that is why.
        """
        if reason in REASONS:
            self.refusals.record(who, what, reason, run_id)
        fields = {**_fields(who, peer, what, status), "reason": reason}
        if run_id:
            fields["run"] = run_id[:_LONGEST]
        with self._lock:
            flood = self._floods.setdefault((who.name, reason), _Flood(self._throttle()))
            if not flood.throttle.passes():
                flood.left_out += 1
                return
            if flood.left_out:
                fields["not_logged_before"] = flood.left_out
                flood.left_out = 0
        self._write(_WARN, fields)

    def _write(self, severity: int, fields: dict[str, Any]) -> None:
        line = " ".join(f"{key}={json.dumps(value)}" for key, value in fields.items())
        level = logging.INFO if severity == _INFO else logging.WARNING
        _log.log(level, "audit: %s", line, extra={"audit": fields})
        if self._export is not None:
            self._export(_otlp(severity, line, fields, self._wall_ns()))


def _fields(who: Principal, peer: Peer, what: str, status: int) -> dict[str, Any]:
    return {
        "who": who.name,
        "role": who.role,
        "from": peer.address,
        "what": what,
        "status": status,
    }


def _otlp(severity: int, line: str, fields: dict[str, Any], at_ns: int) -> bytes:
    """A logs request in OTLP's JSON."""
    attributes = [
        {"key": f"audit.{key}", "value": {"stringValue": str(value)}}
        for key, value in fields.items()
    ]
    record = {
        "timeUnixNano": str(at_ns),
        "severityNumber": severity,
        "body": {"stringValue": f"audit: {line}"},
        "attributes": attributes,
    }
    service = {"key": "service.name", "value": {"stringValue": "otel-straggler-collector"}}
    scope_logs = [{"scope": {"name": _log.name}, "logRecords": [record]}]
    resource_logs = [{"resource": {"attributes": [service]}, "scopeLogs": scope_logs}]
    return json.dumps({"resourceLogs": resource_logs}).encode()
