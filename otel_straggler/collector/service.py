"""The collector: ingest, score, publish, wired from the last stage to the first."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_straggler._version import __version__
from otel_straggler.collector.access.audit import Audit
from otel_straggler.collector.access.expiry import Expiry, expiries
from otel_straggler.collector.access.guard import Guard
from otel_straggler.collector.access.quotas import Quotas
from otel_straggler.collector.alerting.notifying import notifying_for
from otel_straggler.collector.alerting.trial import Trials
from otel_straggler.collector.alerting.troubles import Watched, troubles_of
from otel_straggler.collector.api.decisions import Decisions
from otel_straggler.collector.api.maintenance import MaintenanceBook
from otel_straggler.collector.api.peers import Peers
from otel_straggler.collector.forwarding.forward import Forwarder
from otel_straggler.collector.forwarding.sampling import Sampler
from otel_straggler.collector.history.pages import PageHistory
from otel_straggler.collector.history.spool import Spool
from otel_straggler.collector.history.writer import (
    ALERTS,
    DECISIONS,
    MAINTENANCE,
    HistoryWriter,
    start_backfill,
)
from otel_straggler.collector.ingest.intake import JSON, ByteBudget, Intake, Request
from otel_straggler.collector.ingest.loop_thread import require_packages
from otel_straggler.collector.ingest.servers import Servers
from otel_straggler.collector.metrics.self_metrics import self_families
from otel_straggler.collector.settings import (
    CollectorSettings,
    ForwardSettings,
    HistorySettings,
    MiB,
)
from otel_straggler.collector.settings_file import check_exposure, exposed
from otel_straggler.collector.stopping import Stopping
from otel_straggler.collector.views.page_json import ResponseMeta
from otel_straggler.collector.views.snapshot import ReportQuery
from otel_straggler.collector.worker import Worker
from otel_straggler.model.verdict import Decision
from otel_straggler.otlp.span_rules import DecodedSpans
from otel_straggler.throttle import Throttle

if TYPE_CHECKING:
    from otel_straggler.collector.api.routes import Answers
    from otel_straggler.collector.views.pages import Pages

_CLOSE_S = 5.0
_METRICS_SHARE = 0.2, 0.5
"""Part of a core for the text of /metrics, and seconds of it at once."""
_log = logging.getLogger(__name__)

_PAGE_WITHIN_S: Final = 1.0
"""A scrape waits so long for new numbers at most."""
WITHIN_S: Final = 20.0
"""A collector stops within this; some seconds more if a thread does not respond."""


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
        require_packages("collector", "httptools", "h2")
        from otel_straggler.collector.api.routes import Api
        from otel_straggler.collector.views.pages import Pages

        settings = self._settings = settings or CollectorSettings()
        self._started_at_s = time.time()
        self._id = settings.metrics.collector_id
        self._metrics_share = Throttle(*_METRICS_SHARE)
        self._metrics_text = b""
        self._budget = ByteBudget(settings.receivers.max_waiting_bytes)
        self._forwarder = _forwarder(settings.forward)
        self._spool = _spool(settings.history)
        page_port = settings.metrics.listen.rpartition(":")[2]
        history_id = self._id or f"{socket.gethostname()}:{page_port}"
        self._history = HistoryWriter(
            settings.history,
            settings.scoring.max_runs,
            spool=self._spool,
            collector=history_id,
        )
        self._sampler = _sampler(settings, self._forwarder)
        self._decisions = Decisions(time.time_ns)
        self._maintenance = MaintenanceBook(time.time_ns)
        audit = Audit(None if self._forwarder is None else partial(_forward_log, self._forwarder))
        guard = Guard(settings.auth, settings.metrics.allowed_hosts, audit)
        refusals = self._refusals = audit.refusals
        quotas = self._quotas = Quotas(
            lambda: self._worker.snapshot.runs, principals=guard.principals
        )
        self._worker = Worker(
            settings,
            self._budget,
            history=self._history,
            sampler=self._sampler,
            decisions=self._decisions,
            maintenance=self._maintenance,
            series_shares=quotas.series_shares,
        )
        keep_alerts = partial(self._history.put, ALERTS)
        self._notifying = notifying_for(settings, self._worker, keep_alerts)
        self._trials = Trials(settings)
        self._peers = Peers(
            settings.metrics.peers,
            ages=lambda: self._worker.snapshot.ages(),  # noqa: PLW0108  of the newest
            evict=self._worker.evict_runs,
            take_over=self._notifying.take_over,
        )
        self._notifying.has_moved = self._peers.has_moved
        self._commands = self._worker.commands
        lost_after_s = settings.liveness.lost_after_s
        self._page_history = PageHistory(
            settings.history.path, lost_after_s=lost_after_s, collector=history_id
        )
        self._evict_run_s = settings.scoring.evict_run_s
        aliases, names = settings.attributes.aliases(), settings.spans.names()
        self._intake = Intake(
            self._worker.ingest,
            self._forward,
            self._budget,
            aliases,
            names,
            quotas,
            self._spool,
            claim=self._worker.claim,
        )
        self._is_insecure = bool(exposed(settings))
        meta = partial(
            ResponseMeta,
            version=__version__,
            started_at_s=self._started_at_s,
            is_insecure=self._is_insecure,
            page_url=settings.alerts.notify.external_url.rstrip("/"),
        )
        pages = Pages(
            self._worker,
            self._page_history,
            lambda: meta(collector=self._id),
            peers=self._peers if settings.metrics.peers else None,
            refusals=lambda of: (
                *quotas.problems(of),
                *refusals.problems(of),
                *(() if of else self._troubles.problems()),
            ),
        )
        api = Api(self._answers(pages), guard=guard, is_tls=settings.tls.is_on)
        self._servers = Servers(settings, self._intake, api, self._commands, guard)
        self._expiries = partial(_expiries, settings, guard)
        self._troubles = troubles_of(
            Watched(
                settings=settings,
                worker=self._worker,
                intake=self._intake,
                servers=self._servers,
                quotas=quotas,
                history=self._history,
                forwarder=self._forwarder,
                notifying=self._notifying,
                expiries=self._expiries,
            )
        )
        self._notifying.troubles = self._troubles.now

    def _answers(self, pages: Pages) -> Answers:
        from otel_straggler.collector.api.routes import Answers

        allows = self._settings.metrics.decisions
        return Answers(
            metrics=self.metrics_page,
            report=self._report,
            is_healthy=lambda: self._worker.is_alive,
            is_ready=lambda: self._worker.is_alive and not self._intake.is_busy("traces"),
            decide=self._decide if allows else None,
            commands=self._commands if self._settings.commands.enabled else None,
            maintenance=self._maintenance.listed,
            announce=self._announce_maintenance if allows else None,
            try_alerts=self._try_alerts if allows else None,
            pages=pages,
        )

    def _decide(self, body: bytes) -> Decision:
        decision = self._decisions.decide(body, self._worker.snapshot.runs.get)
        self._history.put(DECISIONS, self._decisions.state())
        self._worker.show_soon()
        return decision

    def _report(self, query: ReportQuery) -> bytes:
        return self._worker.snapshot.report(query)

    def _try_alerts(self, body: bytes) -> dict[str, Any]:
        return self._trials.send(body, self._worker.snapshot.watched, time.time())

    def _announce_maintenance(self, body: bytes) -> dict[str, Any]:
        announced = self._maintenance.announce(body)
        self._history.put(MAINTENANCE, self._maintenance.state())
        self._worker.show_soon()
        return announced

    def start(self) -> dict[str, str]:
        """Listen and work; returns the addresses by name.

        Raises:
            UnavailableError: an address is taken, a package is missing, the history or the spool
                is in use, the spool cannot be opened, or the history is of a newer version.
            ConfigError: the history is the database of another program; or an address is open to
                other machines without grants, which ``auth.insecure`` does not allow.
        """
        check_exposure(self._settings)
        if self._spool is not None:
            self._spool.open()
        try:
            self._history.open()
            start_backfill(self._page_history, self._worker, self._evict_run_s)
            if self._spool is not None:
                self._resume(self._spool)
            addresses = self._servers.start()
        except BaseException:
            self._history.close(_CLOSE_S)
            if self._spool is not None:
                self._spool.close()
            raise
        if self._is_insecure:
            _log.warning(
                "auth.insecure: anybody who reaches %s may send telemetry, silence alerts and read "
                "everything", ", ".join(exposed(self._settings).values()),
            )  # fmt: skip
        page = f"{socket.gethostname()}:{addresses['metrics'].rpartition(':')[2]}"
        self._id = self._id or page
        scheme = "https" if self._settings.tls.is_on else "http"
        self._notifying.open(f"{scheme}://{page}")
        self._history.restore_alerts(self._notifying.restore)
        self._worker.start(self._id)
        self._notifying.start()
        self._peers.start(self._id)
        if self._forwarder is not None:
            self._forwarder.start()
        if self._sampler is not None:
            self._sampler.start()
        return addresses

    def _resume(self, spool: Spool) -> None:
        """Score what the last process had accepted and not saved, before anything new comes."""
        self._worker.resume()
        history = self._history
        count = self._intake.replay(spool.replay(after=history.through, also=history.held))
        spool.begin()
        if count:
            _log.info("%d requests of the spool were replayed", count)

    def stop(self, within_s: float = WITHIN_S) -> None:
        """Accept nothing more, score what was accepted, close the windows, forward what waits.

        Args:
            within_s: for all of it; what there is no time for is counted, logged and in
                :attr:`unfinished`, and lost unless the spool has it.
        """
        # The second argument is the part of the time that is over when it has to be done.
        stop = Stopping(within_s)
        stop.step("receiving", 0.25, self._servers.stop_receiving)
        self._intake.close()
        stop.step("the peers", 0.3, self._peers.stop)
        stop.step("scoring", 0.6, self._stop_scoring)
        stop.step("alerts", 0.7, self._notifying.stop)
        stop.step("the history", 0.85, self._history.close)
        if self._spool is not None:
            stop.step("the spool", 0.85, self._spool.close)
        if self._sampler is not None:
            stop.step("sampling", 1.0, self._sampler.stop)
        if self._forwarder is not None:
            stop.step("forwarding", 1.0, self._forwarder.stop)
        stop.step("the pages", 1.0, lambda _: self._servers.stop())
        _log.info("stopped; counts at the end: %s", json.dumps(self._last_counts()))

    def _stop_scoring(self, within_s: float) -> None:
        if not self._worker.stop(within_s):
            _log.warning(
                "scoring did not end in time: what came since the history was last written "
                "(history.save_every_seconds) is %s",
                "lost" if self._spool is None else "in the spool",
            )
        if self.unfinished:
            _log.warning("%s", self.unfinished)

    @property
    def unfinished(self) -> str:
        """What was accepted and not scored before the end, as a sentence; empty if all was."""
        text = "no time left to score {:,} accepted requests with {:,} section executions; {}"
        kept = "they are in the spool, and the next start scores them"
        lost = "they are counted as unscored and lost. A spool (history.spool) keeps them"
        both = (self._worker.spooled, kept), (self._worker.given_up, lost)
        return ". ".join(text.format(*count, ending) for count, ending in both if count[0])

    def _last_counts(self) -> dict[str, dict[str, int]]:
        """Counts that can no longer be scraped."""
        return {
            "spans": self._intake.counts().outcomes,
            "rows": self._worker.counts().rows,
            "forwarded": {} if self._forwarder is None else self._forwarder.counts(),
        }

    async def metrics_page(self) -> bytes:
        """The text of /metrics; the last one for a client that scrapes too often, and where scoring
        does not get to it. On the event loop only."""
        if self._metrics_share.wait_s() == 0.0:
            rendered = asyncio.wrap_future(self._worker.request_page())
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(rendered), _PAGE_WITHIN_S)
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
            page_url=self._notifying.page_url,
            waiting_bytes=self._budget.waiting_bytes,
            runs=len(snapshot.runs),
            intake=self._intake.counts(),
            worker=self._worker.counts().with_rejected(self._quotas.counts()),
            http_answers=self._servers.http_answers,
            forwarded=None if forwarder is None else forwarder.counts(),
            history=self._history.counts(),
            sampling=None if self._sampler is None else self._sampler.counts(),
            forward_queue_bytes=0 if forwarder is None else forwarder.queued_bytes,
            decisions=self._decisions.counts(),
            commands=self._commands.counts(),
            notifications=self._notifying.counts(),
            alert_failures=self._notifying.failures,
            connections_cut=self._servers.connections_cut,
            refused=self._refusals.counts(),
            troubles=self._troubles.now(),
            expiries=self._expiries(),
        )
        return snapshot.page + own.render()

    def _forward(self, request: Request, spans: DecodedSpans | None) -> None:
        if self._sampler is not None and spans is not None:
            self._sampler.hold(request, spans)
        elif self._forwarder is not None:
            self._forwarder.put(replace(request, body=b""))  # held while it waits: only raw_body


def _expiries(settings: CollectorSettings, guard: Guard) -> list[Expiry]:
    certificates = settings.tls.cert_file, settings.alerts.notify.cert_file
    return expiries(certificates, guard.principals())


def _spool(history: HistorySettings) -> Spool | None:
    if not (history.spool and history.path):
        return None
    max_bytes, syncs = history.spool_max_mib * MiB, history.spool_fsync == "batch"
    return Spool(Path(history.spool), max_bytes=max_bytes, syncs=syncs)


def _forwarder(forward: ForwardSettings) -> Forwarder | None:
    if not forward.is_on:
        return None
    return Forwarder(forward.url, max_queue_bytes=forward.max_queue_bytes)


def _forward_log(forwarder: Forwarder, body: bytes) -> None:
    """Forward a line of the audit trail."""
    forwarder.put(
        Request(signal="logs", content_type=JSON, body=b"", raw_body=body, content_encoding="")
    )


def _sampler(settings: CollectorSettings, forwarder: Forwarder | None) -> Sampler | None:
    if forwarder is None:
        return None
    return Sampler(settings.forward, forwarder.put, settings.attributes.aliases())
