"""Hangs of one world: since when it makes no progress, the cost, and earlier hangs.

A hang counts from the last progress, not from its detection. Beyond :data:`MAX_KEPT` the shortest
hangs are dropped, and counted.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from otel_straggler.detect.hangs.states import (
    ENDS,
    HANGS,
    Blame,
    HangKind,
    HeartbeatTable,
    RunState,
)
from otel_straggler.model.decoding import read_as
from otel_straggler.model.observation import Floats, Ints

MAX_KEPT: Final = 30
MAX_NAMED: Final = 20
_UNSEEN_S: Final = 60.0
"""After so long without an evaluation, the end was missed: the collector was restarted."""
End: TypeAlias = Literal["went_on", "restarted", "ended"]
How = Literal["idle", "goes_on", "unheard"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """A time in which a world was stuck or lost, in seconds since 1970.

    Attributes:
        since_s: the last progress, or the last heartbeat of a silent rank; detected_s: its
            detection.
        seen_s: when it was last seen to last.
        until_s, end: when and how it ended; None while it lasts, or if that was not seen.
        is_end_seen: False if ``until_s`` is only when it still lasted.
        how: whether all waited.
        kind: because of whom; None if unknown.
        culprits, nodes: the first 20 of ``n_culprits`` ranks that were waited for, and their nodes.
        gpu_seconds_lost: of GPUs known to have waited.
    """

    since_s: float
    detected_s: float
    seen_s: float
    until_s: float | None = None
    end: End | None = None
    is_end_seen: bool = True
    attempt: int = 0
    how: How = "idle"
    kind: HangKind | None = None
    culprits: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    n_culprits: int = 0
    gpu_seconds_lost: float = 0.0

    def on_clock(self, ahead_s: float) -> Hang:
        """The same with times of a clock that is ``ahead_s`` ahead."""
        if not ahead_s:
            return self
        moved = {
            name: getattr(self, name) + ahead_s for name in ("since_s", "detected_s", "seen_s")
        }
        until_s = None if self.until_s is None else self.until_s + ahead_s
        return dataclasses.replace(self, until_s=until_s, **moved)

    @property
    def duration_s(self) -> float:
        """As far as it was seen."""
        return max((self.seen_s if self.until_s is None else self.until_s) - self.since_s, 0.0)


@dataclass(slots=True)
class Episodes:
    """Hangs of a world; ``left_out`` were dropped for longer ones."""

    left_out: int = 0
    _over: list[Hang] = field(default_factory=list)
    _current: Hang | None = None

    def __bool__(self) -> bool:
        return bool(self._over) or self._current is not None

    def before(self, *, is_hung: bool) -> tuple[Hang, ...]:
        """Earlier hangs, oldest first; also an unfinished one if the world does not hang now."""
        last = () if is_hung or self._current is None else (self._current,)
        return (*self._over, *last)

    def observe(
        self,
        state: RunState,
        current: Standstill | None,
        blame: Blame | None,
        heartbeats: HeartbeatTable,
        *,
        attempt: int,
        hung_since_s: float,
        progress_s: float,
        now_s: float,
    ) -> None:
        """Observe an evaluation. Cost: O(ranks) while the world hangs.

        Args:
            hung_since_s: when the present hang was detected.
            progress_s: when any rank last made progress; -inf if never.
        """
        last = self._current
        if last is not None and self._is_over(last, state, attempt, hung_since_s, progress_s):
            end: End = "restarted" if attempt != last.attempt else "went_on"
            self._close(last, "ended" if state in ENDS else end, now_s)
        if state in HANGS:
            if self._current is None:
                self._current = Hang(
                    since_s=math.nan, detected_s=hung_since_s, seen_s=now_s, attempt=attempt
                )
            self._current = _updated(self._current, current, blame, heartbeats, now_s)
        elif self._current is not None:
            self._current = dataclasses.replace(self._current, seen_s=now_s)

    @staticmethod
    def _is_over(
        last: Hang, state: RunState, attempt: int, hung_since_s: float, progress_s: float
    ) -> bool:
        if state in HANGS:
            return attempt != last.attempt or hung_since_s != last.detected_s
        return attempt != last.attempt or state in ENDS or progress_s > last.detected_s

    def _close(self, last: Hang, end: End, now_s: float) -> None:
        is_seen = now_s - last.seen_s <= _UNSEEN_S
        until_s = now_s if is_seen else last.seen_s
        over = dataclasses.replace(last, until_s=until_s, end=end, is_end_seen=is_seen)
        self._current = None
        self._over.append(over)
        if len(self._over) > MAX_KEPT:
            self._over.remove(min(self._over, key=lambda hang: hang.duration_s))
            self.left_out += 1

    # --- over restarts of the process --------------------------------------------------------

    def state(self, ahead_s: float = 0.0) -> dict[str, Any]:
        """In JSON types, with times of a clock that is ``ahead_s`` ahead."""
        lasts = self._current
        return {
            "over": [dataclasses.asdict(hang.on_clock(ahead_s)) for hang in self._over],
            "lasts": lasts and dataclasses.asdict(lasts.on_clock(ahead_s)),
            "left_out": self.left_out,
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Episodes:
        """From :meth:`state`. Raises: ValueError, KeyError, TypeError if it is none."""
        return cls(
            left_out=int(state.get("left_out", 0)),
            _over=read_as(list[Hang], state.get("over", [])[-MAX_KEPT:]),
            _current=read_as(Hang | None, state.get("lasts")),
        )


def _updated(
    hang: Hang,
    current: Standstill | None,
    blame: Blame | None,
    heartbeats: HeartbeatTable,
    now_s: float,
) -> Hang:
    """With this evaluation. Of all that were blamed in turn the fewest count, and of as many the
    newest: once a launcher ends a run, all its ranks are lost, and one was the first."""
    hang = dataclasses.replace(hang, seen_s=now_s)
    if current is not None:
        since_s = current.since_s if math.isnan(hang.since_s) else hang.since_s
        lost_s = current.lost_s if current.how == "idle" else 0.0
        hang = dataclasses.replace(
            hang,
            since_s=since_s,
            how=current.how,
            gpu_seconds_lost=max(hang.gpu_seconds_lost, lost_s),
        )
    if math.isnan(hang.since_s):
        hang = dataclasses.replace(hang, since_s=hang.detected_s)
    if blame is None:
        return hang
    indexes = np.flatnonzero(blame.culprits).tolist()
    if hang.kind is not None and _breadth(len(indexes)) > _breadth(hang.n_culprits):
        return hang
    return dataclasses.replace(
        hang,
        kind=blame.kind,
        n_culprits=len(indexes),
        culprits=tuple(heartbeats.ranks[indexes[:MAX_NAMED]].tolist()),
        nodes=tuple(_node(heartbeats, at) for at in indexes[:MAX_NAMED]),
    )


def _breadth(n_culprits: int) -> float:
    """A blame without culprits says least."""
    return n_culprits or math.inf


def _node(heartbeats: HeartbeatTable, at: int) -> str:
    code = int(heartbeats.node[at]) if len(heartbeats.node) else -1
    return heartbeats.nodes[code] if 0 <= code < len(heartbeats.nodes) else ""


_GOES_ON_S: Final = 20.0
"""Ranks that progress for so much longer than one is silent do not wait for it: several heartbeats,
because a rank may have died at any moment after its last one."""
_SAME_S: Final = 10.0
"""Moments closer than this are of one standstill: senders' delays move them."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """State of a hung run.

    Attributes:
        how: ``idle``: all wait; ``goes_on``: the others train; ``unheard``: no rank sends anything.
        since_s: when the run (or, if others go on, the silent rank) last showed progress (or life),
            seconds since 1970; NaN if unknown.
        idle_s: time without progress; n_idle: GPUs known to wait.
    """

    how: How
    since_s: float
    idle_s: float = 0.0
    n_idle: int = 0

    @property
    def lost_s(self) -> float:
        """GPU seconds lost."""
        return self.idle_s * self.n_idle


def standstill(
    state: RunState,
    ranks: Ints,
    blame: Blame | None,
    *,
    received: Ints,
    silent_s: Floats,
    stalled_s: Floats,
    known_since_s: float,
    now_s: float,
) -> Standstill | None:
    """None while the run makes progress, or has ended. Cost: O(ranks).

    Args:
        ranks, blame: of the world, from the detector.
        received: ranks of the ages ``silent_s`` (newest heartbeat) and ``stalled_s`` (progress);
            NaN: never.
        known_since_s: time of detection, if nothing else is known.
    """
    if state not in HANGS:
        return None
    silent_since_s = math.nan
    if blame is not None and blame.kind == "lost":
        is_lost = np.isin(received, ranks[blame.culprits])
        silent_since_s = now_s - _min(silent_s[is_lost])
    if state == "lost":
        known = math.isfinite(silent_since_s)
        return Standstill("unheard", silent_since_s if known else known_since_s)
    progress_s = now_s - _min(stalled_s)
    if math.isfinite(silent_since_s) and progress_s - silent_since_s >= _GOES_ON_S:
        return Standstill("goes_on", silent_since_s)
    since_s = progress_s if math.isfinite(progress_s) else known_since_s
    idle_s = max(now_s - since_s, 0.0) if math.isfinite(since_s) else 0.0
    return Standstill("idle", since_s, idle_s, len(ranks))


def _min(ages_s: Floats) -> float:
    known = ages_s[np.isfinite(ages_s)]
    return float(known.min()) if len(known) else math.nan


@dataclass(slots=True)
class IdleGpus:
    """GPU seconds lost in the standstills of one world so far; never decreases. The newest counts
    until another begins, so that restoring in the midst of one does not count it twice."""

    _before_s: float = 0.0
    _newest_s: float = 0.0
    _since_s: float = math.nan

    @property
    def total_s(self) -> float:
        return self._before_s + self._newest_s

    def observe(self, current: Standstill | None) -> None:
        """None: it makes progress."""
        if current is None or current.how != "idle" or not math.isfinite(current.since_s):
            return
        if not current.since_s < self._since_s + _SAME_S:
            self._before_s, self._newest_s = self.total_s, 0.0
            self._since_s = current.since_s
        self._newest_s = max(self._newest_s, current.lost_s)

    def state(self, ahead_s: float = 0.0) -> list[float | None]:
        """In JSON types, with times of a clock that is ``ahead_s`` ahead."""
        since_s = self._since_s + ahead_s if math.isfinite(self._since_s) else None
        return [self._before_s, self._newest_s, since_s]

    @classmethod
    def restored(cls, state: Sequence[float | None]) -> IdleGpus:
        """From :meth:`state`. Raises: ValueError, TypeError if it is none."""
        before_s, newest_s, since_s = state
        return cls(
            float(before_s or 0.0), float(newest_s or 0.0), math.nan if since_s is None else since_s
        )
