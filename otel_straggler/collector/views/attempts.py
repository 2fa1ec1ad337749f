"""The attempts of a run as its launchers report them: begin, end, and why they ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from otel_straggler.collector.views.numbers import seconds
from otel_straggler.model.launch_event import LaunchEvent

Json: TypeAlias = dict[str, Any]
MAX_ATTEMPTS: Final = 20
"""The newest ones are shown."""
_STARTED, _ENDED = "straggler.attempt.started", "straggler.attempt.ended"
_CONSEQUENCES: Final = frozenset({"membership", "SIGTERM"})
"""Reasons of nodes whose ranks were ended because of another node's."""


def launches_json(events: Iterable[LaunchEvent]) -> Json | None:
    """Restarts and the newest attempts; None where no launcher has reported an attempt.

    `started_at_s` is when the first node started it, `ended_at_s` when the last one has seen it
    end; null where that is not known. `reason` and `text` are those of the node that failed first.
    """
    by_attempt: dict[int, list[LaunchEvent]] = {}
    for event in events:
        if event.name in {_STARTED, _ENDED}:
            by_attempt.setdefault(event.attempt, []).append(event)
    if not by_attempt:
        return None
    newest = sorted(by_attempt)[-MAX_ATTEMPTS:]
    attempts = [_attempt(number, by_attempt[number]) for number in newest]
    return {
        "restarts": newest[-1],
        "attempts": attempts,
        "text": _text(attempts[-1], by_attempt.get(newest[-1] - 1, ())),
    }


def _attempt(number: int, events: Sequence[LaunchEvent]) -> Json:
    started = [event for event in events if event.name == _STARTED]
    ended = [event for event in events if event.name == _ENDED]
    is_over = {event.node for event in ended} >= {event.node for event in started}
    first = _first_failure(ended)
    return {
        "attempt": number,
        "job": max(event.job for event in events),
        "nodes": sorted({event.node for event in events if event.node}),
        "started_at_s": seconds(min((event.at_unix_s for event in started), default=None)),
        "ended_at_s": seconds(max(event.at_unix_s for event in ended))
        if ended and is_over
        else None,
        "reason": None if first is None else first.reason or None,
        "text": None if first is None else first.text or None,
    }


def _first_failure(ended: Iterable[LaunchEvent]) -> LaunchEvent | None:
    """A failure of its own before what follows from another node's; of those the earliest."""
    return min(
        ended, key=lambda event: (event.reason in _CONSEQUENCES, event.at_unix_s), default=None
    )


def _text(newest: Json, before: Iterable[LaunchEvent]) -> str | None:
    """What stands after the time of the start; None for the first attempt."""
    if newest["attempt"] == 0:
        return None
    failure = _first_failure(event for event in before if event.name == _ENDED)
    return f"after {failure.text}" if failure is not None and failure.text else ""
