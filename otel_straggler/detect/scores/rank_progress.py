"""How far each rank of a stream is: what it has sent, whether more is on its way, whether it has
ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from otel_straggler.detect.scores.windows import OpenWindow, WindowTrack
from otel_straggler.model.observation import NO_STEP
from otel_straggler.model.rank import Source

Ends: TypeAlias = dict[tuple[int, int, str, str], tuple[int, int | None]]
"""By :func:`end_key`: when a session ended, and its final step."""


def end_key(source: Source) -> tuple[int, int, str, str]:
    return source.attempt, source.rank, *source.session


@dataclass(slots=True)
class _Rank:
    """``first_step`` of the rows it came with, ``final_step`` as its last heartbeat says, for which
    one ``waits_from_ns``."""

    session: tuple[str, str]
    first_step: int
    waits_from_ns: int = 0
    final_step: int | None = None


class RankProgress:
    """Ranks of one stream.

    Args:
        by_step: its windows by step.
        wait_ns: how long rows that were skipped, and the last ones of an ended rank, are waited
            for.
        early_ends: ends of sessions before their first rows; removed once they have come.
    """

    def __init__(self, by_step: WindowTrack, wait_ns: int, early_ends: Ends | None = None) -> None:
        self._by_step = by_step
        self._wait_ns = wait_ns
        self._early_ends = {} if early_ends is None else early_ends
        self._ranks: dict[int, _Rank] = {}
        self._ending: set[int] = set()
        self._ended: set[int] = set()
        self._given_up: set[int] = set()
        self._sparse: set[int] = set()

    def __len__(self) -> int:
        return len(self._ranks)

    def is_other_session(self, source: Source) -> bool:
        """Whether the rank is known with another session."""
        rank = self._ranks.get(source.rank)
        return rank is not None and rank.session != source.session

    def register(self, source: Source, first_step: int, *, is_new_session: bool) -> None:
        """A source that is new, or has another description; ``first_step``: the lowest of its rows,
        ``NO_STEP`` if they have none."""
        rank = self._ranks.get(source.rank)
        if rank is None:
            self._ranks[source.rank] = _Rank(source.session, first_step)
        elif rank.session != source.session and is_new_session:
            rank.session = source.session
            self._ending.discard(source.rank)
            self._ended.discard(source.rank)
            self._given_up.discard(source.rank)
        if end := self._early_ends.pop(end_key(source), None):
            self.finish(source, *end)

    def finish(self, source: Source, now_ns: int, final_step: int | None) -> None:
        """The session's rank has ended, after this step."""
        rank = self._ranks.get(source.rank)
        if rank is not None and rank.session == source.session:
            rank.waits_from_ns, rank.final_step = now_ns, final_step
            self._ending.add(source.rank)

    def go_on(self, source: Source) -> None:
        """The session's rank has been heard from after its end: it has not ended."""
        rank = self._ranks.get(source.rank)
        if rank is not None and rank.session == source.session:
            self._ending.discard(source.rank)
            self._ended.discard(source.rank)
            self._given_up.discard(source.rank)

    def expect_last_rows(self, sources: Iterable[Source], now_ns: int) -> None:
        """Rows have come: of ranks that have ended, further ones are waited for from now on."""
        if not self._ending and not self._given_up:
            return
        of_ended = {source.rank for source in sources} & (self._ending | self._given_up)
        for number in of_ended:
            self._ranks[number].waits_from_ns = now_ns
        self._ending |= of_ended
        self._ended -= of_ended
        self._given_up -= of_ended

    def drain_ended(self, now_ns: int) -> bool:
        """Whether ranks have newly passed every window: they have ended, and their final step is
        there, or no rows of theirs have come for as long as one waits."""
        if not self._ending:
            return False
        incomplete = {rank for rank in self._ending if self._is_incomplete(rank)}
        given_up = {
            rank for rank in incomplete if now_ns - self._ranks[rank].waits_from_ns >= self._wait_ns
        }
        new = self._ending - incomplete | given_up
        self._ending -= new
        self._ended |= new
        self._given_up |= given_up
        return bool(new)

    def _is_incomplete(self, number: int) -> bool:
        rank, newest = self._ranks[number], self._by_step.newest.get(number)
        if newest is None or rank.final_step is None:
            return False
        return newest + max(self._by_step.gap, 1) <= rank.final_step

    def n_passed(self, track: WindowTrack, window: OpenWindow) -> int:
        return sum(
            rank in self._ended or track.newest.get(rank, NO_STEP) > window.last_step
            for rank in self._ranks
        )

    def expects_more(self, track: WindowTrack, window: OpenWindow) -> bool:
        """Whether rows of the window are on their way: a queue before the collector delivers newer
        ones first, or a rank's end before its last steps."""
        if track.interval_ns:
            return False
        newest = track.newest
        is_ending = any(newest.get(rank, NO_STEP) <= window.last_step for rank in self._ending)
        return is_ending or track.lacks_steps(window) or self._lacks_rows(track, window)

    def _lacks_rows(self, track: WindowTrack, window: OpenWindow) -> bool:
        """Whether a rank is beyond the window and has not sent all of its steps, as it usually
        does."""
        if self._is_whole(window):
            return False
        return any(
            number not in self._sparse
            and track.newest.get(number, NO_STEP) > window.last_step
            and any(
                step >= rank.first_step and number not in senders
                for step, senders in window.senders.items()
            )
            for number, rank in self._ranks.items()
        )

    def record_closed(self, window: OpenWindow) -> None:
        """A rank that sends only some of the steps is waited for once."""
        if self._is_whole(window):
            self._sparse.clear()
            return
        for rank in self._ranks:
            if all(rank in senders for senders in window.senders.values()):
                self._sparse.discard(rank)
            else:
                self._sparse.add(rank)

    def state(self) -> dict[str, Any]:
        """State for a restart, in JSON types."""
        return {
            "ranks": [
                [number, *rank.session, rank.first_step, rank.final_step]
                for number, rank in self._ranks.items()
            ],
            "ending": sorted(self._ending),
            "ended": sorted(self._ended),
            "given_up": sorted(self._given_up),
            "sparse": sorted(self._sparse),
        }

    def restore(self, state: Mapping[str, Any], now_ns: int) -> None:
        """Go on from :meth:`state`; who was ending is waited for from ``now_ns`` on."""
        self._ranks = {
            number: _Rank((session_id, node), first_step, now_ns, final_step)
            for number, session_id, node, first_step, final_step in state["ranks"]
        }
        self._ending, self._ended = set(state["ending"]), set(state["ended"])
        self._given_up, self._sparse = set(state["given_up"]), set(state["sparse"])

    def _is_whole(self, window: OpenWindow) -> bool:
        return all(len(senders) >= len(self._ranks) for senders in window.senders.values())
