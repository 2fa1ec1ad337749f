"""Runs over their restarts: worlds one after the other, on the same ranks or others, told by one
course of signs of life."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Literal

import numpy as np

from otel_straggler.detect.hangs.states import HeartbeatTable
from otel_straggler.model.step_table import StepTable
from otel_straggler.semconv import Outcome

from .hang_worlds import (
    HangFault,
    HangPlan,
    HangWorld,
    Unheard,
    random_plan,
)

Restart = Literal["attempt", "session", "renumbered", "shrunk", "grown"]
RESTARTS: tuple[Restart, ...] = ("attempt", "session", "renumbered", "shrunk", "grown")
_TABLES = ("sections", "nodes")
"""Of signs, what is no column."""
_BARELY_S = 8.0
"""Ranks that end without a word are back before anybody calls them lost."""


@dataclass(slots=True)
class HangCourse:
    """Worlds in order.

    Attributes:
        worlds, attempts: the last one may hang.
        begins_s: when each begins.
    """

    worlds: list[HangWorld]
    attempts: list[int]
    begins_s: list[float] = field(default_factory=lambda: [0.0])

    @property
    def ends_at_s(self) -> float:
        return self.begins_s[-1] + self.worlds[-1].ends_at_s

    @property
    def hung_at_s(self) -> float:
        return self.begins_s[-1] + self.worlds[-1].hung_at_s

    @property
    def culprits(self) -> tuple[int, ...]:
        return self.worlds[-1].culprits

    @property
    def heartbeat_s(self) -> float:
        return self.worlds[-1].plan.heartbeat_s

    def attempt(self, now_s: float) -> int:
        """Which attempt is the newest."""
        return self.attempts[self._at(now_s)]

    def heartbeats(self, now_s: float) -> HeartbeatTable:
        """What the ranks have said by now; who has not spoken since a restart within the attempt
        has the last word of its predecessor."""
        at = self._at(now_s)
        heartbeats = self.worlds[at].heartbeats(now_s - self.begins_s[at])
        is_mute = np.isnan(heartbeats.silent_s)
        if not is_mute.any() or at == 0 or self.attempts[at] != self.attempts[at - 1]:
            return heartbeats
        before = self.worlds[at - 1].heartbeats(now_s - self.begins_s[at - 1])
        columns = {}
        for column in fields(HeartbeatTable):
            now, then = getattr(heartbeats, column.name), getattr(before, column.name)
            columns[column.name] = now if column.name in _TABLES else np.where(is_mute, then, now)
        return HeartbeatTable(**columns)

    def tables(self, now_s: float) -> Iterator[StepTable]:
        """The tables of steps that were complete by then; each once."""
        at = self._at(now_s)
        return self.worlds[at].tables(now_s - self.begins_s[at])

    def _at(self, now_s: float) -> int:
        return int(np.searchsorted(self.begins_s, now_s, side="right")) - 1


def random_course(seed: int, fault: HangFault | None = None) -> HangCourse:
    """One to three worlds of a run: each restart is of another kind, after another end; the last
    world ends in any way, or hangs."""
    rng = np.random.default_rng([seed, 78])
    plan = random_plan(seed)
    course = HangCourse([], [])
    attempt = 0
    for number in range(int(rng.integers(0, 3))):
        steps = int(rng.integers(20, 80))
        end, unheard = _ending(rng, plan)
        reported = replace(plan, seed=seed + 1_000 * number, steps=steps, end=end, unheard=unheard)
        course.worlds.append(HangWorld(reported))
        course.attempts.append(attempt)
        pause_s = _BARELY_S if end is None else float(rng.uniform(1.0, 60.0))
        course.begins_s.append(course.begins_s[-1] + course.worlds[-1].ends_at_s + pause_s)
        restart: Restart = rng.choice(np.array(RESTARTS)).item()
        attempt += restart not in {"session", "renumbered"}
        resumed = plan.first_step + steps - int(rng.integers(0, min(steps, 20)))
        plan = _restarted(plan, restart, resumed, session=f"{number + 1}-")
    if fault is not None:
        at_step = int(rng.integers(60, plan.steps - 20))
        plan = replace(plan, fault=fault, at_step=at_step, unheard="")
    course.worlds.append(HangWorld(plan))
    course.attempts.append(attempt)
    return course


def _ending(rng: np.random.Generator, plan: HangPlan) -> tuple[Outcome | None, Unheard]:
    """How a world ends before a restart. Without a word only if all ranks do so at once."""
    if plan.end_spread_s < 1.0 and rng.random() < 0.3:
        return None, ""
    end: Outcome = rng.choice(["preempted", "preempted", "failed"]).item()
    return end, rng.choice(["", "node", "some"]).item()


def _restarted(plan: HangPlan, restart: Restart, first_step: int, session: str) -> HangPlan:
    """The same job, from its last checkpoint, with other ranks or places."""
    ranks = {"shrunk": plan.ranks * 3 // 4, "grown": plan.ranks * 5 // 4}.get(restart, plan.ranks)
    is_reversed = plan.is_reversed != (restart == "renumbered")
    return replace(
        plan, ranks=ranks, first_step=first_step, session=session, is_reversed=is_reversed
    )
