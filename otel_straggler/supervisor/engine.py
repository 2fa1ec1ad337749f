"""The loop around the pure decision: journal, steps, recovery, stop and resume."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar, cast

from otel_straggler.model.fleet_reports import FleetReport
from otel_straggler.supervisor.causes import Cause, cause_of_report
from otel_straggler.supervisor.decide import CLOCKS_DIFFER_S, decide, longest_window_s
from otel_straggler.supervisor.executors import StepError, UncertainError
from otel_straggler.supervisor.fleet import Decision, Fleet, Host, HostState
from otel_straggler.supervisor.parts import Supervised, status_json
from otel_straggler.supervisor.store import ENDED, Entry, Status, Step, StepRow

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")

_MIN_KEPT_S: Final = 7 * 86_400.0
"""The journal goes back so far, or further where the policy looks further."""
_NOT_KEPT: Final = frozenset({"resolved", "stale", "future", "no_rule"})
"""Reasons of alerts that are only counted: the policy is not about them. All reports are kept, as
one changes the state of its host once."""
_MAINTAIN_EVERY_S: Final = 600.0
RETRY_S: Final = 5.0
"""After an error of the journal."""


class Engine:
    """Takes causes, decides, and acts, in a thread of its own. Thread-safe.

    After :meth:`start` what a crash has interrupted is resolved first.
    """

    def __init__(self, parts: Supervised) -> None:
        self._store, self._policy = parts.store, parts.policy
        self._executor, self._observer = parts.executor, parts.observer
        self._wall_s = parts.wall_s
        self._window_s = longest_window_s(self._policy)
        self._keep_s = max(_MIN_KEPT_S, self._window_s, self._policy.max_age_s + CLOCKS_DIFFER_S)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._is_ending = False
        self._maintained_at_s = float("-inf")
        with self._store.transaction():
            known = self._store.fleet(0.0).hosts
            self._store.put_hosts(host for host in parts.hosts if host.name not in known)
        self._fleet = self._store.fleet(self._wall_s() - self._window_s)
        self._thread = threading.Thread(target=self._run, name="straggler-supervisor", daemon=True)

    # --- what comes in ---------------------------------------------------------------------------

    def submit(self, causes: Iterable[Cause]) -> list[Decision]:
        """Decide about causes; what follows is in the journal, and on the disk, on return.

        Raises:
            sqlite3.Error: nothing of the last cause was written.
        """
        with self._lock:
            decisions = [self._submitted(cause) for cause in causes]
            self._changed.notify_all()
        return decisions

    def report(self, report: FleetReport) -> Decision:
        """Take a report: it may change the state of its host, and it is a cause."""
        with self._lock:
            cause = cause_of_report(report)
            host = self._fleet.reported(report)
            is_new = self._store.entry(cause.id) is None
            if host is not None and is_new and self._wall_s() - cause.at_unix_s < self._keep_s:
                self._put_hosts([host])
            return self.submit([cause])[0]

    def _submitted(self, cause: Cause) -> Decision:
        before = self._store.entry(cause.id)
        if cause.is_resolved and before is not None and before.status == "decided":
            self._end(before, "expired", "the alert ended before the action began")
        if before is not None and before.decision.acts:
            reason = "resolved" if cause.is_resolved else "known"
            self._observer.ignored(reason)
            return replace(before.decision, action=None, reason=reason)
        decision = decide(self._fleet, cause, self._policy, self._wall_s())
        is_news = before is None or before.decision.reason != decision.reason
        if not decision.acts:
            self._observer.ignored(decision.reason)
        if is_news and (cause.source == "report" or decision.reason not in _NOT_KEPT):
            self._write(cause, decision)
        return decision

    def _write(self, cause: Cause, decision: Decision) -> None:
        failed = ""
        steps: tuple[Step, ...] = ()
        if decision.acts:
            try:
                steps = self._executor.steps(decision)
            except StepError as error:
                failed = str(error)
        fleet = self._fleet
        with self._store.transaction():
            self._store.put(cause, decision, steps)
            if failed:
                self._store.set_status(cause.id, "failed", failed)
            elif decision.acts:
                self._store.put_hosts(fleet.changed_by(decision))
        if decision.acts:
            counted = fleet.with_decision if failed else fleet.after
            self._fleet = counted(decision, self._window_s)
        if decision.acts:
            self._observer.decided(cause, decision)
        if failed:
            _log.error("%s of %s failed: %s", decision.action, _subject(decision), failed)
        if failed or not decision.acts:
            self._report(cause.id)

    # --- people ----------------------------------------------------------------------------------

    @property
    def fleet(self) -> Fleet:
        return self._fleet

    def stop(self, reason: str, by: str) -> dict[str, Any]:
        """Begin no step from now on, over restarts, too; a step in progress ends. Returns who
        stopped it, when and why."""
        with self._lock:
            stopped = self._store.stopped()
            if stopped is None:
                stopped = {"reason": reason, "by": by, "at_unix_s": self._wall_s()}
                self._store.set_stopped(stopped)
                self._fleet = replace(self._fleet, is_stopped=True)
            return stopped

    def resume(self) -> bool:
        """Act again; returns whether it was stopped."""
        with self._lock:
            was_stopped = self._fleet.is_stopped
            self._store.set_stopped(None)
            self._fleet = replace(self._fleet, is_stopped=False)
            self._changed.notify_all()
            return was_stopped

    def mark(self, name: str, state: HostState) -> Host:
        """Set the state of a host, known or not."""
        with self._lock:
            before = self._fleet.hosts.get(name)
            run_id = before.run_id if before and state == "running" else ""
            host = Host(name=name, state=state, since_unix_s=self._wall_s(), run_id=run_id)
            self._put_hosts([host])
            return host

    def status(self, limit: int) -> dict[str, Any]:
        """JSON's types only; ``limit``: of decisions, newest first."""
        with self._lock:
            return status_json(self._store, self._fleet, self._executor.name, limit)

    def unfinished(self) -> int:
        """Decisions whose action has not ended."""
        with self._lock:
            return len(self._store.unfinished())

    def _put_hosts(self, hosts: Sequence[Host]) -> None:
        with self._store.transaction():
            self._store.put_hosts(hosts)
        self._fleet = self._fleet.with_hosts(hosts)

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
            try:
                if not is_recovered:
                    self.recover()
                    is_recovered = True
                while not self._is_ending and self.act_once():
                    pass
                wait_s = None
            except sqlite3.Error as error:
                _log.error("the journal cannot be written, so nothing is done: %s", error)
                wait_s, is_recovered = RETRY_S, False
            with self._changed:
                if not self._is_ending and (wait_s or not self._due()):
                    self._changed.wait(wait_s or _MAINTAIN_EVERY_S)

    def _due(self) -> list[Entry]:
        """What may begin or go on now."""
        return [] if self._fleet.is_stopped else list(self._store.unfinished())

    def recover(self) -> None:
        """Resolve what a crash has interrupted: each step that had begun is done, is begun again,
        or is unknown. Decisions that ended without their span get it now."""
        with self._lock:
            begun = [
                (entry, row)
                for entry in self._store.unfinished()
                for row in self._store.steps(entry.cause.id)
                if row.status == "started"
            ]
            for entry in self._store.unreported():
                self._report(entry.cause.id)
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
        with self._lock:
            self._maintain()
            due = self._due()
            if not due:
                return False
            entry = due[0]
            row = self._next_step(entry)
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
            self._store.start_step(cause_id, row.number, before, self._wall_s())
        _log.info("%s of %s begins, because of %s", row.step.verb, row.step.target, cause_id)
        status, said, text = _tried(partial(self._executor.perform, row.step, before))
        self._end_step(entry, row, status, text if said is None else said)

    def _end_step(self, entry: Entry, row: StepRow, status: str, text: str) -> None:
        with self._lock:
            self._store.end_step(entry.cause.id, row.number, status, text, self._wall_s())

    def _end(self, entry: Entry, status: Status, text: str) -> None:
        fleet = self._fleet
        with self._store.transaction():
            self._store.set_status(entry.cause.id, status, text)
            if status in ("failed", "expired"):
                rows = self._store.steps(entry.cause.id)
                has_begun = any(row.started_unix_s is not None for row in rows)
                undone = fleet.undone(entry.decision, self._wall_s(), has_begun=has_begun)
                self._store.put_hosts(undone)
                fleet = fleet.with_hosts(undone)
        self._fleet = fleet.without(entry.decision) if status == "expired" else fleet
        level = {"done": logging.INFO, "expired": logging.WARNING}.get(status, logging.ERROR)
        what = f"{entry.decision.action} of {_subject(entry.decision)}"
        _log.log(level, "%s: %s. %s", what, status, text)
        self._report(entry.cause.id)

    def _report(self, cause_id: str) -> None:
        entry = self._store.entry(cause_id)
        assert entry is not None
        self._observer.ended(entry, self._store.steps(cause_id))
        self._store.set_reported(cause_id)

    def _maintain(self) -> None:
        now_s = self._wall_s()
        if abs(now_s - self._maintained_at_s) >= _MAINTAIN_EVERY_S:
            self._maintained_at_s = now_s
            self._store.drop_older(now_s - self._keep_s)


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


def _subject(decision: Decision) -> str:
    return decision.host or decision.run_id or "the fleet"
