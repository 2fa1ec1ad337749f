"""The thread that watches for evidence: is this rank stuck, and is it asked for something?

A thread of its own, where either is switched on: a collector that is slow to answer must hold up
neither spans nor heartbeats, whichever exporter sends them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from otel_straggler.config import ClientSettings
from otel_straggler.record.active import RECORDER
from otel_straggler.record.clock import SystemClock
from otel_straggler.record.evidence.commands import CommandPoll
from otel_straggler.record.evidence.stacks import Stacks
from otel_straggler.record.exporter_thread import ExporterThread
from otel_straggler.semconv import DUMP_STACKS, Outcome

THREAD_NAME = "otel-straggler-evidence"
_LOG = logging.getLogger("otel_straggler")


class Evidence:
    """Stacks and commands of this process, as far as they are switched on.

    Args:
        settings: what ``configure()`` decided.
        is_scorer: whether the other side is known to score; nobody else is asked for commands.
    """

    def __init__(self, settings: ClientSettings, is_scorer: Callable[[], bool]) -> None:
        self._settings = settings
        self._is_scorer = is_scorer
        self.stacks = _stacks(settings)
        self._poll = self._made_poll()
        self._next_poll_s = 0.0
        self._has_logged_error = False
        is_needed = self._poll is not None or (self.stacks is not None and self._look_s > 0)
        self._thread = ExporterThread(self, THREAD_NAME) if is_needed else None

    def start(self) -> None:
        if self.stacks is not None:
            self.stacks.arm(self._look_s)
        if self._thread is not None:
            self._thread.start()

    def tick(self, now_s: float) -> float:
        """Do what is due at ``now_s`` (monotonic); the time of the next tick."""
        if self.stacks is not None and self._look_s:
            self.stacks.look(self._look_s)
        if self._poll is not None and now_s >= self._next_poll_s:
            self._next_poll_s = now_s + self._settings.heartbeat_s
            if self._is_scorer() and self._poll.poll():
                self._poll.poll()  # tells the outcome; what it brings is done as well
        return now_s + (self._look_s or self._settings.heartbeat_s)

    def flush(self, deadline_s: float, outcome: Outcome | None) -> None:
        """There is nothing to wait for."""

    def survive(self, error: Exception) -> None:
        """Telemetry never stops training: log the first error."""
        if not self._has_logged_error:
            self._has_logged_error = True
            _LOG.warning("no evidence could be taken; training goes on", exc_info=error)

    def stop(self, timeout_s: float) -> None:
        if self._thread is not None:
            self._thread.stop(timeout_s)
        if self._poll is not None:
            self._poll.close()
        if self.stacks is not None:
            self.stacks.close()

    def leave_to_parent(self) -> None:
        """In a forked child: nobody asks it, and it answers for nobody."""
        if self.stacks is not None:
            self.stacks.leave_to_parent()

    @property
    def _look_s(self) -> float:
        """Seconds between two looks at what is open; 0: nobody looks."""
        after_s = self._settings.evidence_after_s
        return min(self._settings.heartbeat_s, max(after_s / 4, 0.05)) if after_s else 0.0

    def _made_poll(self) -> CommandPoll | None:
        settings = self._settings
        if not settings.commands or not settings.metrics.is_enabled:
            return None
        why = ""
        if not settings.commands_token:
            why = "OTEL_STRAGGLER_COMMANDS_TOKEN is not set"
        elif settings.metrics.protocol == "grpc":
            why = "they come over OTLP/HTTP, and this rank sends over gRPC"
        if why:
            _LOG.warning("commands are on, but not asked for: %s", why)
            return None
        verbs = {} if self.stacks is None else {DUMP_STACKS: self.stacks.dump}
        if not verbs:
            _LOG.warning("commands are on, but OTEL_STRAGGLER_EVIDENCE_DIR is not set: all of them "
                         "will be refused")  # fmt: skip
        return CommandPoll(settings, lambda: RECORDER.epoch.session_id, verbs)


def evidence_for(settings: ClientSettings, is_scorer: Callable[[], bool]) -> Evidence | None:
    """None where neither stacks nor commands are switched on. Recording must have begun."""
    if not settings.evidence_dir and not settings.commands:
        return None
    return Evidence(settings, is_scorer)


def _stacks(settings: ClientSettings) -> Stacks | None:
    if not settings.evidence_dir:
        return None
    try:
        return Stacks(settings, RECORDER, SystemClock())
    except OSError as error:
        _LOG.warning("no stacks can be written to %s: %s", settings.evidence_dir, error)
        return None
