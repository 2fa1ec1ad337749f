"""Who is stuck and who is lost, of all runs: from signs of life to states.

Ranks that send no heartbeats (spans of another SDK) are not judged: whether they live is not known.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from otel_straggler.collector.liveness import RankLife, World
from otel_straggler.model.observation import NO_STEP, Section
from otel_straggler.model.step_table import StepTable
from otel_straggler.score.hangs.judge import Found, HangJudge
from otel_straggler.score.hangs.settings import HangSettings
from otel_straggler.score.hangs.signs import NO_OPEN_SECTION, NOT_ENDED, Signs
from otel_straggler.semconv import OUTCOMES, STEP_SPAN

_Key = tuple[str, str]
_MOST_SECTIONS = 1_000


class Hangs:
    """The hang judges of all runs and groups. One thread owns it; time is an argument.

    Args:
        settings: for all of them.
    """

    def __init__(self, settings: HangSettings | None = None) -> None:
        self._settings = settings or HangSettings()
        self._judges: dict[_Key, HangJudge] = {}
        self._orders: dict[_Key, tuple[str, ...]] = {}

    def learn(self, table: StepTable) -> None:
        """Take the times of some steps. Cost: see :meth:`Timeouts.learn`."""
        first = table.sources[0]
        key = first.run_id, first.group
        self._judge(key).learn(table, first.attempt)
        names = tuple(section.name for section in table.sections)
        known = self._orders.get(key, ())
        if names != known[: len(names)] and len(names) <= _MOST_SECTIONS:
            self._orders[key] = (*names, *(name for name in known if name not in names))

    def look(self, run_id: str, group: str, world: World, now_s: float) -> Found | None:
        """The states of a world at ``now_s``, on the collector's wall clock; None if no rank of it
        sends signs of life."""
        key = run_id, group
        signs = signs_of(world, self._orders.get(key, ()), now_s)
        return None if signs is None else self._judge(key).look(signs, world.attempt, now_s)

    def forget(self, run_ids: Iterable[str]) -> None:
        gone = set(run_ids)
        for key in [key for key in self._judges if key[0] in gone]:
            del self._judges[key]
            self._orders.pop(key, None)

    def _judge(self, key: _Key) -> HangJudge:
        judge = self._judges.get(key)
        if judge is None:
            judge = self._judges[key] = HangJudge(self._settings)
        return judge


def signs_of(world: World, order: tuple[str, ...], now_s: float) -> Signs | None:
    """What the ranks of a world last said; expected ranks that never spoke are among them.

    Args:
        order: the sections in the order in which they run within a step.
    """
    spoken = {rank: life for rank, life in world.ranks.items() if life.sent_at_s is not None}
    if not spoken:
        return None
    mute = world.ranks.keys() - spoken.keys()
    ranks = sorted(spoken.keys() | (set(range(world.world_size)) - mute))
    names = {name: code for code, name in enumerate(order)}
    sections = [_section(spoken.get(rank), names) for rank in ranks]
    return Signs(
        ranks=np.array(ranks, np.int64),
        silent_s=np.array([_age(spoken.get(rank), "sent_at_s", now_s) for rank in ranks]),
        stalled_s=np.array([_age(spoken.get(rank), "progress_at_s", now_s) for rank in ranks]),
        step=np.array([_step(spoken.get(rank)) for rank in ranks], np.int64),
        section=np.array([code for code, _ in sections], np.int32),
        sections=tuple(names),
        is_working=np.array([is_working for _, is_working in sections]),
        ended=np.array([_ended(spoken.get(rank)) for rank in ranks], np.int32),
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


def _ended(life: RankLife | None) -> int:
    if life is None or life.finished_at_s is None:
        return NOT_ENDED
    return OUTCOMES.index(life.outcome or "unknown")
