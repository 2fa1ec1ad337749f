"""The account of a run: its time by category, per rank and together, exactly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from otel_straggler.goodput.activities import (
    ALL_RANKS,
    ATTEMPT,
    NO_END,
    STEP,
    STRUCTURAL,
    Activities,
    category_of,
)
from otel_straggler.goodput.attempts import (
    Attempts,
    attempts_of,
    time_without_activity,
)
from otel_straggler.goodput.partition import Layer, Segments, ascending, painted
from otel_straggler.goodput.steps import (
    StepLosses,
    Steps,
    ideal_step_s,
    step_deviation_s,
    step_losses,
    steps_of,
)
from otel_straggler.model.observation import Floats, Ints
from otel_straggler.semconv import BADPUT, CUSTOM_PREFIX, EXCLUDED, PRODUCTIVE, RECOVERY_CATEGORIES

_REPORTED: Final = (
    "reinitialization", "scale_up", "replica_down", "restart", "shutdown", "scheduling", "start_up",
    "other", "slow_steps", "redone", "stragglers", "hang", "initialization", "preparation", "data",
    "checkpoint", "checkpoint_load", "eval",
)  # fmt: skip
"""Categories of activities, what covers others last; then those of ``CUSTOM_PREFIX``, then
``EXCLUDED``. An evaluation in a step, or data loaded in it, is no step."""


class StragglerLoss(NamedTuple):
    """Steps that begin in a period wait ``share`` of their time, 0 to 1, for a straggler."""

    start_ns: int
    end_ns: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAccount:
    """One rank: its time as segments, and its steps."""

    rank: int
    segments: Segments
    steps: Steps
    own_ns: Ints
    """(n,) of each row of ``steps``: its time without what has a category of its own."""

    def typical_steps(self) -> tuple[Floats, Ints]:
        """(n,) mean seconds and number of the steps of each row that counts, in the order of time,
        without the first step of an attempt."""
        is_first = self.steps.begins & (self.steps.count == 1)
        kept = (self.steps.redone == 0) & ~is_first
        count = self.steps.count[kept]
        return self.own_ns[kept] / count * 1e-9, count


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAccount:
    """Steps of a run; of the rank with most of them. Seconds are NaN if unknown.

    Attributes:
        productive: steps that count. newest: largest number among them, -1 without one.
        redone: steps that were done again later.
        disruptions: attempts after the first, and steps that went back within an attempt.
        ideal_s, mean_s: a step that nothing disturbs, and the mean of those that count but the
            first of an attempt. slowdown: their ratio.
        deviation_s: how far the newest steps are from the ideal one.
    """

    productive: int
    newest: int
    redone: int
    disruptions: int
    ideal_s: float
    mean_s: float
    deviation_s: float

    @property
    def slowdown(self) -> float:
        """1.2: steps take 1.2 times as long as an undisturbed one."""
        return self.mean_s / self.ideal_s if self.ideal_s > 0.0 else math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Where the time of a run went; R ranks and C categories.

    Attributes:
        start_ns, end_ns: of the run, since 1970.
        categories: ``productive``, those of ``semconv.BADPUT``, ``custom:`` ones, ``excluded``.
        ranks: (R,) ascending.
        time_ns: (R, C) time of each rank; each row adds up to ``elapsed_ns``.
        run_ns: (C,) mean over the ranks in whole nanoseconds; adds up to ``elapsed_ns``.
        by_rank: segments of each rank, for time lines and windows.
        attempts: (A,) restart counts, in the order of time; starts_ns, ends_ns: of each.
    """

    start_ns: int
    end_ns: int
    categories: tuple[str, ...]
    ranks: Ints
    time_ns: Ints
    run_ns: Ints
    by_rank: tuple[RankAccount, ...]
    attempts: Ints
    starts_ns: Ints
    ends_ns: Ints
    steps: StepAccount

    @property
    def elapsed_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def wall_ns(self) -> int:
        """``elapsed_ns`` less what is excluded: what goodput is a part of."""
        return self.elapsed_ns - self.of(EXCLUDED)

    @property
    def goodput(self) -> float:
        """Productive part of the wall time, 0 to 1; NaN if all is excluded."""
        return self.of(PRODUCTIVE) / self.wall_ns if self.wall_ns else math.nan

    @property
    def recovery_ns(self) -> int:
        """Recovery of the infrastructure from disruptions."""
        return sum(map(self.of, RECOVERY_CATEGORIES))

    @property
    def stepping_part(self) -> float:
        """Of the time of all ranks, the part in steps, whether they count or not: with elastic
        replicas, how much of what could compute did."""
        in_steps = (PRODUCTIVE, "slow_steps", "stragglers", "redone")
        return sum(map(self.of, in_steps)) / self.wall_ns if self.wall_ns else math.nan

    @property
    def available_part(self) -> float:
        """Of the time of all ranks that were ever there, the part in which they were."""
        return 1.0 - self.of("replica_down") / self.wall_ns if self.wall_ns else math.nan

    def of(self, category: str) -> int:
        """Mean over the ranks, nanoseconds; 0 for one that does not occur."""
        if category not in self.categories:
            return 0
        return int(self.run_ns[self.categories.index(category)])

    def goodput_of_ranks(self) -> Floats:
        """(R,) productive part of each rank's wall time; NaN if all is excluded."""
        excluded = self.time_ns[:, self.categories.index(EXCLUDED)]
        wall = (self.elapsed_ns - excluded).astype(np.float64)
        with np.errstate(invalid="ignore"):
            result: Floats = self.time_ns[:, self.categories.index(PRODUCTIVE)] / wall
        return result


def account(
    activities: Activities,
    *,
    reference_step_s: float | None = None,
    stragglers: Sequence[StragglerLoss] = (),
) -> Account | None:
    """Account for all time of a run, from its first activity to its last.

    At every moment a rank is in one category: exclusions cover custom activities, these cover the
    other reported ones, these cover steps, and what is left is named by where it lies.

    Args:
        reference_step_s: seconds of an ideal step; what steps take longer is ``slow_steps``.
        stragglers: what steps wait for slow ranks.

    Returns:
        None if no activity has a length.

    Cost: O(n log n).
    """
    attempts = attempts_of(activities, activities.is_a(STEP))
    if attempts is None:
        return None
    categories = _categories(activities)
    ranks = activities.ranks
    order = np.argsort(activities.rank, kind="stable")
    activities = activities.take(order)
    bounds = np.searchsorted(activities.rank, np.stack([ranks, ranks + 1]))
    shared = slice(*np.searchsorted(activities.rank, [ALL_RANKS, ALL_RANKS + 1]))
    rows_of_all = np.arange(len(activities))[shared]
    accountant = _Accountant(attempts, categories, reference_step_s, stragglers)
    by_rank = tuple(
        accountant.rank(rank, activities.take(np.concatenate([rows_of_all, np.arange(low, high)])))
        for rank, low, high in zip(ranks.tolist(), *bounds.tolist(), strict=True)
    )
    time_ns = np.stack([each.segments.totals_ns(len(categories)) for each in by_rank])
    return Account(
        start_ns=attempts.start_ns,
        end_ns=attempts.end_ns,
        categories=categories,
        ranks=ranks,
        time_ns=time_ns,
        run_ns=shared_out(time_ns, attempts.end_ns - attempts.start_ns),
        by_rank=by_rank,
        attempts=attempts.numbers,
        starts_ns=attempts.starts_ns,
        ends_ns=attempts.ends_ns,
        steps=_step_account(by_rank, attempts, reference_step_s),
    )


def shared_out(time_ns: Ints, whole_ns: int) -> Ints:
    """(C,) mean over the rows of (R, C), in integers that add up to ``whole_ns``.

    >>> shared_out(np.array([[1, 2], [0, 3]]), 3).tolist()
    [1, 2]
    """
    totals = [sum(column) for column in time_ns.T.tolist()]
    parts = [divmod(total, len(time_ns)) for total in totals]
    result = np.array([whole for whole, _ in parts], np.int64)
    missing = whole_ns - int(result.sum())
    largest = sorted(range(len(parts)), key=lambda at: -parts[at][1])
    result[largest[:missing]] += 1
    return result


def _categories(activities: Activities) -> tuple[str, ...]:
    reported = (category_of(name) for name in activities.names if name not in STRUCTURAL)
    custom = sorted({name for name in reported if name.startswith(CUSTOM_PREFIX)})
    return (PRODUCTIVE, *BADPUT, *custom, EXCLUDED)


class _Accountant:
    """Accounts for the ranks of one run, one by one."""

    def __init__(
        self,
        attempts: Attempts,
        categories: tuple[str, ...],
        reference_step_s: float | None,
        stragglers: Sequence[StragglerLoss],
    ) -> None:
        self._attempts = attempts
        self._categories = categories
        self._codes = {name: code for code, name in enumerate(categories)}
        self._reference_ns = None if reference_step_s is None else reference_step_s * 1e9
        self._stragglers = stragglers
        custom = [name for name in categories if name.startswith(CUSTOM_PREFIX)]
        self._painted = (*_REPORTED, *reversed(custom), EXCLUDED)

    def rank(self, rank: int, rows: Activities) -> RankAccount:
        is_step = rows.is_a(STEP)
        steps = steps_of(rows.take(is_step), self._attempts)
        layers = [
            *self._without_activity(rows, steps),
            Layer(self._codes[PRODUCTIVE], steps.start_ns, steps.end_ns),
            *self._activities(rows.take(~is_step)),
        ]
        attempts = self._attempts
        other = self._codes["restart"]
        segments = painted(attempts.start_ns, attempts.end_ns, layers, other)
        segments, own_ns = self._split_steps(segments, steps)
        return RankAccount(rank=rank, segments=segments, steps=steps, own_ns=own_ns)

    def _without_activity(self, rows: Activities, steps: Steps) -> Iterator[Layer]:
        attempts = self._attempts
        is_in = np.zeros(len(attempts.numbers), bool)
        known = np.isin(rows.attempt, attempts.numbers) & (
            (rows.rank != ALL_RANKS) | rows.is_a(ATTEMPT, STEP)
        )
        is_in[attempts.index_of(rows.attempt[known])] = True
        first, last = attempts.ends_ns.copy(), attempts.starts_ns.copy()
        np.minimum.at(first, steps.attempt, steps.start_ns)
        np.maximum.at(last, steps.attempt, steps.end_ns)
        for name, start_ns, end_ns in time_without_activity(attempts, is_in, first, last):
            yield Layer(self._codes[name], np.array([start_ns]), np.array([end_ns]))

    def _activities(self, rows: Activities) -> Iterator[Layer]:
        """Layers of reported categories; one without an end lasts as long as its attempt."""
        if not len(rows):
            return
        ends_ns = np.where(rows.end_ns == NO_END, self._end_of_attempt(rows), rows.end_ns)
        by_name: dict[str, list[int]] = {}
        for code, name in enumerate(rows.names):
            if name not in STRUCTURAL:
                by_name.setdefault(category_of(name), []).append(code)
        for name in self._painted:
            if name in by_name:
                chosen = np.isin(rows.what, by_name[name])
                yield Layer(self._codes[name], rows.start_ns[chosen], ends_ns[chosen])

    def _end_of_attempt(self, rows: Activities) -> Ints:
        """(n,) or the end of the run where the attempt is not known."""
        attempts = self._attempts
        known = np.isin(rows.attempt, attempts.numbers)
        ends_ns = np.full(len(rows), attempts.end_ns)
        ends_ns[known] = attempts.ends_ns[attempts.index_of(rows.attempt[known])]
        return ends_ns

    def _split_steps(self, segments: Segments, steps: Steps) -> tuple[Segments, Ints]:
        """Give the losses of steps categories of their own; also the own time of each row."""
        productive = self._codes[PRODUCTIVE]
        at = np.flatnonzero(segments.codes == productive)
        if not len(at):
            return segments.merged(), np.zeros(len(steps), np.int64)
        starts_ns, length_ns = segments.edges_ns[at], segments.length_ns[at]
        owner = np.searchsorted(steps.start_ns, starts_ns, "right") - 1
        own_ns = np.zeros(len(steps), np.int64)
        np.add.at(own_ns, owner, length_ns)
        losses = step_losses(steps, own_ns, self._share(steps), self._reference_ns)
        # Own time of all steps on one axis, on which the losses are cut out, then moved to time.
        row_at = np.cumsum(own_ns) - own_ns
        segment_at = np.cumsum(length_ns) - length_ns
        cuts = _cuts(row_at, own_ns, losses)
        inside = ascending(cuts)
        holder = np.searchsorted(segment_at, inside, "right") - 1
        times = starts_ns[holder] + inside - segment_at[holder]
        is_within = (times > starts_ns[holder]) & (times < starts_ns[holder] + length_ns[holder])
        edges_ns = ascending([segments.edges_ns, times[is_within]])
        codes = segments.codes[np.searchsorted(segments.edges_ns, edges_ns[:-1], "right") - 1]
        chosen = np.flatnonzero(codes == productive)
        holder = np.searchsorted(starts_ns, edges_ns[chosen], "right") - 1
        where = segment_at[holder] + edges_ns[chosen] - starts_ns[holder]
        row = owner[holder]
        names = ("", "slow_steps", "stragglers", "redone")
        result = np.where(where < cuts[0][row], self._start_codes(steps)[row], productive)
        for name, cut in zip(names[1:], cuts[1:], strict=True):
            result = np.where(where >= cut[row], self._codes[name], result)
        codes[chosen] = result
        return Segments(edges_ns, codes).merged(), own_ns

    def _start_codes(self, steps: Steps) -> Ints:
        starting = self._codes["start_up"], self._codes["reinitialization"]
        return np.where(steps.attempt == 0, *starting)

    def _share(self, steps: Steps) -> Floats:
        share = np.zeros(len(steps))
        for loss in self._stragglers:
            share[(steps.start_ns >= loss.start_ns) & (steps.start_ns < loss.end_ns)] += loss.share
        return np.clip(share, 0.0, 1.0)


def _cuts(row_at: Ints, own_ns: Ints, losses: StepLosses) -> tuple[Ints, Ints, Ints, Ints]:
    """(n,) where the starting part of a row ends, and where its losses begin, on the axis of own
    time: slow, stragglers, redone."""
    redone = row_at + own_ns - losses.redone
    stragglers = redone - losses.stragglers
    return row_at + losses.starting, stragglers - losses.slow, stragglers, redone


def _step_account(
    by_rank: Sequence[RankAccount], attempts: Attempts, reference_step_s: float | None
) -> StepAccount:
    counted = [int((each.steps.count - each.steps.redone).sum()) for each in by_rank]
    seconds, counts = map(np.concatenate, zip(*(r.typical_steps() for r in by_rank), strict=True))
    ideal_s = ideal_step_s(seconds) if reference_step_s is None else reference_step_s
    newest_of_busiest, _ = by_rank[int(np.argmax(counted))].typical_steps()
    with_steps = [each.steps for each in by_rank if len(each.steps)]
    newest = (int((steps.first + steps.count - 1).max()) for steps in with_steps)
    went_back = (
        int((steps.begins[1:] & (steps.attempt[1:] == steps.attempt[:-1])).sum())
        for steps in with_steps
    )
    return StepAccount(
        productive=max(counted),
        newest=max(newest, default=-1),
        redone=max((int(steps.redone.sum()) for steps in with_steps), default=0),
        disruptions=max(len(attempts.numbers) - 1, 0) + max(went_back, default=0),
        ideal_s=ideal_s,
        mean_s=float((seconds * counts).sum() / counts.sum()) if len(counts) else math.nan,
        deviation_s=step_deviation_s(newest_of_busiest, ideal_s),
    )
