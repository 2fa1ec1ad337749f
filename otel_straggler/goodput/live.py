"""The account of a run that goes on, in bounded memory: the past as totals, the newest part as
activities, which late spans and verdicts may still change.

One process stands for all of them: the steps are the windows of all ranks, and phases are those of
the lowest rank.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np

from otel_straggler.goodput.account import Account, account
from otel_straggler.goodput.activities import (
    ATTEMPT,
    RUN,
    STEP,
    Activities,
    Activity,
    category_of,
    steps_between,
)
from otel_straggler.goodput.launches import activities_of_launches
from otel_straggler.goodput.straggler_losses import straggler_losses
from otel_straggler.goodput.windows import time_between
from otel_straggler.model.decoding import plain, read_as
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import Verdict
from otel_straggler.semconv import CUSTOM_PREFIX, EXCLUDED, PRODUCTIVE

_S: Final = 10**9
BIN_NS: Final = 300 * _S
ROLLING_S: Final = (3_600, 86_400)
"""Lengths of rolling windows; the first is that of the alert. They begin with a bin."""
_MAX_ROWS: Final = 200
"""Beyond it, the older half becomes totals."""
_MAX_CUSTOM: Final = 8
"""Categories of the user's own; further ones are one together."""
_OTHER_CUSTOM: Final = f"{CUSTOM_PREFIX}<other>"
MAX_LAUNCHES: Final = 100
_MAX_STRETCHES: Final = 1_024
_KEPT_ATTEMPTS: Final = 2
_STATE_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True, eq=False)
class GoodputView:
    """The account of one run and group at one moment.

    Attributes:
        start_ns, end_ns: of what is accounted for, since 1970, by the clocks of the ranks.
        time_ns: time by category; adds up to ``end_ns - start_ns``.
        rolling: length of a window in seconds, and the goodput in it; without windows that are
            longer than the run.
        attempts: that were seen. launches: newest events of its launchers.
    """

    start_ns: int
    end_ns: int
    time_ns: Mapping[str, int]
    rolling: tuple[tuple[float, float], ...] = ()
    attempts: int = 1
    launches: tuple[LaunchEvent, ...] = ()

    @property
    def wall_ns(self) -> int:
        """Without what is excluded."""
        return self.end_ns - self.start_ns - self.time_ns.get(EXCLUDED, 0)

    @property
    def goodput(self) -> float:
        """0 to 1; NaN if all is excluded."""
        return self.time_ns.get(PRODUCTIVE, 0) / self.wall_ns if self.wall_ns else float("nan")


class Progress(NamedTuple):
    """How far a run has come, beyond its newest window.

    Attributes:
        step, at_ns: newest step of the lowest rank, and when it progressed last; -1 if unknown.
        now_ns: if ranks make no progress: the time up to which that lasts; else 0.
        ended_ns: if all ranks have ended: when; else 0.
    """

    step: int = -1
    at_ns: int = 0
    now_ns: int = 0
    ended_ns: int = 0


NO_PROGRESS: Final = Progress()


class _Stretch(NamedTuple):
    """Productive time of a bin, and the steps that were done in it, up to ``end``."""

    at_ns: int
    first: int
    end: int
    productive_ns: int


@dataclass(slots=True)
class LiveGoodput:
    """Of one run and group; about 100 KB at most. One thread owns it; time is an argument.

    Attributes:
        launches: newest events of the run's launchers.
        has_news: something came since the last evaluation.
    """

    _rows: list[Activity] = field(default_factory=list)
    _lives: dict[int, tuple[int, int]] = field(default_factory=dict)
    _ranks: dict[int, int] = field(default_factory=dict)
    _custom: dict[str, None] = field(default_factory=dict)
    _start_ns: int = 0
    _from_ns: int = 0
    _totals: Counter[str] = field(default_factory=Counter)
    _bins: dict[int, Counter[str]] = field(default_factory=dict)
    _stretches: list[_Stretch] = field(default_factory=list)
    _n_attempts: int = 0
    _ahead_ns: int = 0
    launches: deque[LaunchEvent] = field(default_factory=lambda: deque(maxlen=MAX_LAUNCHES))
    has_news: bool = False

    @property
    def nbytes(self) -> int:
        """Memory, roughly."""
        return 200 * (len(self._rows) + len(self._stretches)) + 600 * len(self._bins)

    # --- what comes in -----------------------------------------------------------------------

    def observe_window(self, window: WindowScores) -> None:
        """Steps of a window, and their mean waiting for data, which lies at its start."""
        if window.first_step is None or window.end_ns <= window.start_ns:
            return
        steps = max(window.n_steps, 1)
        start_ns, end_ns = self._on_lowest_clock(window)
        self._close_gap_before(window, start_ns)
        row = Activity(STEP, start_ns, end_ns, 0, window.attempt, window.first_step, steps)
        self._add(row)
        is_data = [each.kind == "data" and not each.parent for each in window.sections]
        if any(is_data):
            of_ranks_s = window.section_median_s[:, is_data] * window.section_count[:, is_data]
            data_ns = round(float(np.nansum(of_ranks_s) / len(of_ranks_s)) * 1e9)
            end_ns = min(start_ns + data_ns, end_ns)
            self._add(Activity("data", start_ns, end_ns, 0, window.attempt))

    def _on_lowest_clock(self, window: WindowScores) -> tuple[int, int]:
        """Start and end of a window by the clock of the lowest rank, which is that of phases and
        progress; where all ranks have one clock, of all ranks."""
        low_ns, high_ns = window.lowest_ns
        ahead_ns = window.end_ns - high_ns if high_ns > low_ns else 0
        is_one_clock = ahead_ns <= max(high_ns - low_ns, _S)
        self._ahead_ns = 0 if is_one_clock else ahead_ns
        return (window.start_ns, window.end_ns) if is_one_clock else (low_ns, high_ns)

    def _close_gap_before(self, window: WindowScores, start_ns: int) -> None:
        """The last step before a window lasts until it begins: what follows its last section is a
        part of it, as in the steps before. A longer gap is none."""
        at = next((n for n in reversed(range(len(self._rows))) if self._rows[n].what == STEP), None)
        if at is None:
            return
        last = self._rows[at]
        step_ns = (last.end_ns - last.start_ns) // max(last.steps - 1, 1)
        is_next = (last.attempt, last.step + last.steps) == (window.attempt, window.first_step)
        if is_next and last.end_ns > self._from_ns and start_ns - last.end_ns <= step_ns:
            self._rows[at] = last._replace(end_ns=max(last.end_ns, start_ns))

    def observe_activity(self, source: Source, row: Activity) -> None:
        """A phase of a rank; counts if no lower rank is known in its attempt."""
        if source.rank > self._ranks.get(source.attempt, source.rank):
            return
        self._ranks[source.attempt] = source.rank
        name = category_of(row.what)
        if name.startswith(CUSTOM_PREFIX):
            if len(self._custom) < _MAX_CUSTOM:
                self._custom[name] = None
            name = name if name in self._custom else _OTHER_CUSTOM
        self._add(row._replace(what=name, rank=0, attempt=source.attempt))

    def observe_launch(self, event: LaunchEvent) -> None:
        """An event of a launcher of the run."""
        if event not in self.launches:
            self.launches.append(event)
            self.has_news = True

    def _add(self, row: Activity) -> None:
        newest = max(self._lives, default=row.attempt)
        if row.end_ns <= max(self._from_ns, row.start_ns) or row.attempt < newest - 1:
            return  # too late
        low, high = self._lives.get(row.attempt, (row.start_ns, row.end_ns))
        self._n_attempts += row.attempt not in self._lives
        self._lives[row.attempt] = min(low, row.start_ns), max(high, row.end_ns)
        for old in sorted(self._lives)[:-_KEPT_ATTEMPTS]:
            del self._lives[old]
            self._ranks.pop(old, None)
        self._rows.append(row)
        self.has_news = True
        del self._rows[: max(0, len(self._rows) - 4 * _MAX_ROWS)]

    # --- the account -------------------------------------------------------------------------

    def evaluate(
        self,
        group: str,
        *,
        progress: Progress = NO_PROGRESS,
        changes: Iterable[Verdict] = (),
    ) -> GoodputView | None:
        """The account up to now; None before the first step or phase.

        Args:
            changes: of verdicts of the run, for what stragglers cost.

        Cost: O(rows), a millisecond or two.
        """
        self.has_news = False
        rows = self._known_rows()
        if not rows:
            return None
        rows += self._newest_rows(rows, progress)
        activities = Activities.of(rows)
        if self._ahead_ns:  # verdicts have the foremost clock
            changes = [replace(each, at_ns=each.at_ns - self._ahead_ns) for each in changes]
        losses = straggler_losses(changes, activities, group)
        result = account(activities, stragglers=losses)
        if result is None:
            return None
        self._start_ns = self._start_ns or result.start_ns
        self._from_ns = self._from_ns or result.start_ns
        self._mark_redone()
        view = self._view(result, is_over=progress.ended_ns > 0)
        if len(self._rows) > _MAX_ROWS:
            self._commit(result)
        return view

    def _known_rows(self) -> list[Activity]:
        lives = [Activity(ATTEMPT, *span, 0, number) for number, span in self._lives.items()]
        if not lives:
            return []
        oldest = min(self._lives)
        known = [event for event in self.launches if event.attempt >= oldest]
        reported = [
            row._replace(rank=0) for row in activities_of_launches(known).rows() if row.what != RUN
        ]
        return [*lives, *dict.fromkeys(reported), *self._rows]

    def _newest_rows(self, rows: Sequence[Activity], progress: Progress) -> list[Activity]:
        """Steps of the open window, and time without progress."""
        attempt = max(row.attempt for row in rows)
        steps = [row for row in rows if row.what == STEP and row.attempt == attempt]
        result: list[Activity] = []
        end_ns = max(row.end_ns for row in rows)
        if steps:
            last = max(steps, key=lambda row: row.end_ns)
            done = last.step + last.steps
            if progress.step >= done and progress.at_ns > last.end_ns:
                span = last.end_ns, progress.at_ns
                result.append(Activity(STEP, *span, 0, attempt, done, progress.step - done + 1))
        elif progress.at_ns > end_ns:
            result.append(Activity(ATTEMPT, end_ns, progress.at_ns, 0, attempt))
        end_ns = max((end_ns, *(row.end_ns for row in result)))
        if progress.ended_ns > end_ns:
            result.append(Activity(ATTEMPT, end_ns, progress.ended_ns, 0, attempt))
        elif progress.now_ns > end_ns:
            result.append(Activity("hang", end_ns, progress.now_ns, 0, attempt))
        return result

    def _view(self, result: Account, *, is_over: bool) -> GoodputView:
        newest_ns = time_between(result, self._from_ns, result.end_ns, is_over=is_over)
        time_ns = self._totals + newest_ns
        rolling = []
        for length_s in ROLLING_S:
            begin_ns = -(-(result.end_ns - length_s * _S) // BIN_NS) * BIN_NS
            if begin_ns < self._start_ns:
                continue
            newest = time_between(result, max(begin_ns, self._from_ns), result.end_ns)
            for at_ns, its in self._bins.items():
                if at_ns >= begin_ns:
                    newest.update(its)
            wall_ns = newest.total() - newest[EXCLUDED]
            if wall_ns > 0:
                rolling.append((float(length_s), newest[PRODUCTIVE] / wall_ns))
        return GoodputView(
            start_ns=self._start_ns,
            end_ns=result.end_ns,
            time_ns=dict(time_ns),
            rolling=tuple(rolling),
            attempts=self._n_attempts,
            launches=tuple(self.launches),
        )

    # --- the past ----------------------------------------------------------------------------

    def _commit(self, result: Account) -> None:
        """Make totals of the older half of the rows. The last step before stays among the rows: it
        says that its attempt has begun."""
        ends_ns = sorted(row.end_ns for row in self._rows)
        until_ns = ends_ns[len(ends_ns) // 2]
        past = [row for row in self._rows if row.end_ns <= until_ns]
        steps = [row for row in past if row.what == STEP]
        kept = [max(steps, key=lambda row: row.end_ns)] if steps else []
        self._rows = [*kept, *(row for row in self._rows if row.end_ns > until_ns)]
        first_bin = self._from_ns // BIN_NS
        for number in range(first_bin, until_ns // BIN_NS + 1):
            at_ns = number * BIN_NS
            low, high = max(at_ns, self._from_ns), min(at_ns + BIN_NS, until_ns)
            if high > low:
                self._add_past(
                    at_ns, time_between(result, low, high), steps_between(steps, low, high)
                )
        self._from_ns = until_ns
        oldest_ns = until_ns - ROLLING_S[-1] * _S - BIN_NS
        for at_ns in [at_ns for at_ns in self._bins if at_ns < oldest_ns]:
            del self._bins[at_ns]

    def _add_past(self, at_ns: int, time_ns: Counter[str], steps: tuple[int, int] | None) -> None:
        self._totals.update(time_ns)
        self._bins.setdefault(at_ns, Counter()).update(time_ns)
        if steps is not None and time_ns[PRODUCTIVE]:
            self._stretches.append(_Stretch(at_ns, *steps, time_ns[PRODUCTIVE]))
        if len(self._stretches) > _MAX_STRETCHES:
            pairs = zip(self._stretches[::2], self._stretches[1::2], strict=False)
            odd = self._stretches[len(self._stretches) & ~1 :]
            self._stretches = [*(_together(*pair) for pair in pairs), *odd]

    def _mark_redone(self) -> None:
        """Of the past, steps that come again after it were done in vain."""
        newer = [row.step for row in self._rows if row.what == STEP and row.end_ns > self._from_ns]
        if not newer or not self._stretches or self._stretches[-1].end <= min(newer):
            return
        floor = min(newer)
        kept: list[_Stretch] = []
        for its in self._stretches:
            n_redone = its.end - max(its.first, floor)
            redone_ns = its.productive_ns * max(n_redone, 0) // max(its.end - its.first, 1)
            left = its._replace(
                end=min(its.end, floor), productive_ns=its.productive_ns - redone_ns
            )
            kept += [left] if left.end > left.first and left.productive_ns else []
            for time_ns in (self._totals, self._bins.get(its.at_ns, Counter())):
                moved_ns = min(redone_ns, time_ns[PRODUCTIVE])
                time_ns[PRODUCTIVE] -= moved_ns
                time_ns["redone"] += moved_ns
        self._stretches = kept

    # --- over restarts of the collector ------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """In JSON's types."""
        return {
            "version": _STATE_VERSION,
            "rows": [list(row) for row in self._rows],
            "lives": [[number, *span] for number, span in self._lives.items()],
            "ranks": [list(each) for each in self._ranks.items()],
            "custom": list(self._custom),
            "start_ns": self._start_ns,
            "from_ns": self._from_ns,
            "totals": dict(self._totals),
            "bins": [[at_ns, dict(its)] for at_ns, its in self._bins.items()],
            "stretches": [list(each) for each in self._stretches],
            "attempts": self._n_attempts,
            "launches": [plain(event) for event in self.launches],
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> LiveGoodput:
        """Go on from :meth:`state`.

        Raises:
            ValueError, KeyError, TypeError: it is none.
        """
        if state["version"] != _STATE_VERSION:
            raise ValueError(f"version {state['version']!r}")
        live = cls(
            _rows=[Activity(*row) for row in state["rows"]],
            _lives={number: (low, high) for number, low, high in state["lives"]},
            _ranks=dict(state["ranks"]),
            _custom=dict.fromkeys(state["custom"]),
            _start_ns=int(state["start_ns"]),
            _from_ns=int(state["from_ns"]),
            _totals=Counter(state["totals"]),
            _bins={at_ns: Counter(its) for at_ns, its in state["bins"]},
            _stretches=[_Stretch(*each) for each in state["stretches"]],
            _n_attempts=int(state["attempts"]),
        )
        live.launches.extend(read_as(LaunchEvent, event) for event in state["launches"])
        return live


def _together(first: _Stretch, second: _Stretch) -> _Stretch:
    return _Stretch(
        second.at_ns,
        min(first.first, second.first),
        max(first.end, second.end),
        first.productive_ns + second.productive_ns,
    )
