"""The book of decisions: what people have dismissed and muted, why, and how often."""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from otel_straggler.model.verdict import ACTIONS, CAUSES, Decision, RunVerdicts, Verdict, hung_group

MOST_KEPT: Final = 1_000
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
        self._book: deque[Decision] = deque(maxlen=MOST_KEPT)
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
        self, judged: RunVerdicts, run_id: str, hung: Mapping[str, int] | None = None
    ) -> RunVerdicts:
        """The verdicts of a run with its decisions: nobody is called for who is silenced.

        Args:
            hung: since when (ns) which worlds of the run are stuck or lost, by subject.

        Cost: O(decisions), and O(changes of verdicts) where something is silenced.
        """
        with self._lock:
            of_run = tuple(each for each in self._book if each.run_id == run_id)
        if not of_run:
            return judged
        silenced = {each.subject_id for each in self._in_force(of_run, judged.changes, hung)}
        changes = judged.changes
        if silenced:
            changes = tuple(
                replace(each, pages=False) if each.subject_id in silenced else each
                for each in changes
            )
        return replace(judged, changes=changes, decisions=of_run, silenced=frozenset(silenced))

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
