"""Culprit and victims, from durations alone.

Ranks that wait for each other leave a section together, so the last to arrive waits least: wait = d
- min(d) over the peers. Scored as "longer is worse", such a section accuses the victims.

A section waits by its kind, or if it behaves so: a regression of the time in the section on the
time since the last waiting, over ranks and steps, has a slope of -1 then, and explains most of the
differences; for local work the slope is 0. The slope must also show in changes from step to step on
a rank: where a step begins with the wait for the last one, a lastingly slow rank has waited little,
and would look alike.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from otel_straggler.detect.scores.medians import Groups, median_of, nan_median
from otel_straggler.detect.verdicts.world import World
from otel_straggler.model.observation import Bools, Floats, Ints, Section
from otel_straggler.semconv import LISTED_KINDS

WAITS_BELOW, LOCAL_ABOVE = -0.6, -0.3
WAITS_ABOVE, LOCAL_BELOW = 0.5, 0.35
"""Part of the section's variance that the arrival explains: above 0.5 for waiting and below 0.25
for work in generated runs. A section in which few ranks meet, and pipelines, explain less."""
MIN_T = 6.0
"""Standard errors of the slope from 0."""
MIN_SIZE = 0.01
"""Arrivals must differ by this part of what the section differs by."""
_Moments: TypeAlias = npt.NDArray[np.float64]
ENOUGH_RANKS = 2048
"""More do not make the slope clearer."""
_FADE = 0.9
_MAX_SPREADS = 6.0


@dataclass(slots=True)
class WaitDetector:
    """Which sections hold waiting; learns from block to block.

    Attributes:
        behaves: sections that wait although their kind does not say so.
        inside: the section that holds work and waiting of all ranks; or empty.
        is_unseen: ranks wait for each other nowhere that is known. See :class:`.HiddenWork`.
    """

    behaves: set[str] = field(default_factory=set)
    inside: str = ""
    is_unseen: bool = False
    _moments: dict[str, _Moments] = field(default_factory=dict)
    _of_changes: dict[str, _Moments] = field(default_factory=dict)

    def waits(self, section: Section) -> bool:
        return section.kind == "wait" or section.name in self.behaves

    def observe(
        self, late_s: Floats, sections: list[Section], carried_s: Floats | None = None
    ) -> bool:
        """Learn from a block; True if the answer for a section has changed.

        A rank's lateness lasts until a section evens it out. Its arrival is the time beyond its
        peers since the step began.

        Args:
            late_s: (T, R, S) seconds beyond the median of the peers, NaN if none.
            carried_s: (T, R) lateness at the begin of the step; None: unknown.
        """
        if not len(late_s):
            return False
        every = max(1, late_s.shape[1] // ENOUGH_RANKS)
        late_s = late_s[:, ::every]
        here = np.where(np.isnan(late_s), 0.0, late_s).transpose(0, 2, 1)
        arrival = np.cumsum(here, axis=1) - here
        if carried_s is not None:
            arrival += carried_s[:, None, ::every]
        changed, changed_arrival = (v - v.mean(axis=0) for v in (here, arrival))
        for s, section in enumerate(sections):
            if section.kind in LISTED_KINDS:
                of = section.name
                _add(self._moments, of, arrival[:, s], here[:, s])
                _add(self._of_changes, of, changed_arrival[:, s], changed[:, s])
        return self._decide()

    def forget(self, names: Iterable[str]) -> None:
        """Start over with these sections, whose times have changed meaning."""
        for name in names:
            self.behaves.discard(name)
            self._moments.pop(name, None)
            self._of_changes.pop(name, None)

    def _decide(self) -> bool:
        before = set(self.behaves)
        for name, moments in self._moments.items():
            line = _line(moments)
            if line is None:
                continue
            slope, error, explained = line
            if slope > LOCAL_ABOVE or explained < LOCAL_BELOW or self._is_lasting_only(name):
                self.behaves.discard(name)
            elif slope < WAITS_BELOW and slope < -MIN_T * error and explained > WAITS_ABOVE:
                self.behaves.add(name)
        return before != self.behaves

    def _is_lasting_only(self, name: str) -> bool:
        """Whether changes from step to step surely do not even out."""
        line = _line(self._of_changes[name])
        return line is not None and line[0] - MIN_T * line[1] > LOCAL_ABOVE


def _add(sums: dict[str, _Moments], name: str, arrival: Floats, here: Floats) -> None:
    """Add sums of x x, x y, y y and the count, clipped; earlier ones fade."""
    known, faded = arrival != 0.0, _FADE * sums.get(name, np.zeros(4))
    if known.any():
        x, y = _drawn_in(arrival[known]), _drawn_in(here[known])
        # Not "x @ y": for a few thousand numbers a BLAS that starts threads is far slower.
        faded[:3] += np.array((x * x, x * y, y * y)).sum(axis=1)
        faded[3] += len(x)
    sums[name] = faded


def _line(moments: _Moments) -> tuple[float, float, float] | None:
    """Slope of time over arrival, its standard error, and the part of variance explained."""
    xx, xy, yy, n = moments.tolist()
    if n < 16 or yy <= 0.0 or xx <= MIN_SIZE**2 * yy:
        return None
    slope = xy / xx
    error = math.sqrt(max(yy - slope * xy, 0.0) / (n - 1.0) / xx)
    return slope, error, slope * xy / yy


def _drawn_in(values: Floats) -> Floats:
    """Clip to 6 typical sizes: one rank must not decide for all."""
    if len(values) == 0:
        return values
    maximum = _MAX_SPREADS * median_of(np.abs(values))
    return np.minimum(np.maximum(values, -maximum), maximum)


def lateness(waited_s: Floats, step_s: Floats, groups: Groups) -> Floats:
    """(T, R) log1p of (median wait of the peers - own) / step; positive: others wait."""
    late = groups.medians(waited_s)[..., groups.code] - waited_s
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.log1p(np.maximum(late / step_s, -0.9)))


@dataclass(slots=True)
class WaitLedger:
    """Seconds that every device has caused and suffered since the start, by subject."""

    caused_s: dict[str, float] = field(default_factory=dict)
    suffered_s: dict[str, float] = field(default_factory=dict)

    def add(self, subjects: list[str], waited_s: Floats, groups: Groups) -> None:
        """Add (T, R) seconds in a waiting section; NaN if none. Per collective (step and group),
        the rank with the smallest time came last and caused the median of its peers to wait
        ``median - smallest``; everybody suffered ``own - smallest``."""
        gathered = groups.gather(waited_s)
        lowest = np.fmin.reduce(gathered, axis=-1)
        cost = groups.medians(waited_s) - lowest
        apart_s = waited_s - lowest[..., groups.code]
        suffered = np.where(np.isnan(apart_s), 0.0, apart_s).sum(axis=0)
        at = np.argmin(np.where(np.isnan(gathered), np.inf, gathered), axis=-1)
        culprit = groups.members[np.arange(len(groups)), at]
        counts = np.isfinite(cost) & (groups.size > 1)
        caused = np.bincount(culprit[counts], cost[counts], minlength=len(subjects) + 1)
        for totals, values in ((self.caused_s, caused), (self.suffered_s, suffered)):
            before = map(totals.get, subjects, itertools.repeat(0.0))
            totals.update(zip(subjects, map(operator.add, before, values.tolist()), strict=False))

    def rename(self, names: Mapping[str, str]) -> None:
        """Go on with subjects under other names, by the earlier ones."""
        for totals in (self.caused_s, self.suffered_s):
            totals.update({new: totals.pop(old) for old, new in names.items() if old in totals})

    def keep_only(self, subjects: list[str]) -> None:
        """Drop devices that are no longer in the run."""
        known = set(subjects)
        self.caused_s = {k: v for k, v in self.caused_s.items() if k in known}
        self.suffered_s = {k: v for k, v in self.suffered_s.items() if k in known}

    def state(self) -> dict[str, dict[str, float]]:
        return {"caused_s": self.caused_s, "suffered_s": self.suffered_s}

    def restore(self, state: dict[str, dict[str, float]]) -> None:
        self.caused_s = dict(state.get("caused_s", {}))
        self.suffered_s = dict(state.get("suffered_s", {}))


HALF_LIFE_STEPS = 200.0
RECENT_STEPS = 100
MIN_MEETINGS = 20.0
TIED = 0.02
"""Who comes so little before the last one, as a part of what that one costs, is last with it."""
MIN_PART = 0.25
"""Of those that come last, each must cost this part of what the costliest does."""
MIN_LAST = 0.45
"""A rank whose usual wait is short is late only if it is last in so many of the newest steps."""
NEWEST_STEPS, MIN_NEWEST = 40, 8


@dataclass(frozen=True, slots=True)
class Lateness:
    """How often a rank is the last of its peers for no measured reason: part of the steps, and the
    seconds that its peers then wait; and what that is per step in the newest 100."""

    share: float
    each_s: float
    now_s: float = math.nan

    def __str__(self) -> str:
        """
        >>> str(Lateness(share=0.4, each_s=0.0066))
        'the last of its peers in 40 % of the steps, by 0.0066 s'
        """
        often = f"{100 * self.share:.0f} % of the steps"
        return f"the last of its peers in {often}, by {self.each_s:.2g} s"


class LateArrivals:
    """Who comes last to the collectives of its peers, of R ranks. State: 350 bytes per rank.

    What a rank loses in its own sections is a reason, and is named there. By chance each of n peers
    is last in 1/n of the steps; as noise has memory, and so the same one is last in steps in a row,
    that many steps count as fewer.
    """

    def __init__(self, n_ranks: int) -> None:
        self._last = np.zeros(n_ranks)
        self._lost_s = np.zeros(n_ranks)
        self._steps = np.zeros(n_ranks)
        self._same: Floats = np.zeros(0)
        self._pairs: Floats = np.zeros(0)
        self._newest: list[Bools] = []
        self._recent: deque[tuple[Floats, Ints]] = deque()

    def observe(self, waited_s: Floats, own_late_s: Floats, groups: Groups) -> None:
        """The next steps: (T, R) seconds waited, and of own work beyond the peers; NaN if none."""
        gathered = groups.gather(waited_s)
        lowest = np.fmin.reduce(gathered, axis=-1)
        cost = groups.medians(waited_s) - lowest
        at = np.argmin(np.where(np.isnan(gathered), np.inf, gathered), axis=-1)
        culprit = groups.members[np.arange(len(groups)), at]
        met = np.isfinite(cost) & (groups.size > 1)
        own_s = np.take_along_axis(own_late_s, np.minimum(culprit, own_late_s.shape[1] - 1), axis=1)
        lost_s = np.maximum(cost - np.maximum(np.nan_to_num(own_s), 0.0), 0.0)
        counts = met & (lost_s >= 0.5 * cost) & (cost > 0.0)
        with np.errstate(invalid="ignore"):
            tied = waited_s <= (lowest + TIED * np.maximum(cost, 0.0))[:, groups.code]
        self._newest = [*self._newest, *(tied & met[:, groups.code])][-NEWEST_STEPS:]
        self._fade(len(waited_s), len(groups))
        self._steps += met.sum(axis=0)[groups.code]
        n_ranks = len(self._last)
        self._last += np.bincount(culprit[counts], minlength=n_ranks + 1)[:n_ranks]
        block_s: Floats = np.zeros(n_ranks)
        block_s += np.bincount(culprit[counts], lost_s[counts], minlength=n_ranks + 1)[:n_ranks]
        self._lost_s += block_s
        self._recent.append((block_s, met.sum(axis=0)[groups.code]))
        while sum(int(n.max(initial=0)) for _, n in self._recent) > RECENT_STEPS:
            self._recent.popleft()
        in_a_row = counts[1:] & counts[:-1]
        self._pairs += in_a_row.sum(axis=0)
        self._same += (in_a_row & (culprit[1:] == culprit[:-1])).sum(axis=0)

    def _fade(self, steps: int, n_groups: int) -> None:
        fade = 0.5 ** (steps / HALF_LIFE_STEPS)
        if len(self._same) != n_groups:
            self._same, self._pairs = np.zeros(n_groups), np.zeros(n_groups)
        for values in (self._last, self._lost_s, self._steps, self._same, self._pairs):
            np.multiply(values, fade, out=values)

    def found(self, groups: Groups, z: float, min_s: Floats) -> list[int]:
        """Ranks that are last more often than by ``z`` standard deviations of chance, and cost
        ``min_s`` (R,) seconds per step."""
        n = np.maximum(self._steps, 1.0)
        share = self._last / n
        chance = np.maximum(groups.medians(share), 0.5 / np.maximum(groups.size, 2))
        squares = np.bincount(groups.code, share**2, minlength=len(groups))
        same = self._same / np.maximum(self._pairs, 1.0)
        memory = (same - squares) / np.maximum(1.0 - squares, 0.05)
        memory = np.minimum(np.maximum(memory, 0.0), 0.98)
        effective = n * ((1.0 - memory) / (1.0 + memory))[groups.code]
        chance_here = chance[groups.code]
        error = np.sqrt(chance_here * (1.0 - chance_here) / effective)
        highest_s = np.zeros(len(groups))
        np.maximum.at(highest_s, groups.code, self._lost_s)
        is_late = (share - chance_here >= z * error) & (self._lost_s >= min_s * n)
        is_late &= (self._lost_s >= MIN_PART * highest_s[groups.code]) & (
            self._steps >= MIN_MEETINGS
        )
        return list(map(int, np.flatnonzero(is_late)))

    def lateness(self, row: int) -> Lateness | None:
        """None if it never was the last for no measured reason."""
        if not self._last[row] > 0.0:
            return None
        return Lateness(
            share=float(self._last[row] / max(self._steps[row], 1.0)),
            each_s=float(self._lost_s[row] / self._last[row]),
            now_s=float(
                sum(seconds[row] for seconds, _ in self._recent)
                / max(sum(int(n[row]) for _, n in self._recent), 1)
            ),
        )

    def is_last(self, rows: Ints, steps: int) -> bool:
        """Whether one of them is the last of its peers in half of the newest steps, of so many;
        True if unknown."""
        newest = [bool(step[rows].any()) for step in self._newest[-max(steps, MIN_NEWEST) :]]
        return not newest or sum(newest) >= MIN_LAST * len(newest)


TOGETHER_S, TOGETHER_PART = 1e-3, 0.01
"""Ranks that met leave within this, and this part of a step, of each other, ..."""
MEETS = 0.8
"""... in so many of the steps."""
AFTER = 0.02
"""One comes after another if it waits less by this part of the other's usual lateness."""


class Meetings:
    """Who leaves waiting sections together, over the newest 40 steps: those have met there, and who
    of them waited least came last. State: 16 bytes x 40 per rank and waiting section."""

    def __init__(self) -> None:
        self._blocks: deque[tuple[Ints, Floats]] = deque()

    def observe(self, ended_ns: Ints | None, waited_s: Floats) -> None:
        """The next steps: (T, R, W) ends and seconds in waiting sections. Without ends nobody is
        known to have met."""
        if ended_ns is None or (
            self._blocks and self._blocks[-1][0].shape[1:] != ended_ns.shape[1:]
        ):
            self._blocks.clear()
        if ended_ns is None:
            return
        self._blocks.append((ended_ns, waited_s))
        while sum(len(ends) for ends, _ in self._blocks) - len(self._blocks[0][0]) >= NEWEST_STEPS:
            self._blocks.popleft()

    def is_followed(self, row: int, peers: Bools, step_s: float) -> bool:
        """Whether somebody whom a rank meets usually comes after it, where it waits less than its
        ``peers`` (R,) by most. Cost: O(40 R)."""
        if not self._blocks:
            return False
        ended_ns = np.concatenate([ends for ends, _ in self._blocks])
        waited_s = np.concatenate([seconds for _, seconds in self._blocks])
        late_s = np.array(
            [
                nan_median((nan_median(part[:, peers].T, axis=0) - part[:, row])[:, None], axis=0)[
                    0
                ]
                for part in np.moveaxis(waited_s, 2, 0)
            ]
        )
        if not np.isfinite(late_s).any():
            return False
        at = int(np.nanargmax(late_s))
        ended_ns, waited_s = ended_ns[..., at], waited_s[..., at]
        known = (ended_ns > 0) & (ended_ns[:, row] > 0)[:, None]
        near_ns = 1e9 * min(TOGETHER_S, TOGETHER_PART * step_s)
        meets = known & (np.abs(ended_ns - ended_ns[:, row, None]) <= near_ns)
        meets[:, row] = False
        partners = meets.sum(axis=0) >= MEETS * np.maximum(known.sum(axis=0), MIN_NEWEST)
        margin_s = AFTER * max(float(late_s[at]), 0.0)
        with np.errstate(invalid="ignore"):
            after = meets & partners & (waited_s < waited_s[:, row, None] - margin_s)
        return 2 * int(after.any(axis=1).sum()) >= int(known[:, row].sum()) > 0


ALIKE = 0.25
"""Ranks that meet differ from each other by less than this part of their difference from peers."""


class SharedSections:
    """Which sections an inner group (tensor and context parallel) goes through together, so that
    all its ranks take what the slowest takes."""

    def __init__(self) -> None:
        self._meeting = WaitDetector()

    def shared(self, late_s: Floats, world: World, carried_from: int | None = None) -> Bools:
        """(S,) sections where ranks of a group take alike, or lateness evens out within the group.

        Args:
            late_s: (T, R, S) seconds beyond the median of the peers.
            carried_from: lateness from this section on carries into the next step, as nobody waits
                at its end; None: it does not.
        """
        shared = np.zeros(len(world.sections), bool)
        if len(world.inner) == world.n_ranks:
            return shared
        rows, groups = first_groups(world.inner)
        late_s = late_s[:, rows]
        middle = np.moveaxis(groups.medians(np.moveaxis(late_s, 1, -1)), -1, 1)
        apart = late_s - middle[:, groups.code]
        if carried_from is None:
            self._meeting.observe(apart, world.sections)
        else:
            carried_s = np.nansum(apart[:-1, :, carried_from:], axis=2)
            self._meeting.observe(apart[1:], world.sections, carried_s)
        for s, section in enumerate(world.sections):
            known = np.isfinite(apart[..., s])
            typical = np.median(np.abs(late_s[..., s][known])) if known.any() else 0.0
            is_alike = known.any() and np.median(np.abs(apart[..., s][known])) < ALIKE * typical
            shared[s] = bool(is_alike) or section.name in self._meeting.behaves
        return shared


def first_groups(groups: Groups) -> tuple[Bools, Groups]:
    """(R,) rows of the first groups, up to 2,048, and these groups."""
    rows = groups.code < max(1, ENOUGH_RANKS // int(groups.size.max(initial=1)))
    return rows, Groups.of(groups.code[rows].tolist())
