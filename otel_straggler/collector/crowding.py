"""Which runs and groups are let in. A job that makes a new name for each process or each restart (a
time stamp as its run id is the classic) would push out everybody else, fill the memory, and show
nothing of itself: runs that send keep their places, further ones are turned away, counted and told.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from otel_straggler.collector.settings import ScoringSettings
from otel_straggler.model.rank import Source
from otel_straggler.wire.metric_rules import DecodedMetrics
from otel_straggler.wire.span_rules import DecodedSpans

_log = logging.getLogger(__name__)

LIVE_S: Final = 120.0
"""Who was heard of within this time keeps its place; twice the rarest thing that a rank sends."""
_MOST_REMEMBERED = 1_000
What: TypeAlias = Literal["run", "group"]
WHATS: Final[tuple[What, ...]] = ("run", "group")
_WHY: Final[dict[What, str]] = {
    "run": "{most} runs are being watched (scoring.max_runs); further ones are turned away, "
    "{name!r} among them ({count} in the last two minutes). Does a job make a new run id for each "
    "process or each restart, from a time stamp perhaps? Give all its ranks one: "
    "export OTEL_STRAGGLER_RUN_ID=my-run-1",
    "group": "{most} groups of a run are being watched (scoring.max_groups); further ones are "
    "turned away, {name!r} among them ({count} in the last two minutes). A group is a world of "
    "ranks within a run; does the job make a new name for each process or each restart? Give them "
    "lasting names; a place is free again once its group has ended, or is silent for two minutes",
}


_NAMES: Final = (
    "run {run_id!r} has more than {most} section names (scoring.max_section_names); {name!r} and "
    "others are scored together as <other>. Is the number of a step or a file part of the name? "
    'Give a section one name for the whole run, as in section("forward")'
)


@dataclass(slots=True)
class _Run:
    heard_at_s: float
    groups: dict[str, float] = field(default_factory=dict)
    """When each was heard of."""


class Crowding:
    """Owned by the worker's thread; time is an argument. Cost: some hundred ns per known source,
    O(runs) per source of a new run.

    Args:
        limits: how many runs, groups of a run, and section names.
    """

    def __init__(self, limits: ScoringSettings) -> None:
        self._most: dict[What, int] = {"run": limits.max_runs, "group": limits.max_groups}
        self._max_section_names = limits.max_section_names
        self._runs: dict[str, _Run] = {}
        self._turned_away: dict[tuple[What, str], float] = {}
        self._was_said: set[str] = set()
        self.counts: Counter[What] = Counter()

    def admitted(
        self, content: DecodedSpans | DecodedMetrics, now_s: float
    ) -> DecodedSpans | DecodedMetrics:
        """What is left of a request."""
        if isinstance(content, DecodedSpans):
            return self._spans(content, now_s)
        return self._metrics(content, now_s)

    def _spans(self, content: DecodedSpans, now_s: float) -> DecodedSpans:
        sources = {*content.batch.sources, *content.progress}
        gone = {source for source in sources if not self._admits(source, now_s)}
        if not gone:
            return content
        is_left = np.array([source not in gone for source in content.batch.sources], bool)
        batch = content.batch
        return replace(
            content,
            batch=batch.take(is_left[batch.source]),
            progress={s: told for s, told in content.progress.items() if s not in gone},
        )

    def _metrics(self, content: DecodedMetrics, now_s: float) -> DecodedMetrics:
        kernels = content.kernel_times
        sources = {beat.source for beat in content.heartbeats}
        sources.update(times.source for times in content.section_times)
        sources.update(told.source for told in content.told)
        sources.update(() if kernels is None else kernels.sources)
        gone = {source for source in sources if not self._admits(source, now_s)}
        if not gone:
            return content
        if kernels is not None:
            is_left = np.array([source not in gone for source in kernels.sources], bool)
            kernels = kernels.take(is_left[kernels.source])
        return replace(
            content,
            heartbeats=tuple(b for b in content.heartbeats if b.source not in gone),
            section_times=tuple(t for t in content.section_times if t.source not in gone),
            told=tuple(t for t in content.told if t.source not in gone),
            kernel_times=kernels,
        )

    def end(self, run_id: str, group: str, now_s: float) -> None:
        """A rank of it has ended: unless another speaks, its place is free."""
        run = self._runs.get(run_id)
        if run is not None:
            run.heard_at_s = now_s - LIVE_S
            run.groups[group] = now_s - LIVE_S

    def move(self, by_s: float) -> None:
        """The collector's clock was set by so much."""
        for run in self._runs.values():
            run.heard_at_s += by_s
            run.groups = {group: heard_s + by_s for group, heard_s in run.groups.items()}
        self._turned_away = {key: at_s + by_s for key, at_s in self._turned_away.items()}

    def keep_only(self, runs: Mapping[str, Collection[str]], now_s: float) -> None:
        """Forget the others, but for those that have just come.

        Args:
            runs: those that are kept, each with its groups.
        """
        for run_id in [r for r, run in self._runs.items() if now_s - run.heard_at_s >= LIVE_S]:
            if run_id not in runs:
                del self._runs[run_id]
        for run_id, groups in runs.items():
            run = self._runs.get(run_id)
            if run is not None and len(run.groups) > len(groups):
                run.groups = {
                    group: heard_s
                    for group, heard_s in run.groups.items()
                    if group in groups or now_s - heard_s < LIVE_S
                }
        limit_s = now_s - LIVE_S
        self._turned_away = {k: at_s for k, at_s in self._turned_away.items() if at_s >= limit_s}

    def problems(self, folded_names: Mapping[str, str]) -> tuple[str, ...]:
        """What the collector's user should know now, with its remedy; each said once in the log.

        Args:
            folded_names: runs with too many section names, each with one that has no place.
        """
        told = [problem for what in WHATS if (problem := self._problem(what))]
        if folded_names:
            run_id, name = next(iter(folded_names.items()))
            most = self._max_section_names
            told.append(_NAMES.format(run_id=run_id[:60], most=most, name=name[:60]))
            self._say_once("section", told[-1])
        return tuple(told)

    def _admits(self, source: Source, now_s: float) -> bool:
        run = self._runs.get(source.run_id)
        if run is None:
            times = {known: each.heard_at_s for known, each in self._runs.items()}
            if not _has_room(times, self._most["run"], now_s):
                return self._turn_away("run", source.run_id, now_s)
            run = self._runs[source.run_id] = _Run(now_s)
        run.heard_at_s = now_s
        is_known = source.group in run.groups
        if not is_known and not _has_room(run.groups, self._most["group"], now_s):
            return self._turn_away("group", source.group, now_s)
        run.groups[source.group] = now_s
        return True

    def _turn_away(self, what: What, name: str, now_s: float) -> bool:
        self.counts[what] += 1
        key = what, name
        if key in self._turned_away or len(self._turned_away) < _MOST_REMEMBERED:
            self._turned_away[key] = now_s
        if what not in self._was_said:
            self._say_once(what, self._problem(what))
        return False

    def _say_once(self, what: str, problem: str) -> None:
        if what not in self._was_said:
            self._was_said.add(what)
            _log.warning("%s", problem)

    def _problem(self, what: What) -> str:
        names = [name for kind, name in self._turned_away if kind == what]
        if not names:
            return ""
        more = "at least " if len(self._turned_away) >= _MOST_REMEMBERED else ""
        count = f"{more}{len(names):,}"
        return _WHY[what].format(most=self._most[what], count=count, name=names[-1][:60])


def _has_room(heard: Mapping[str, float], most: int, now_s: float) -> bool:
    """Silent ones give way; they are let go when the next picture is made."""
    if len(heard) < most:
        return True
    live = sum(now_s - heard_s < LIVE_S for heard_s in heard.values())
    return live < most and len(heard) < 2 * most
