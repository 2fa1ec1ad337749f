"""Decisions of people about verdicts: checked, recorded, kept over restarts."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from otel_straggler.collector.views.run_view import RunView
from otel_straggler.errors import InputError
from otel_straggler.model.causes import Cause
from otel_straggler.model.decoding import read_as
from otel_straggler.model.json_body import JsonBody
from otel_straggler.model.verdict import (
    ACTIONS,
    Decision,
    RunVerdicts,
    Verdict,
    hang_subject,
    hung_group,
)

LONGEST_MUTE_S: Final = 30 * 86_400.0
_REMEDY: Final = "See docs/operate/verdicts.md, 'When it is wrong'."


class UnknownSubjectError(InputError):
    """There is no verdict on such a subject in such a run."""


def _decided_about(
    view: RunView | None, run_id: str, subject_id: str, action: str
) -> tuple[int, Cause]:
    """When what the person saw began or last changed, and its cause."""
    where, group = f"run {run_id}, subject_id", hung_group(subject_id)
    if group is None:
        known = {v.subject_id: v for v in (view.run_verdicts.current if view else ())}
        verdict = known.get(subject_id)
        if verdict is not None:
            return verdict.at_ns, verdict.cause
        expected = "a subject on which there is a verdict"
        remedy = "Take it from /v1/report or 'otel-straggler verdict explain'."
        raise UnknownSubjectError.of(where, subject_id, expected, remedy)
    hang = None if view is None else view.hangs.get(group)
    if hang is None:
        expected = "a group of ranks with heartbeats"
    elif action == "dismiss" and not hang.is_hung:
        expected = "a group of ranks that is stuck or lost"
    else:
        return (int(hang.hung_since_s * 1e9) if hang.is_hung else 0), "unknown"
    remedy = "See 'liveness' in /v1/report."
    raise UnknownSubjectError.of(where, hang_subject(group), expected, remedy)


MAX_KEPT: Final = 1_000
"""Decisions in the book; the oldest go first. The counts go on."""
_WELL: Final = frozenset({"ok", "recovered"})
_STATE_VERSION: Final = 1


class Decisions:
    """All decisions, and whom they silence. Thread-safe; mutes end by ``wall_ns``."""

    def __init__(self, wall_ns: Callable[[], int]) -> None:
        self._wall_ns = wall_ns
        self._lock = threading.Lock()
        self._book: deque[Decision] = deque(maxlen=MAX_KEPT)
        self._counts: Counter[tuple[str, str]] = Counter()

    def decide(self, body: bytes, view_of: Callable[[str], RunView | None]) -> Decision:
        """Record what ``POST /v1/decisions`` asks for.

        Args:
            body: JSON: ``action``, ``run_id``, ``subject_id``, ``reason``; ``by`` if known;
                ``seconds`` of a mute.
            view_of: the newest view of a run, in which the subject must be.

        Raises:
            InputError: it is not valid.
            UnknownSubjectError: of what is not in the report.
        """
        request = JsonBody(body, _REMEDY)
        action = request.get("action")
        if action not in ACTIONS:
            raise request.wrong("action", action, f"one of {', '.join(ACTIONS)}")
        run_id, subject_id = request.text("run_id"), request.text("subject_id")
        at_ns, cause = _decided_about(view_of(run_id), run_id, subject_id, action)
        reason = request.text("reason")
        by = request.text("by") if request.get("by") else ""
        now_ns, until_ns = self._wall_ns(), None
        if action == "mute":
            expected = f"1 to {LONGEST_MUTE_S:.0f}, which is 30 days"
            length_s = request.number("seconds", 1.0, LONGEST_MUTE_S, expected)
            until_ns = now_ns + int(length_s * 1e9)
        decision = Decision(
            action=action,
            run_id=run_id,
            subject_id=subject_id,
            reason=reason,
            by=by,
            at_ns=now_ns,
            until_ns=until_ns,
            verdict_at_ns=at_ns,
            cause=cause,
        )
        self.record(decision)
        return decision

    def record(self, decision: Decision) -> None:
        with self._lock:
            self._book.append(decision)
            self._counts[decision.action, decision.cause] += 1

    def counts(self) -> Mapping[tuple[str, str], int]:
        """(action, cause) to decisions so far."""
        with self._lock:
            return dict(self._counts)

    def applied(
        self, run_verdicts: RunVerdicts, run_id: str, hung: Mapping[str, int] | None = None
    ) -> RunVerdicts:
        """The verdicts of a run with its decisions: silenced subjects do not page.

        Args:
            hung: since when (ns) worlds of the run are stuck or lost, by subject.

        Cost: O(decisions), and O(changes of verdicts) where something is silenced.
        """
        with self._lock:
            of_run = tuple(each for each in self._book if each.run_id == run_id)
        if not of_run:
            return run_verdicts
        silenced = {each.subject_id for each in self._in_force(of_run, run_verdicts.changes, hung)}
        changes = run_verdicts.changes
        if silenced:
            changes = tuple(
                replace(each, pages=False) if each.subject_id in silenced else each
                for each in changes
            )
        return replace(
            run_verdicts, changes=changes, decisions=of_run, silenced=frozenset(silenced)
        )

    def _in_force(
        self,
        of_run: Sequence[Decision],
        changes: Sequence[Verdict],
        hung: Mapping[str, int] | None = None,
    ) -> tuple[Decision, ...]:
        newest = {each.subject_id: each for each in of_run}
        well_at_ns = {v.subject_id: v.at_ns for v in changes if v.state in _WELL}
        now_ns = self._wall_ns()

        def counts(each: Decision) -> bool:
            if each.action == "mute":
                return each.until_ns is not None and now_ns < each.until_ns
            if each.action == "dismiss" and hung_group(each.subject_id) is not None:
                began_at_ns = (hung or {}).get(each.subject_id)
                return began_at_ns is not None and began_at_ns <= each.verdict_at_ns
            is_over = well_at_ns.get(each.subject_id, -1) > each.verdict_at_ns
            return each.action == "dismiss" and not is_over

        return tuple(each for each in newest.values() if counts(each))

    def silenced_hangs(self, run_id: str, hung: Mapping[str, int]) -> frozenset[str]:
        """Of the worlds that hang, by subject, those that are silenced."""
        with self._lock:
            of_run = tuple(each for each in self._book if each.run_id == run_id)
        in_force = {each.subject_id for each in self._in_force(of_run, (), hung)}
        return frozenset(in_force & hung.keys())

    # --- over restarts ---------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """JSON's types only."""
        with self._lock:
            return {
                "version": _STATE_VERSION,
                "book": [dataclasses.asdict(each) for each in self._book],
                "counts": [[*key, count] for key, count in self._counts.items()],
            }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state`.

        Raises:
            ValueError, KeyError, TypeError: it is none.
        """
        if state["version"] != _STATE_VERSION:
            raise ValueError(f"version {state['version']!r}")
        book = read_as(list[Decision], state["book"])
        counts = {(str(a), str(c)): int(count) for a, c, count in state["counts"]}
        with self._lock:
            self._book.clear()
            self._book.extend(book)
            self._counts = Counter(counts)
