"""Takes the decisions of people: checks them, writes them down, keeps them over restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from otel_straggler.collector.asked import Asked
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.errors import InputError, describe
from otel_straggler.model.verdict import ACTIONS, Decision, Verdict, hang_subject, hung_group
from otel_straggler.publish.decisions import Decisions

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
        at_ns, cause = self._seen(run_id, subject_id, action)
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

    def _seen(self, run_id: str, subject_id: str, action: str) -> tuple[int, str]:
        """When what the person saw began or last changed, and its cause."""
        group = hung_group(subject_id)
        if group is not None:
            return self._hang_of(run_id, group, action), "unknown"
        verdict = self._verdict_on(run_id, subject_id)
        return verdict.at_ns, verdict.cause

    def _hang_of(self, run_id: str, group: str, action: str) -> int:
        """Since when a world hangs; only what hangs can be dismissed."""
        view = self._run(run_id)
        found = None if view is None else view.found.get(group)
        if found is None or (action == "dismiss" and not found.is_hung):
            raise UnknownSubjectError(
                describe(
                    where=f"run {run_id}, subject_id",
                    value=hang_subject(group),
                    expected="a group of ranks that is stuck or lost"
                    if found
                    else "a group of ranks with signs of life",
                    remedy="See 'liveness' in /v1/report.",
                )
            )
        return int(found.hung_since_s * 1e9) if found.is_hung else 0

    def _verdict_on(self, run_id: str, subject_id: str) -> Verdict:
        view = self._run(run_id)
        known = {v.subject_id: v for v in (view.judged.current if view else ())}
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
