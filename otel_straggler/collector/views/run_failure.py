"""A run that has failed: since when, who failed first and how, and whether it stays so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Final, TypeAlias

import numpy as np

from otel_straggler.collector.views.answer_type import as_sentence
from otel_straggler.collector.views.first_failure import FirstFailure, first_failure
from otel_straggler.collector.views.numbers import duration, seconds
from otel_straggler.collector.views.world_view import RankHeartbeats, RunFailure
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.semconv import RUN_ENDED

Json: TypeAlias = dict[str, Any]
RESTART_S: Final = 600.0
"""How long a launcher may take to begin the next attempt: it waits up to five minutes between jobs,
and nodes meet in a rendezvous."""


def run_failure(
    heartbeats: RankHeartbeats,
    *,
    attempt: int,
    now_s: float,
    restarts_left: int | None = None,
    launches: Sequence[LaunchEvent] = (),
) -> RunFailure:
    """Of a run whose newest attempt has failed. Cost: O(R).

    Args:
        now_s: wall clock, to which the ages refer.
        restarts_left: of the launcher, as ranks know it; None if they know none.
        launches: newest events of its launchers.
    """
    first = first_failure(heartbeats)
    since_s = now_s - _age_s(heartbeats, first)
    is_launched = any(event.attempt == attempt for event in launches)
    has_given_up = any(
        event.name == RUN_ENDED and event.attempt == attempt for event in launches
    ) or (not is_launched and restarts_left == 0)
    is_restarted = not has_given_up and (is_launched or bool(restarts_left))
    attempts = attempt + 1 if is_launched or restarts_left is not None else None
    return RunFailure(
        since_s=since_s,
        final_at_s=since_s + RESTART_S if is_restarted else since_s,
        attempt=attempt,
        attempts=attempts,
        has_given_up=has_given_up,
        ranks=() if first is None else tuple(first.ranks),
        node="" if first is None else first.node,
        reason=_reason(heartbeats) if first is None else first.how,
        who=_all_text(heartbeats) if first is None else first.sentence,
    )


def failure_text(failure: RunFailure) -> str:
    """Sentences for alerts: who failed first and how, when, in which attempt."""
    at = datetime.fromtimestamp(failure.since_s, timezone.utc)
    when = f"That was at {at:%Y-%m-%d %H:%M:%S} UTC"
    return f"{as_sentence(failure.who)} {when}{_attempt_text(failure)}."


def _attempt_text(failure: RunFailure) -> str:
    if failure.attempts is None:
        return ""
    number = f", in attempt {failure.attempt}"
    if failure.has_given_up:
        of = "attempt" if failure.attempts == 1 else "attempts"
        return f"{number}: the launcher has given up after {failure.attempts:,} {of}"
    return f"{number}: its launcher has not restarted it within {duration(RESTART_S)}"


def failure_json(failure: RunFailure | None, now_s: float) -> Json | None:
    """The block ``run.failure``; null for a run that has not failed."""
    if failure is None:
        return None
    return {
        "since_s": seconds(failure.since_s),
        "ranks": list(failure.ranks),
        "node": failure.node or None,
        "reason": failure.reason or None,
        "attempt": failure.attempt,
        "attempts": failure.attempts,
        "has_given_up": failure.has_given_up,
        "is_restarting": now_s < failure.final_at_s,
        "text": failure_text(failure),
    }


def _age_s(heartbeats: RankHeartbeats, first: FirstFailure | None) -> float:
    """Since the first failure, else since the first end."""
    ended_s = heartbeats.ended_age_s
    if first is not None:
        rows = np.isin(heartbeats.ranks, first.ranks)
        ages_s = np.where(np.isfinite(ended_s), ended_s, heartbeats.heartbeat_age_s)[rows]
    else:
        ages_s = ended_s[np.array(heartbeats.outcomes) == "failed"]
    known_s = ages_s[np.isfinite(ages_s)]
    return float(known_s.max()) if len(known_s) else 0.0


def _reason(heartbeats: RankHeartbeats) -> str:
    """How most ranks failed; empty if that is not known."""
    texts = Counter(text for text in heartbeats.failure_texts if text)
    return texts.most_common(1)[0][0] if texts else ""


def _all_text(heartbeats: RankHeartbeats) -> str:
    """Where no rank was first."""
    number = sum(outcome == "failed" for outcome in heartbeats.outcomes)
    ranks = "1 rank has failed" if number == 1 else f"{number:,} ranks have failed"
    reason = _reason(heartbeats)
    return f"{ranks}: {reason}" if reason else ranks
