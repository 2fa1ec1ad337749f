"""The report that the board shows, at one moment, and the part of it that somebody asks for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from otel_straggler.alerts.rule import RunStatus
from otel_straggler.model.alert import Alert
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import RunVerdicts, Verdict, hang_subject
from otel_straggler.publish.alert_json import shown_alert
from otel_straggler.publish.hang_json import hang_json
from otel_straggler.publish.report_json import (
    Json,
    RunReport,
    dump_report,
    of_one_rank,
    report_json,
    window_json,
)
from otel_straggler.publish.verdict_json import judged_part
from otel_straggler.score.hangs.detector import HangStatus

AlertsOf = Callable[[str], Iterable[Alert]]
"""Run id to the alerts that fire about it."""


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
    judged: RunVerdicts = field(default_factory=RunVerdicts)
    clashes: tuple[Source, ...] = ()
    late_rows: int = 0
    found: Mapping[str, HangStatus] = field(default_factory=dict)

    def windows_of(self, group: str | None) -> list[ShownWindow]:
        """Those of one group, or all."""
        return [shown for shown in self.windows if group in (None, shown.window.group)]


class ReportSnapshot:
    """The report at one moment. Its JSON is made when first asked for, then kept: the windows
    of a large run change more often than anybody looks."""

    def __init__(
        self,
        runs: dict[str, ShownRun],
        watched: Iterable[RunStatus] = (),
        alerts: AlertsOf = lambda _: (),
    ) -> None:
        self._runs = runs
        self._alerts = alerts
        self._watched = {(run.run_id, run.group): run for run in watched}
        self._lock = threading.Lock()
        self._body: bytes | None = None

    @property
    def body(self) -> bytes:
        with self._lock:
            if self._body is None:
                self._body = dump_report(self._json()).encode()
            return self._body

    def verdicts_of(self, run_id: str) -> tuple[Verdict, ...]:
        """The newest verdict of every subject of a run; none of a run that is not known."""
        run = self._runs.get(run_id)
        return () if run is None else run.judged.current

    def hangs_of(self, run_id: str) -> Mapping[str, HangStatus]:
        """Who is stuck or lost in a run, by group; none of a run that is not known."""
        run = self._runs.get(run_id)
        return {} if run is None else run.found

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
                    windows=[_part_of(shown, query) for shown in run.windows_of(query.group)],
                    judged=_judged_part(run, query),
                    clashes=run.clashes,
                    counts={"late": run.late_rows},
                    hangs=[
                        hang_json(
                            group,
                            found,
                            is_acknowledged=hang_subject(group) in run.judged.silenced,
                        )
                        | self._alerting(run_id, group)
                        for group, found in run.found.items()
                        if query.group in (None, group)
                    ],
                    alerts=[
                        shown_alert(alert)
                        for alert in self._alerts(run_id)
                        if _is_asked_for(alert, query)
                    ],
                )
                for run_id, run in self._runs.items()
                if query.run_id in (None, run_id)
            }
        )

    def _alerting(self, run_id: str, group: str) -> Json:
        run = self._watched.get((run_id, group))
        return {} if run is None else {"hung": run.is_hung, "pages": run.pages}


def _is_asked_for(alert: Alert, query: ReportQuery) -> bool:
    """All but what is about another group or another rank."""
    group, rank = alert.labels.get("group", ""), alert.labels.get("rank")
    return query.group in (None, group) and (query.rank is None or rank in (None, str(query.rank)))


def _part_of(shown: ShownWindow, query: ReportQuery) -> Json:
    if query.rank is None:
        return shown.json
    group = shown.window.group
    return of_one_rank(shown.json, f"{group}/{query.rank}" if group else str(query.rank))


def _judged_part(run: ShownRun, query: ReportQuery) -> RunVerdicts:
    if query.group is None and query.rank is None:
        return run.judged
    nodes = {
        source.node
        for shown in run.windows_of(query.group)
        for source in shown.window.sources
        if source.rank == query.rank
    }
    return judged_part(
        run.judged, group=query.group, rank=query.rank, is_its_node=nodes.__contains__
    )
