"""Verdicts as JSON: every change, decisions, and the loss of a run. Unknown values are null."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, Final, TypeAlias

from otel_straggler.collector.views.numbers import seconds
from otel_straggler.detect.verdicts.sentences import sentence
from otel_straggler.model.causes import cause_text
from otel_straggler.model.verdict import (
    CALLED_SLOW,
    RankWaits,
    RunVerdicts,
    SectionCost,
    Verdict,
    WorldSummary,
)

Json: TypeAlias = dict[str, Any]


_FIELDS: Final = (
    "subject_id", "scope", "rank", "node", "role", "section", "cause", "state", "evidence",
    "slowdown", "since_step", "confirmed_step", "confidence",
    "gpu_seconds_lost_per_hour", "sentence", "group", "attempt", "at_step", "at_ns", "began",
    "n_peers", "own_s", "peers_s", "pages", "is_localised", "since_ns",
)  # fmt: skip
_WORLD_FIELDS: Final = (
    "slowdown", "waste", "m_w", "m_s", "cause", "resolvable_slowdown", "coverage", "group",
    "attempt", "gpu_seconds_lost", "on_gpu", "waits_inside", "waits_unseen",
    "step_s",
)  # fmt: skip
_DECISION_FIELDS: Final = ("action", "subject_id", "reason", "by", "at_ns", "until_ns", "cause")
_NULL_IF_EMPTY: Final = ("node", "role", "section", "by", "cause", "waits_inside")


def _values(each: object, names: Iterable[str]) -> Json:
    values: Json = {name: getattr(each, name) for name in names}
    for name, value in values.items():
        if isinstance(value, float):
            values[name] = _nullable(value)
        elif name in _NULL_IF_EMPTY:
            values[name] = value or None
    return values


def verdict_json(verdict: Verdict) -> Json:
    return {
        **_values(verdict, _FIELDS),
        "cause_text": cause_text(verdict.cause, on_gpu=verdict.is_on_gpu),
        "on_gpu": verdict.is_on_gpu,
        "detail": verdict.detail or None,
    }


def decisions_json(run_verdicts: RunVerdicts) -> list[Json]:
    """Decisions, oldest first; ``is_in_force`` on the newest of a subject that it silences."""
    newest = {decision.subject_id: decision for decision in run_verdicts.decisions}
    return [
        _values(decision, _DECISION_FIELDS)
        | {
            "is_in_force": decision.subject_id in run_verdicts.silenced
            and newest[decision.subject_id] is decision
        }
        for decision in run_verdicts.decisions
    ]


def run_json(worlds: Sequence[WorldSummary], coverage: float | None) -> Json:
    """The block ``run``: the world that loses most, and under ``worlds`` every world by group."""
    costliest = max(worlds, key=lambda each: _nullable(each.gpu_seconds_lost) or 0.0, default=None)
    shown = _world(costliest or WorldSummary(run_id=""))
    if costliest is None:
        shown["gpu_seconds_lost"] = None
    if shown["coverage"] is None:
        shown["coverage"] = coverage
    shown["worlds"] = {world.group: _world(world) for world in worlds}
    return shown


def run_verdicts_part(
    run_verdicts: RunVerdicts,
    *,
    group: str | None,
    rank: int | None = None,
    is_its_node: Callable[[str], bool] = bool,
) -> RunVerdicts:
    """Select one group, or one rank of it: verdicts about the rank, its node, and the whole run,
    and the rank's own waits; None selects all. Cost: O(changes).
    """

    def concerns(verdict: Verdict) -> bool:
        if group not in (None, verdict.group):
            return False
        if rank is None or verdict.scope == "run":
            return True
        if verdict.scope == "host":
            return is_its_node(verdict.node)
        return verdict.rank == rank

    worlds = (world for world in run_verdicts.worlds if group in (None, world.group))
    changes = tuple(verdict for verdict in run_verdicts.changes if concerns(verdict))
    concerned = {verdict.subject_id for verdict in changes}
    return RunVerdicts(
        changes=changes,
        worlds=tuple(world if rank is None else _of_one_rank(world, rank) for world in worlds),
        decisions=tuple(each for each in run_verdicts.decisions if each.subject_id in concerned),
        silenced=run_verdicts.silenced & concerned,
    )


def _of_one_rank(world: WorldSummary, rank: int) -> WorldSummary:
    waits = tuple(waits for waits in world.waits if waits.rank == rank)
    return replace(world, heat=(), waits=waits)


def _world(world: WorldSummary) -> Json:
    return {
        **_values(world, _WORLD_FIELDS),
        "heat": [[stage, data, _nullable(slowdown)] for stage, data, slowdown in world.heat],
        "ledger": [_all_values(cost) for cost in world.ledger],
        "waits": [_all_values(waits) for waits in world.waits],
    }


def _all_values(each: SectionCost | RankWaits) -> Json:
    return _values(each, (field.name for field in fields(each)))


def _nullable(value: float) -> float | None:
    return value if math.isfinite(value) else None


MAX_VERDICTS: Final = 200
STANDING: Final = frozenset({*CALLED_SLOW, "suspect"})
SUBJECTS: Final = ("rank", "host")
"""Scopes of subjects that can be repaired or replaced."""


def standing(current: Iterable[Verdict], silenced: Collection[str] = frozenset()) -> list[Verdict]:
    """Those that notify people, then other slow ranks and hosts, then slow roles and runs, then
    suspects; the costliest first."""

    def key(verdict: Verdict) -> tuple[bool, bool, bool, float]:
        pages = verdict.pages and verdict.subject_id not in silenced
        is_called, is_subject = verdict.state in CALLED_SLOW, verdict.scope in SUBJECTS
        return not pages, not is_called, not is_subject, -cost_of(verdict)

    return sorted((verdict for verdict in current if verdict.state in STANDING), key=key)


def cost_of(verdict: Verdict) -> float:
    """Seconds of all ranks lost per hour, 0 if unknown."""
    lost = verdict.gpu_seconds_lost_per_hour
    return lost if math.isfinite(lost) else 0.0


def text_of(verdict: Verdict, *, is_over: bool) -> str:
    """Its sentence, in the past tense if it is over; empty if it has none."""
    return sentence(verdict, is_over=True) if is_over and verdict.sentence else verdict.sentence


def since_s(verdict: Verdict, clock_s: float) -> float | None:
    """Seconds since 1970 of the onset, plus ``clock_s``; None if unknown."""
    return seconds(verdict.since_ns / 1e9 + clock_s) if verdict.since_ns else None


def verdicts_json(
    run_verdicts: RunVerdicts, *, is_over: bool, attempt: int, clock_s: float
) -> tuple[list[Json], int]:
    """At most 200 current verdicts, and the number left out; sentences of earlier attempts are in
    the past tense, and ``clock_s`` is added to the senders' times. Cost: O(changes)."""
    current = run_verdicts.current
    stands = standing(current, run_verdicts.silenced)
    others = [verdict for verdict in current if verdict.state not in STANDING]
    others.sort(key=lambda verdict: -verdict.at_ns)
    ordered = [*stands, *others]
    shown = [
        {
            **verdict_json(verdict),
            "sentence": text_of(verdict, is_over=is_over or verdict.attempt < attempt),
            "stands": verdict.state in STANDING,
            "since_s": since_s(verdict, clock_s),
            "silenced": verdict.subject_id in run_verdicts.silenced,
        }
        for verdict in ordered[:MAX_VERDICTS]
    ]
    return shown, len(ordered) - len(shown)
