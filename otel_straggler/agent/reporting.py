"""What an agent reports: to the supervisor, and to the collector, if these are named."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any

from otel_straggler.agent.ranks import WatchedRank
from otel_straggler.agent.telemetry import Telemetry, TimedOut
from otel_straggler.client.endpoints import parse_pairs
from otel_straggler.model.fleet_reports import FleetReport, ReportKind, new_report_id
from otel_straggler.otlp.report_sender import report_sender

_UNNAMED = "unnamed"


class HangReports:
    """What the agent of one node reports; never waits, but at its end.

    Raises:
        ConfigError: a variable is wrong.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        named = environment.get("OTEL_STRAGGLER_RUN_ID", "").strip()
        self.run_id = named or environment.get("TORCHELASTIC_RUN_ID", "").strip() or _UNNAMED
        resource = parse_pairs(environment.get("OTEL_RESOURCE_ATTRIBUTES", ""))
        self._node = resource.get("host.name", "").strip() or socket.gethostname()
        self._group = environment.get("OTEL_STRAGGLER_GROUP", "").strip()
        self._sender = report_sender(environment)
        self._telemetry = Telemetry(environment)

    def started(self) -> None:
        self._telemetry.start()
        self._send("agent_started", reason="ok", text="the agent of this node watches its ranks")

    def rank_hung(self, watched: WatchedRank, facts: Mapping[str, Any]) -> None:
        """Once for each hang."""
        text = "; ".join(facts["exceeded"])
        self._telemetry.report(
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
        self._telemetry.close()
        if self._sender is not None:
            self._sender.close()

    def _send(
        self, kind: ReportKind, *, reason: str, text: str, rank: int | None = None, attempt: int = 0
    ) -> None:
        if self._sender is not None:
            self._sender.send(
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
