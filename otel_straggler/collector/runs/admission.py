"""Which runs and groups are admitted. A job with a new run id for each process or restart (often a
time stamp) would evict everybody else and fill the memory: active runs keep their places, further
ones are rejected, counted, and reported.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final, Literal, TypeAlias

import numpy as np

from otel_straggler.collector.runs.store import RunStore
from otel_straggler.collector.settings import ScoringSettings
from otel_straggler.model.rank import Source
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.span_rules import DecodedSpans

_log = logging.getLogger(__name__)

LIVE_S: Final = 120.0
"""What reported within this time keeps its place; twice the longest interval of a rank."""
_MAX_REMEMBERED = 1_000
What: TypeAlias = Literal["run", "group"]
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


class AdmissionControl:
    """Owned by the scoring thread; time is an argument. What is admitted is in ``store`` from then
    on. Cost: some hundred ns per known source, O(runs) per source of a new run."""

    def __init__(self, limits: ScoringSettings, store: RunStore) -> None:
        self._store = store
        self._max: dict[What, int] = {"run": limits.max_runs, "group": limits.max_groups}
        self._max_section_names = limits.max_section_names
        self._rejected: dict[tuple[What, str], float] = {}
        self._logged: set[str] = set()
        self.counts: Counter[What] = Counter()

    def admitted(
        self, content: DecodedSpans | DecodedMetrics, now_s: float
    ) -> DecodedSpans | DecodedMetrics:
        """A request without what is rejected."""
        if isinstance(content, DecodedSpans):
            batch = content.batch
            gone = self._rejected_of((*content.progress, *batch.sources), now_s)
            if not gone:
                return content
            is_left = np.array([source not in gone for source in batch.sources], bool)
            progress = {s: its for s, its in content.progress.items() if s not in gone}
            return replace(content, batch=batch.take(is_left[batch.source]), progress=progress)
        kernels = content.kernel_times
        sources = (
            *(beat.source for beat in content.heartbeats),
            *(times.source for times in content.section_times),
            *(number.source for number in content.passthrough),
            *(() if kernels is None else kernels.sources),
        )
        gone = self._rejected_of(sources, now_s)
        if not gone:
            return content
        if kernels is not None:
            is_left = np.array([source not in gone for source in kernels.sources], bool)
            kernels = kernels.take(is_left[kernels.source])
        return replace(
            content,
            heartbeats=tuple(b for b in content.heartbeats if b.source not in gone),
            section_times=tuple(t for t in content.section_times if t.source not in gone),
            passthrough=tuple(t for t in content.passthrough if t.source not in gone),
            kernel_times=kernels,
        )

    def end(self, source: Source, now_s: float) -> None:
        """A rank has ended: unless another reports, its place is free."""
        self._store.run(source.run_id).admitted_at_s = now_s - LIVE_S
        self._store.world_of(source).admitted_at_s = now_s - LIVE_S

    def drop_old(self, now_s: float) -> None:
        """Drop rejections that are no longer a problem."""
        limit_s = now_s - LIVE_S
        self._rejected = {key: at_s for key, at_s in self._rejected.items() if at_s >= limit_s}

    def problems(self, folded_names: Mapping[str, str]) -> tuple[str, ...]:
        """Problems with their remedies; each is logged once.

        Args:
            folded_names: runs with too many section names, each with a folded one.
        """
        reported = [problem for what in WHATS if (problem := self._problem(what))]
        if folded_names:
            run_id, name = next(iter(folded_names.items()))
            maximum = self._max_section_names
            reported.append(_NAMES.format(run_id=run_id[:60], maximum=maximum, name=name[:60]))
            self._log_once("section", reported[-1])
        return tuple(reported)

    def _rejected_of(self, sources: Iterable[Source], now_s: float) -> set[Source]:
        distinct = dict.fromkeys(sources)
        return {source for source in distinct if not self._admits(source, now_s)}

    def _admits(self, source: Source, now_s: float) -> bool:
        run = self._store.runs.get(source.run_id)
        if run is None:
            times = [known.admitted_at_s for known in self._store.runs.values()]
            if not _has_room(times, self._max["run"], now_s):
                return self._reject("run", source.run_id, now_s)
            run = self._store.run(source.run_id)
        run.admitted_at_s = now_s
        if source.group not in run.worlds:
            times = [known.admitted_at_s for known in run.worlds.values()]
            if not _has_room(times, self._max["group"], now_s):
                return self._reject("group", source.group, now_s)
        self._store.world_of(source).admitted_at_s = now_s
        return True

    def _reject(self, what: What, name: str, now_s: float) -> bool:
        self.counts[what] += 1
        key = what, name
        if key in self._rejected or len(self._rejected) < _MAX_REMEMBERED:
            self._rejected[key] = now_s
        if what not in self._logged:
            self._log_once(what, self._problem(what))
        return False

    def _log_once(self, what: str, problem: str) -> None:
        if what not in self._logged:
            self._logged.add(what)
            _log.warning("%s", problem)

    def _problem(self, what: What) -> str:
        names = [name for kind, name in self._rejected if kind == what]
        if not names:
            return ""
        more = "at least " if len(self._rejected) >= _MAX_REMEMBERED else ""
        count = f"{more}{len(names):,}"
        return _WHY[what].format(maximum=self._max[what], count=count, name=names[-1][:60])


def _has_room(admitted_at_s: Collection[float], limit: int, now_s: float) -> bool:
    """Silent ones give way; they are evicted at the next publication."""
    if len(admitted_at_s) < limit:
        return True
    live = sum(now_s - at_s < LIVE_S for at_s in admitted_at_s)
    return live < limit and len(admitted_at_s) < 2 * limit
