"""The answer of a picture: is the run healthy, who is slow, since when, why, what does it cost,
what is to be done.

One thing is said, the one that matters most: a hang before the dearest rank or host that is called
slow, that before an imbalance of the run, that before a mere suspicion, that before "all alike".
"""

from __future__ import annotations

from dataclasses import replace

from otel_straggler.collector.views.answer_hang import hang_answer
from otel_straggler.collector.views.answer_rest import (
    awaited_answer,
    ended_answer,
    forgotten_answer,
    healthy_answer,
    no_data_answer,
    silent_answer,
    waiting_answer,
)
from otel_straggler.collector.views.answer_type import Json
from otel_straggler.collector.views.answer_verdict import verdict_answer
from otel_straggler.collector.views.verdict_json import INDEXES, cost_of, standing
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.model.verdict import CALLED_SLOW, Verdict

_MUCH_DEARER = 2.0
"""What is wrong with the run as a whole goes before a rank only if it costs so much more."""


def answer_of(view: WorldView) -> Json:
    """The block ``answer``. Cost: O(changes of verdicts)."""
    result = view.hang
    if view.awaited is not None:
        before = answer_of(replace(view, awaited=None, is_live=True))
        return awaited_answer(view, view.awaited, before["headline"])
    if view.has_ended:
        return ended_answer(view, reported_first(view))
    if result is not None and result.state == "forgotten":
        return forgotten_answer(view)
    if result is not None and result.is_hung:
        return hang_answer(view, result)
    if view.table is None and view.heartbeats is None:
        return no_data_answer(view)
    verdict = reported_first(view)
    if view.silent_s is not None:
        return silent_answer(view, view.silent_s, verdict)
    if verdict is not None and (view.has_verdicts or verdict.attempt >= view.attempt):
        return verdict_answer(view, verdict)
    if view.table is None or not view.has_verdicts:
        return waiting_answer(view, verdict)
    return healthy_answer(view)


def _is_stale(view: WorldView, verdict: Verdict) -> bool:
    """A suspicion of before a restart, in an attempt that has been judged and says nothing of it:
    the book of changes keeps it for some steps more."""
    is_suspicion = verdict.state not in CALLED_SLOW
    return is_suspicion and view.has_verdicts and view.is_of_before(verdict)


def reported_first(view: WorldView) -> Verdict | None:
    """The verdict that matters most; None if none stands."""
    stands = [verdict for verdict in standing(view.current) if not _is_stale(view, verdict)]
    if not stands:
        return None
    called = [verdict for verdict in stands if verdict.state in CALLED_SLOW] or stands
    indexes = [verdict for verdict in called if verdict.scope in INDEXES]
    wholes = [verdict for verdict in called if verdict.scope not in INDEXES]
    if not indexes or not wholes:
        return called[0]
    is_whole = cost_of(wholes[0]) > _MUCH_DEARER * cost_of(indexes[0])
    return wholes[0] if is_whole else indexes[0]
