"""The supervisor as a service: wires journal, executor, engine and server."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from otel_straggler.collector.access.audit import Audit
from otel_straggler.collector.access.guard import Guard
from otel_straggler.collector.access.tls import ServerTls
from otel_straggler.collector.ingest.loop_thread import LoopThread, listen, require_packages
from otel_straggler.errors import UnavailableError
from otel_straggler.otlp.clients.token import token_headers
from otel_straggler.secret import reveal
from otel_straggler.supervisor.api import MAX_BODY_BYTES, SupervisorApi
from otel_straggler.supervisor.engine import Engine
from otel_straggler.supervisor.executors import Executor, PrintExecutor
from otel_straggler.supervisor.executors.programs import Programs
from otel_straggler.supervisor.executors.shell import ShellExecutor
from otel_straggler.supervisor.executors.slurm import SlurmExecutor
from otel_straggler.supervisor.parts import Supervised
from otel_straggler.supervisor.settings import (
    SupervisorSettings,
    check_policy,
    check_start,
)
from otel_straggler.supervisor.store import Store
from otel_straggler.supervisor.telemetry import Export, Telemetry, exporting

_log = logging.getLogger(__name__)
_CONNECTIONS: Final = 512
_TOKEN_FILE: Final = "export.token_file"  # noqa: S105  a name, no secret


def executor_for(settings: SupervisorSettings) -> Executor:
    """The executor that the settings name.

    Raises:
        ConfigError, UnavailableError: it cannot be used.
    """
    chosen = settings.executor
    programs = Programs(Path(f"{settings.state.path}.lock"), chosen.timeout_s)
    if chosen.kind == "shell":
        return ShellExecutor(chosen.shell, programs)
    if chosen.kind == "slurm":
        return SlurmExecutor(chosen.slurm, programs)
    if chosen.kind == "kubernetes":
        from otel_straggler.supervisor.executors.kubernetes import KubernetesExecutor

        return KubernetesExecutor(chosen.kubernetes, chosen.timeout_s)
    return PrintExecutor()


class Supervisor:
    """A supervisor in this process. ``stop`` may be called in any state.

    Args:
        export: takes spans, in place of the settings' endpoint.

    Raises:
        ConfigError: the settings do not fit together.
        UnavailableError: a package or the journal cannot be used.
    """

    def __init__(
        self,
        settings: SupervisorSettings,
        *,
        wall_s: Callable[[], float] = time.time,
        executor: Executor | None = None,
        export: Export | None = None,
    ) -> None:
        require_packages("supervisor", "httptools")
        from otel_straggler.collector.ingest.http_messages import HttpLimits
        from otel_straggler.collector.ingest.http_server import HttpServer

        check_start(settings)
        executor = executor_for(settings) if executor is None else executor
        check_policy(settings, executor.actions)
        audit = Audit()
        guard = Guard(settings.auth, settings.server.allowed_hosts, audit)
        tls = ServerTls(settings.tls) if settings.tls.is_on else None
        self._settings = settings
        self._end_export: Callable[[], None] = lambda: None
        if export is None and settings.export.endpoint:
            export = self._exporting()
        self.telemetry = Telemetry(audit, export)
        self._store = Store(Path(settings.state.path))
        parts = Supervised(
            store=self._store,
            policy=settings.policy,
            executor=executor,
            observer=self.telemetry,
            wall_s=wall_s,
            hosts=settings.hosts,
        )
        self.engine = Engine(parts)
        self._api = SupervisorApi(self.engine, self.telemetry, guard)
        limits = HttpLimits(body_bytes=MAX_BODY_BYTES, connections=_CONNECTIONS)
        self._server = HttpServer(self._api, limits, tls)
        self._loop = LoopThread("straggler-server")

    def _exporting(self) -> Export:
        settings = self._settings.export
        headers = token_headers({_TOKEN_FILE: settings.token_file}, _TOKEN_FILE)
        revealed = {name.lower(): reveal(value) for name, value in headers.items()}
        export, self._end_export = exporting(settings.endpoint.rstrip("/"), revealed)
        return export

    def start(self) -> str:
        """Ask the scheduler for its hosts, listen, then begin to act; returns the address with its
        real port.

        Raises:
            UnavailableError: the address is taken, or the journal cannot be written.
        """
        if not self._settings.policy.rules:
            _log.warning("policy.rules is empty: alerts and reports are counted, nothing is done")
        try:
            self.engine.ask_scheduler()
            self.engine.log_gap()
        except sqlite3.Error as error:
            where, expected = "state.path", "a journal that can be written"
            remedy = f"Is its disk full? ({error})"
            raise UnavailableError.of(where, self._settings.state.path, expected, remedy) from None
        self._loop.start()
        try:
            address = listen(
                lambda host, port: self._loop.call(self._server.start(host, port)),
                self._settings.server.listen,
                "server.listen",
            )
        except UnavailableError:
            self.stop()
            raise
        self.engine.start()
        return address

    def stop(self) -> None:
        """Take nothing more, finish the step in progress, and end."""
        if self._loop.is_running:
            self._loop.call(self._server.stop(1.0))
            self._api.close()
            self._loop.stop()
        self.engine.close(self._settings.executor.timeout_s + 1.0)
        self._store.close()
        self._end_export()
