"""Who is stuck and who is lost, of all runs: from signs of life to states.

Ranks that send no heartbeats (spans of another SDK) are not judged: whether they live is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from otel_straggler.collector.liveness import World
from otel_straggler.collector.rank_life import RankLife
from otel_straggler.model.observation import NO_STEP, Section
from otel_straggler.model.step_table import StepTable
from otel_straggler.model.verdict import hang_subject
from otel_straggler.score.hangs.detector import HangDetector, HangStatus
from otel_straggler.score.hangs.episodes import Episodes
from otel_straggler.score.hangs.states import NO_OPEN_SECTION, NOT_ENDED, HeartbeatTable
from otel_straggler.score.settings import HangSettings
from otel_straggler.semconv import OUTCOMES, STEP_SPAN

_Key = tuple[str, str]
_MOST_SECTIONS = 1_000
_MOST_KEPT = 100
"""Worlds of which a state tells; those that learnt last."""
MOST_UNHEARD = 16_384
"""Expected ranks that never spoke and are judged all the same, the lowest first. A process that
tells a wrong world size must not make the collector look at two billion of them."""
_STATE_VERSION = 1
_PREEMPTED = OUTCOMES.index("preempted")


class Hangs:
    """The hang judges of all runs and groups. One thread owns it; time is an argument.

    Args:
        settings: for all of them.
    """

    def __init__(self, settings: HangSettings | None = None) -> None:
        self._settings = settings or HangSettings()
        self._judges: dict[str, dict[str, HangDetector]] = {}
        self._orders: dict[_Key, tuple[str, ...]] = {}
        self._learnt: dict[_Key, None] = {}
        self._newest: dict[str, dict[str, HangStatus]] = {}
        self._past: dict[_Key, Episodes] = {}

    def learn(self, table: StepTable) -> None:
        """Take the times of some steps. Cost: see :meth:`Timeouts.learn`."""
        first = table.sources[0]
        key = first.run_id, first.group
        self._judge(key).learn(table, first.attempt)
        self._learnt.pop(key, None)
        self._learnt[key] = None  # the newest last
        names = tuple(section.name for section in table.sections)
        known = self._orders.get(key, ())
        if names != known[: len(names)] and len(names) <= _MOST_SECTIONS:
            self._orders[key] = (*names, *(name for name in known if name not in names))

    def look(self, run_id: str, group: str, world: World, now_s: float) -> HangStatus | None:
        """The states of a world at ``now_s``, on the collector's wall clock; None if no rank of it
        sends signs of life."""
        key = run_id, group
        signs = signs_of(world, self._orders.get(key, ()), now_s, self._settings.lost_after_s)
        if signs is None:
            return None
        found = self._judge(key).look(signs, world.attempt, now_s)
        self._newest.setdefault(run_id, {})[group] = found
        return found

    def move(self, by_s: float) -> None:
        """The collector's clock was set by so much."""
        for judges in self._judges.values():
            for judge in judges.values():
                judge.move(by_s)

    def hung(self, run_id: str) -> dict[str, int]:
        """Since when (ns) which worlds of a run are stuck or lost, by subject of a decision."""
        return {
            hang_subject(group): int(found.hung_since_s * 1e9)
            for group, found in self._newest.get(run_id, {}).items()
            if found.is_hung
        }

    def idle_gpu_s(self, run_id: str) -> dict[str, float]:
        """GPU seconds that hangs have cost so far, by group; only of those that ever hung."""
        return {
            group: judge.idle_gpu_s
            for group, judge in self._judges.get(run_id, {}).items()
            if judge.idle_gpu_s > 0.0
        }

    def forget(self, run_ids: Iterable[str]) -> None:
        """A run that comes back, as another attempt, still has its earlier hangs."""
        for run_id in run_ids:
            for group in [*self._judges.get(run_id, ())]:
                self.forget_group(run_id, group)
            self._newest.pop(run_id, None)
            self._judges.pop(run_id, None)

    def forget_group(self, run_id: str, group: str) -> None:
        """The same for one world."""
        self._newest.get(run_id, {}).pop(group, None)
        self._orders.pop((run_id, group), None)
        self._learnt.pop((run_id, group), None)
        judge = self._judges.get(run_id, {}).pop(group, None)
        if judge is not None and judge.episodes:
            self._past[run_id, group] = judge.episodes
        while len(self._past) > _MOST_KEPT:
            self._past.pop(next(iter(self._past)))

    # --- over restarts of the collector ------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """What was learnt of the 100 worlds that learnt last, in JSON's types only. One that has
        hung and learnt nothing is among them."""
        hung = [
            (run_id, group)
            for run_id, judges in self._judges.items()
            for group, judge in judges.items()
            if judge.episodes and (run_id, group) not in self._learnt
        ]
        keys = [*hung, *self._learnt]
        return {
            "version": _STATE_VERSION,
            "past": [[*key, episodes.state()] for key, episodes in self._past.items()],
            "worlds": [
                {
                    "run_id": key[0],
                    "group": key[1],
                    "order": list(self._orders.get(key, ())),
                    "judge": self._judge(key).state(),
                }
                for key in keys[-_MOST_KEPT:]
            ],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from :meth:`state`.

        Raises:
            ValueError, KeyError, TypeError: it is none; nothing is taken then.
        """
        if state["version"] != _STATE_VERSION:
            msg = f"version {state['version']!r}"
            raise ValueError(msg)
        judges: dict[_Key, HangDetector] = {}
        orders: dict[_Key, tuple[str, ...]] = {}
        for world in state["worlds"][-_MOST_KEPT:]:
            key = str(world["run_id"]), str(world["group"])
            judges[key] = HangDetector(self._settings)
            judges[key].restore(world["judge"])
            orders[key] = tuple(str(name) for name in world["order"][:_MOST_SECTIONS])
        past = {
            (str(run_id), str(group)): Episodes.restored(told)
            for run_id, group, told in state.get("past", ())[-_MOST_KEPT:]
        }
        self._past.update(past)
        for (run_id, group), judge in judges.items():
            self._judges.setdefault(run_id, {})[group] = judge
        self._orders.update(orders)
        self._learnt.update(dict.fromkeys(judges))

    def _judge(self, key: _Key) -> HangDetector:
        run_id, group = key
        judges = self._judges.setdefault(run_id, {})
        judge = judges.get(group)
        if judge is None:
            judge = judges[group] = HangDetector(self._settings)
            judge.episodes = self._past.pop(key, judge.episodes)
        return judge


def signs_of(
    world: World, order: tuple[str, ...], now_s: float, lost_after_s: float = 20.0
) -> HeartbeatTable | None:
    """What the ranks of a world last said; expected ranks that never spoke are among them, as far
    as :data:`MOST_UNHEARD`.

    Args:
        order: the sections in the order in which they run within a step.
        lost_after_s: a rank that was told to end, and is silent for longer, has ended.
    """
    spoken = {rank: life for rank, life in world.ranks.items() if life.sent_at_s is not None}
    if not spoken:
        return None
    unheard = (rank for rank in range(world.world_size) if rank not in world.ranks)
    ranks = sorted((*spoken, *islice(unheard, MOST_UNHEARD)))
    names = {name: code for code, name in enumerate(order)}
    sections = [_section(spoken.get(rank), names) for rank in ranks]
    ends = [_end(spoken.get(rank), now_s, lost_after_s) for rank in ranks]
    nodes: dict[str, int] = {}
    return HeartbeatTable(
        ranks=np.array(ranks, np.int64),
        silent_s=np.array([_age(spoken.get(rank), "sent_at_s", now_s) for rank in ranks]),
        stalled_s=np.array([_age(spoken.get(rank), "progress_at_s", now_s) for rank in ranks]),
        step=np.array([_step(spoken.get(rank)) for rank in ranks], np.int64),
        section=np.array([code for code, _ in sections], np.int32),
        sections=tuple(names),
        is_working=np.array([is_working for _, is_working in sections]),
        ended=np.array([code for code, _ in ends], np.int32),
        ended_s=np.array([age_s for _, age_s in ends]),
        node=np.array([_node(spoken.get(rank), nodes) for rank in ranks], np.int32),
        began_s=np.array([_age(spoken.get(rank), "first_sent_at_s", now_s) for rank in ranks]),
        first_step=np.array([_first_step(spoken.get(rank)) for rank in ranks], np.int64),
        nodes=tuple(nodes),
    )


def _section(life: RankLife | None, names: dict[str, int]) -> tuple[int, bool]:
    """Code of the open section, and whether anything is open; a new name joins the others."""
    if life is None or not life.open_section:
        return NO_OPEN_SECTION, False
    if life.open_section == STEP_SPAN:
        return NO_OPEN_SECTION, True
    name = Section(life.open_section).in_phase(life.phase).name
    return names.setdefault(name, len(names)), True


def _age(life: RankLife | None, which: str, now_s: float) -> float:
    at_s = None if life is None else life.here(getattr(life, which))
    return float("nan") if at_s is None else max(now_s - at_s, 0.0)


def _step(life: RankLife | None) -> int:
    return NO_STEP if life is None or life.step is None else life.step


def _first_step(life: RankLife | None) -> int:
    return NO_STEP if life is None or life.first_step is None else life.first_step


def _node(life: RankLife | None, nodes: dict[str, int]) -> int:
    return -1 if life is None else nodes.setdefault(life.source.node, len(nodes))


def _end(life: RankLife | None, now_s: float, lost_after_s: float) -> tuple[int, float]:
    """How a rank has ended, and how long ago."""
    if life is not None and life.finished_at_s is not None:
        code = OUTCOMES.index(life.outcome or "unknown")
        return code, _age(life, "finished_at_s", now_s)
    silent_s = _age(life, "sent_at_s", now_s)
    if life is not None and life.is_ending and silent_s > lost_after_s:
        return _PREEMPTED, silent_s
    return NOT_ENDED, float("nan")
