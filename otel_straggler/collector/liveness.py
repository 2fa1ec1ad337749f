"""Who is alive, how far, and who has ended: the newest word of every rank.

Times of a sender are moved to the collector's clock by the smallest delay seen from its session,
so that a heartbeat delivered late or twice never looks fresh, and a wrong clock on a node does not
make its rank look dead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from otel_straggler.model.heartbeat import Heartbeat
from otel_straggler.model.rank import Source
from otel_straggler.semconv import Outcome
from otel_straggler.wire.decode_spans import Progress

_CLASH_SHOWN_S = 60.0
_CLASH_TOLERANCE_S = 5.0
_SILENT_S = 15.0
"""A session that looks older, perhaps by a wrong clock, takes over from one that is silent for so
long: before that one is called lost."""
_DELAY_KEPT_S = 600.0
"""The smallest delay is that of the last one to two of these: clocks drift, and are set."""
_DAY_S = 86_400.0
_MOST_RETIRED = 10_000
_MOST_FOLDED = 200
_STEPPED_BACK = 3
"""So many heartbeats in a row, older than the newest but in pace with the clock, mean that the
sender's clock was set back."""


@dataclass(slots=True)
class RankLife:
    """The newest session of one rank. Sender's times, except ``arrived_at_s`` and ``delay_s``.

    Attributes:
        source: newest description.
        first_sent_at_s: when the session first said anything.
        delay_s: smallest (arrival - sending); infinite before the first heartbeat.
        sent_at_s, progress_at_s, step: newest; None if never told.
        finished_at_s, outcome: set once the rank has ended.
        open_section, phase: what it was in when it last said so; empty if nothing was open.
        dropped: records lost in this session, by reason.
        folded: section runs sent in spans for several, by section.
        gpu_tier, gpu_reason: what times it on its GPU, and why not more; empty if never told.
        first_step: the first that it told of.
        page, team: whether people may be called for the run, and whose it is; None and empty if
            not told.
        is_ending: SIGTERM has come, and its own handler decides what follows.
    """

    source: Source
    first_sent_at_s: float
    arrived_at_s: float
    delay_s: float = float("inf")
    sent_at_s: float | None = None
    progress_at_s: float | None = None
    step: int | None = None
    open_section: str = ""
    phase: str = ""
    finished_at_s: float | None = None
    outcome: Outcome | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    folded: dict[str, int] = field(default_factory=dict)
    gpu_tier: str = ""
    gpu_reason: str = ""
    first_step: int | None = None
    page: bool | None = None
    team: str = ""
    is_ending: bool = False
    _newer_delay_s: float = float("inf")
    _delay_since_s: float = 0.0
    _older: tuple[float, float, int] | None = None

    def here(self, sender_time_s: float | None) -> float | None:
        """A time of the sender on the collector's clock; never later than the newest arrival."""
        if sender_time_s is None:
            return None
        if self.delay_s == float("inf"):
            return min(sender_time_s, self.arrived_at_s)
        return min(sender_time_s + self.delay_s, self.arrived_at_s)

    def take(self, beat: Heartbeat, now_s: float) -> None:
        """Take a heartbeat of this session."""
        self.source = beat.source
        if beat.finished_at_s is not None:
            self.finished_at_s, self.outcome = beat.finished_at_s, beat.outcome
        for reason, count in beat.dropped.items():
            self.dropped[reason] = max(self.dropped.get(reason, 0), count)
        for section, count in beat.folded.items():
            if section in self.folded or len(self.folded) < _MOST_FOLDED:
                self.folded[section] = max(self.folded.get(section, 0), count)
        if beat.sent_at_s is None or not self._is_news(beat.sent_at_s, now_s):
            return
        self.arrived_at_s = now_s
        self.sent_at_s = beat.sent_at_s
        self._note_delay(now_s - beat.sent_at_s, now_s)
        self.page, self.team = beat.page, beat.team
        self.is_ending = beat.is_ending
        self.open_section, self.phase = beat.open_section, beat.phase
        if beat.gpu_tier:
            self.gpu_tier, self.gpu_reason = beat.gpu_tier, beat.gpu_reason
        if beat.progress_at_s is not None:
            self.progress_at_s = beat.progress_at_s
        if beat.step is not None:
            self._reach(beat.step)

    def take_progress(self, source: Source, progress: Progress, now_s: float) -> None:
        """Take what spans say; their times count only for a rank that sends no heartbeats."""
        if progress.step >= 0:
            self._reach(progress.step)
        ended_at_s = progress.end_ns * 1e-9
        if self.sent_at_s is None and ended_at_s < now_s + _DAY_S:
            self.source = source
            self.arrived_at_s = now_s
            self.delay_s = min(self.delay_s, now_s - ended_at_s)
            self.progress_at_s = max(self.progress_at_s or 0.0, ended_at_s)

    def _reach(self, step: int) -> None:
        if self.first_step is None:
            self.first_step = step
        self.step = max(step, self.step or 0)

    def _note_delay(self, delay_s: float, now_s: float) -> None:
        """The smallest of late; what is older no longer counts."""
        if now_s - self._delay_since_s >= _DELAY_KEPT_S:
            self.delay_s, self._newer_delay_s = self._newer_delay_s, float("inf")
            self._delay_since_s = now_s
        self._newer_delay_s = min(self._newer_delay_s, delay_s)
        self.delay_s = min(self.delay_s, self._newer_delay_s)

    def _is_news(self, sent_at_s: float, now_s: float) -> bool:
        if self.sent_at_s is None or sent_at_s > self.sent_at_s:
            self._older = None
            return True
        if not self._was_set_back(sent_at_s, now_s):
            return False
        self._older = None
        self.delay_s = self._newer_delay_s = now_s - sent_at_s
        return True

    def _was_set_back(self, sent_at_s: float, now_s: float) -> bool:
        if self._older is None or sent_at_s <= self._older[0]:
            if self._older is None:
                self._older = (sent_at_s, now_s, 1)
            return False
        then_sent_s, then_s, count = self._older
        pace_s = (now_s - then_s) - (sent_at_s - then_sent_s)
        in_pace = abs(pace_s) < 1.0 and now_s - then_s >= 0.5
        self._older = (sent_at_s, now_s, count + 1 if in_pace else 1)
        return in_pace and self._older[2] >= _STEPPED_BACK


@dataclass(slots=True)
class _Retired:
    """A session that a newer one has replaced, and whether it still speaks."""

    source: Source
    was_current: bool
    clashed_at_s: float | None = None


@dataclass(slots=True)
class World:
    """The ranks of one (run, group) in its newest attempt.

    ``began_at_s`` is when it was first heard of here.
    """

    attempt: int
    began_at_s: float = 0.0
    world_size: int = 0
    sized_at_s: float = 0.0
    ranks: dict[int, RankLife] = field(default_factory=dict)
    retired: dict[tuple[int, str, str], _Retired] = field(default_factory=dict)
    touched_at_s: float = 0.0

    @property
    def finished_at_s(self) -> float | None:
        """When the last rank ended (collector's clock); None while one has not."""
        expected = self.world_size or len(self.ranks)
        ends = [life.here(life.finished_at_s) for life in self.ranks.values()]
        known = [end for end in ends if end is not None]
        return max(known) if known and len(known) >= expected == len(ends) else None

    @property
    def page(self) -> bool:
        """Whether people may be called for it: unless a rank said no."""
        return all(life.page is not False for life in self.ranks.values())

    @property
    def team(self) -> str:
        """Whose it is, by the first rank that says it; empty if none does."""
        return next((life.team for _, life in sorted(self.ranks.items()) if life.team), "")


class Liveness:
    """The worlds of all runs. One thread owns it; time is an argument."""

    def __init__(self) -> None:
        self._worlds: dict[tuple[str, str], World] = {}

    def take_heartbeat(self, beat: Heartbeat, now_s: float) -> bool:
        """Take a sign of life; True if it is of the newest session of a live rank."""
        sent_at_s = beat.sent_at_s if beat.sent_at_s is not None else now_s
        life = self._life_of(beat.source, sent_at_s, now_s)
        if life is None:
            return False
        life.take(beat, now_s)
        return True

    def take_progress(self, source: Source, progress: Progress, now_s: float) -> None:
        """Take what the spans of a source say."""
        life = self._life_of(source, progress.end_ns * 1e-9, now_s)
        if life is not None:
            life.take_progress(source, progress, now_s)

    def worlds(self, run_id: str) -> dict[str, World]:
        """The worlds of a run by group."""
        return {group: world for (run, group), world in self._worlds.items() if run == run_id}

    def source_of(self, run_id: str, group: str, rank: int) -> Source | None:
        """The newest session of a rank that sends heartbeats and has not ended; from any thread:
        each look-up is one step."""
        world = self._worlds.get((run_id, group))
        life = None if world is None else world.ranks.get(rank)
        if life is None or life.sent_at_s is None or life.finished_at_s is not None:
            return None
        return life.source

    def ranks_of(self, run_id: str, group: str) -> list[int]:
        """Those that :meth:`source_of` knows; from any thread."""
        world = self._worlds.get((run_id, group))
        ranks = [] if world is None else sorted(world.ranks)
        return [rank for rank in ranks if self.source_of(run_id, group, rank) is not None]

    def runs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run_id for run_id, _ in self._worlds))

    def clashes(self, run_id: str, now_s: float) -> Iterator[Source]:
        """Sessions that went on within the last minute though a newer one claims their rank."""
        for world in self.worlds(run_id).values():
            for retired in world.retired.values():
                at_s = retired.clashed_at_s
                if at_s is not None and now_s - at_s < _CLASH_SHOWN_S:
                    yield retired.source

    def heard(self) -> dict[str, float]:
        """When each run was last heard of."""
        heard: dict[str, float] = {}
        for (run_id, _), world in self._worlds.items():
            heard[run_id] = max(heard.get(run_id, 0.0), world.touched_at_s)
        return heard

    def forget(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            for key in [key for key in self._worlds if key[0] == run_id]:
                del self._worlds[key]

    # --- whose word counts -------------------------------------------------------------------

    def _life_of(self, source: Source, said_at_s: float, now_s: float) -> RankLife | None:
        """The state that ``source`` speaks for; None if something newer has taken its place."""
        world = self._world_of(source, now_s)
        if world is None:
            return None
        world.touched_at_s = now_s
        said_at_s = min(said_at_s, now_s)
        life = world.ranks.get(source.rank)
        if life is not None and _key(life.source) == _key(source):
            if source.world_size and not world.world_size:
                world.world_size = source.world_size
            return life
        if life is not None and not self._takes_over(world, life, source, said_at_s, now_s):
            return None
        if life is None and _key(source) in world.retired:
            return None  # left over from before the world shrank
        life = RankLife(source=source, first_sent_at_s=said_at_s, arrived_at_s=now_s)
        world.ranks[source.rank] = life
        self._resize(world, source, said_at_s)
        return life

    def _world_of(self, source: Source, now_s: float) -> World | None:
        key = (source.run_id, source.group)
        world = self._worlds.get(key)
        if world is None or source.attempt > world.attempt:
            world = self._worlds[key] = World(source.attempt, now_s)
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
        _retire(world, life.source, was_current=True)
        return True

    def _resize(self, world: World, source: Source, said_at_s: float) -> None:
        """A new session knows the newest size; ranks of a larger, older world are gone."""
        if not source.world_size or said_at_s < world.sized_at_s:
            return
        world.sized_at_s = said_at_s
        if source.world_size == world.world_size:
            return
        world.world_size = source.world_size
        for rank in [rank for rank in world.ranks if rank >= source.world_size]:
            _retire(world, world.ranks.pop(rank).source, was_current=True)


def _key(source: Source) -> tuple[int, str, str]:
    """What tells two processes of a world apart."""
    return source.rank, source.session_id, source.node


def _retire(world: World, source: Source, *, was_current: bool) -> None:
    while len(world.retired) > _MOST_RETIRED + len(world.ranks):
        del world.retired[next(iter(world.retired))]
    world.retired[_key(source)] = _Retired(source, was_current)
