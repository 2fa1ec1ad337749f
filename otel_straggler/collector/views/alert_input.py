"""Input of the alerts, from the views of runs.

CPU time per run: 0.1 ms with 1,000 ranks, 2 ms with 10,000, 3 if half of them are lost, 6 if those
are all under maintenance; a new window of 10 sections adds 0.9 and 8 ms, 4 and 35 if all ranks are
slow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from otel_straggler.alerts.naming import Naming
from otel_straggler.alerts.rule import (
    APART,
    Culprit,
    RunStatus,
    Score,
    Scores,
    SectionSpeed,
    TimedOut,
)
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.collector.metrics.score_series import RunScores, coverage_of
from otel_straggler.collector.metrics.series_choice import ShownRows, by_group
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
    view: RunView,
    worlds: dict[str, World],
    under_maintenance: frozenset[str],
    settings: AlertSettings,
) -> Iterator[RunStatus]:
    """Every world of a run. Cost: see above."""
    groups = (verdict.group for verdict in view.run_verdicts.current)
    for group in dict.fromkeys((*view.worlds, *view.hangs, *view.scores, *groups)):
        world = worlds.get(group)
        naming = Naming() if world is None else world.naming
        yield naming.named(_watched(view, group, world, under_maintenance), settings)


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
        is_acknowledged=is_acknowledged,
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
        **_unscored(status, scores.ranks),
        coverage=scores.coverage,
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


def _unscored(world: WorldStatus, scored: frozenset[int]) -> dict[str, Any]:
    """Ranks that report and have no score. Where none has one, that is no finding about a rank.
    Cost: O(ranks) of a set's difference, and an object for each rank without a score."""
    if not scored:
        return {}
    ranks = sorted(
        rank
        for rank in world.ranks.keys() - scored
        if world.ranks[rank].finished_at_s is None and world.ranks[rank].sent_at_s is not None
    )
    return {"unscored": len(ranks), "unscored_text": ranks_text(ranks)} if ranks else {}


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


def newest_scores(scores: RunScores, settings: AlertSettings) -> dict[str, NewestScores]:
    """By group. Cost: O(ranks * sections), and an object for each rank that is near or below a
    threshold."""
    tables = by_group(scores.shown_rows())
    ranks = scores.ranks()
    result = {}
    for group, at_s in scores.scored_at_s.items():
        its, newest = tables.get(group, []), scores.newest_of(group)
        result[group] = NewestScores(
            at_s=at_s,
            lowest=_scores(its, settings),
            ranks=frozenset(rank for its_group, rank in ranks if its_group == group),
            coverage=math.nan if newest is None else coverage_of(newest),
        )
    return result


def _scores(tables: Sequence[ShownRows], settings: AlertSettings) -> Scores:
    threshold = settings.individual_threshold
    speeds = tuple(_speeds(tables, threshold))
    medians = {speed.section: speed.median for speed in speeds}
    return Scores(
        section_relative=_lowest(tables, "section_relative", settings.relative_threshold),
        section_individual=_lowest(tables, "section_individual", threshold, medians),
        gpu_relative=_lowest(tables, "gpu_relative", settings.gpu_threshold),
        speeds=speeds,
    )


def _speeds(tables: Sequence[ShownRows], threshold: float) -> Iterator[SectionSpeed]:
    """Of sections in which a rank is below the threshold, or near to it."""
    by_section: dict[str, list[Floats]] = {}
    for shown in tables:
        for at, name in _listed(shown):
            values = shown.window.section_individual[shown.rows, at]
            by_section.setdefault(name, []).append(values)
    for name, parts in by_section.items():
        values = np.concatenate(parts)
        known = values[np.isfinite(values)]
        if (known < _kept_below(threshold)).any():
            yield SectionSpeed(
                section=name,
                median=float(np.quantile(known, 0.5)),
                ranks=len(known),
                below=int((known < threshold).sum()),
            )


def _kept_below(threshold: float) -> float:
    """Half-way to a perfect score: a rank that is named in an alert stays named below."""
    return (1.0 + threshold) / 2.0


def _lowest(
    tables: Sequence[ShownRows],
    column: str,
    threshold: float,
    medians: Mapping[str, float] | None = None,
) -> tuple[Score, ...]:
    """The lowest score of each rank that is near or below the threshold, lowest first.

    Args:
        medians: of all ranks by section; only scores well below them count.
    """
    by_rank: dict[int, Score] = {}
    for shown in tables:
        for score in _lowest_in(shown, column, _kept_below(threshold), medians):
            before = by_rank.get(score.rank)
            if before is None or score.value < before.value:
                by_rank[score.rank] = score
    return tuple(sorted(by_rank.values(), key=lambda score: (score.value, score.rank)))


def _lowest_in(
    shown: ShownRows, column: str, limit: float, medians: Mapping[str, float] | None
) -> Iterator[Score]:
    """Of one window; sections of other kinds than ``LISTED_KINDS`` have low scores because of other
    ranks."""
    window = shown.window
    values: Floats = getattr(window, column)[shown.rows]
    columns, names = [0], [""]
    if values.ndim == 2:
        columns, names = [at for at, _ in _listed(shown)], [name for _, name in _listed(shown)]
        values = values[:, columns]
    else:
        values = values[:, None]
    if not names:
        return
    if medians is not None:
        apart = [APART * medians.get(name, math.nan) for name in names]
        values = np.where(values < np.array(apart), values, np.nan)
    values = np.where(values < limit, values, np.inf)
    lowest = values.argmin(axis=1)
    for index in np.flatnonzero(np.isfinite(values.min(axis=1))).tolist():
        row, at = shown.rows[index], int(lowest[index])
        source, best = window.sources[row], (math.nan, math.nan)
        best_s, at_s = window.section_best_s, window.section_best_at_s
        if medians is not None and best_s is not None and at_s is not None:
            best = float(best_s[row, columns[at]]), float(at_s[row, columns[at]])
        yield Score(
            rank=source.rank,
            node=source.node,
            role=source.role,
            section=names[at],
            value=float(values[index, at]),
            best_s=best[0],
            best_at_s=best[1],
        )


def _listed(shown: ShownRows) -> Iterator[tuple[int, str]]:
    """Columns and names of sections in which a low score means a slow rank."""
    for at in shown.sections:
        section = shown.window.sections[at]
        if section.kind in LISTED_KINDS:
            yield at, section.name
