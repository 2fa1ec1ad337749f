"""Takes the decisions of people: checks them, writes them down, keeps them over restarts."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from otel_straggler.collector.api.commands import Asked
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.errors import InputError, describe
from otel_straggler.model.causes import CAUSES
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


class Deciding:
    """What stands behind ``POST /v1/decisions``.

    Args:
        decisions: the book.
        run: the newest view of a run, in which the subject must be.
        keep: called with the book's state after every decision.
        wall_ns: clock.
    """

    def __init__(
        self,
        decisions: Decisions,
        run: Callable[[str], RunView | None],
        keep: Callable[[dict[str, Any]], None],
        wall_ns: Callable[[], int],
    ) -> None:
        self._decisions = decisions
        self._run = run
        self._keep = keep
        self._wall_ns = wall_ns

    def decide(self, body: bytes) -> Decision:
        """Write down what a request asks for.

        Args:
            body: JSON: ``action``, ``run_id``, ``subject_id``, ``reason``; ``by`` if told;
                ``seconds`` of a mute.

        Raises:
            InputError: it is no such thing.
            UnknownSubjectError: of what is not in the report.
        """
        asked = Asked(body, _REMEDY)
        action = asked.get("action")
        if action not in ACTIONS:
            raise asked.wrong("action", action, f"one of {', '.join(ACTIONS)}")
        run_id, subject_id = asked.text("run_id"), asked.text("subject_id")
        at_ns, cause = self._view(run_id, subject_id, action)
        now_ns = self._wall_ns()
        decision = Decision(
            action=action,
            run_id=run_id,
            subject_id=subject_id,
            reason=asked.text("reason"),
            by=asked.text("by") if asked.get("by") else "",
            at_ns=now_ns,
            until_ns=now_ns + _length_ns(asked) if action == "mute" else None,
            verdict_at_ns=at_ns,
            cause=cause,
        )
        self._decisions.take(decision)
        self._keep(self._decisions.state())
        return decision

    def _view(self, run_id: str, subject_id: str, action: str) -> tuple[int, str]:
        """When what the person saw began or last changed, and its cause."""
        group = hung_group(subject_id)
        if group is not None:
            return self._hang_of(run_id, group, action), "unknown"
        verdict = self._verdict_on(run_id, subject_id)
        return verdict.at_ns, verdict.cause

    def _hang_of(self, run_id: str, group: str, action: str) -> int:
        """Since when a world hangs; only what hangs can be dismissed."""
        view = self._run(run_id)
        result = None if view is None else view.hangs.get(group)
        if result is None or (action == "dismiss" and not result.is_hung):
            raise UnknownSubjectError(
                describe(
                    where=f"run {run_id}, subject_id",
                    value=hang_subject(group),
                    expected="a group of ranks that is stuck or lost"
                    if result
                    else "a group of ranks with signs of life",
                    remedy="See 'liveness' in /v1/report.",
                )
            )
        return int(result.hung_since_s * 1e9) if result.is_hung else 0

    def _verdict_on(self, run_id: str, subject_id: str) -> Verdict:
        view = self._run(run_id)
        known = {v.subject_id: v for v in (view.run_verdicts.current if view else ())}
        if subject_id not in known:
            raise UnknownSubjectError(
                describe(
                    where=f"run {run_id}, subject_id",
                    value=subject_id,
                    expected="a subject on which there is a verdict",
                    remedy="Take it from /v1/report or 'otel-straggler verdict explain'.",
                )
            )
        return known[subject_id]


def _length_ns(asked: Asked) -> int:
    expected = f"1 to {LONGEST_MUTE_S:.0f}, which is 30 days"
    return int(asked.number("seconds", 1.0, LONGEST_MUTE_S, expected) * 1e9)


MAX_KEPT: Final = 1_000
"""Decisions in the book; the oldest go first. The counts go on."""
_WELL: Final = frozenset({"ok", "recovered"})
_STATE_VERSION: Final = 1


class Decisions:
    """Takes decisions and says who is not to be called for. Thread-safe.

    Args:
        wall_ns: clock; mutes end by it.
    """

    def __init__(self, wall_ns: Callable[[], int]) -> None:
        self._wall_ns = wall_ns
        self._lock = threading.Lock()
        self._book: deque[Decision] = deque(maxlen=MAX_KEPT)
        self._counts: Counter[tuple[str, str]] = Counter()

    def take(self, decision: Decision) -> None:
        """Write it down; from now on it counts."""
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
        """The verdicts of a run with its decisions: nobody is called for who is silenced.

        Args:
            hung: since when (ns) which worlds of the run are stuck or lost, by subject.

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
        """Of the worlds that hang, by subject, those for which nobody is to be called."""
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
            msg = f"version {state['version']!r}"
            raise ValueError(msg)
        book = [_decision(each) for each in state["book"]]
        counts = {(str(a), str(c)): int(count) for a, c, count in state["counts"]}
        with self._lock:
            self._book.clear()
            self._book.extend(book)
            self._counts = Counter(counts)


def _decision(values: Mapping[str, Any]) -> Decision:
    decision = Decision(**values)
    if decision.action not in ACTIONS or decision.cause not in CAUSES:
        msg = f"{decision.action!r}, {decision.cause!r}"
        raise ValueError(msg)
    return decision
