"""What the supervisor says about itself: a span for each decision, audit lines, counters."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from otel_straggler import semconv
from otel_straggler._version import __version__
from otel_straggler.collector.access.audit import Audit
from otel_straggler.collector.metrics.families import Families, labels
from otel_straggler.supervisor.causes import Cause
from otel_straggler.supervisor.fleet import Decision, Fleet
from otel_straggler.supervisor.store import Entry, StepRow

_log = logging.getLogger(__name__)

SERVICE: Final = "otel-straggler-supervisor"
_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")
_BAD: Final = frozenset({"failed", "unknown", "expired"})

Export = Callable[[ReadableSpan], None]


class Telemetry:
    """Observes an engine. Thread-safe.

    Ids of spans come from the cause, so a span that is sent again after a crash is the same one.

    Args:
        export: takes each span and must not wait; None: there are none.
    """

    def __init__(self, audit: Audit, export: Export | None = None) -> None:
        self._audit = audit
        self._export = export
        self._resource = Resource.create({"service.name": SERVICE, "service.version": __version__})
        self._lock = threading.Lock()
        self._decisions: Counter[tuple[str, str]] = Counter()
        self._ignored: Counter[str] = Counter()

    # --- of the engine ---------------------------------------------------------------------------

    def decided(self, cause: Cause, decision: Decision) -> None:
        self._audit.acted({**_audited(cause, decision), "status": "decided"})
        what = decision.host or decision.run_id or "the fleet"
        text = "%s of %s by %s, because of %s: %s"
        level = logging.WARNING if decision.action == "notify" else logging.INFO
        _log.log(level, text, decision.action, what, decision.rule, cause.name, cause.text)

    def ignored(self, reason: str, number: int = 1) -> None:
        with self._lock:
            self._ignored[reason] += number

    def ended(self, entry: Entry, steps: Sequence[StepRow]) -> None:
        decision = entry.decision
        if decision.acts:
            with self._lock:
                self._decisions[str(decision.action), entry.status] += 1
            fields = _audited(entry.cause, decision)
            self._audit.acted({**fields, "status": entry.status, "text": entry.text})
        if self._export is None:
            return
        for span in spans_of(entry, steps, self._resource):
            try:
                self._export(span)
            except Exception:  # noqa: BLE001 - telemetry stops no action
                _log.exception("a span of %s is not exported", entry.cause.id)

    # --- /metrics --------------------------------------------------------------------------------

    def families(self, fleet: Fleet, unfinished: int) -> Families:
        """The series, as they are now."""
        families = Families()
        with self._lock:
            decisions, ignored = dict(self._decisions), dict(self._ignored)
        for (action, outcome), count in sorted(decisions.items()):
            label = labels(action=action, outcome=outcome)
            families.add(semconv.SUPERVISOR_DECISIONS, label, count)
        for reason, count in sorted(ignored.items()):
            families.add(semconv.SUPERVISOR_IGNORED, labels(reason=reason), count)
        for state, count in fleet.by_state().items():
            families.add(semconv.SUPERVISOR_HOSTS, labels(state=state), count)
        families.add(semconv.SUPERVISOR_STOPPED, "", int(fleet.is_stopped))
        families.add(semconv.SUPERVISOR_UNFINISHED, "", unfinished)
        return families


def _audited(cause: Cause, decision: Decision) -> dict[str, Any]:
    keys = ("action", "host", "replacement", "run_id", "rule", "cause_id")
    shown = {key: getattr(decision, key) for key in keys if getattr(decision, key)}
    return {"who": "supervisor", "what": shown.pop("action"), "because": cause.name, **shown}


# --- spans ----------------------------------------------------------------------------------------


def spans_of(
    entry: Entry, steps: Sequence[StepRow], resource: Resource
) -> tuple[ReadableSpan, ...]:
    """The spans of a cause, of its decision, and of each step that began."""
    cause, decision = entry.cause, entry.decision
    of_cause = _context(f"cause {cause.id}")
    of_decision = _context(f"decision {cause.id} {decision.at_unix_s!r}")
    links = [Link(of_cause)]
    if origin := _origin(cause.traceparent):
        links.append(Link(origin))
    started = [row for row in steps if row.started_unix_s is not None]
    ended_unix_s = max([decision.at_unix_s, *(row.ended_unix_s or 0.0 for row in started)])
    about = _about(cause, decision)
    return (
        ReadableSpan(
            semconv.SUPERVISOR_CAUSE_SPAN,
            of_cause,
            resource=resource,
            kind=SpanKind.CONSUMER,
            attributes={**about, **_labels(cause)},
            start_time=_ns(min(cause.at_unix_s, decision.at_unix_s)),
            end_time=_ns(decision.at_unix_s),
        ),
        ReadableSpan(
            semconv.SUPERVISOR_DECISION_SPAN,
            of_decision,
            resource=resource,
            links=links,
            attributes={**about, **_decided(decision), semconv.SUPERVISOR_OUTCOME: entry.status},
            status=_status(entry.status, entry.text),
            start_time=_ns(decision.at_unix_s),
            end_time=_ns(ended_unix_s),
        ),
        *(_step_span(row, of_decision, resource) for row in started),
    )


def _step_span(row: StepRow, parent: SpanContext, resource: Resource) -> ReadableSpan:
    assert row.started_unix_s is not None
    own = _digest(f"step {row.number} {parent.span_id:x}")
    context = SpanContext(
        parent.trace_id, int.from_bytes(own[:8], "big") or 1, is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )  # fmt: skip
    return ReadableSpan(
        semconv.SUPERVISOR_STEP_SPAN,
        context,
        parent=parent,
        resource=resource,
        kind=SpanKind.CLIENT,
        attributes={
            semconv.SUPERVISOR_STEP: row.step.verb,
            semconv.SUPERVISOR_TARGET: row.step.target,
            semconv.SUPERVISOR_OUTCOME: row.status,
        },
        status=_status(row.status, row.text),
        start_time=_ns(row.started_unix_s),
        end_time=_ns(max(row.ended_unix_s or 0.0, row.started_unix_s)),
    )


def _about(cause: Cause, decision: Decision) -> dict[str, str]:
    values = {
        semconv.SUPERVISOR_CAUSE_ID: cause.id,
        semconv.SUPERVISOR_CAUSE_NAME: cause.name,
        semconv.HOST_NAME: decision.host,
        semconv.RUN_ID: decision.run_id,
        semconv.SUPERVISOR_DEVICE: decision.device,
        semconv.SUPERVISOR_CODE: decision.code,
    }
    return {str(key): value for key, value in values.items() if value}


def _labels(cause: Cause) -> dict[str, str]:
    return {semconv.SUPERVISOR_LABEL_PREFIX + name: text for name, text in cause.labels.items()}


def _decided(decision: Decision) -> dict[str, str]:
    values = {
        semconv.SUPERVISOR_ACTION: decision.action or "none",
        semconv.SUPERVISOR_REASON: decision.reason,
        semconv.SUPERVISOR_RULE: decision.rule,
        semconv.SUPERVISOR_REPLACEMENT: decision.replacement,
    }
    return {str(key): value for key, value in values.items() if value}


def _context(text: str) -> SpanContext:
    digest = _digest(text)
    return SpanContext(
        trace_id=int.from_bytes(digest[:16], "big") or 1,
        span_id=int.from_bytes(digest[16:24], "big") or 1,
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


def _origin(traceparent: str) -> SpanContext | None:
    """The span context of a W3C header; None if it is none."""
    result = _TRACEPARENT.fullmatch(traceparent)
    if result is None or not int(result[1], 16) or not int(result[2], 16):
        return None
    return SpanContext(int(result[1], 16), int(result[2], 16), is_remote=True)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _status(outcome: str, text: str) -> Status:
    return Status(StatusCode.ERROR, text) if outcome in _BAD else Status(StatusCode.UNSET)


def _ns(unix_s: float) -> int:
    return int(unix_s * 1e9)


def exporting(url: str, headers: Mapping[str, str]) -> tuple[Export, Callable[[], None]]:
    """What exports spans to an OTLP address in a thread of its own, and what ends that."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    processor = BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces", headers=dict(headers)))
    return processor.on_end, processor.shutdown
