"""What an agent reports: to the supervisor, and to the collector, if these are named."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from otel_straggler import semconv
from otel_straggler.agent.ranks import WatchedRank
from otel_straggler.client.endpoints import resolve_endpoints
from otel_straggler.client.identity import named_run_id
from otel_straggler.client.settings import node_name
from otel_straggler.config import Endpoint
from otel_straggler.model.fleet_reports import FleetReport, ReportKind, new_report_id
from otel_straggler.otlp.clients.client import client_for
from otel_straggler.otlp.encode_metrics import encode_numbers
from otel_straggler.otlp.report_sender import report_sender
from otel_straggler.secret import without_secrets

_UNNAMED: Final = "unnamed"
SEND_S: Final = 5.0
KEPT_S: Final = 60.0
"""It is sent for so long after the rank has gone on, or is gone."""
MAX_RANKS: Final = 1_000
_LOG = logging.getLogger("otel_straggler.agent")


class HangReports:
    """What the agent of one node reports; never waits, but at its end.

    Raises:
        ConfigError: a variable is wrong.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        named = environment.get("OTEL_STRAGGLER_RUN_ID", "").strip()
        self.run_id = named or named_run_id(environment)[0] or _UNNAMED
        self._node = node_name(environment)
        self._group = environment.get("OTEL_STRAGGLER_GROUP", "").strip()
        self._sender = report_sender(environment)
        self._timeouts = TimeoutSender(environment)

    def started(self) -> None:
        self._timeouts.start()
        self._send("agent_started", reason="ok", text="the agent of this node watches its ranks")

    def rank_hung(self, watched: WatchedRank, facts: Mapping[str, Any]) -> None:
        """Once for each hang."""
        text = "; ".join(facts["exceeded"])
        self._timeouts.report(
            TimedOut(
                run_id=watched.run_id or self.run_id,
                group=self._group,
                rank=watched.rank,
                attempt=watched.attempt,
                node=self._node,
                reason=facts["reason"],
                seconds=facts["exceeded_s"],
            )
        )
        self._send(
            "rank_hung", reason=facts["reason"], text=text, rank=watched.rank,
            attempt=watched.attempt,
        )  # fmt: skip

    def ended(self) -> None:
        """Waits a moment until the supervisor has it."""
        self._send("agent_ended", reason="ok", text="the agent of this node ends")
        self._timeouts.close()
        if self._sender is not None:
            self._sender.close()

    def _send(
        self, kind: ReportKind, *, reason: str, text: str, rank: int | None = None, attempt: int = 0
    ) -> None:
        if self._sender is not None:
            send = self._sender.keep if kind == "agent_started" else self._sender.send
            send(
                FleetReport(
                    kind=kind,
                    id=new_report_id(),
                    run_id=self.run_id,
                    attempt=attempt,
                    node=self._node,
                    rank=rank,
                    at_unix_s=time.time(),
                    reason=reason,
                    text=text,
                )
            )


class TimedOut(NamedTuple):
    """What is sent of one rank."""

    run_id: str
    group: str
    rank: int
    attempt: int
    node: str
    reason: str
    seconds: float

    def encoded(self, now_s: float) -> bytes:
        resource: dict[str, semconv.AttributeValue] = {
            semconv.RUN_ID: self.run_id,
            semconv.GROUP: self.group,
            semconv.RANK: self.rank,
            semconv.RUN_ATTEMPT: self.attempt,
            semconv.HOST_NAME: self.node,
        }
        return encode_numbers(
            [(semconv.RANK_TIMED_OUT, {semconv.REASON: self.reason}, self.seconds)],
            resource=resource,
            now_s=now_s,
            started_at_s=now_s,
        )


class TimeoutSender:
    """Sends timeouts that an agent has acted on, as a metric for the collector, whose alerts they
    raise, in a thread of its own. Without an endpoint that is named, it sends nothing.

    Args:
        environment: of the agent, where ``OTEL_STRAGGLER_ENDPOINT`` or OpenTelemetry's variables
            name a collector.

    Raises:
        ConfigError: ``OTEL_STRAGGLER_*`` is wrong.
    """

    def __init__(
        self, environment: Mapping[str, str], now_s: Callable[[], float] = time.monotonic
    ) -> None:
        endpoints = resolve_endpoints(environment)
        is_named = bool(endpoints.where.get("metrics")) and endpoints.metrics.is_enabled
        self._endpoint: Endpoint | None = endpoints.metrics if is_named else None
        self._now_s = now_s
        self._sent: dict[int, tuple[TimedOut, float]] = {}
        self._changed = threading.Condition()
        self._is_closed = False
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="straggler-timeouts", daemon=True)

    def start(self) -> None:
        if self._endpoint is not None:
            self._thread.start()

    def report(self, timed_out: TimedOut) -> None:
        """Send it now, and for a minute. Never waits."""
        with self._changed:
            if len(self._sent) < MAX_RANKS or timed_out.rank in self._sent:
                self._sent[timed_out.rank] = timed_out, self._now_s() + KEPT_S
            self._changed.notify()

    def close(self) -> None:
        """What was reported is sent once more, within two seconds."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(2.0)

    def due(self) -> list[TimedOut]:
        """What is to be sent now."""
        with self._changed:
            now_s = self._now_s()
            self._sent = {rank: each for rank, each in self._sent.items() if now_s <= each[1]}
            return [timed_out for timed_out, _ in self._sent.values()]

    def _run(self) -> None:
        assert self._endpoint is not None
        client = client_for(self._endpoint, "metrics")
        while True:
            with self._changed:
                is_last = self._is_closed
            for timed_out in self.due():
                self._send(client, timed_out)
            if is_last:
                break
            with self._changed:
                if not self._is_closed:
                    self._changed.wait(SEND_S if self._sent else None)
        client.close()

    def _send(self, client: Any, timed_out: TimedOut) -> None:
        try:
            body = timed_out.encoded(time.time())
            response = client.post(body, content_type="application/x-protobuf")
            why = "" if response.is_success else response.error or f"HTTP {response.status}"
        except Exception as error:  # noqa: BLE001  those of other ranks are sent all the same
            why = repr(error)
        if why and not self._has_failed:
            assert self._endpoint is not None
            url = without_secrets(self._endpoint.url)
            _LOG.warning("timeouts cannot be sent to %s: %s", url, why)
        self._has_failed = bool(why)
