"""What comes in: causes, reports, commands of people. Each is decided about, and in the journal,
when it is answered."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from otel_straggler.collector.access.roles import ANYBODY, Principal
from otel_straggler.model.fleet_reports import FleetReport
from otel_straggler.supervisor.causes import Cause, cause_of_report
from otel_straggler.supervisor.decide import CLOCKS_DIFFER_S, decide, longest_window_s, refusal
from otel_straggler.supervisor.executors import StepError
from otel_straggler.supervisor.fleet import Decision, Fleet, Host, HostState
from otel_straggler.supervisor.parts import Supervised, status_json
from otel_straggler.supervisor.store import Entry, Status, Step
from otel_straggler.supervisor.waiting import Waiting

_log = logging.getLogger(__name__)

_MIN_KEPT_S: Final = 7 * 86_400.0
"""The journal goes back so far, or further where the policy looks further."""
_NOT_KEPT: Final = frozenset({"resolved", "stale", "future", "no_rule", "shed"})
"""Reasons of alerts that are only counted: the policy is not about them. All reports are kept, as
one changes the state of its host once."""
_AWAY_S: Final = 3600.0
"""A journal whose end is so old may be that of a backup."""


class Intake:
    """The fleet as it is, its journal, and what waits to be done. Thread-safe."""

    def __init__(self, parts: Supervised) -> None:
        self._store, self._policy = parts.store, parts.policy
        self._executor, self._observer = parts.executor, parts.observer
        self._wall_s = parts.wall_s
        self._window_s = longest_window_s(self._policy)
        self._keep_s = max(_MIN_KEPT_S, self._window_s, self._policy.max_age_s + CLOCKS_DIFFER_S)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting = Waiting()
        self._scheduler_error = ""
        self._logged: set[str] = set()
        self._ended: list[str] = []
        """Decisions that have ended, and are to be reported."""
        with self._store.transaction():
            self._name(parts.hosts)
            self._note_gap()
        now_s = self._wall_s()
        fleet = self._store.fleet(now_s - self._window_s)
        is_on = ("running", "cordoned")
        live = (replace(h, seen_unix_s=now_s) for h in fleet.hosts.values() if h.state in is_on)
        self._fleet = fleet.with_hosts(live)

    def _name(self, hosts: Iterable[Host]) -> None:
        """Take hosts of an operator, or of the scheduler, into the fleet."""
        known = self._store.fleet(float("inf")).hosts
        named = (replace(known.get(host.name, host), added_by="") for host in hosts)
        self._store.put_hosts(host for host in named if known.get(host.name) != host)

    def _note_gap(self) -> None:
        """Remember that hosts may have been cordoned of which the journal does not know."""
        now_s, seen = self._wall_s(), self._store.meta("seen")
        if self._store.is_new:
            self._store.set_meta("unknown", {"since_unix_s": None, "why": "the journal is new"})
        elif seen and now_s - float(seen["at_unix_s"]) > _AWAY_S:
            why = "the journal ends there: the supervisor was away, or its file is a copy"
            self._store.set_meta("unknown", {"since_unix_s": seen["at_unix_s"], "why": why})
        self._store.set_meta("seen", {"at_unix_s": now_s})

    # --- what comes in ---------------------------------------------------------------------------

    def submit(self, causes: Iterable[Cause], who: Principal = ANYBODY) -> list[Decision]:
        """Decide about causes that somebody has sent; what follows is in the journal, and on the
        disk, on return.

        Raises:
            sqlite3.Error: nothing was written.
        """
        with self._lock:
            written: list[tuple[Cause, Decision, str]] = []
            with self._writing():
                decisions = [self._submitted(cause, who, written) for cause in causes]
            self._observe(written)
            self._changed.notify_all()
        return decisions

    def report(self, report: FleetReport, who: Principal = ANYBODY) -> Decision:
        """Take a report: it may change the state of its host, and it is a cause. Whether its sender
        may speak of the host depends on the state before.

        Raises:
            sqlite3.Error: nothing of the decision was written.
        """
        with self._lock:
            cause = cause_of_report(report)
            if reason := self._refusal(cause, who):
                return self._refused(cause, who, reason)
            age_s = self._wall_s() - cause.at_unix_s
            if -CLOCKS_DIFFER_S <= age_s <= self._policy.max_age_s:
                self._take(report, who, is_new=self._store.entry(cause.id) is None)
            written: list[tuple[Cause, Decision, str]] = []
            with self._writing():
                decision = self._allowed(cause, who, written)
            self._observe(written)
            self._changed.notify_all()
            return decision

    def _take(self, report: FleetReport, who: Principal, *, is_new: bool) -> None:
        """Take what a report says of its host. One that is sent again says that its run is still
        there, and changes no state."""
        before = self._fleet.hosts.get(report.node)
        after = self._fleet.reported(report, self._wall_s(), who)
        if after is None:
            if before is None and who.name not in self._logged:
                self._logged.add(who.name)
                text = "%s reports of %s, which is not in the fleet, so nothing is done to it: %s"
                _log.warning(text, who.name, report.node, self._why_unknown(who))
            return
        if before is not None and not is_new:
            if report.kind != "agent_started" or before.state == "spare":
                return
            after = replace(before, run_id=after.run_id, seen_unix_s=after.seen_unix_s)
        if after == before:
            self._fleet = self._fleet.with_hosts([after])
        else:
            self._put_hosts([after])

    def _why_unknown(self, who: Principal) -> str:
        if self._fleet.listed is not None:
            return "the scheduler does not list it"
        if who.runs:
            return "a grant with runs= adds no hosts; name them in fleet.hosts"
        return "its grant has added as many hosts as it may; name them in fleet.hosts"

    def _refusal(self, cause: Cause, who: Principal) -> str:
        return refusal(self._fleet, cause, who, self._executor.allocation, self._wall_s())

    def _refused(self, cause: Cause, who: Principal, reason: str) -> Decision:
        self._observer.ignored(reason)
        return _nothing(cause, who, reason, self._wall_s())

    def _submitted(
        self, cause: Cause, who: Principal, written: list[tuple[Cause, Decision, str]]
    ) -> Decision:
        before = self._store.entry(cause.id)
        is_own = before is not None and before.decision.by == who.name
        if not (cause.is_resolved and is_own) and (reason := self._refusal(cause, who)):
            return self._refused(cause, who, reason)
        may_end = is_own or not who.runs
        if cause.is_resolved and may_end and before is not None and before.status == "decided":
            self._end(before, "expired", "the alert ended before the action began")
        return self._allowed(cause, who, written)

    def _allowed(
        self, cause: Cause, who: Principal, written: list[tuple[Cause, Decision, str]]
    ) -> Decision:
        """The decision about a cause whose sender may speak of it; what is written is added."""
        before = self._store.entry(cause.id)
        if before is not None and before.decision.acts:
            reason = "resolved" if cause.is_resolved else "known"
            self._observer.ignored(reason)
            return replace(before.decision, action=None, reason=reason)
        decision, steps, failed = self._decided(cause, who)
        is_news = before is None or before.decision.reason != decision.reason
        if not decision.acts:
            self._observer.ignored(decision.reason)
        is_kept = cause.source == "report" or decision.reason not in _NOT_KEPT
        if is_news and is_kept and decision.reason != "shed":
            self._write(cause, decision, steps, failed)
            written.append((cause, decision, failed))
        return decision

    def _decided(self, cause: Cause, who: Principal) -> tuple[Decision, tuple[Step, ...], str]:
        """The decision about a cause, its steps, and why it cannot be done."""
        decision = decide(self._fleet, cause, self._policy, self._wall_s(), who)
        try:
            steps = self._executor.steps(decision) if decision.acts else ()
        except StepError as error:
            return replace(decision, is_refused=True), (), str(error)
        if decision.action == "notify" and steps and not self._waiting.has_room():
            return replace(decision, action=None, reason="shed"), (), ""
        return decision, steps, ""

    def _write(self, cause: Cause, decision: Decision, steps: Sequence[Step], failed: str) -> None:
        fleet = self._fleet
        self._store.put(cause, decision, steps)
        if failed:
            self._store.set_status(cause.id, "failed", failed)
        elif decision.acts:
            self._store.put_hosts(fleet.changed_by(decision))
            if not steps:
                self._store.set_status(cause.id, "done")
        if decision.acts:
            counted = fleet.with_decision if failed else fleet.after
            self._fleet = counted(decision, self._window_s)
        if steps:
            self._waiting.add(cause.id, is_notice=decision.action == "notify")
        else:
            self._ended.append(cause.id)

    def _observe(self, written: Iterable[tuple[Cause, Decision, str]]) -> None:
        """Say what has been decided, once it is written."""
        for cause, decision, failed in written:
            if decision.acts:
                self._observer.decided(cause, decision)
            if failed:
                _log.error("%s of %s failed: %s", decision.action, subject(decision), failed)
        self._report_ended()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Journal and memory change together, or not at all."""
        with self._lock:
            fleet, number = self._fleet, len(self._ended)
            try:
                with self._store.transaction():
                    yield
            except BaseException:
                self._fleet = fleet
                del self._ended[number:]
                raise

    def _end(self, entry: Entry, status: Status, text: str) -> None:
        fleet = self._fleet
        with self._writing():
            self._store.set_status(entry.cause.id, status, text)
            if status in ("failed", "expired"):
                rows = self._store.steps(entry.cause.id)
                has_begun = any(row.started_unix_s is not None for row in rows)
                undone = fleet.undone(entry.decision, self._wall_s(), has_begun=has_begun)
                self._store.put_hosts(undone)
                fleet = fleet.with_hosts(undone)
            self._fleet = fleet.without(entry.decision) if status == "expired" else fleet
            self._ended.append(entry.cause.id)
        level = {"done": logging.INFO, "expired": logging.WARNING}.get(status, logging.ERROR)
        what = f"{entry.decision.action} of {subject(entry.decision)}"
        _log.log(level, "%s: %s. %s", what, status, text)

    def _report_ended(self) -> None:
        """Report what has ended, once that is written."""
        while self._ended:
            cause_id = self._ended.pop(0)
            entry = self._store.entry(cause_id)
            assert entry is not None
            self._observer.ended(entry, self._store.steps(cause_id))
            self._store.set_reported(cause_id)

    def _put_hosts(self, hosts: Sequence[Host]) -> None:
        with self._store.transaction():
            self._store.put_hosts(hosts)
        self._fleet = self._fleet.with_hosts(hosts)

    # --- people ----------------------------------------------------------------------------------

    @property
    def fleet(self) -> Fleet:
        return self._fleet

    def stop(self, reason: str, by: str) -> dict[str, Any]:
        """Begin no step from now on, over restarts, too; a step in progress ends. Returns who
        stopped it, when and why."""
        with self._lock:
            stopped = self._store.meta("stopped")
            if stopped is None:
                stopped = {"reason": reason, "by": by, "at_unix_s": self._wall_s()}
                self._store.set_meta("stopped", stopped)
                self._fleet = replace(self._fleet, is_stopped=True)
            return stopped

    def resume(self) -> bool:
        """Act again; returns whether it was stopped."""
        with self._lock:
            was_stopped = self._fleet.is_stopped
            self._store.set_meta("stopped", None)
            self._fleet = replace(self._fleet, is_stopped=False)
            self._changed.notify_all()
            return was_stopped

    def mark(self, name: str, state: HostState) -> Host:
        """Set the state of a host, known or not."""
        with self._writing():
            before = self._fleet.hosts.get(name, Host(name=name))
            run_id = before.run_id if state in ("running", "cordoned") else ""
            host = replace(
                before, state=state, since_unix_s=self._wall_s(), run_id=run_id, added_by=""
            )
            self._put_hosts([host])
            self._store.set_meta("unknown", None)
            return host

    def forget(self, name: str) -> None:
        """Take a host that there is no more out of the fleet."""
        with self._writing():
            self._store.drop_host(name)
            hosts = {key: host for key, host in self._fleet.hosts.items() if key != name}
            self._fleet = replace(self._fleet, hosts=hosts)

    def status(self, limit: int) -> dict[str, Any]:
        """JSON's types only; ``limit``: of decisions, newest first."""
        with self._lock:
            listed = self._fleet.listed
            return {
                **status_json(self._store, self._fleet, self._executor.name, limit),
                "waiting": self._store.waiting(),
                "shed": self._waiting.shed,
                "scheduler": {
                    "hosts": None if listed is None else len(listed),
                    "error": self._scheduler_error,
                },
            }

    def unfinished(self) -> int:
        """Decisions whose action has not ended."""
        with self._lock:
            return self._store.waiting()


def subject(decision: Decision) -> str:
    return decision.host or decision.run_id or "the fleet"


def _nothing(cause: Cause, who: Principal, reason: str, now_unix_s: float) -> Decision:
    return Decision(
        cause_id=cause.id,
        at_unix_s=now_unix_s,
        reason=reason,
        host=cause.host,
        run_id=cause.run_id,
        by=who.name,
    )
