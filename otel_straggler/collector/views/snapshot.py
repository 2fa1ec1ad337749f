"""One publication of the scoring thread: a view of every run, and the text of /metrics."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from otel_straggler.alerts.rule import FleetStatus
from otel_straggler.collector.alerting.alert_json import shown_alert
from otel_straggler.collector.views.attempts import launches_json
from otel_straggler.collector.views.hang_json import hang_json
from otel_straggler.collector.views.profile_json import profiles_json
from otel_straggler.collector.views.report_json import (
    Json,
    RunReport,
    dump_report,
    of_one_rank,
    report_json,
)
from otel_straggler.collector.views.run_json import with_loss_of_now
from otel_straggler.collector.views.run_view import RunView, WindowView
from otel_straggler.collector.views.verdict_json import run_verdicts_part
from otel_straggler.model.alert import Alert, Maintenance
from otel_straggler.model.rank import Source
from otel_straggler.model.verdict import RunVerdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportQuery:
    """Requested part of the report; None = all. ``prefix``: of the names of runs that the reader
    may see."""

    run_id: str | None = None
    group: str | None = None
    rank: int | None = None
    prefix: str = ""


_EVERYTHING = ReportQuery()


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """Immutable input of scrapes and pages.

    Attributes:
        page: the text of /metrics as of the last scrape; may be older than the rest.
        list_version: changes with the entries of the list of runs.
        problems: current problems of the collector, with remedies.
    """

    page: bytes = b""
    runs: Mapping[str, RunView] = field(default_factory=dict)
    list_version: int = 0
    watched: FleetStatus = field(default_factory=lambda: FleetStatus(now_s=0.0, collector=""))
    maintenance: tuple[Maintenance, ...] = ()
    problems: tuple[str, ...] = ()
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def ages(self) -> dict[str, float]:
        """Seconds since each run was last heard from."""
        ages: dict[str, float] = {}
        for run_id, view in self.runs.items():
            touched = [world.touched_at_s for world in view.worlds.values() if world.touched_at_s]
            if touched:
                ages[run_id] = max(0.0, view.now_s - view.ahead_s - max(touched))
        return ages

    def report(self, query: ReportQuery = _EVERYTHING) -> bytes:
        """The body of ``/v1/report``, built on request: windows of a large run change more often.
        Cost: O(size of the body), once the windows have their JSON."""
        with self._lock:
            if query == _EVERYTHING:
                return self._whole_report
            return dump_report(self._report(query)).encode()

    @cached_property
    def _whole_report(self) -> bytes:
        return dump_report(self._report(_EVERYTHING)).encode()

    def _report(self, query: ReportQuery) -> Json:
        alerting = {
            (run.run_id, run.group): {"hung": run.is_hung, "pages": run.pages}
            for run in self.watched.runs
        }
        return report_json(
            {
                run_id: RunReport(
                    windows=[_window_part(shown, query) for shown in _windows_of(run, query.group)],
                    run_verdicts=_run_verdicts_part(run, query),
                    clashes=run.clashes,
                    counts={"late": run.late_rows},
                    hangs=[
                        hang_json(group, result, is_acknowledged=run.is_acknowledged(group))
                        | alerting.get((run_id, group), {})
                        for group, result in run.hangs.items()
                        if query.group in (None, group)
                    ],
                    alerts=[shown_alert(each) for each in run.alerts if _is_asked_for(each, query)],
                    profiles=profiles_json(run.profiles_of(query.group)),
                    launches=next(
                        (launches_json(each.launches) for each in run.goodputs.values()), None
                    ),
                )
                for run_id, run in self.runs.items()
                if query.run_id in (None, run_id) and run_id.startswith(query.prefix)
            }
        )

    def source_of(self, run_id: str, group: str, rank: int) -> Source | None:
        run = self.runs.get(run_id)
        return None if run is None else run.source_of(group, rank)


def _windows_of(run: RunView, group: str | None) -> Iterable[WindowView]:
    return (shown for shown in run.windows if group in (None, shown.window.group))


def _is_asked_for(alert: Alert, query: ReportQuery) -> bool:
    group, rank = alert.labels.get("group", ""), alert.labels.get("rank")
    return query.group in (None, group) and (query.rank is None or rank in (None, str(query.rank)))


def _window_part(shown: WindowView, query: ReportQuery) -> Json:
    if query.rank is None:
        return shown.json
    group = shown.window.group
    return of_one_rank(shown.json, f"{group}/{query.rank}" if group else str(query.rank))


def _run_verdicts_part(run: RunView, query: ReportQuery) -> RunVerdicts:
    of_now = (with_loss_of_now(each, run.world(each.group)) for each in run.run_verdicts.worlds)
    run_verdicts = replace(run.run_verdicts, worlds=tuple(of_now))
    if query.group is None and query.rank is None:
        return run_verdicts
    nodes = {
        source.node
        for shown in _windows_of(run, query.group)
        for source in shown.window.sources
        if source.rank == query.rank
    }
    return run_verdicts_part(
        run_verdicts, group=query.group, rank=query.rank, is_its_node=nodes.__contains__
    )
