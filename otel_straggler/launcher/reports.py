"""Where the events of a launcher go: a file next to the ranks' logs, OTLP, a supervisor."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TextIO, cast

from otel_straggler import semconv
from otel_straggler.client.endpoints import Endpoints, logs_endpoint
from otel_straggler.client.sender import PROTOBUF, Drops, SpanSender
from otel_straggler.errors import InputError
from otel_straggler.launcher.events import FINISHED, parse_event
from otel_straggler.model.fleet_reports import FleetReport, ReportKind, new_report_id
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.otlp.clients.client import client_for, encoded_body
from otel_straggler.otlp.encode_events import EventRecord, encode_event
from otel_straggler.otlp.encode_metrics import Attributes, encode_numbers
from otel_straggler.otlp.report_sender import ReportSender, report_sender
from otel_straggler.regular_files import open_regular

METRICS_EVERY_S: Final = 20.0
"""A collector drops what passes through after 120 s of silence."""
_RETRY_S: Final = 1.0
_POST_S: Final = 5.0
_END_S: Final = 3.0
_MAX_QUEUED: Final = 1_000
_MAX_LINE: Final = 1 << 20
_BUDGET_BYTES: Final = 1024 * 1024
_LOG = logging.getLogger("otel_straggler")
_REPORTED: Final[dict[str, ReportKind]] = {
    "straggler.rank.exited": "rank_exited",
    "straggler.attempt.ended": "attempt_ended",
}
_Number = tuple[semconv.Metric, Attributes, float]


class EventLog:
    """Events as lines of JSON, flushed one by one. A full disk is one warning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._has_failed = False

    def next_attempt(self, run_id: str) -> int:
        """The first attempt of this run that an earlier launcher with this file has not started."""
        attempts = [-1]
        with contextlib.suppress(OSError), _opened(self.path, os.O_RDONLY, "r") as file:
            while line := file.readline(_MAX_LINE):
                with contextlib.suppress(InputError):
                    event = parse_event(line)
                    is_start = event.name == "straggler.attempt.started"
                    attempts.append(event.attempt if is_start and event.run_id == run_id else -1)
        return max(attempts) + 1

    def add(self, event: LaunchEvent) -> None:
        try:
            with _opened(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, "a") as file:
                file.write(event.to_json() + "\n")
        except OSError as error:
            if not self._has_failed:
                _LOG.warning("otel-straggler: %s: no events are kept: %s", self.path, error)
            self._has_failed = True


def _opened(path: Path, flags: int, mode: str) -> TextIO:
    file = open_regular(path, flags)
    return cast("TextIO", os.fdopen(file, mode, encoding="utf-8", errors="replace"))


class SupervisorReports:
    """Reports of exits and ends to a supervisor, where a variable names one."""

    def __init__(self, sender: ReportSender) -> None:
        self._sender = sender

    @classmethod
    def of(cls, env: Mapping[str, str]) -> SupervisorReports | None:
        """Raises: ConfigError: ``OTEL_STRAGGLER_SUPERVISOR`` is no URL."""
        sender = report_sender(env)
        return None if sender is None else cls(sender)

    def add(self, event: LaunchEvent) -> None:
        kind = _REPORTED.get(event.name)
        if kind is None or not event.run_id:
            return
        self._sender.send(
            FleetReport(
                kind=kind,
                id=new_report_id(),
                run_id=event.run_id,
                attempt=event.attempt,
                node=event.node,
                rank=event.rank if event.rank >= 0 else None,
                at_unix_s=event.at_unix_s,
                reason="ok" if event.reason == "exit_0" else event.reason,
                text=event.text,
            )
        )

    def close(self) -> None:
        self._sender.close()


class Totals:
    """What a node's launcher has counted, as metrics that a collector passes through."""

    def __init__(self) -> None:
        self._attempts = 0
        self._restarts: Counter[str] = Counter()
        self._exits: Counter[str] = Counter()

    def add(self, event: LaunchEvent) -> None:
        self._attempts += event.name == "straggler.attempt.started"
        if event.name == "straggler.run.restarting":
            self._restarts[event.reason] += 1
        elif event.name == "straggler.rank.exited":
            self._exits[event.reason] += 1

    def numbers(self) -> list[_Number]:
        by_reason = ((semconv.RUN_RESTARTS, self._restarts), (semconv.RUN_RANK_EXITS, self._exits))
        return [(semconv.RUN_ATTEMPTS, {}, float(self._attempts))] + [
            (metric, {semconv.REASON: reason}, float(count))
            for metric, counts in by_reason
            for reason, count in sorted(counts.items())
        ]


class Telemetry:
    """Sends events as log records, with retries, and totals as metrics, from a thread of its own.

    Args:
        endpoints: of traces and metrics; log records go where metrics go.
        resource: attributes of the launcher's node.
    """

    def __init__(self, endpoints: Endpoints, resource: Attributes) -> None:
        self._endpoints = endpoints
        self._resource = dict(resource)
        self._logs = logs_endpoint(endpoints.metrics)
        self._started_at_s = time.time()
        self._totals = Totals()
        self._newest: LaunchEvent | None = None
        self._has_failed = False
        self._queue: queue.Queue[LaunchEvent | None] = queue.Queue(_MAX_QUEUED)
        self._thread = threading.Thread(target=self._work, name="launch-events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def add(self, event: LaunchEvent) -> None:
        """Never blocks; a full queue drops the event, which the file has."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(event)

    def close(self) -> None:
        """Send what is left, within a few seconds."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(_END_S + 1.0)

    def _work(self) -> None:
        sender = SpanSender(
            self._logs,
            client_for(self._logs, "logs"),
            budget_bytes=_BUDGET_BYTES,
            drops=Drops(),
            monotonic_s=time.monotonic,
            on_answer=lambda _: None,
            what="events of the launcher",
        )
        metrics = client_for(self._endpoints.metrics, "metrics")
        try:
            while self._step_safely(sender, metrics):
                pass
            sender.send_before(time.monotonic() + _END_S)
        finally:
            sender.close()
            metrics.close()

    def _step_safely(self, sender: SpanSender, metrics: Any) -> bool:
        try:
            return self._step(sender, metrics)
        except Exception as error:  # noqa: BLE001  the next event is sent all the same
            if not self._has_failed:
                _LOG.warning("otel-straggler: an event of the launcher is not sent: %r", error)
            self._has_failed = True
            return True

    def _step(self, sender: SpanSender, metrics: Any) -> bool:
        """Wait for an event, or for the time to repeat; False at the end."""
        wait_s = _RETRY_S if sender.queued_requests else METRICS_EVERY_S
        try:
            event = self._queue.get(timeout=wait_s)
        except queue.Empty:
            self._send_totals(metrics)
        else:
            if event is None:
                return False
            self._totals.add(event)
            if event.ranks:
                self._newest = event
            if self._logs.is_enabled:
                sender.put(encode_event(self._record(event), resource=self._of(event)), 1)
            self._send_totals(metrics)
        sender.send(time.monotonic() + self._logs.timeout_s)
        return True

    def _send_totals(self, client: Any) -> None:
        """Under the first rank of the node: a collector knows ranks."""
        event = self._newest
        if event is None or not self._endpoints.metrics.is_enabled:
            return
        body = encode_numbers(
            self._totals.numbers(),
            resource={**self._of(event), semconv.RANK: event.ranks[0]},
            now_s=time.time(),
            started_at_s=self._started_at_s,
        )
        body, encoding = encoded_body(self._endpoints.metrics, body)
        client.post(body, content_type=PROTOBUF, content_encoding=encoding, timeout_s=_POST_S)

    @staticmethod
    def _record(event: LaunchEvent) -> EventRecord:
        attributes: dict[str, Any] = {semconv.LAUNCH_JOB: event.job}
        if event.reason:
            attributes[semconv.LAUNCH_REASON] = event.reason
        if event.ranks:
            attributes[semconv.LAUNCH_NODE_RANKS] = ", ".join(map(str, event.ranks))
        if event.rank >= 0:
            attributes[semconv.RANK] = event.rank
        if event.pid > 0:
            attributes[semconv.PROCESS_PID] = event.pid
        if event.exit_code is not None and event.exit_code >= 0:
            attributes[semconv.EXIT_CODE] = event.exit_code
        is_bad = event.reason not in {"", "exit_0", FINISHED}
        return EventRecord(
            name=event.name,
            at_unix_s=event.at_unix_s,
            text=event.text,
            attributes=attributes,
            is_warning=is_bad,
        )

    def _of(self, event: LaunchEvent) -> Attributes:
        return {
            **self._resource,
            semconv.HOST_NAME: event.node,
            semconv.RUN_ID: event.run_id,
            semconv.RUN_ATTEMPT: event.attempt,
        }
