"""What the alerts look at, from what the collector knows of its runs.

CPU time of a look at one run, measured beside other work: 0.1 ms with 1,000 ranks, 2 with 10,000
(two thirds of it to ask all of them for page and team), 3 if half of them are lost, 6 if those are
all under maintenance; a new window of 10 sections adds 0.6 and 8 ms, once. The series of the same
ranks' liveness take 24 and 240 ms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from otel_straggler.alerts.rule import Culprit, FleetStatus, RunStatus
from otel_straggler.collector.culprits import CulpritPlaces
from otel_straggler.collector.liveness import World
from otel_straggler.collector.newest_scores import NewestScores
from otel_straggler.collector.run_wishes import may_page, team_of
from otel_straggler.model.alert import Mode
from otel_straggler.model.observation import Ints
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import RunVerdicts, Verdict
from otel_straggler.publish.hang_json import sentence
from otel_straggler.score.hangs.detector import HangStatus, HungRun
from otel_straggler.score.hangs.states import ENDS, RANK_STATES, STARTING, HangKind
from otel_straggler.score.settings import HangSettings

MISSING = "missing"
"""State of ranks that are expected and were never heard of, in ``straggler.run.ranks``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeen:
    """One run, as the collector's parts know it now; what is by group has the group as its key.

    Attributes:
        run_id: its id.
        jobs: job names.
        worlds: signs of life.
        found: who is stuck or lost.
        scores: the newest.
        judged: layer 2, with what people have decided.
        clashes: sessions that claim a rank of another live one.
        windows: the newest of every group.
    """

    run_id: str
    jobs: Mapping[str, str] = field(default_factory=dict)
    worlds: Mapping[str, World] = field(default_factory=dict)
    found: Mapping[str, HangStatus] = field(default_factory=dict)
    scores: Mapping[str, NewestScores] = field(default_factory=dict)
    judged: RunVerdicts = field(default_factory=RunVerdicts)
    clashes: tuple[Source, ...] = ()
    windows: tuple[WindowScores, ...] = ()


class Watching:
    """Looks at all runs. One thread owns it; time is an argument.

    Args:
        mode: of the alerts of this collector.
        judging: what the hangs are judged by.
        is_acknowledged: whether somebody has taken note of the hang of a run and group.
    """

    def __init__(
        self, mode: Mode, judging: HangSettings, is_acknowledged: Callable[[str, str], bool]
    ) -> None:
        self._mode = mode
        self._judging = judging
        self._is_acknowledged = is_acknowledged
        self._known: dict[tuple[str, str], _Known] = {}
        self._collector = self._cluster = ""

    def sign(self, collector_id: str, cluster: str) -> None:
        """Set the labels that every alert carries."""
        self._collector, self._cluster = collector_id, cluster

    def watched(
        self, runs: Iterable[RunSeen], under_maintenance: frozenset[str], now_s: float
    ) -> FleetStatus:
        """Everything at ``now_s``. Cost: see above."""
        known, self._known = self._known, {}
        found = [
            self._run(seen, group, under_maintenance, known, now_s)
            for seen in runs
            for group in _groups(seen)
        ]
        return FleetStatus(
            now_s=now_s,
            collector=self._collector,
            cluster=self._cluster,
            pages=self._mode == "page",
            runs=tuple(found),
            under_maintenance=under_maintenance,
        )

    def _run(
        self,
        seen: RunSeen,
        group: str,
        under_maintenance: frozenset[str],
        known: Mapping[tuple[str, str], _Known],
        now_s: float,
    ) -> RunStatus:
        world = seen.worlds.get(group, _NOBODY)
        found = seen.found.get(group)
        scores = seen.scores.get(group, NewestScores())
        blame = _blame(found)
        is_taken = self._is_acknowledged(seen.run_id, group)
        waited_for = _no_ranks() if blame is None or is_taken else blame.ranks
        key = seen.run_id, group
        its = self._known[key] = known.get(key) or _Known(HungRun(self._judging))
        hangs = found is not None and its.hung.look(found, now_s)
        return RunStatus(
            run_id=seen.run_id,
            job=seen.jobs.get(group, ""),
            group=group,
            team=team_of(world),
            attempt=world.attempt,
            pages=self._may_page(world) and not _are_all_on(world, waited_for, under_maintenance),
            state="starting" if found is None else found.state,
            since_s=None if found is None else found.since_s,
            is_hung=hangs and not is_taken,
            why=None if blame is None else blame.why,
            hang_text="" if blame is None else blame.sentence,
            culprits=_named(blame, world, its.places.take(waited_for)),
            ranks={} if found is None else _counts(found, world),
            last_scored_at_s=scores.at_s,
            scores=scores.lowest,
            verdicts=_verdicts(seen.judged, group),
            data_sections=scores.data_sections,
            slowdown=_slowdown(seen.judged, group),
            clashes=len({(source.group, source.rank) for source in seen.clashes}),
            dropped=dict(world.dropped),
        )

    def _may_page(self, world: World) -> bool:
        return self._mode == "page" and may_page(world)


@dataclass(frozen=True, slots=True)
class _Blame:
    """Why somebody waits, the same as a sentence, and for which ranks, ascending."""

    why: HangKind
    sentence: str
    ranks: Ints


@dataclass(slots=True)
class _Known:
    """What is kept of a run and group from look to look."""

    hung: HungRun
    places: CulpritPlaces = field(default_factory=CulpritPlaces)


_NOBODY = World(attempt=0)


def _groups(seen: RunSeen) -> tuple[str, ...]:
    judged = (verdict.group for verdict in seen.judged.current)
    return tuple(dict.fromkeys((*seen.worlds, *seen.found, *seen.scores, *judged)))


def _blame(found: HangStatus | None) -> _Blame | None:
    """None while nobody waits; what has ended waits for nobody."""
    if found is None or found.blame is None or found.state in ENDS:
        return None
    blame = found.blame
    return _Blame(blame.kind, sentence(found) or "", found.ranks[blame.culprits])


def _no_ranks() -> Ints:
    return np.empty(0, np.int64)


def _named(blame: _Blame | None, world: World, ranks: list[int]) -> tuple[Culprit, ...]:
    if blame is None:
        return ()
    named = []
    for rank in ranks:
        life = world.ranks.get(rank)
        node, role = ("", "") if life is None else (life.source.node, life.source.role)
        named.append(Culprit(rank=rank, node=node, role=role, why=blame.why))
    return tuple(named)


def _are_all_on(world: World, ranks: Ints, nodes: frozenset[str]) -> bool:
    """Whether there are ranks, and all are on these nodes; a rank never heard of is on none."""
    if not nodes or not len(ranks):
        return False
    lives = (world.ranks.get(rank) for rank in ranks.tolist())
    return all(life is not None and life.source.node in nodes for life in lives)


def _counts(found: HangStatus, world: World) -> dict[str, int]:
    """Ranks by state; one that was never heard of is missing, and not starting."""
    counts = np.bincount(found.rank_states, minlength=len(RANK_STATES)).tolist()
    spoken = sum(life.sent_at_s is not None for life in world.ranks.values())
    judged = min(max(len(found.ranks) - spoken, 0), counts[STARTING])
    counts[STARTING] -= judged
    missing = max(judged, world.world_size - len(world.ranks)) if judged else 0
    return {**dict(zip(RANK_STATES, counts, strict=True)), MISSING: missing}


def _verdicts(judged: RunVerdicts, group: str) -> tuple[Verdict, ...]:
    return tuple(
        verdict
        for verdict in judged.current
        if verdict.group == group and verdict.subject_id not in judged.silenced
    )


def _slowdown(judged: RunVerdicts, group: str) -> float:
    return next((world.slowdown for world in judged.worlds if world.group == group), math.nan)
