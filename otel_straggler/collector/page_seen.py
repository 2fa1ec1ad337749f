"""What the scoring thread last published of a run, as the neutral facts that pictures are made of.

Called on other threads: signs of life are read while the scoring thread writes them. Every reading
is one step, so a rank may be shown a heartbeat older than its step, and nothing worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from otel_straggler.collector.liveness import World
from otel_straggler.collector.rank_life import RankLife
from otel_straggler.collector.watching import RunSeen
from otel_straggler.model.alert import Alert, Maintenance, Mode
from otel_straggler.model.observation import NO_STEP, Floats, Section
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import hang_subject
from otel_straggler.publish.alert_json import shown_alert
from otel_straggler.publish.picture import RankSigns, RankTable, Seen
from otel_straggler.semconv import STEP_SPAN

_OUTCOMES = {
    "finished": "ok",
    "cancelled": "cancelled",
    "preempted": "preempted",
    "failed": "failed",
}
"""State of a run that has ended, and its outcome."""
_CLOCKS_DIFFER_S = 3
"""Less is how long something was on its way."""


def groups_of(run: RunSeen) -> tuple[str, ...]:
    """All groups of a run of which anything is known; at least one."""
    windows = (window.group for window in run.windows)
    judged = (verdict.group for verdict in run.judged.current)
    found = dict.fromkeys((*run.worlds, *run.found, *windows, *judged))
    return tuple(found) or ("",)


def seen_of(
    run: RunSeen,
    group: str,
    *,
    table: RankTable | None,
    alerts: Iterable[Alert],
    maintenance: tuple[Maintenance, ...],
    mode: Mode,
    now_s: float,
) -> Seen:
    """One world of a run. Cost: O(ranks).

    Args:
        table: of the newest window of the group; None if there is none.
        alerts: that fire about the run.
        maintenance: of any node, as in force.
    """
    world = run.worlds.get(group)
    found = run.found.get(group)
    lives = [] if world is None else _lives(world)
    window = newest_window(run, group)
    signs = _signs(lives, now_s)
    world_size = 0 if world is None else world.world_size
    return Seen(
        run_id=run.run_id,
        job=run.jobs.get(group, ""),
        group=group,
        groups=groups_of(run),
        attempt=_attempt(world, window),
        now_s=now_s,
        began_at_s=_began_at_s(world, lives, window),
        heard_at_s=world.touched_at_s if world is not None and world.touched_at_s else None,
        finished_at_s=None if world is None else world.finished_at_s,
        outcome=_outcome(lives) if found is None else _OUTCOMES.get(found.state),
        world_size=max(world_size, 0 if window is None else window.world_size),
        table=table,
        signs=signs,
        found=found,
        judged=run.judged,
        alerts=[
            shown_alert(alert) for alert in alerts if alert.labels.get("group", "") in ("", group)
        ],
        maintenance=_of_nodes(maintenance, table, signs),
        is_acknowledged=hang_subject(group) in run.judged.silenced,
        mode=mode,
        clock_s=_clock_s(lives),
    )


def clock_of(run: RunSeen, group: str) -> float:
    """:attr:`Seen.clock_s` of one world. Cost: O(ranks)."""
    world = run.worlds.get(group)
    return 0.0 if world is None else _clock_s(_lives(world))


def _clock_s(lives: list[tuple[int, RankLife]]) -> float:
    """What turns the time at which the last rank ended something into that of this collector: the
    rank whose clock is foremost told it, and has the smallest delay."""
    told = [life.delay_s for _, life in lives if np.isfinite(life.delay_s)]
    ahead_s = round(min(told, default=0.0))
    return float(ahead_s) if abs(ahead_s) >= _CLOCKS_DIFFER_S else 0.0


def newest_window(run: RunSeen, group: str) -> WindowScores | None:
    return next((window for window in run.windows if window.group == group), None)


def _lives(world: World) -> list[tuple[int, RankLife]]:
    """The ranks that were heard of, ascending; a copy, made in one step."""
    return sorted(world.ranks.copy().items(), key=lambda pair: pair[0])


def _signs(lives: list[tuple[int, RankLife]], now_s: float) -> RankSigns | None:
    if not lives:
        return None
    return RankSigns(
        ranks=np.array([rank for rank, _ in lives], np.int64),
        nodes=[life.source.node for _, life in lives],
        roles=[life.source.role for _, life in lives],
        devices=[life.source.device for _, life in lives],
        models=[life.source.device_model for _, life in lives],
        parallels=[life.source.parallel for _, life in lives],
        heartbeat_age_s=_ages(lives, [life.sent_at_s for _, life in lives], now_s),
        progress_age_s=_ages(lives, [life.progress_at_s for _, life in lives], now_s),
        step=np.array([NO_STEP if x.step is None else x.step for _, x in lives], np.int64),
        open_section=[_open_section(life) for _, life in lives],
        gpu_tier=[life.gpu_tier for _, life in lives],
        gpu_reason=[life.gpu_reason for _, life in lives],
        dropped=[dict(life.dropped) for _, life in lives],
        outcomes=[life.outcome or "" for _, life in lives],
        ended_age_s=_ages(lives, [life.finished_at_s for _, life in lives], now_s),
    )


def _ages(lives: list[tuple[int, RankLife]], at_s: Sequence[float | None], now_s: float) -> Floats:
    """Since then, on the collector's clock; as :meth:`RankLife.here` has it, for all at once."""
    told = np.array([np.nan if value is None else value for value in at_s])
    delay_s = np.array([life.delay_s for _, life in lives])
    arrived_at_s = np.array([life.arrived_at_s for _, life in lives])
    here_s = np.minimum(told + np.where(np.isfinite(delay_s), delay_s, 0.0), arrived_at_s)
    ages_s: Floats = np.maximum(now_s - here_s, 0.0)
    return ages_s


def _open_section(life: RankLife) -> str:
    if not life.open_section or life.open_section == STEP_SPAN:
        return ""
    return Section(life.open_section).in_phase(life.phase).name


def _began_at_s(
    world: World | None, lives: list[tuple[int, RankLife]], window: WindowScores | None
) -> float | None:
    first = min((life for _, life in lives), key=lambda life: life.first_sent_at_s, default=None)
    began_at_s = None if first is None else first.here(first.first_sent_at_s)
    if first is not None and world is not None and first.first_sent_at_s >= world.began_at_s:
        began_at_s = world.began_at_s  # by a clock that is ahead: when it arrived is known
    if began_at_s:
        return began_at_s
    return None if window is None else window.start_ns / 1e9


def _outcome(lives: list[tuple[int, RankLife]]) -> str | None:
    outcomes = {life.outcome for _, life in lives if life.finished_at_s is not None}
    return outcomes.pop() if len(outcomes) == 1 else None


def _attempt(world: World | None, window: WindowScores | None) -> int:
    if world is not None:
        return world.attempt
    return 0 if window is None else window.attempt


def _of_nodes(
    maintenance: tuple[Maintenance, ...], table: RankTable | None, signs: RankSigns | None
) -> list[Maintenance]:
    """What is in force on the nodes of this world."""
    if not maintenance:
        return []
    nodes = {node for part in (table, signs) if part is not None for node in part.nodes}
    return [each for each in maintenance if each.node in nodes]
