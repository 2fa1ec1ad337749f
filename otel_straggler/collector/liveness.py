"""Who is alive, how far, and who has ended: whose word counts for a rank, and for a world."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from otel_straggler.collector.rank_life import MOST_REASONS, RankLife
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.wire.span_rules import Progress

_CLASH_SHOWN_S = 60.0
_CLASH_TOLERANCE_S = 5.0
_SILENT_S = 15.0
"""A session that looks older, perhaps by a wrong clock, takes over from one that is silent for so
long: before that one is called lost."""
_OUTLIVES_S = 10.0
"""Ranks that go on for so long after their world is said to have shrunk have not gone with it."""
_MOST_RETIRED = 10_000


@dataclass(slots=True)
class _Retired:
    """A session that a newer one has replaced, and whether it still speaks.

    ``by_world_size`` is what the newer one takes for the size of the world; 0 if it does not say.
    """

    source: Source
    was_current: bool
    by_world_size: int = 0
    clashed_at_s: float | None = None


@dataclass(slots=True)
class World:
    """The ranks of one (run, group) in its newest attempt.

    ``began_at_s`` is when it was first heard of here; ``outliving`` are the ranks that go on though
    it is said to have shrunk to less: since when, and when they were last heard of. ``dropped`` is
    what all its sessions have lost while they were heard here, by reason; it never shrinks.
    ``n_words`` counts what was heard: whatever is known here stays the same while it does.
    """

    attempt: int
    began_at_s: float = 0.0
    world_size: int = 0
    sized_at_s: float = 0.0
    ranks: dict[int, RankLife] = field(default_factory=dict)
    retired: dict[tuple[int, str, str], _Retired] = field(default_factory=dict)
    outliving: dict[int, tuple[float, float]] = field(default_factory=dict)
    touched_at_s: float = 0.0
    n_words: int = 0
    dropped: dict[str, int] = field(default_factory=dict)

    def count_losses(self, grown: Mapping[str, int]) -> None:
        for reason, count in grown.items():
            if reason in self.dropped or len(self.dropped) < MOST_REASONS:
                self.dropped[reason] = self.dropped.get(reason, 0) + count

    def move(self, by_s: float) -> None:
        """The collector's clock was set by so much."""
        self.n_words += 1  # what was made of its times is not kept
        self.began_at_s += by_s
        self.touched_at_s += by_s
        for life in self.ranks.values():
            life.move(by_s)
        for retired in self.retired.values():
            if retired.clashed_at_s is not None:
                retired.clashed_at_s += by_s
        self.outliving = {
            rank: (since_s + by_s, heard_s + by_s)
            for rank, (since_s, heard_s) in self.outliving.items()
        }

    @property
    def finished_at_s(self) -> float | None:
        """When the last rank ended (collector's clock); None while one has not. From any thread:
        what is read is a copy, made in one step."""
        lives = list(self.ranks.copy().values())
        expected = self.world_size or len(lives)
        ends = [life.here(life.finished_at_s) for life in lives]
        known = [end for end in ends if end is not None]
        return max(known) if known and len(known) >= expected == len(ends) else None

    @property
    def page(self) -> bool:
        """Whether people may be called for it: unless a rank said no."""
        return all(life.page is not False for life in self.ranks.values())

    @property
    def reports_gpu(self) -> bool:
        """Whether any rank told of a GPU that it computes on. Cost: O(ranks) at most."""
        return any(life.source.reports_gpu for life in self.ranks.values())

    @property
    def team(self) -> str:
        """Whose it is, by the first rank that says it; empty if none does."""
        return next((life.team for _, life in sorted(self.ranks.items()) if life.team), "")


class Liveness:
    """The worlds of all runs. One thread owns it; time is an argument."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, World]] = {}

    def take_heartbeat(self, beat: Heartbeat, now_s: float) -> bool:
        """Take a sign of life; True if it is of the newest session of a live rank."""
        sent_at_s = beat.sent_at_s if beat.sent_at_s is not None else now_s
        life = self._life_of(beat.source, sent_at_s, now_s)
        if life is None:
            return False
        world = self._runs[beat.source.run_id][beat.source.group]
        world.count_losses(life.take_losses(beat.dropped))
        life.take(beat, now_s)
        return True

    def take_progress(self, source: Source, progress: Progress, now_s: float) -> None:
        """Take what the spans of a source say."""
        life = self._life_of(source, progress.end_ns * 1e-9, now_s)
        if life is not None:
            life.take_progress(source, progress, now_s)

    def move(self, by_s: float) -> None:
        """The collector's clock was set by so much."""
        for worlds in self._runs.values():
            for world in worlds.values():
                world.move(by_s)

    def worlds(self, run_id: str) -> dict[str, World]:
        """The worlds of a run by group; a copy."""
        return dict(self._runs.get(run_id, ()))

    def source_of(self, run_id: str, group: str, rank: int) -> Source | None:
        """The newest session of a rank that sends heartbeats and has not ended; from any thread:
        each look-up is one step."""
        world = self._runs.get(run_id, {}).get(group)
        life = None if world is None else world.ranks.get(rank)
        if life is None or life.sent_at_s is None or life.finished_at_s is not None:
            return None
        return life.source

    def ranks_of(self, run_id: str, group: str) -> list[int]:
        """Those that :meth:`source_of` knows; from any thread."""
        world = self._runs.get(run_id, {}).get(group)
        ranks = [] if world is None else sorted(world.ranks)
        return [rank for rank in ranks if self.source_of(run_id, group, rank) is not None]

    def runs(self) -> tuple[str, ...]:
        return tuple(self._runs)

    def clashes(self, run_id: str, now_s: float) -> Iterator[Source]:
        """Sessions that went on within the last minute though a newer one claims their rank."""
        for world in self._runs.get(run_id, {}).values():
            for retired in world.retired.values():
                at_s = retired.clashed_at_s
                if at_s is not None and now_s - at_s < _CLASH_SHOWN_S:
                    yield retired.source

    def heard(self) -> dict[str, float]:
        """When each run was last heard of."""
        return {
            run_id: max((world.touched_at_s for world in worlds.values()), default=0.0)
            for run_id, worlds in self._runs.items()
        }

    def forget(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            self._runs.pop(run_id, None)

    def forget_group(self, run_id: str, group: str) -> None:
        self._runs.get(run_id, {}).pop(group, None)

    def has_ended(self, run_id: str) -> bool:
        """Whether all worlds of it have. Cost: O(ranks)."""
        worlds = self._runs.get(run_id, {}).values()
        return all(world.finished_at_s is not None for world in worlds)

    # --- whose word counts -------------------------------------------------------------------

    def _life_of(self, source: Source, said_at_s: float, now_s: float) -> RankLife | None:
        """The state that ``source`` speaks for; None if something newer has taken its place."""
        world = self._world_of(source, now_s)
        if world is None:
            return None
        world.touched_at_s = now_s
        world.n_words += 1
        said_at_s = min(said_at_s, now_s)
        life = world.ranks.get(source.rank)
        if life is not None and _key(life.source) == _key(source):
            if source.world_size and not world.world_size:
                world.world_size = source.world_size
            return life
        if life is not None and not self._takes_over(world, life, source, said_at_s, now_s):
            return None
        if (
            life is None
            and _key(source) in world.retired
            and not self._outlives(world, source, said_at_s, now_s)
        ):
            return None  # left over from before the world shrank
        life = RankLife(source=source, first_sent_at_s=said_at_s, arrived_at_s=now_s)
        world.ranks[source.rank] = life
        self._resize(world, source, said_at_s)
        return life

    def _world_of(self, source: Source, now_s: float) -> World | None:
        worlds = self._runs.setdefault(source.run_id, {})
        world = worlds.get(source.group)
        if world is None or source.attempt > world.attempt:
            world = worlds[source.group] = World(source.attempt, now_s)
        return world if world.attempt == source.attempt else None

    def _takes_over(
        self, world: World, life: RankLife, source: Source, said_at_s: float, now_s: float
    ) -> bool:
        retired = world.retired.get(_key(source))
        if retired is not None and (retired.was_current or now_s - life.arrived_at_s < _SILENT_S):
            if said_at_s > life.first_sent_at_s + _CLASH_TOLERANCE_S:
                retired.clashed_at_s = now_s
            return False
        if retired is None and said_at_s <= life.first_sent_at_s:
            _retire(world, source, was_current=False)
            return False
        world.retired.pop(_key(source), None)
        _retire(world, life.source, was_current=True, by=source)
        return True

    def _resize(self, world: World, source: Source, said_at_s: float) -> None:
        """A new session knows the newest size; ranks of a larger, older world are gone."""
        if not source.world_size or said_at_s < world.sized_at_s:
            return
        world.sized_at_s = said_at_s
        if source.world_size == world.world_size:
            return
        world.world_size = source.world_size
        world.outliving.clear()
        for rank in [rank for rank in world.ranks if rank >= source.world_size]:
            _retire(world, world.ranks.pop(rank).source, was_current=True, by=source)

    def _outlives(self, world: World, source: Source, said_at_s: float, now_s: float) -> bool:
        """Whether the world has not shrunk after all: more of its ranks go on than the smaller one
        has. That is another job under its name then, such as an evaluation beside the training, and
        is shown as a clash."""
        if source.world_size <= world.world_size:
            return False
        if said_at_s <= world.sized_at_s + _CLASH_TOLERANCE_S:
            return False
        since_s, _ = world.outliving.get(source.rank, (now_s, now_s))
        world.outliving[source.rank] = (since_s, now_s)
        if now_s - since_s < _OUTLIVES_S or len(world.outliving) <= len(world.ranks):
            return False
        lasting = sum(now_s - heard_s < _SILENT_S for _, heard_s in world.outliving.values())
        if lasting <= len(world.ranks):
            return False
        self._grow_back(world, source, said_at_s)
        return True

    def _grow_back(self, world: World, source: Source, said_at_s: float) -> None:
        """The sessions of the smaller world give their ranks back to those that they replaced."""
        smaller, world.world_size = world.world_size, source.world_size
        world.sized_at_s = said_at_s
        world.outliving.clear()
        for key, retired in list(world.retired.items()):
            if retired.by_world_size == smaller and retired.source.world_size == source.world_size:
                del world.retired[key]
        for rank, life in list(world.ranks.items()):
            if life.source.world_size == smaller:
                del world.ranks[rank]
                _retire(world, life.source, was_current=True, by=source)


def _key(source: Source) -> tuple[int, str, str]:
    """What tells two processes of a world apart."""
    return source.rank, source.session_id, source.node


def _retire(world: World, source: Source, *, was_current: bool, by: Source | None = None) -> None:
    while len(world.retired) > _MOST_RETIRED + len(world.ranks):
        del world.retired[next(iter(world.retired))]
    by_world_size = 0 if by is None else by.world_size
    world.retired[_key(source)] = _Retired(source, was_current, by_world_size)
