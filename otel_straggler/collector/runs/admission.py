"""Which runs and groups are admitted, and when they are evicted.

A job with a new run id for each process or restart (often a time stamp) would evict everybody else
and fill the memory: active runs keep their places, further ones are rejected, counted, and
reported. Eviction must not resolve an alert: a run that is stuck or lost stays for days, and is
then ``forgotten`` for an hour before it is evicted.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from otel_straggler.collector.runs.contents import Content, senders_of, without
from otel_straggler.collector.runs.places import LIVE_S, Places, Refused, What
from otel_straggler.collector.runs.run import Run
from otel_straggler.collector.runs.store import RunStore
from otel_straggler.collector.settings import ScoringSettings
from otel_straggler.model.rank import Source
from otel_straggler.model.verdict import hang_subject

_log = logging.getLogger(__name__)

_MAX_REMEMBERED = 1_000
WHATS: Final[tuple[What, ...]] = ("run", "group")
_WHY: Final[dict[What, str]] = {
    "run": "{maximum} runs are being watched (scoring.max_runs); further ones are rejected, "
    "{name!r} among them ({count} in the last two minutes). Does a job make a new run id for each "
    "process or each restart, from a time stamp perhaps? Give all its ranks one: "
    "export OTEL_STRAGGLER_RUN_ID=my-run-1",
    "group": "{maximum} groups of a run are being watched (scoring.max_groups); further ones are "
    "rejected, {name!r} among them ({count} in the last two minutes). A group is a world of "
    "ranks within a run; does the job make a new name for each process or each restart? Give them "
    "lasting names; a place is free again once its group has ended, or is silent for two minutes",
}


_NAMES: Final = (
    "run {run_id!r} has more than {maximum} section names (scoring.max_section_names); {name!r} "
    "and others are scored together as <other>. Is the number of a step or a file part of the "
    'name? Give a section one name for the whole run, as in section("forward")'
)


_REFUSED: Final[dict[What, str]] = {
    "run": "{maximum} runs are watched (scoring.max_runs), and {name!r} is not one of them; it is "
    "once one of them has ended, or is silent for two minutes",
    "group": "{maximum} groups of this run are watched (scoring.max_groups), and {name!r} is not "
    "one of them; it is once one of them has ended, or is silent for two minutes",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Senders of a request that have no place, and why the first of them has none."""

    senders: frozenset[Source] = frozenset()
    why: str = ""


class AdmissionControl:
    """Admits what has a place (:class:`Places`). Thread-safe; time is an argument. What the scoring
    thread admits is in ``store`` from then on.

    Attributes:
        counts: rejected requests, by what there are too many of.
    """

    def __init__(self, limits: ScoringSettings, store: RunStore) -> None:
        self._store = store
        self._places = Places(limits.max_runs, limits.max_groups)
        self._max: dict[What, int] = {"run": limits.max_runs, "group": limits.max_groups}
        self._max_section_names = limits.max_section_names
        self._rejected: dict[tuple[What, str], float] = {}
        self._logged: set[str] = set()
        self._lock = threading.Lock()
        self.counts: Counter[What] = Counter()

    # --- from any thread -------------------------------------------------------------------------

    def claim(self, content: Content, now_s: float) -> Refusal:
        """Take a place for each sender of a request, before it is acknowledged; returns those that
        get none."""
        refused = self._places.claim(senders_of(content), now_s)
        if not refused:
            return Refusal()
        self._reject(refused, now_s)
        what = next(what for what in WHATS if what in refused.values())
        source = next(source for source, its in refused.items() if its == what)
        name = source.run_id if what == "run" else source.group
        why = _REFUSED[what].format(maximum=f"{self._max[what]:,}", name=name[:60])
        return Refusal(frozenset(refused), why)

    def problem(self, what: What) -> str:
        """That there are too many, and what to do; empty if nothing was rejected lately."""
        with self._lock:
            names = [name for kind, name in self._rejected if kind == what]
            is_cut = len(self._rejected) >= _MAX_REMEMBERED
        if not names:
            return ""
        count = f"{'at least ' if is_cut else ''}{len(names):,}"
        return _WHY[what].format(maximum=self._max[what], count=count, name=names[-1][:60])

    # --- of the scoring thread -------------------------------------------------------------------

    def admitted(self, content: Content, now_s: float) -> Content:
        """A request without what is rejected: nothing of what has claimed its place in time."""
        refused = self.claim(content, now_s).senders
        for source in senders_of(content):
            if refused and source in refused:
                continue
            self._store.run(source.run_id).admitted_at_s = now_s
            self._store.world_of(source).admitted_at_s = now_s
        return without(content, refused)

    def end(self, source: Source, now_s: float) -> None:
        """A rank has ended: unless another reports, its place is free."""
        self._places.end(source, now_s)
        self._store.run(source.run_id).admitted_at_s = now_s - LIVE_S
        self._store.world_of(source).admitted_at_s = now_s - LIVE_S

    def drop_old(self, now_s: float) -> None:
        """Drop rejections that are no longer a problem, and free places of what was evicted."""
        limit_s = now_s - LIVE_S
        with self._lock:
            self._rejected = {k: at_s for k, at_s in self._rejected.items() if at_s >= limit_s}
        known = {run.run_id: run.worlds.keys() for run in self._store.runs.values()}
        self._places.keep_only(known, now_s)

    def problems(self, folded_names: Mapping[str, str]) -> tuple[str, ...]:
        """Problems with their remedies; each is logged once.

        Args:
            folded_names: runs with too many section names, each with a folded one.
        """
        reported = [problem for what in WHATS if (problem := self.problem(what))]
        if folded_names:
            run_id, name = next(iter(folded_names.items()))
            maximum = self._max_section_names
            reported.append(_NAMES.format(run_id=run_id[:60], maximum=maximum, name=name[:60]))
            self._log_once("section", reported[-1])
        return tuple(reported)

    def _reject(self, refused: Refused, now_s: float) -> None:
        named = {
            (what, source.run_id if what == "run" else source.group)
            for source, what in refused.items()
        }
        with self._lock:
            self.counts.update({what for what, _ in named})
            for key in named:
                if key in self._rejected or len(self._rejected) < _MAX_REMEMBERED:
                    self._rejected[key] = now_s
        for what in {what for what, _ in named}:
            if what not in self._logged:
                self._log_once(what, self.problem(what))

    def _log_once(self, what: str, problem: str) -> None:
        with self._lock:
            is_new = what not in self._logged
            self._logged.add(what)
        if is_new:
            _log.warning("%s", problem)


SHOWN_S: Final = 3_600.0
"""How long a run is shown as forgotten."""


class Eviction:
    """The rules; time is an argument. ``give_up_s``: how long a run that hangs stays."""

    def __init__(self, limits: ScoringSettings, give_up_s: float) -> None:
        self._evict_s = limits.evict_run_s
        self._max_runs = limits.max_runs
        self._max_groups = limits.max_groups
        self._give_up_s = give_up_s

    def due_worlds(self, run: Run, now_s: float) -> list[str]:
        """Groups of a run to evict now: too many, or idle and never known."""
        known = {world.group: world for world in run.known_worlds()}
        idle = [
            group
            for group, world in run.worlds.items()
            if group not in known and now_s - world.admitted_at_s >= LIVE_S
        ]
        if len(known) <= self._max_groups:
            return idle
        hung = run.hung()
        minimum = min_missed(
            {group: world.liveness.touched_at_s or 0.0 for group, world in known.items()},
            self._max_groups,
            lambda group: hang_subject(group) in hung,
            lambda group: known[group].has_ended,
            now_s,
        )
        return [*idle, *minimum]

    def due_runs(
        self, runs: Collection[Run], needs_somebody: Callable[[Run], bool], now_s: float
    ) -> list[str]:
        """Runs to evict now. Cost: O(runs), and a sort where there are too many.

        Args:
            needs_somebody: whether it is stuck or lost, and not acknowledged.
        """
        known = {run.run_id: run for run in runs if run.is_known}
        gone = [
            run.run_id
            for run in runs
            if (
                self._goes(run, needs_somebody, now_s)
                if run.is_known
                else now_s - run.admitted_at_s >= LIVE_S
            )
        ]
        left = {run_id: run for run_id, run in known.items() if run_id not in gone}
        if len(left) > self._max_runs:
            stays = {
                run_id: run.given_up_at_s is None and needs_somebody(run)
                for run_id, run in left.items()
            }
            gone += min_missed(
                {run_id: run.touched_at_s for run_id, run in left.items()},
                self._max_runs,
                stays.__getitem__,
                lambda run_id: left[run_id].has_ended,
                now_s,
            )
        return gone

    def _goes(self, run: Run, needs_somebody: Callable[[Run], bool], now_s: float) -> bool:
        idle_s = now_s - run.touched_at_s
        if run.given_up_at_s is not None:
            if idle_s < self._give_up_s:
                run.given_up_at_s = None  # it reports again
                return False
            return now_s - run.given_up_at_s >= SHOWN_S
        if idle_s < min(self._evict_s, self._give_up_s):
            return False
        if not needs_somebody(run):
            return idle_s >= self._evict_s
        if idle_s >= self._give_up_s:
            run.given_up_at_s = now_s
            _log.warning(
                "monitoring gave up on run %s: it was stuck or lost when it last reported, "
                "%.0f hours ago, and has neither recovered nor reported its end",
                run.run_id,
                idle_s / 3_600.0,
            )
        return False


def min_missed(
    received: Mapping[str, float],
    limit: int,
    hangs: Callable[[str], bool],
    has_ended: Callable[[str], bool],
    now_s: float,
) -> Iterator[str]:
    """Names beyond the limit: first what has ended or is silent, longest first, of that what hangs
    last; then what is live. What has just ended is not live: else a rank between two heartbeats
    would be evicted for it.

    >>> received = {"trains": 90.0, "ended": 99.0, "new": 100.0}
    >>> list(min_missed(received, 2, lambda _: False, lambda name: name == "ended", 100.0))
    ['ended']
    """

    def rank(name: str) -> tuple[bool, bool, float]:
        is_live = now_s - received[name] < LIVE_S and not has_ended(name)
        return is_live, hangs(name), received[name]

    return iter(sorted(received, key=rank)[: max(0, len(received) - limit)])
