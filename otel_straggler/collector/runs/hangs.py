"""The hang detector of one world, and which of its culprits are named: at most 20, and a named one
stays named, since an alert on a rank must not end because another rank is lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import Any, Final

import numpy as np

from otel_straggler.collector.runs.liveness import WorldStatus
from otel_straggler.collector.runs.rank_status import RankStatus
from otel_straggler.detect.hangs.collectives import HangFindings
from otel_straggler.detect.hangs.detector import HangDetector, HangStatus
from otel_straggler.detect.hangs.episodes import Episodes
from otel_straggler.detect.hangs.states import (
    HANGS,
    NO_OPEN_SECTION,
    NOT_ENDED,
    HeartbeatTable,
)
from otel_straggler.detect.scores.settings import HangSettings
from otel_straggler.model.alert import MAX_NAMED
from otel_straggler.model.observation import NO_STEP, Ints, Section
from otel_straggler.model.step_table import StepTable
from otel_straggler.semconv import OUTCOMES, STEP_SPAN


@dataclass(slots=True)
class NamedCulprits:
    """The culprits of one world, each with the evaluation in which it became one."""

    _joined: dict[int, int] = field(default_factory=dict)
    _evaluations: int = 0

    def select(self, ranks: Ints) -> list[int]:
        """The culprits to name now, of all (``ranks``, ascending): the oldest, then by rank."""
        self._evaluations += 1
        joined = {rank: self._joined.get(rank, self._evaluations) for rank in ranks.tolist()}
        self._joined = joined
        return self.named

    @property
    def named(self) -> list[int]:
        """Those selected last."""
        joined = self._joined
        return sorted(nsmallest(MAX_NAMED, joined, key=lambda rank: (joined[rank], rank)))

    @classmethod
    def restored(cls, named: Iterable[int]) -> NamedCulprits:
        """Those that were named before stay so before all others."""
        return cls(dict.fromkeys(named, 0))


MAX_SECTIONS: Final = 1_000
MAX_UNHEARD: Final = 16_384
"""Expected ranks that never reported but are evaluated, the lowest first. A wrong world size must
not make the collector look at two billion of them."""
_PREEMPTED = OUTCOMES.index("preempted")


class WorldHangs:
    """The hang detector of one world. One thread owns it; time is an argument.

    Attributes:
        newest: the newest evaluation, in times of the wall clock; None before the first.
        learned_at: larger for a world that learned later; 0 if it has learned nothing.
    """

    def __init__(self, settings: HangSettings) -> None:
        self._settings = settings
        self._detector = HangDetector(settings)
        self._order: tuple[str, ...] = ()
        self.newest: HangStatus | None = None
        self.learned_at = 0

    def learn(self, table: StepTable, number: int) -> None:
        """Learn from step times; ``number`` grows with each call."""
        self._detector.learn(table, table.sources[0].attempt)
        self.learned_at = number
        names = tuple(section.name for section in table.sections)
        known = self._order
        if names != known[: len(names)] and len(names) <= MAX_SECTIONS:
            self._order = (*names, *(name for name in known if name not in names))

    @property
    def lost_after_s(self) -> float:
        return self._settings.lost_after_s

    def evaluate(
        self,
        world: WorldStatus,
        now_s: float,
        ahead_s: float = 0.0,
        findings: HangFindings | None = None,
    ) -> HangStatus | None:
        """The states at ``now_s``; None if no rank sends heartbeats. Cost: O(ranks).

        Args:
            ahead_s: what the wall clock shows beyond ``now_s``.
            findings: what flight records say of the present hang.
        """
        table = heartbeat_table(world, self._order, now_s, self._settings.lost_after_s)
        if table is None:
            return None
        newest = self._detector.evaluate(table, world.attempt, now_s, findings)
        self.newest = newest.on_clock(ahead_s)
        return self.newest

    @property
    def lasts(self) -> bool:
        """Whether the world hangs or has failed: what stays so though nobody reports any more."""
        return self.newest is not None and self.newest.state in (*HANGS, "failed")

    @property
    def hung_since_ns(self) -> int | None:
        """Since when the world is stuck or lost; None if neither."""
        newest = self.newest
        return None if newest is None or not newest.is_hung else int(newest.hung_since_s * 1e9)

    @property
    def idle_gpu_s(self) -> float:
        """GPU seconds that hangs have cost so far."""
        return self._detector.idle_gpu_s

    @property
    def episodes(self) -> Episodes:
        """Hangs of before, and the one that lasts."""
        return self._detector.episodes

    def for_next_attempt(self) -> WorldHangs | None:
        """The earlier hangs of an evicted world, which may come back as another attempt; None if
        there were none."""
        if not self.episodes:
            return None
        later = WorldHangs(self._settings)
        later._detector.episodes = self.episodes
        return later

    # --- over restarts of the collector ------------------------------------------------------

    def state(self, ahead_s: float) -> dict[str, Any]:
        """In JSON's types, with times of the wall clock."""
        return {"order": list(self._order), "judge": self._detector.state(ahead_s)}

    def restore(self, state: Mapping[str, Any], number: int) -> None:
        """Go on from :meth:`state`.

        Raises:
            ValueError, KeyError, TypeError: it is none.
        """
        self._detector.restore(state["judge"])
        self._order = tuple(str(name) for name in state["order"][:MAX_SECTIONS])
        self.learned_at = number

    def present(self, ahead_s: float) -> dict[str, Any]:
        """What :meth:`resume` needs besides :attr:`newest`."""
        return self._detector.present(ahead_s)

    def resume(self, newest: HangStatus, present: Mapping[str, Any], now_s: float) -> None:
        """Go on in the states of an evaluation of the last process, after :meth:`restore`; raises
        as that does."""
        self._detector.resume(newest, present, now_s)
        self.newest = newest

    def restore_episodes(self, state: Mapping[str, Any]) -> None:
        """Only the earlier hangs; raises as :meth:`restore`."""
        self._detector.episodes = Episodes.restored(state)


def heartbeat_table(
    world: WorldStatus, order: tuple[str, ...], now_s: float, lost_after_s: float = 20.0
) -> HeartbeatTable | None:
    """The last heartbeats of the ranks of a world, including up to :data:`MAX_UNHEARD` expected
    ranks that never reported; None without any.

    Args:
        order: sections in their order within a step.
        lost_after_s: a rank that got SIGTERM, and is silent for longer, has ended.
    """
    spoken = {rank: status for rank, status in world.ranks.items() if status.sent_at_s is not None}
    if not spoken:
        return None
    unheard = (rank for rank in range(world.world_size) if rank not in world.ranks)
    ranks = sorted((*spoken, *islice(unheard, MAX_UNHEARD)))
    statuses = [spoken.get(rank) for rank in ranks]
    names = {name: code for code, name in enumerate(order)}
    sections = [_section(status, names) for status in statuses]
    ends = [_end(status, now_s, lost_after_s) for status in statuses]
    nodes: dict[str, int] = {}
    return HeartbeatTable(
        ranks=np.array(ranks, np.int64),
        silent_s=np.array([_silent_s(status, now_s) for status in statuses]),
        stalled_s=np.array([_age(status, "progress_at_s", now_s) for status in statuses]),
        step=np.array([_step(status, "step") for status in statuses], np.int64),
        section=np.array([code for code, _ in sections], np.int32),
        sections=tuple(names),
        is_working=np.array([is_working for _, is_working in sections]),
        ended=np.array([code for code, _ in ends], np.int32),
        ended_s=np.array([age_s for _, age_s in ends]),
        node=np.array([_node(status, nodes) for status in statuses], np.int32),
        began_s=np.array([_age(status, "first_sent_at_s", now_s) for status in statuses]),
        first_step=np.array([_step(status, "first_step") for status in statuses], np.int64),
        nodes=tuple(nodes),
    )


def _section(status: RankStatus | None, names: dict[str, int]) -> tuple[int, bool]:
    """Code of the open section, and whether anything is open; a new name joins the others."""
    if status is None or not status.open_section:
        return NO_OPEN_SECTION, False
    if status.open_section == STEP_SPAN:
        return NO_OPEN_SECTION, True
    name = Section(status.open_section).in_phase(status.phase).name
    return names.setdefault(name, len(names)), True


def _silent_s(status: RankStatus | None, now_s: float) -> float:
    return float("nan") if status is None else status.silent_s(now_s)


def _age(status: RankStatus | None, which: str, now_s: float) -> float:
    at_s = None if status is None else status.here(getattr(status, which))
    return float("nan") if at_s is None else max(now_s - at_s, 0.0)


def _step(status: RankStatus | None, which: str) -> int:
    step: int | None = getattr(status, which, None)
    return NO_STEP if step is None else step


def _node(status: RankStatus | None, nodes: dict[str, int]) -> int:
    return -1 if status is None else nodes.setdefault(status.source.node, len(nodes))


def _end(status: RankStatus | None, now_s: float, lost_after_s: float) -> tuple[int, float]:
    """How a rank has ended, and how long ago."""
    if status is not None and status.finished_at_s is not None:
        code = OUTCOMES.index(status.outcome or "unknown")
        return code, _age(status, "finished_at_s", now_s)
    silent_s = _silent_s(status, now_s)
    if status is not None and status.is_ending and silent_s > lost_after_s:
        return _PREEMPTED, silent_s
    return NOT_ENDED, float("nan")
