"""OTLP log records -> the events of launchers among them. Records of others are left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast, get_args

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_straggler import semconv
from otel_straggler.errors import InputError
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.model.names import clean_name
from otel_straggler.otlp.decode_json import message_from_json
from otel_straggler.otlp.identity import MAX_RESOURCE_BYTES, Values, as_int, read_attributes
from otel_straggler.otlp.metric_rules import DecodedMetrics

_MARK: Final = semconv.SCOPE_NAME.encode()
_NAMES: Final = frozenset(get_args(semconv.LaunchEventName))
_MAX_TEXT: Final = 1_000
_MAX_RANKS: Final = 4_096
_MAX_AT_S: Final = 2.0**63 / 1e9


def decode_launch_events(body: bytes, *, is_json: bool = False) -> tuple[LaunchEvent, ...]:
    """Events in a request of log records, in their order. A request without a record of ours is not
    parsed, so that any number of logs of others costs nothing.

    Raises:
        InputError: it names our scope, but is no such request.
    """
    if _MARK not in body:
        return ()
    try:
        if is_json:
            request = message_from_json(body, ExportLogsServiceRequest)
        else:
            request = ExportLogsServiceRequest.FromString(body)
    except DecodeError as error:
        msg = f"body: not an ExportLogsServiceRequest in protobuf: {error}"
        raise InputError(msg) from error
    return tuple(_events(request))


def launches_of(events: Iterable[LaunchEvent]) -> DecodedMetrics:
    """Events that name a run, for a collector, which knows jobs by the run's name only."""
    named = tuple(event for event in events if event.run_id)
    return DecodedMetrics(heartbeats=(), launches=named, points={})


def _events(request: Any) -> Iterator[LaunchEvent]:
    for resource_logs in request.resource_logs:
        if resource_logs.resource.ByteSize() > MAX_RESOURCE_BYTES:
            continue
        resource = read_attributes(resource_logs.resource.attributes)
        for scope_logs in resource_logs.scope_logs:
            if scope_logs.scope.name == semconv.SCOPE_NAME:
                for record in scope_logs.log_records:
                    event = _event(record, resource)
                    if event is not None:
                        yield event


def _event(record: Any, resource: Values) -> LaunchEvent | None:
    """None if it is no event of a launcher, or has no time."""
    own = read_attributes(record.attributes)
    name = getattr(record, "event_name", "") or own.get(semconv.EVENT_NAME)
    at_s = (record.time_unix_nano or record.observed_time_unix_nano) / 1e9
    if name not in _NAMES or not 0.0 < at_s < _MAX_AT_S:
        return None
    read = _Reader({**resource, **own})
    return LaunchEvent(
        name=cast("semconv.LaunchEventName", name),
        at_unix_s=at_s,
        node=read.text(semconv.HOST_NAME),
        run_id=read.text(semconv.RUN_ID),
        job=read.number(semconv.LAUNCH_JOB, 1),
        attempt=read.number(semconv.RUN_ATTEMPT, 0),
        rank=read.number(semconv.RANK, -1),
        pid=read.number(semconv.PROCESS_PID, 0),
        exit_code=as_int(own.get(semconv.EXIT_CODE)),
        reason=read.text(semconv.LAUNCH_REASON),
        text=clean_name(record.body.string_value, _MAX_TEXT),
        ranks=_ranks(str(own.get(semconv.LAUNCH_NODE_RANKS) or "")),
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Attributes of a record, over those of its resource."""

    values: Values

    def text(self, key: str) -> str:
        value = self.values.get(key)
        return "" if value is None else clean_name(str(value))

    def number(self, key: str, otherwise: int) -> int:
        value = as_int(self.values.get(key))
        return otherwise if value is None or not 0 <= value < 2**31 else value


def _ranks(text: str) -> tuple[int, ...]:
    """
    >>> _ranks("0, 1"), _ranks("none")
    ((0, 1), ())
    """
    known = (as_int(part.strip()) for part in text.split(",")[:_MAX_RANKS])
    return tuple(rank for rank in known if rank is not None and 0 <= rank < 2**31)
