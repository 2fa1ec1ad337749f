"""Ranks that send heartbeats to a worker over a network of their own, by a clock that the test
moves: they restart, move, are renumbered, have wrong clocks; heartbeats come late or twice."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from otel_straggler.collector.ingest.intake import ByteBudget
from otel_straggler.collector.worker import Worker
from otel_straggler.detect.hangs.states import RANK_STATES
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.metric_rules import DecodedMetrics

BEAT_S = 5.0
_SESSIONS = itertools.count(1)
DeliveredAfter = Callable[[], Iterable[float]]


def at_once() -> Iterable[float]:
    return (0.01,)


@dataclass(slots=True)
class Rank:
    """One process."""

    source: Source
    begun_at_s: float
    step: int | None = None
    progress_at_s: float = 0.0
    section: str = ""
    phase: str = ""
    clock_s: float = 0.0  # ahead of the collector's
    delivered_after: DeliveredAfter = at_once  # one delay for each copy of a heartbeat


@dataclass(slots=True)
class Cluster:
    """Ranks of a run; healthy ones must never be called stuck or lost."""

    kit: Any
    now_s: float = 1.79e9
    ranks: dict[tuple[str, int], Rank] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    _worker: Worker = field(init=False)
    _transit: list[tuple[float, int, Heartbeat]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._worker = Worker(
            self.kit.settings(),
            ByteBudget(1 << 30),
            monotonic_ns=lambda: int(self.now_s * 1e9),
            wall_s=lambda: self.now_s,
        )
        self._worker.sign("c")

    # --- what happens -----------------------------------------------------------------------

    def begin(self, world_size: int, *, nodes: Any = None, **source: Any) -> None:
        """New processes for all ranks of a world: those before are gone without a word."""
        group = source.get("group", "")
        for key in [key for key in self.ranks if key[0] == group]:
            del self.ranks[key]
        for number in range(world_size):
            node = f"node-{number // 2}" if nodes is None else nodes[number]
            self.replace(number, world_size, node=node, **source)

    def replace(self, number: int, world_size: int, *, clock_s: float = 0.0, **source: Any) -> None:
        """A new process for one rank."""
        values = {"run_id": "run", "session_id": f"{next(_SESSIONS):016x}", **source}
        made = Source(rank=number, world_size=world_size, **values)
        self.ranks[made.group, number] = Rank(made, self.now_s, clock_s=clock_s)

    def start(self, step: int = 0, *, loads_s: float = 40.0, compiles_s: float = 600.0) -> None:
        """All import and load, and compile in their first step; then they train."""
        self.live(loads_s)
        for rank in self.ranks.values():
            rank.step = step
            self.progress(rank)
        self.live(compiles_s)
        self.train(40.0)

    def train(self, seconds: float, *, group: str | None = None) -> None:
        """A step a second, in a section at every heartbeat."""
        moving = [r for r in self.ranks.values() if group in (None, r.source.group)]
        self.live(seconds, moving)

    def live(self, seconds: float, moving: Iterable[Rank] = ()) -> None:
        """Time passes; who does not move says so."""
        moving = list(moving)
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += BEAT_S
            for rank in moving:
                rank.step = (rank.step or 0) + int(BEAT_S)
                self.progress(rank)
            for rank in self.ranks.values():
                self._send(rank)
            self._deliver()

    def progress(self, rank: Rank) -> None:
        rank.progress_at_s = self.now_s
        rank.section = "forward"

    def learn(self, seconds: Iterable[float] = (0.1,) * 60) -> None:
        """Spans of all ranks: how long their section takes, step by step."""
        lengths = list(seconds)
        for rank in self.ranks.values():
            for long, some in itertools.groupby(enumerate(lengths), lambda one: one[1]):
                steps = [number for number, _ in some]
                spans = self.kit.spans_of(rank.source, steps, {"forward": long})
                self._worker.ingest(SpanDecoder().decode(spans), 0)
        self._worker.process_queued()
        self.now_s += 30.0
        self._worker.tick()
        for rank in self.ranks.values():
            rank.step = max(rank.step or 0, len(lengths))
            self.progress(rank)

    def hang(self, number: int, seconds: float = 100.0, group: str = "") -> dict[str, Any]:
        """A rank does not join a step in which the others wait: what is said of it."""
        culprit = self.ranks[group, number]
        others = [r for r in self.ranks.values() if r is not culprit and r.source.group == group]
        others_train = [r for r in self.ranks.values() if r.source.group != group]
        self.live(BEAT_S, [*others, *others_train])
        self.live(seconds, others_train)
        return self.look(group)

    # --- what is seen -----------------------------------------------------------------------

    def look(self, group: str = "") -> dict[str, Any]:
        report = json.loads(self._worker.snapshot.report())
        worlds: dict[str, Any] = {w["group"]: w for w in report["runs"]["run"]["liveness"]}
        its: dict[str, Any] = worlds[group]
        return its

    def age_s(self, number: int) -> float:
        """How long ago a rank lived, as the collector sees it."""
        life = self._worker.snapshot.runs["run"].worlds[""].ranks[number]
        at_s = life.here(life.sent_at_s)
        assert at_s is not None
        return self.now_s - at_s

    def _send(self, rank: Rank) -> None:
        beat = Heartbeat(
            source=rank.source,
            sent_at_s=self.now_s + rank.clock_s,
            progress_at_s=(rank.progress_at_s or rank.begun_at_s) + rank.clock_s,
            step=rank.step,
            open_section=rank.section,
            open_time_s=1.0 if rank.section else None,
            phase=rank.phase,
        )
        for delay_s in rank.delivered_after():
            self._transit.append((self.now_s + delay_s, len(self._transit), beat))

    def _deliver(self) -> None:
        """What has arrived by the next heartbeat, each at its time; then what is shown."""
        began_s = self.now_s
        due = sorted(one for one in self._transit if one[0] < began_s + BEAT_S)
        self._transit = [one for one in self._transit if one[0] >= began_s + BEAT_S]
        for at_s, _, beat in due:
            self.now_s = max(at_s, began_s)
            self._worker.ingest(DecodedMetrics(heartbeats=(beat,), points={}), 0)
            self._worker.process_queued()
        self.now_s = began_s + BEAT_S - 0.01
        self._worker.show_soon()
        self._worker.tick()
        self.now_s = began_s
        for result in self._founds():
            self.seen.add(result.state)
            self.seen.update(RANK_STATES[code] for code in np.unique(result.rank_states))

    def _founds(self) -> Iterable[Any]:
        return self._worker.snapshot.runs["run"].hangs.values()


def late_by(seconds: float) -> DeliveredAfter:
    """Mostly at once, now and then so much later."""
    rng = random.Random(5)
    return lambda: (seconds if rng.random() < 0.2 else 0.05,)


def twice_and_out_of_order() -> DeliveredAfter:
    """Each comes two times, in any order within twelve seconds."""
    rng = random.Random(7)
    return lambda: (rng.uniform(0.0, 12.0), rng.uniform(0.0, 12.0))
