"""The thread that acts: steps, recovery, and what the scheduler says of its hosts."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar, cast

from otel_straggler.supervisor.executors import StepError, UncertainError
from otel_straggler.supervisor.fleet import Host, HostState, SchedulerHost
from otel_straggler.supervisor.intake import Intake
from otel_straggler.supervisor.parts import Supervised
from otel_straggler.supervisor.store import ENDED, Entry, Status, StepRow

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")

_MAINTAIN_EVERY_S: Final = 600.0
_ASK_EVERY_S: Final = 60.0
"""The scheduler, for its hosts and what runs there."""
RETRY_S: Final = 5.0
"""After an error of the journal."""


class Engine(Intake):
    """Takes causes, decides, and acts, in a thread of its own. Thread-safe.

    After :meth:`start` what a crash has interrupted is resolved first.
    """

    def __init__(self, parts: Supervised) -> None:
        super().__init__(parts)
        self._is_ending = False
        self._maintained_at_s = self._asked_at_s = float("-inf")
        self._names_hosts = bool(parts.hosts)
        self._thread = threading.Thread(target=self._run, name="straggler-supervisor", daemon=True)

    # --- the thread ------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def close(self, deadline_s: float) -> None:
        """End after the step in progress; wait for it at most so long."""
        with self._lock:
            self._is_ending = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(deadline_s)

    def _run(self) -> None:
        is_recovered = False
        while not self._is_ending:
            wait_s = _ASK_EVERY_S
            try:
                if not is_recovered:
                    self.recover()
                    is_recovered = True
                while not self._is_ending and self.act_once():
                    pass
            except sqlite3.Error as error:
                _log.error("the journal cannot be written, so nothing is done: %s", error)
                wait_s, is_recovered = RETRY_S, False
            with self._changed:
                if not self._is_ending and not (is_recovered and self._due()):
                    self._changed.wait(wait_s)

    def _due(self) -> str | None:
        """The cause whose action may begin or go on now."""
        return None if self._fleet.is_stopped else self._waiting.first()

    # --- the scheduler ---------------------------------------------------------------------------

    def ask_scheduler(self) -> None:
        """Ask which hosts there are, what runs there, and which of them get nothing new. Until it
        has answered once, no host is known to exist; later the answer before stays in force."""
        self._asked_at_s = self._wall_s()
        status, listed, error = _tried(self._executor.hosts)
        if status != "done":
            if not self._scheduler_error:
                _log.error("the scheduler does not say which hosts there are: %s", error)
            with self._lock:
                self._scheduler_error = error
                known = self._fleet.listed
                self._fleet = replace(self._fleet, listed={} if known is None else known)
            return
        with self._writing():
            self._scheduler_error = ""
            self._fleet = replace(self._fleet, listed=listed)
            if listed is not None and not self._names_hosts:
                new = [each for name, each in listed.items() if name not in self._fleet.hosts]
                self._put_hosts([_unnamed(each, self._asked_at_s) for each in new])
            hosts = {} if listed is None else dict(listed)
            says_cordoned = hosts and all(h.is_cordoned is not None for h in hosts.values())
            if says_cordoned and self._store.meta("unknown"):
                self._store.set_meta("unknown", None)
                names = ", ".join(sorted(name for name, host in hosts.items() if host.is_cordoned))
                text = "the journal has a gap; cordoned, as %s says: %s"
                _log.warning(text, self._executor.name, names or "no host")

    def log_gap(self) -> None:
        """Say what the journal does not know, if a person has to."""
        if unknown := self._store.meta("unknown"):
            _log.warning(
                "which hosts are cordoned is not known: %s. Name those that are: "
                "otel-straggler supervise mark HOST cordoned", unknown["why"],
            )  # fmt: skip

    # --- steps -----------------------------------------------------------------------------------

    def recover(self) -> None:
        """Resolve what a crash has interrupted: each step that had begun is done, is begun again,
        or is unknown. Decisions that ended without their span get it now."""
        with self._lock:
            self._waiting.clear()
            begun = []
            for entry in self._store.unfinished():
                self._waiting.add(entry.cause.id, is_notice=entry.decision.action == "notify")
                rows = self._store.steps(entry.cause.id)
                begun += [(entry, row) for row in rows if row.status == "started"]
            self._ended += [entry.cause.id for entry in self._store.unreported()]
            self._report_ended()
        for entry, row in begun:
            self._resolve(entry, row)

    def _resolve(self, entry: Entry, row: StepRow) -> None:
        _, was_done, _ = _tried(partial(self._executor.was_done, row.step, row.before))
        status = {True: "done", False: "pending", None: "unknown"}[was_done]
        text = "" if was_done is False else "found after a restart of the supervisor"
        _log.warning(
            "the supervisor ended in the middle of %s of %s: %s",
            row.step.verb, row.step.target,
            {True: "it was done", False: "it was not done, and is done again",
             None: "nobody can say whether it was done, so it is not done again"}[was_done],
        )  # fmt: skip
        self._end_step(entry, row, status, text)

    def act_once(self) -> bool:
        """Do the next step that is due; whether there was one."""
        if abs(self._wall_s() - self._asked_at_s) >= _ASK_EVERY_S:
            self.ask_scheduler()
        with self._lock:
            self._maintain()
            due = self._due()
            if due is None:
                return False
            entry = self._store.entry(due)
            if entry is None or entry.status in ENDED:
                self._waiting.remove(due)
                return True
            row = self._next_step(entry)
            self._report_ended()
        if row is not None and row.status == "started":
            self._resolve(entry, row)
        elif row is not None:
            self._do(entry, row)
        return True

    def _next_step(self, entry: Entry) -> StepRow | None:
        """The first step that has not ended: pending, or after an error of the journal started.
        None if the decision has just been ended."""
        rows = self._store.steps(entry.cause.id)
        bad = next((row for row in rows if row.status in ("failed", "unknown")), None)
        is_open = ("started", "pending")
        pending = next((row for row in rows if row.status in is_open), None)
        age_s = self._wall_s() - entry.decision.at_unix_s
        if bad is not None:
            self._end(
                entry,
                cast("Status", bad.status),
                f"{bad.step.verb} of {bad.step.target}: {bad.text}",
            )
        elif pending is None:
            self._end(entry, "done", "; ".join(filter(None, (row.text for row in rows))))
        elif pending.status == "pending" and age_s > self._policy.max_age_s:
            self._end(entry, "expired", "it did not begin in time")
        else:
            return pending
        return None

    def _do(self, entry: Entry, row: StepRow) -> None:
        cause_id = entry.cause.id
        status, before, text = _tried(partial(self._executor.observe, row.step))
        if before is None:
            self._end_step(entry, row, "failed", text)
            return
        with self._lock:
            current = self._store.entry(cause_id)
            if self._fleet.is_stopped or current is None or current.status in ENDED:
                return
            with self._store.transaction():
                self._store.start_step(cause_id, row.number, before, self._wall_s())
        _log.info("%s of %s begins, because of %s", row.step.verb, row.step.target, cause_id)
        status, said, text = _tried(partial(self._executor.perform, row.step, before))
        self._end_step(entry, row, status, text if said is None else said)

    def _end_step(self, entry: Entry, row: StepRow, status: str, text: str) -> None:
        """Write how a step ended, and with the last one how the decision did."""
        cause_id = entry.cause.id
        with self._writing():
            self._store.end_step(cause_id, row.number, status, text, self._wall_s())
            if status != "pending":
                self._next_step(entry)
        with self._lock:
            self._report_ended()

    def _maintain(self) -> None:
        now_s = self._wall_s()
        if abs(now_s - self._maintained_at_s) >= _MAINTAIN_EVERY_S:
            self._maintained_at_s = now_s
            self._store.drop_older(now_s - self._keep_s)
            self._store.set_meta("seen", {"at_unix_s": now_s})


def _tried(call: Callable[[], _Answer]) -> tuple[str, _Answer | None, str]:
    """Call an executor: done, failed, or unknown; its answer; why there is none."""
    try:
        return "done", call(), ""
    except StepError as error:
        return "failed", None, str(error)
    except UncertainError as error:
        return "unknown", None, str(error)
    except Exception as error:  # noqa: BLE001 - a mistake of ours ends no supervisor
        _log.exception("the executor failed")
        return "unknown", None, f"{type(error).__name__}: {error}"


def _unnamed(host: SchedulerHost, now_unix_s: float) -> Host:
    """A host that nobody but the scheduler has named."""
    state: HostState = "complete" if host.allocated_to == () else "running"
    return Host(name=host.name, state=state, since_unix_s=now_unix_s)
