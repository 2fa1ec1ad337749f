"""The verdicts of a picture: the newest on every subject, those that stand and are dear first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from otel_straggler.model.verdict import Verdict
from otel_straggler.publish.picture.rounding import seconds
from otel_straggler.publish.verdict_json import verdict_json
from otel_straggler.score.verdicts.sentences import sentence

Json: TypeAlias = dict[str, Any]

MOST_VERDICTS: Final = 200
CALLED: Final = frozenset({"confirmed", "flapping"})
"""States in which somebody is called slow."""
STANDING: Final = frozenset({*CALLED, "suspect"})
PLACES: Final = ("rank", "host")
"""Scopes of who can be mended or replaced."""
_WELL: Final = frozenset({"ok", "recovered"})


def standing(current: Iterable[Verdict]) -> list[Verdict]:
    """Those that are called slow, then those that are suspected; each dearest first."""
    stands = (verdict for verdict in current if verdict.state in STANDING)
    return sorted(stands, key=lambda v: (v.state not in CALLED, -cost_of(v)))


def cost_of(verdict: Verdict) -> float:
    """Seconds of all ranks lost per hour, 0 if not known."""
    lost = verdict.gpu_seconds_lost_per_hour
    return lost if math.isfinite(lost) else 0.0


def said_of(verdict: Verdict, *, is_over: bool) -> str:
    """Its sentence: as it was said, or of a run that is over in the past; empty if it has none."""
    return sentence(verdict, is_over=True) if is_over and verdict.sentence else verdict.sentence


def since_s_of(changes: Sequence[Verdict], verdict: Verdict, clock_s: float = 0.0) -> float | None:
    """When the subject's present state of affairs began: its first change since it was well (or
    ever), seconds since 1970; None if nobody told.

    Args:
        changes: of any subjects, oldest first.
        clock_s: what is added to the senders' times.
    """
    began_ns = 0
    for change in changes:
        if change.subject_id != verdict.subject_id:
            continue
        if change.state in _WELL:
            began_ns = 0
        elif not began_ns:
            began_ns = change.at_ns
    return _at_s(began_ns or verdict.at_ns, clock_s)


def _at_s(at_ns: int, clock_s: float) -> float | None:
    return seconds(at_ns / 1e9 + clock_s) if at_ns else None


def begins_of(changes: Sequence[Verdict]) -> dict[str, int]:
    """The same for all subjects that are not well now, in nanoseconds. Cost: O(changes)."""
    began: dict[str, int] = {}
    for change in changes:
        if change.state in _WELL:
            began.pop(change.subject_id, None)
        else:
            began.setdefault(change.subject_id, change.at_ns)
    return began


def verdicts_json(
    current: Sequence[Verdict],
    changes: Sequence[Verdict],
    silenced: frozenset[str],
    *,
    is_over: bool = False,
    attempt: int = 0,
    clock_s: float = 0.0,
) -> tuple[list[Json], int]:
    """At most 200, and how many were left out. Cost: O(changes).

    Args:
        is_over: the run has ended.
        attempt: the present one; what was said of those before is told in the past.
        clock_s: what is added to the senders' times.
    """
    began = begins_of(changes)
    stands = standing(current)
    others = [verdict for verdict in current if verdict.state not in STANDING]
    others.sort(key=lambda verdict: -verdict.at_ns)
    ordered = [*stands, *others]
    shown = [
        {
            **verdict_json(verdict),
            "sentence": said_of(verdict, is_over=is_over or verdict.attempt < attempt),
            "stands": verdict.state in STANDING,
            "since_s": _at_s(began.get(verdict.subject_id) or verdict.at_ns, clock_s),
            "silenced": verdict.subject_id in silenced,
        }
        for verdict in ordered[:MOST_VERDICTS]
    ]
    return shown, len(ordered) - len(shown)
