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
from otel_straggler.collector.views.verdict_json import PLACES, cost_of, standing
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.model.verdict import CALLED_SLOW, Verdict

_MUCH_DEARER = 2.0
"""What is wrong with the run as a whole goes before a rank only if it costs so much more."""


def answer_of(seen: WorldView) -> Json:
    """The block ``answer``. Cost: O(changes of verdicts)."""
    found = seen.found
    if seen.awaited is not None:
        before = answer_of(replace(seen, awaited=None, is_live=True))
        return awaited_answer(seen, seen.awaited, before["headline"])
    if seen.has_ended:
        return ended_answer(seen, told_first(seen))
    if found is not None and found.state == "forgotten":
        return forgotten_answer(seen)
    if found is not None and found.is_hung:
        return hang_answer(seen, found)
    if seen.table is None and seen.signs is None:
        return no_data_answer(seen)
    verdict = told_first(seen)
    if seen.silent_s is not None:
        return silent_answer(seen, seen.silent_s, verdict)
    if verdict is not None and (seen.has_verdicts or verdict.attempt >= seen.attempt):
        return verdict_answer(seen, verdict)
    if seen.table is None or not seen.has_verdicts:
        return waiting_answer(seen, verdict)
    return healthy_answer(seen)


def _is_stale(seen: WorldView, verdict: Verdict) -> bool:
    """A suspicion of before a restart, in an attempt that has been judged and says nothing of it:
    the book of changes keeps it for some steps more."""
    is_suspicion = verdict.state not in CALLED_SLOW
    return is_suspicion and seen.has_verdicts and seen.is_of_before(verdict)


def told_first(seen: WorldView) -> Verdict | None:
    """The verdict that matters most; None if none stands."""
    stands = [verdict for verdict in standing(seen.current) if not _is_stale(seen, verdict)]
    if not stands:
        return None
    called = [verdict for verdict in stands if verdict.state in CALLED_SLOW] or stands
    places = [verdict for verdict in called if verdict.scope in PLACES]
    wholes = [verdict for verdict in called if verdict.scope not in PLACES]
    if not places or not wholes:
        return called[0]
    is_whole = cost_of(wholes[0]) > _MUCH_DEARER * cost_of(places[0])
    return wholes[0] if is_whole else places[0]
