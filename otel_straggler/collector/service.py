"""The collector: receive → score → publish, wired from the last stage to the first."""

from __future__ import annotations

import json
import logging
import socket
import time
from typing import Any

from otel_straggler._version import __version__
from otel_straggler.collector import stopping
from otel_straggler.collector.alerting.notifying import notifying_for
from otel_straggler.collector.alerting.trial import AlertTrial
from otel_straggler.collector.api.decisions import Deciding, Decisions
from otel_straggler.collector.api.maintenance import MaintenanceBook
from otel_straggler.collector.forwarding.forward import Forwardable, Forwarder
from otel_straggler.collector.forwarding.kept_traces import Reach
from otel_straggler.collector.forwarding.sampling import Sampler
from otel_straggler.collector.history.pages import PageHistory
from otel_straggler.collector.history.writer import Backfill, HistoryWriter
from otel_straggler.collector.ingest.handler import JSON, PROTOBUF, Request
from otel_straggler.collector.ingest.intake import ByteBudget, Intake
from otel_straggler.collector.ingest.servers import Servers, require_packages
from otel_straggler.collector.metrics.self_metrics import self_families
from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.collector.stopping import Stopping
from otel_straggler.collector.views.page_json import ResponseMeta
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.collector.views.snapshot import ReportQuery
from otel_straggler.collector.worker import Worker
from otel_straggler.otlp.span_rules import DecodedSpans
from otel_straggler.throttle import Throttle

_LET_GO_S = 5.0
_METRICS_SHARE = 0.2, 0.5
"""Part of a core that goes into the text of /metrics, and seconds of it at once."""
_log = logging.getLogger(__name__)


class Collector:
    """One collector in this process. ``start`` and ``stop`` once each.

    >>> from otel_straggler.collector.settings import MetricsSettings, ReceiverSettings
    >>> free = "127.0.0.1:0"
    >>> collector = Collector(CollectorSettings(
    ...     receivers=ReceiverSettings(otlp_http=free, otlp_grpc=free),
    ...     metrics=MetricsSettings(listen=free)))
    >>> sorted(collector.start())
    ['metrics', 'otlp_grpc', 'otlp_http']
    >>> collector.stop()
    """

    def __init__(self, settings: CollectorSettings | None = None) -> None:
        require_packages()
        from otel_straggler.collector.api.routes import Answers, Api
        from otel_straggler.collector.views.pages import Pages

        self._settings = settings or CollectorSettings()
        self._started_at_s = time.time()
        self._id = self._settings.metrics.collector_id
        self._metrics_share = Throttle(*_METRICS_SHARE)
        self._metrics_text = b""
        self._budget = ByteBudget(self._settings.receivers.max_waiting_bytes)
        self._forwarder = _forwarder(self._settings)
        self._keeper = HistoryWriter(self._settings.history, self._settings.scoring.max_runs)
        self._sampler = _sampler(self._settings, self._forwarder)
        self._decisions = Decisions(time.time_ns)
        self._maintenance = MaintenanceBook(time.time_ns)
        self._worker = Worker(
            self._settings,
            self._budget,
            keeper=self._keeper,
            sampler=self._sampler,
            decisions=self._decisions,
            maintenance=self._maintenance,
            mode=self._settings.mode,
        )
        self._notifying = notifying_for(self._settings, self._worker, self._keeper.keep_alerts)
        self._commands = self._worker.commands
        self._page_history = PageHistory(
            self._settings.history.path,
            lost_after_s=self._settings.liveness.lost_after_s,
        )
        self._backfill = Backfill(
            self._page_history,
            self._worker,
            self._settings.scoring.evict_run_s,
        )
        aliases, names = self._settings.attributes.aliases(), self._settings.spans.names()
        self._intake = Intake(self._worker.ingest, self._forward, self._budget, aliases, names)
        allows = self._settings.metrics.decisions
        answers = Answers(
            metrics=self.metrics_page,
            report=self._report,
            is_healthy=lambda: self._worker.is_alive,
            is_ready=lambda: self._worker.is_alive and not self._intake.is_busy("traces"),
            decide=self._deciding().decide if allows else None,
            commands=self._commands if self._settings.commands.enabled else None,
            maintenance=self._maintenance.listed,
            announce=self._announce_maintenance if allows else None,
            try_alerts=self._trying().send if allows else None,
            pages=Pages(self._worker, self._page_history, self._response_meta),
        )
        api = Api(answers, self._settings.metrics.allowed_hosts)
        self._servers = Servers(self._settings, self._intake, api, self._commands)

    def _response_meta(self) -> ResponseMeta:
        return ResponseMeta(
            collector=self._id, version=__version__, started_at_s=self._started_at_s
        )

    def _deciding(self) -> Deciding:
        def keep(state: dict[str, Any]) -> None:
            self._keeper.keep_decisions(state)
            self._worker.show_soon()

        return Deciding(self._decisions, self._live_run, keep, time.time_ns)

    def _report(self, query: ReportQuery) -> bytes:
        return self._worker.snapshot.report(query)

    def _live_run(self, run_id: str) -> RunView | None:
        return self._worker.snapshot.runs.get(run_id)

    def _announce_maintenance(self, body: bytes) -> dict[str, Any]:
        announced = self._maintenance.announce(body)
        self._keeper.keep_maintenance(self._maintenance.state())
        self._worker.show_soon()
        return announced

    def _trying(self) -> AlertTrial:
        return AlertTrial(self._settings, lambda: self._worker.snapshot.watched, time.time)

    def start(self) -> dict[str, str]:
        """Listen and work; returns the addresses by name.

        Raises:
            UnavailableError: an address is taken, a package is missing, or the history is in use
                or of a newer version.
            ConfigError: what is to be the history is the database of another program.
        """
        self._keeper.open()
        self._backfill.start()
        try:
            addresses = self._servers.start()
        except BaseException:
            self._keeper.close(_LET_GO_S)
            raise
        if not self._id:
            self._id = f"{socket.gethostname()}:{_port_of(addresses['metrics'])}"
        self._notifying.open(f"http://{socket.gethostname()}:{_port_of(addresses['metrics'])}")
        self._keeper.restore_alerts(self._notifying.restore)
        self._worker.start(self._id)
        self._notifying.start()
        if self._forwarder is not None:
            self._forwarder.start()
        if self._sampler is not None:
            self._sampler.start()
        return addresses

    def stop(self, within_s: float = stopping.WITHIN_S) -> None:
        """Accept nothing more, score what was accepted, close the windows, pass on what waits.

        Args:
            within_s: for all of it. What there is no time for is lost, counted and said; what the
                history has is whole all the same.
        """
        stop = Stopping(within_s)
        stop.step("receiving", stopping.RECEIVING, self._servers.stop_receiving)
        self._intake.close()
        stop.step("scoring", stopping.SCORING, self._stop_scoring)
        stop.step("alerts", stopping.TELLING, self._notifying.stop)
        stop.step("the history", stopping.KEEPING, self._keeper.close)
        if self._sampler is not None:
            stop.step("sampling", stopping.PASSING_ON, self._sampler.stop)
        if self._forwarder is not None:
            stop.step("passing on", stopping.PASSING_ON, self._forwarder.stop)
        stop.step("the pages", stopping.PASSING_ON, lambda _: self._servers.stop())
        _log.info("stopped; counts at the end: %s", json.dumps(self._last_counts()))

    def _stop_scoring(self, within_s: float) -> None:
        if not self._worker.stop(within_s):
            _log.warning(
                "scoring did not end in time: what has come since the history was last written "
                "(history.save_every_seconds) does not survive"
            )
        requests, rows = self._worker.given_up
        if requests:
            _log.warning(
                "there was no time left to score %d requests with %d section runs that were taken; "
                "they are counted as unscored",
                requests,
                rows,
            )

    def _last_counts(self) -> dict[str, dict[str, int]]:
        """What nobody can scrape any more: spans, rows and forwarded requests by outcome."""
        forwarded = {} if self._forwarder is None else self._forwarder.counts()
        return {
            "spans": self._intake.counts().outcomes,
            "rows": self._worker.counts().rows,
            "forwarded": forwarded,
        }

    def metrics_page(self) -> bytes:
        """The text of /metrics; that of just before for who asks for it all the time. On the event
        loop only."""
        if self._metrics_share.wait_s() == 0.0:
            with self._metrics_share.spending_cpu():
                self._metrics_text = self._metrics_page()
        return self._metrics_text

    def _metrics_page(self) -> bytes:
        snapshot = self._worker.snapshot
        forwarder = self._forwarder
        own = self_families(
            collector_id=self._id,
            cluster=self._settings.metrics.cluster,
            started_at_s=self._started_at_s,
            waiting_bytes=self._budget.waiting_bytes,
            runs=len(snapshot.runs),
            intake=self._intake.counts(),
            worker=self._worker.counts(),
            http_answers=self._servers.http_answers,
            forwarded=None if forwarder is None else forwarder.counts(),
            history=self._keeper.counts(),
            sampling=None if self._sampler is None else self._sampler.counts(),
            forward_queue_bytes=0 if forwarder is None else forwarder.queued_bytes,
            decisions=self._decisions.counts(),
            commands=self._commands.counts(),
            notifications=self._notifying.counts(),
            alert_failures=self._notifying.failures,
            connections_cut=self._servers.connections_cut,
        )
        return snapshot.page + own.render()

    def _forward(self, request: Request, spans: DecodedSpans | None) -> None:
        if self._sampler is not None and spans is not None:
            self._sampler.hold(
                request.body,
                _reaches(spans),
                sum(spans.outcomes.values()),
                is_json=request.content_type == JSON,
            )
        elif self._forwarder is not None:
            self._forwarder.put(
                Forwardable(
                    signal=request.signal,
                    body=request.raw_body,
                    content_type=request.content_type,
                    content_encoding=request.content_encoding,
                )
            )


def _port_of(address: str) -> str:
    return address.rpartition(":")[2]


def _reaches(spans: DecodedSpans) -> tuple[Reach, ...]:
    return tuple(
        Reach(source=source, step=progress.step, end_ns=progress.end_ns)
        for source, progress in spans.progress.items()
    )


def _forwarder(settings: CollectorSettings) -> Forwarder | None:
    forward = settings.forward
    if not forward.is_on:
        return None
    return Forwarder(forward.url, max_queue_bytes=forward.max_queue_bytes)


def _sampler(settings: CollectorSettings, forwarder: Forwarder | None) -> Sampler | None:
    if forwarder is None or not settings.forward.is_sampled:
        return None

    def put(body: bytes) -> None:
        forwarder.put(
            Forwardable(signal="traces", body=body, content_type=PROTOBUF, content_encoding="")
        )

    return Sampler(settings.forward, put, settings.attributes.aliases())
