"""Profile on suspicion: a slow rank and a healthy peer are asked to profile their next steps."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from otel_straggler.collector.api.commands import Commands, Steps
from otel_straggler.collector.runs.profiles import ProfilePair, RunProfiles
from otel_straggler.collector.settings import CommandsSettings
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.collector.views.verdict_json import STANDING, SUBJECTS
from otel_straggler.collector.views.world_view import RankTable, WorldView
from otel_straggler.errors import InputError
from otel_straggler.model.verdict import Verdict
from otel_straggler.semconv import PROFILE

_log = logging.getLogger(__name__)
_MAX_LOGGED: Final = 100
LEAD_S: Final = 12.0
"""Until the first step that is profiled: two heartbeats, with which ranks ask. Both ranks must have
the command by then: who starts a profiler makes the others wait."""


class Profiling:
    """Decides who is asked. State by run is in :class:`RunProfiles`."""

    def __init__(self, settings: CommandsSettings, commands: Commands) -> None:
        self._settings = settings
        self._commands = commands

    @property
    def is_on(self) -> bool:
        return self._settings.enabled and self._settings.profile_steps > 0

    def ask(self, view: RunView, profiles: RunProfiles, now_s: float) -> None:
        """Ask the ranks of every confirmed verdict that has no profile yet, within the limit of a
        day. Never raises. Cost: O(verdicts), and O(ranks) for a new one."""
        for verdict in view.run_verdicts.current:
            if not _is_confirmed(view, verdict):
                continue
            group, subject_id = verdict.group, verdict.subject_id
            if profiles.is_known(group, subject_id, verdict.attempt):
                continue
            if not profiles.has_room(self._settings.profiles_per_day, now_s):
                return
            pair = chosen_pair(view, verdict, now_s)
            busy = set(profiles.ranks(group))
            if pair is not None and not busy & {pair.slow_rank, pair.peer_rank}:
                self._ask_pair(view, pair, profiles)

    def _ask_pair(self, view: RunView, pair: ProfilePair, profiles: RunProfiles) -> None:
        ranks = [pair.slow_rank, pair.peer_rank]
        why = f"rank {pair.slow_rank} is slow, rank {pair.peer_rank} is not"
        first = first_step(view.world(pair.group), ranks)
        steps = Steps(first, self._settings.profile_steps)
        try:
            self._commands.ask(view.run_id, pair.group, ranks, PROFILE, why, steps)
        except InputError as error:
            _log.warning("run %r: no profiles: %s", view.run_id[:_MAX_LOGGED], error)
            return
        profiles.add(pair)


def _is_confirmed(view: RunView, verdict: Verdict) -> bool:
    is_silenced = verdict.subject_id in view.run_verdicts.silenced
    is_known = verdict.is_localised and verdict.scope in SUBJECTS
    return verdict.state == "confirmed" and is_known and not is_silenced


def chosen_pair(view: RunView, verdict: Verdict, now_s: float) -> ProfilePair | None:
    """The slow rank (of a host: its slowest), and the live rank of its role that is closest to the
    typical one and that no verdict names. None where there is none. Cost: O(ranks)."""
    world = view.world(verdict.group)
    table = world.table
    if table is None or world.has_ended or world.is_of_before(verdict):
        return None
    slow = _slow_rank(table, verdict)
    if slow is None or view.source_of(verdict.group, slow) is None:
        return None
    peers = _peers(view, world, table, slow)
    peer = min(peers, key=lambda each: (each[1], each[0]), default=None)
    if peer is None:
        return None
    return ProfilePair(
        group=verdict.group,
        subject_id=verdict.subject_id,
        attempt=verdict.attempt,
        section=verdict.section,
        slow_rank=slow,
        peer_rank=peer[0],
        asked_at_s=now_s,
    )


def first_step(world: WorldView, ranks: Sequence[int]) -> int:
    """A step that these ranks begin no sooner than in ``LEAD_S``; 0, at once, where their steps are
    not known."""
    heartbeats = world.heartbeats
    if heartbeats is None or heartbeats.step_s is None:
        return 0
    rows = np.isin(heartbeats.ranks, ranks)
    typical_s = np.append(
        heartbeats.step_s[rows], 0.0 if world.world is None else world.world.step_s
    )
    typical_s = typical_s[np.isfinite(typical_s) & (typical_s > 0.0)]
    if not len(typical_s):
        return 0
    return int(heartbeats.step[rows].max()) + 2 + math.ceil(LEAD_S / float(typical_s.min()))


def _slow_rank(table: RankTable, verdict: Verdict) -> int | None:
    if verdict.rank is not None:
        return verdict.rank
    overall = table.slowdowns.overall
    of_host = [
        row
        for row, node in enumerate(table.nodes)
        if node == verdict.node and np.isfinite(overall[row])
    ]
    slowest = max(of_host, key=lambda row: float(overall[row]), default=None)
    return None if slowest is None else int(table.ranks[slowest])


def _peers(
    view: RunView, world: WorldView, table: RankTable, slow: int
) -> Iterator[tuple[int, float]]:
    """Healthy ranks of its role, with how far each is from the typical one."""
    standing = [each for each in world.current if each.state in STANDING]
    ranks = {each.rank for each in standing if each.rank is not None}
    nodes = {each.node for each in standing if each.scope == "host"}
    roles = dict(zip(table.ranks.tolist(), table.roles, strict=True))
    rows = zip(table.ranks.tolist(), table.nodes, table.slowdowns.overall.tolist(), strict=True)
    for rank, node, slowdown in rows:
        is_peer = rank != slow and roles[rank] == roles.get(slow) and rank not in ranks
        if not is_peer or (node and node in nodes) or not math.isfinite(slowdown):
            continue
        if view.source_of(world.group, rank) is not None:
            yield rank, abs(slowdown - 1.0)
