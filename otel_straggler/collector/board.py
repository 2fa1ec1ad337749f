"""What the collector shows: runs with their scores and signs of life, as immutable snapshots."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from otel_straggler import semconv
from otel_straggler.collector.live_series import live_families
from otel_straggler.collector.liveness import Liveness
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.publish.prometheus import Families, labels
from otel_straggler.publish.report_json import (
    Json,
    RunReport,
    dump_report,
    of_one_rank,
    report_json,
    window_json,
)
from otel_straggler.publish.score_series import RunScores


class ShownWindow:
    """A closed window and, once somebody has asked, its JSON."""

    def __init__(self, window: WindowScores) -> None:
        self.window = window
        self._json: Json | None = None

    @property
    def json(self) -> Json:
        if self._json is None:
            self._json = window_json(self.window)
        return self._json


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportQuery:
    """Which part of the report is wanted; None = all."""

    run_id: str | None = None
    group: str | None = None
    rank: int | None = None

    @property
    def is_for_all(self) -> bool:
        return self == ALL


ALL = ReportQuery()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRun:
    """One run of the report."""

    windows: tuple[ShownWindow, ...] = ()
    clashes: tuple[Source, ...] = ()
    late_rows: int = 0


class ReportSnapshot:
    """The report at one moment. Its JSON is made when first asked for, then kept: the windows
    of a large run change more often than anybody looks."""

    def __init__(self, runs: dict[str, ShownRun]) -> None:
        self._runs = runs
        self._lock = threading.Lock()
        self._body: bytes | None = None

    @property
    def body(self) -> bytes:
        with self._lock:
            if self._body is None:
                self._body = dump_report(self._json()).encode()
            return self._body

    def part(self, query: ReportQuery) -> bytes:
        """What a query asks for. Cost: O(size of the answer), once the windows have their JSON."""
        if query.is_for_all:
            return self.body
        with self._lock:
            return dump_report(self._json(query)).encode()

    def _json(self, query: ReportQuery = ALL) -> Json:
        return report_json(
            {
                run_id: RunReport(
                    windows=[
                        _part_of(shown, query)
                        for shown in run.windows
                        if query.group in (None, shown.window.group)
                    ],
                    clashes=run.clashes,
                    counts={"late": run.late_rows},
                )
                for run_id, run in self._runs.items()
                if query.run_id in (None, run_id)
            }
        )


def _part_of(shown: ShownWindow, query: ReportQuery) -> Json:
    if query.rank is None:
        return shown.json
    group = shown.window.group
    return of_one_rank(shown.json, f"{group}/{query.rank}" if group else str(query.rank))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What scrapes and pages read; the parts never change."""

    page: bytes = b""
    report: ReportSnapshot = field(default_factory=lambda: ReportSnapshot({}))
    runs: int = 0


class Board:
    """Collects what is to be shown. One thread owns it.

    Args:
        keep_s: how long a rank's last scores stay.
        series_budget: series per run.
    """

    def __init__(self, *, keep_s: float, series_budget: int) -> None:
        self._constant_labels = labels(collector="")
        self._keep_s = keep_s
        self._budget = series_budget
        self._runs: dict[str, RunScores] = {}
        self._shown: dict[int, ShownWindow] = {}
        self._rendered: dict[str, tuple[int, Families]] = {}

    def sign(self, collector_id: str) -> None:
        """Set the label ``collector``, which every series carries."""
        self._constant_labels = labels(collector=collector_id)

    def take(self, window: WindowScores, now_s: float) -> None:
        scores = self._runs.get(window.run_id)
        if scores is None:
            scores = self._runs[window.run_id] = RunScores(window.run_id, keep_s=self._keep_s)
        scores.take(window, now_s)
        self._rendered.pop(window.run_id, None)

    def follow(self, liveness: Liveness, now_s: float) -> None:
        """Forget scores that nobody renews, and ranks that are no longer in their world."""
        for run_id, scores in self._runs.items():
            changed = scores.expire(now_s)
            for group, world in liveness.worlds(run_id).items():
                changed |= scores.keep_only(group, world.attempt, world.ranks)
            if changed:
                self._rendered.pop(run_id, None)

    def forget(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            self._runs.pop(run_id, None)
            self._rendered.pop(run_id, None)

    def snapshot(
        self,
        liveness: Liveness,
        clashes: dict[str, tuple[Source, ...]],
        late_rows: dict[str, int],
    ) -> Snapshot:
        """Everything as it stands."""
        run_ids = tuple(dict.fromkeys((*self._runs, *liveness.runs())))
        page = Families()
        for run_id in run_ids:
            live = live_families(run_id, liveness.worlds(run_id), self._constant_labels)
            page.extend(live)
            page.extend(self._score_families(run_id, self._budget - len(live)))
            self._add_clashes(page, run_id, clashes.get(run_id, ()))
        report = ReportSnapshot(
            {
                run_id: ShownRun(
                    windows=self._newest(run_id),
                    clashes=clashes.get(run_id, ()),
                    late_rows=late_rows.get(run_id, 0),
                )
                for run_id in run_ids
            }
        )
        return Snapshot(page.render(), report, len(run_ids))

    def _score_families(self, run_id: str, budget: int) -> Families:
        scores = self._runs.get(run_id)
        if scores is None:
            return Families()
        known = self._rendered.get(run_id)
        if known is None or known[0] != budget:
            known = self._rendered[run_id] = (
                budget,
                scores.families(self._constant_labels, max(budget, 0)),
            )
        return known[1]

    def _add_clashes(self, page: Families, run_id: str, clashes: tuple[Source, ...]) -> None:
        ranks = {(source.group, source.rank) for source in clashes}
        text = f"{labels(run_id=run_id)},{self._constant_labels}"
        page.add(semconv.RUN_IDENTITY_CLASHES, text, len(ranks))

    def _newest(self, run_id: str) -> tuple[ShownWindow, ...]:
        """The newest window of every group; their JSON is kept from snapshot to snapshot."""
        scores = self._runs.get(run_id)
        if scores is None:
            return ()
        return tuple(
            self._shown.setdefault(id(window), ShownWindow(window))
            for window in scores.newest_windows()
        )

    def drop_unshown(self) -> None:
        """Let go of windows that no snapshot will show again."""
        newest = {id(w) for scores in self._runs.values() for w in scores.newest_windows()}
        for key in [key for key in self._shown if key not in newest]:
            del self._shown[key]
