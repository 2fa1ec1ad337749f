"""What the scoring thread publishes at once: a view of every run, and the text of /metrics."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from otel_straggler.alerts.rule import FleetStatus
from otel_straggler.collector.alerting.alert_json import shown_alert
from otel_straggler.collector.views.hang_json import hang_json
from otel_straggler.collector.views.report_json import (
    Json,
    RunReport,
    dump_report,
    of_one_rank,
    report_json,
)
from otel_straggler.collector.views.run_view import RunView, WindowView
from otel_straggler.collector.views.verdict_json import run_verdicts_part
from otel_straggler.model.alert import Alert, Maintenance
from otel_straggler.model.rank import Source
from otel_straggler.model.verdict import RunVerdicts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportQuery:
    """Which part of the report is wanted; None = all."""

    run_id: str | None = None
    group: str | None = None
    rank: int | None = None


_EVERYTHING = ReportQuery()


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """What scrapes and pages read; it never changes. ``page`` may be older than the rest.

    Attributes:
        page: the text of /metrics.
        runs: by id.
        list_version: another one whenever an entry of the list of runs is.
        watched: what alerts look at.
        maintenance: as in force.
        problems: what the collector's user should know now, with its remedy.
    """

    page: bytes = b""
    runs: Mapping[str, RunView] = field(default_factory=dict)
    list_version: int = 0
    watched: FleetStatus = field(default_factory=lambda: FleetStatus(now_s=0.0, collector=""))
    maintenance: tuple[Maintenance, ...] = ()
    problems: tuple[str, ...] = ()
    _kept: dict[str, bytes] = field(default_factory=dict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def report(self, query: ReportQuery = _EVERYTHING) -> bytes:
        """``/v1/report``, or the part of it that a query asks for. It is made when somebody asks:
        the windows of a large run change more often. Cost: O(size of the answer), once the windows
        have their JSON."""
        with self._lock:
            body = self._kept.get("report") if query == _EVERYTHING else None
            if body is None:
                body = dump_report(self._report(query)).encode()
            if query == _EVERYTHING:
                self._kept["report"] = body
            return body

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
                )
                for run_id, run in self.runs.items()
                if query.run_id in (None, run_id)
            }
        )

    def source_of(self, run_id: str, group: str, rank: int) -> Source | None:
        """The newest session of a rank; see :meth:`RunView.source_of`."""
        run = self.runs.get(run_id)
        return None if run is None else run.source_of(group, rank)


def _windows_of(run: RunView, group: str | None) -> Iterable[WindowView]:
    """Those of one group, or all."""
    return (shown for shown in run.windows if group in (None, shown.window.group))


def _is_asked_for(alert: Alert, query: ReportQuery) -> bool:
    """All but what is about another group or another rank."""
    group, rank = alert.labels.get("group", ""), alert.labels.get("rank")
    return query.group in (None, group) and (query.rank is None or rank in (None, str(query.rank)))


def _window_part(shown: WindowView, query: ReportQuery) -> Json:
    if query.rank is None:
        return shown.json
    group = shown.window.group
    return of_one_rank(shown.json, f"{group}/{query.rank}" if group else str(query.rank))


def _run_verdicts_part(run: RunView, query: ReportQuery) -> RunVerdicts:
    if query.group is None and query.rank is None:
        return run.run_verdicts
    nodes = {
        source.node
        for shown in _windows_of(run, query.group)
        for source in shown.window.sources
        if source.rank == query.rank
    }
    return run_verdicts_part(
        run.run_verdicts, group=query.group, rank=query.rank, is_its_node=nodes.__contains__
    )
