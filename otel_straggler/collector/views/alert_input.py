"""Input of the alerts, from the views of runs.

CPU time per run: 0.1 ms with 1,000 ranks, 2 ms with 10,000, 3 if half of them are lost, 6 if those
are all under maintenance; a new window of 10 sections adds 0.6 and 8 ms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from otel_straggler.alerts.rule import Culprit, RunStatus, Score, Scores, TimedOut
from otel_straggler.collector.metrics.score_series import RunScores
from otel_straggler.collector.metrics.series_choice import ShownRows, by_group, lowest
from otel_straggler.collector.runs.liveness import WorldStatus
from otel_straggler.collector.runs.run import World
from otel_straggler.collector.views.hang_json import sentence
from otel_straggler.collector.views.ranks import MISSING
from otel_straggler.collector.views.run_failure import failure_text
from otel_straggler.collector.views.run_view import NewestScores, RunView
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.states import ENDS, RANK_STATES, STARTING, HangKind, RunState
from otel_straggler.goodput.live import ROLLING_S
from otel_straggler.model.alert import MAX_NAMED
from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.rank_names import ranks_text
from otel_straggler.model.verdict import CALLED_SLOW, RunVerdicts, Verdict
from otel_straggler.semconv import LISTED_KINDS

_NOBODY = WorldStatus(attempt=0)
_MAX_HOSTS = 3


def watched_worlds(
    view: RunView, worlds: dict[str, World], under_maintenance: frozenset[str]
) -> Iterator[RunStatus]:
    """Every world of a run. Cost: see above."""
    groups = (verdict.group for verdict in view.run_verdicts.current)
    for group in dict.fromkeys((*view.worlds, *view.hangs, *view.scores, *groups)):
        yield _watched(view, group, worlds.get(group), under_maintenance)


def _watched(
    view: RunView, group: str, world: World | None, under_maintenance: frozenset[str]
) -> RunStatus:
    status = view.worlds.get(group, _NOBODY)
    hang = view.hangs.get(group)
    scores = view.scores.get(group, NewestScores())
    is_acknowledged = hang is not None and hang.is_hung and view.is_acknowledged(group)
    blame = None if hang is None or hang.state in ENDS else hang.blame
    waited_for: Ints = np.empty(0, np.int64)
    if hang is not None and blame is not None and not is_acknowledged:
        waited_for = hang.ranks[blame.culprits]
    now_s = view.now_s - view.ahead_s
    hangs = hang is not None and world is not None and world.hung.evaluate(hang, now_s)
    named = [] if world is None else world.culprits.select(waited_for)
    may_page = view.mode == "page" and status.page
    return RunStatus(
        run_id=view.run_id,
        job=view.jobs.get(group, ""),
        group=group,
        team=status.team,
        attempt=status.attempt,
        pages=may_page and not _are_all_on(status, waited_for, under_maintenance),
        state=_state_without_heartbeats(view, group) if hang is None else hang.state,
        since_s=None if hang is None else hang.since_s,
        is_hung=hangs and not is_acknowledged,
        why=None if blame is None else blame.kind,
        hang_text="" if hang is None or blame is None else sentence(hang) or "",
        culprits_text=_culprits_text(status, waited_for),
        culprits=tuple(_culprit(status, rank, blame.kind) for rank in named) if blame else (),
        timed_out=() if world is None else tuple(_timed_out(world))[:MAX_NAMED],
        ranks={} if hang is None else _counts(hang, status),
        last_scored_at_s=None if scores.at_s is None else scores.at_s + view.ahead_s,
        scores=scores.lowest,
        verdicts=_verdicts(view.run_verdicts, group),
        silenced=_silenced(view.run_verdicts, group),
        slowdown=_slowdown(view.run_verdicts, group),
        clashes=len({(source.group, source.rank) for source in view.clashes}),
        dropped=status.dropped,
        hourly_goodput=_hourly_goodput(view, group),
        **_failure(view, group),
        is_failing=view.failure_of(group) is not None and (hang is None or hang.state not in ENDS),
    )


def _state_without_heartbeats(view: RunView, group: str) -> RunState:
    """Lost once spans have stopped: what they last said is over, however it went on."""
    world = view.world(group)
    if world.has_ended:
        return "ended"
    return "starting" if world.silent_s is None else "lost"


def _culprits_text(world: WorldStatus, ranks: Ints) -> str:
    """Ranks by host; of more than three hosts the rest is counted. Empty without ranks."""
    by_node: dict[str, list[int]] = {}
    for rank in ranks.tolist():
        its = world.ranks.get(rank)
        by_node.setdefault("" if its is None else its.source.node, []).append(rank)
    texts = [
        f"{ranks_text(its)} on {node}" if node else ranks_text(its)
        for node, its in list(by_node.items())[:_MAX_HOSTS]
    ]
    n_left = sum(map(len, list(by_node.values())[_MAX_HOSTS:]))
    if n_left:
        texts.append(f"{n_left:,} more on {len(by_node) - _MAX_HOSTS:,} other hosts")
    *earlier, last = texts or [""]
    return f"{', '.join(earlier)} and {last}" if earlier else last


def _failure(view: RunView, group: str) -> dict[str, Any]:
    """Of a run that nobody restarts."""
    failure = view.run_failures.get(group)
    if failure is None or view.now_s < failure.final_at_s:
        return {}
    return {"failed_at_s": failure.final_at_s, "failure_text": failure_text(failure)}


def _hourly_goodput(view: RunView, group: str) -> float:
    goodput = view.goodputs.get(group)
    return math.nan if goodput is None else dict(goodput.rolling).get(ROLLING_S[0], math.nan)


def _culprit(status: WorldStatus, rank: int, why: HangKind) -> Culprit:
    its = status.ranks.get(rank)
    node, role = ("", "") if its is None else (its.source.node, its.source.role)
    return Culprit(rank=rank, node=node, role=role, why=why)


def _timed_out(world: World) -> Iterator[TimedOut]:
    for rank, its in sorted(world.passthrough.numbers.items()):
        timed_out = its.timed_out()
        if timed_out is not None:
            reason, seconds = timed_out
            source = its.source
            yield TimedOut(
                rank=rank, node=source.node, role=source.role, reason=reason, seconds=seconds
            )


def _are_all_on(world: WorldStatus, ranks: Ints, nodes: frozenset[str]) -> bool:
    """True if there are ranks, and all are on these nodes; unknown ranks are on none."""
    if not nodes or not len(ranks):
        return False
    every = (world.ranks.get(rank) for rank in ranks.tolist())
    return all(its is not None and its.source.node in nodes for its in every)


def _counts(hang: HangStatus, world: WorldStatus) -> dict[str, int]:
    """Ranks by state; one that never reported is missing instead of starting."""
    counts = np.bincount(hang.rank_states, minlength=len(RANK_STATES)).tolist()
    reporting = sum(its.sent_at_s is not None for its in world.ranks.values())
    unseen = min(max(len(hang.ranks) - reporting, 0), counts[STARTING])
    counts[STARTING] -= unseen
    missing = max(unseen, world.world_size - len(world.ranks)) if unseen else 0
    return {**dict(zip(RANK_STATES, counts, strict=True)), MISSING: missing}


def _verdicts(run_verdicts: RunVerdicts, group: str) -> tuple[Verdict, ...]:
    return tuple(
        verdict
        for verdict in run_verdicts.current
        if verdict.group == group and verdict.subject_id not in run_verdicts.silenced
    )


def _silenced(run_verdicts: RunVerdicts, group: str) -> tuple[Verdict, ...]:
    return tuple(
        verdict
        for verdict in run_verdicts.current
        if verdict.subject_id in run_verdicts.silenced
        if verdict.group == group and verdict.state in CALLED_SLOW
    )


def _slowdown(run_verdicts: RunVerdicts, group: str) -> float:
    return next((world.slowdown for world in run_verdicts.worlds if world.group == group), math.nan)


# --- the lowest scores -------------------------------------------------------------------------


def newest_scores(scores: RunScores) -> dict[str, NewestScores]:
    """By group. Cost: O(ranks * sections), and an object for each of at most 60 scores a group."""
    tables = by_group(scores.shown_rows())
    result = {}
    for group, at_s in scores.scored_at_s.items():
        its = tables.get(group, [])
        result[group] = NewestScores(
            at_s=at_s,
            lowest=Scores(**{field.name: _lowest(its, field.name) for field in fields(Scores)}),
        )
    return result


def _lowest(tables: Sequence[ShownRows], column: str) -> tuple[Score, ...]:
    scores = [score for shown in tables for score in _lowest_in(shown, column)]
    scores.sort(key=lambda score: (score.value, score.rank, score.section))
    return tuple(scores[:MAX_NAMED])


def _lowest_in(shown: ShownRows, column: str) -> Iterator[Score]:
    """The lowest 20 of one window, in no order; sections of other kinds than ``LISTED_KINDS`` have
    low scores because of other ranks."""
    window = shown.window
    values: Floats = getattr(window, column)[shown.rows]
    names = [""]
    if values.ndim == 2:
        listed = [s for s in shown.sections if window.sections[s].kind in LISTED_KINDS]
        names = [window.sections[s].name for s in listed]
        values = values[:, listed]
    for index, value in lowest(values.ravel(), MAX_NAMED):
        source = window.sources[shown.rows[index // len(names)]]
        yield Score(
            rank=source.rank,
            node=source.node,
            role=source.role,
            section=names[index % len(names)],
            value=value,
        )
