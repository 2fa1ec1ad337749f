"""The ranks of one world: which are alive, their progress, and which session of a rank counts."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from otel_straggler.collector.runs.rank_status import MAX_REASONS, RankStatus
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_failure import RankFailure, exit_failure
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.span_rules import Progress
from otel_straggler.semconv import ATTEMPT_ENDED, RANK_EXITED, Outcome

_CLASH_SHOWN_S = 60.0
_CLASH_TOLERANCE_S = 5.0
_SILENT_S = 15.0
"""A session that looks older, perhaps by a wrong clock, takes over from one that is silent for so
long, before that is called lost."""
_OUTLIVES_S = 10.0
"""Ranks that go on for so long after their world shrank were not removed by it."""
_MAX_RETIRED = 10_000
_BYTES_PER_RANK, _BYTES_PER_SESSION = 2_000, 500


@dataclass(frozen=True, eq=False)
class WorldStatus:
    """The ranks of one world in its newest attempt, at one moment. Times are of the collector's
    clock; it is immutable.

    Attributes:
        attempt: of the launcher.
        began_at_s, touched_at_s: first and last report.
        world_size: ranks expected, 0 if unknown.
        ranks: those that reported.
        dropped: records lost by all its sessions since monitoring began, by reason.
    """

    attempt: int
    began_at_s: float = 0.0
    touched_at_s: float = 0.0
    world_size: int = 0
    ranks: Mapping[int, RankStatus] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def finished_at_s(self) -> float | None:
        """When the last rank ended; None while one has not."""
        ends = [rank.here(rank.finished_at_s) for rank in self.ranks.values()]
        expected = self.world_size or len(ends)
        known = [end for end in ends if end is not None]
        return max(known) if known and len(known) >= expected == len(ends) else None

    @cached_property
    def page(self) -> bool:
        """Whether it may page: unless a rank says no."""
        return all(rank.page is not False for rank in self.ranks.values())

    @cached_property
    def reports_gpu(self) -> bool:
        return any(rank.source.reports_gpu for rank in self.ranks.values())

    @cached_property
    def team(self) -> str:
        """Of the first rank that has one; empty if none does."""
        return next((each.team for _, each in sorted(self.ranks.items()) if each.team), "")


@dataclass(slots=True)
class _Retired:
    """A session replaced by a newer one, whose world size is ``by_world_size`` (0: unknown)."""

    source: Source
    was_current: bool
    by_world_size: int = 0
    clashed_at_s: float | None = None


@dataclass(slots=True)
class _Attempt:
    """The newest attempt.

    ``outliving`` has the ranks that go on though the world shrank: since when, and their last
    report.
    """

    number: int
    began_at_s: float
    world_size: int = 0
    sized_at_s: float = 0.0
    ranks: dict[int, RankStatus] = field(default_factory=dict)
    retired: dict[tuple[int, str, str], _Retired] = field(default_factory=dict)
    outliving: dict[int, tuple[float, float]] = field(default_factory=dict)
    touched_at_s: float = 0.0
    dropped: dict[str, int] = field(default_factory=dict)

    def count_losses(self, grown: Mapping[str, int]) -> None:
        for reason, count in grown.items():
            if reason in self.dropped or len(self.dropped) < MAX_REASONS:
                self.dropped[reason] = self.dropped.get(reason, 0) + count

    def retire(self, source: Source, *, was_current: bool, by: Source | None = None) -> None:
        while len(self.retired) > _MAX_RETIRED + len(self.ranks):
            del self.retired[next(iter(self.retired))]
        by_world_size = 0 if by is None else by.world_size
        self.retired[_key(source)] = _Retired(source, was_current, by_world_size)


class Liveness:
    """The sessions of one world. One thread owns it. Times: ``now_s`` of the collector's clock,
    ``wall_s`` of the wall clock, as senders' clocks."""

    __slots__ = ("_attempt", "_status")

    def __init__(self) -> None:
        self._attempt: _Attempt | None = None
        self._status: WorldStatus | None = None

    @classmethod
    def restored(cls, status: WorldStatus) -> Liveness:
        """Go on from what another process knew."""
        result = cls()
        result._attempt = _Attempt(
            status.attempt,
            status.began_at_s,
            world_size=status.world_size,
            ranks=dict(status.ranks),
            touched_at_s=status.touched_at_s,
            dropped=dict(status.dropped),
        )
        return result

    def observe_heartbeat(self, beat: Heartbeat, now_s: float, wall_s: float | None = None) -> bool:
        """Whether it is of the newest session of its rank."""
        wall_s = now_s if wall_s is None else wall_s
        sent_at_s = wall_s if beat.sent_at_s is None else beat.sent_at_s
        rank = self._rank_of(beat.source, min(sent_at_s, wall_s), now_s)
        if rank is None or self._attempt is None:
            return False
        self._attempt.count_losses(rank.observe_losses(beat.dropped))
        rank.observe(beat, now_s)
        return True

    def observe_progress(
        self, source: Source, progress: Progress, now_s: float, wall_s: float | None = None
    ) -> None:
        """Record the progress that spans show."""
        wall_s = now_s if wall_s is None else wall_s
        rank = self._rank_of(source, min(progress.end_ns * 1e-9, wall_s), now_s)
        if rank is not None:
            rank.observe_progress(source, progress, now_s, wall_s)

    def observe_launch(self, event: LaunchEvent, now_s: float) -> list[RankStatus]:
        """Record what a launcher has seen of the ends of its ranks, where they did not report more;
        returns ranks that have ended by it."""
        its = self._attempt
        failure, outcome = _exit_of(event)
        if its is None or outcome is None or event.attempt != its.number:
            return []
        ended = []
        for number in (event.rank,) if event.name == RANK_EXITED else event.ranks:
            rank = its.ranks.get(number)
            is_its = rank is not None and event.node in {"", rank.source.node}
            if rank is None or not is_its or not rank.may_end_as(outcome):
                continue
            rank = its.ranks[number] = rank.copied()
            rank.end(event.at_unix_s, outcome, failure, now_s)
            ended.append(rank)
        if ended:
            self._status = None
        return ended

    @property
    def status(self) -> WorldStatus | None:
        """The same object until a rank reports; None before."""
        its = self._attempt
        if self._status is None and its is not None:
            self._status = WorldStatus(
                attempt=its.number,
                began_at_s=its.began_at_s,
                touched_at_s=its.touched_at_s,
                world_size=its.world_size,
                ranks=its.ranks.copy(),
                dropped=its.dropped.copy(),
            )
        return self._status

    def has_ended(self, source: Source) -> bool:
        """Whether the rank of a source has ended, as far as is known."""
        rank = None if self._attempt is None else self._attempt.ranks.get(source.rank)
        return rank is not None and rank.finished_at_s is not None

    @property
    def nbytes(self) -> int:
        """Memory, roughly."""
        its = self._attempt
        if its is None:
            return 0
        return _BYTES_PER_RANK * len(its.ranks) + _BYTES_PER_SESSION * len(its.retired)

    @property
    def touched_at_s(self) -> float | None:
        """Last report; None if never."""
        return None if self._attempt is None else self._attempt.touched_at_s

    def clashes(self, now_s: float) -> Iterator[Source]:
        """Sessions that went on within the last minute though a newer one has their rank."""
        for retired in self._attempt.retired.values() if self._attempt else ():
            at_s = retired.clashed_at_s
            if at_s is not None and now_s - at_s < _CLASH_SHOWN_S:
                yield retired.source

    # --- which session counts ----------------------------------------------------------------

    def _rank_of(self, source: Source, sent_at_s: float, now_s: float) -> RankStatus | None:
        """The status of the source, to be changed; None if something newer has replaced it."""
        its = self._attempt
        if its is None or source.attempt > its.number:
            its = self._attempt = _Attempt(source.attempt, now_s)
        if its.number != source.attempt:
            return None
        self._status = None
        its.touched_at_s = now_s
        rank = its.ranks.get(source.rank)
        if rank is not None and _key(rank.source) == _key(source):
            if source.world_size and not its.world_size:
                its.world_size = source.world_size
            rank = its.ranks[source.rank] = rank.copied()
            return rank
        if rank is not None and not _takes_over(its, rank, source, sent_at_s, now_s):
            return None
        if (
            rank is None
            and _key(source) in its.retired
            and not _outlives(its, source, sent_at_s, now_s)
        ):
            return None  # left over from before the world shrank
        rank = RankStatus(source=source, first_sent_at_s=sent_at_s, arrived_at_s=now_s)
        its.ranks[source.rank] = rank
        _resize(its, source, sent_at_s)
        return rank


def _exit_of(event: LaunchEvent) -> tuple[RankFailure | None, Outcome | None]:
    """How ranks have ended of which a launcher reports the end; None if it does not."""
    if event.name == ATTEMPT_ENDED:
        return None, "unknown" if event.reason == "exit_0" else "preempted"
    if event.name != RANK_EXITED:
        return None, None
    failure = exit_failure(event.reason)
    if failure is None or failure.exit_code == -signal.SIGTERM:
        return None, "preempted"
    return failure, "failed"


def _takes_over(
    its: _Attempt, rank: RankStatus, source: Source, sent_at_s: float, now_s: float
) -> bool:
    retired = its.retired.get(_key(source))
    if retired is not None and _outlives_end(rank, sent_at_s):
        its.retired.pop(_key(source))
        its.retire(rank.source, was_current=False)
        return True
    if retired is not None and (retired.was_current or now_s - rank.arrived_at_s < _SILENT_S):
        if sent_at_s > rank.first_sent_at_s + _CLASH_TOLERANCE_S:
            retired.clashed_at_s = now_s
        return False
    if retired is None and sent_at_s <= rank.first_sent_at_s:
        its.retire(source, was_current=False)
        return False
    its.retired.pop(_key(source), None)
    its.retire(rank.source, was_current=True, by=source)
    return True


def _outlives_end(rank: RankStatus, sent_at_s: float) -> bool:
    """Whether a replaced session goes on after the one in its place has ended: that one was not the
    rank's newest process."""
    end_s = rank.finished_at_s
    return end_s is not None and sent_at_s > max(end_s, rank.first_sent_at_s) + _CLASH_TOLERANCE_S


def _resize(its: _Attempt, source: Source, sent_at_s: float) -> None:
    """Take the newest size; ranks of a larger, older world are gone."""
    if not source.world_size or sent_at_s < its.sized_at_s:
        return
    its.sized_at_s = sent_at_s
    if source.world_size == its.world_size:
        return
    its.world_size = source.world_size
    its.outliving.clear()
    for rank in [rank for rank in its.ranks if rank >= source.world_size]:
        its.retire(its.ranks.pop(rank).source, was_current=True, by=source)


def _outlives(its: _Attempt, source: Source, sent_at_s: float, now_s: float) -> bool:
    """Whether the world has not shrunk after all: more of its ranks go on than the smaller one has.
    The smaller one is another job under its name, such as an evaluation, and shown as a clash."""
    if source.world_size <= its.world_size:
        return False
    if sent_at_s <= its.sized_at_s + _CLASH_TOLERANCE_S:
        return False
    since_s, _ = its.outliving.get(source.rank, (now_s, now_s))
    its.outliving[source.rank] = (since_s, now_s)
    if now_s - since_s < _OUTLIVES_S or len(its.outliving) <= len(its.ranks):
        return False
    lasting = sum(now_s - received_s < _SILENT_S for _, received_s in its.outliving.values())
    if lasting <= len(its.ranks):
        return False
    _grow_back(its, source, sent_at_s)
    return True


def _grow_back(its: _Attempt, source: Source, sent_at_s: float) -> None:
    """Return ranks from sessions of the smaller world to those that they replaced."""
    smaller, its.world_size = its.world_size, source.world_size
    its.sized_at_s = sent_at_s
    its.outliving.clear()
    for key, retired in list(its.retired.items()):
        if retired.by_world_size == smaller and retired.source.world_size == source.world_size:
            del its.retired[key]
    for rank, status in list(its.ranks.items()):
        if status.source.world_size == smaller:
            del its.ranks[rank]
            its.retire(status.source, was_current=True, by=source)


def _key(source: Source) -> tuple[int, str, str]:
    return source.rank, source.session_id, source.node
