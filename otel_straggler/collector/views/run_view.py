"""The immutable view of a run at one evaluation, which any thread may read: the source of the
report, the page, alerts, and most series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from otel_straggler.alerts.rule import Scores
from otel_straggler.collector.alerting.alert_json import shown_alert
from otel_straggler.collector.runs.liveness import WorldStatus
from otel_straggler.collector.runs.profiles import ProfilePair
from otel_straggler.collector.runs.rank_status import RankStatus
from otel_straggler.collector.views.report_json import window_json
from otel_straggler.collector.views.run_failure import run_failure
from otel_straggler.collector.views.timeline import Column
from otel_straggler.collector.views.world_view import (
    Headline,
    RankHeartbeats,
    RankTable,
    RunFailure,
    WorldView,
)
from otel_straggler.detect.checkpoints import LastSave
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.goodput.live import GoodputView
from otel_straggler.model.alert import Alert, Maintenance, Mode
from otel_straggler.model.failure import Failure
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.model.observation import NO_STEP, Floats, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import GpuUsage
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import RunVerdicts, hang_subject
from otel_straggler.semconv import STEP_SPAN, Outcome

Json: TypeAlias = dict[str, Any]
_OUTCOMES: dict[str, Outcome] = {
    "finished": "ok",
    "cancelled": "cancelled",
    "preempted": "preempted",
    "failed": "failed",
    "ended": "unknown",
}
"""Outcome by the state of a run that has ended."""
_CLOCKS_DIFFER_S = 3
"""Smaller differences are transport delays."""
_SENTENCE_S = 10.0
"""Interval of updates while a run hangs, whose sentence contains the duration."""


@dataclass(frozen=True, eq=False)
class WindowView:
    window: WindowScores

    @cached_property
    def json(self) -> Json:
        return window_json(self.window)

    @cached_property
    def table(self) -> RankTable:
        return RankTable.of_window(self.window)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewestScores:
    """One group: time of its last scores (collector's clock), the lowest ones, the ranks that have
    scores, and which part of all is in the newest window."""

    at_s: float | None = None
    lowest: Scores = field(default_factory=Scores)
    ranks: frozenset[int] = frozenset()
    coverage: float = math.nan


@dataclass(frozen=True, kw_only=True, eq=False)
class RunView:
    """Mappings have the group as their key.

    Attributes:
        version: changes with the content.
        now_s, ahead_s: wall clock time, and its offset from the collector's clock, to which times
            of ``worlds`` and ``scores`` refer.
        windows: the newest of every group.
        clashes: sessions that claim a rank of another live session.
        late_rows: rows that arrived too late for the scores.
        maintenance: in force, of any node.
        takes_commands: the collector passes commands on to ranks.
        profiles: of slow ranks next to those of their peers, oldest first.
        gpus: what their sensors reported, of groups with sensors.
        goodputs: accounts of the groups of which a step or a phase is known.
        failures: of its evaluation, since when.
        run_failures: of groups whose newest attempt has failed.
        settled: headlines that healthy groups keep until another has lasted.
        before: what the last process has shown of groups of which no window has closed in this one.
    """

    run_id: str
    version: int = 0
    now_s: float = 0.0
    ahead_s: float = 0.0
    jobs: Mapping[str, str] = field(default_factory=dict)
    worlds: Mapping[str, WorldStatus] = field(default_factory=dict)
    hangs: Mapping[str, HangStatus] = field(default_factory=dict)
    windows: tuple[WindowView, ...] = ()
    scores: Mapping[str, NewestScores] = field(default_factory=dict)
    run_verdicts: RunVerdicts = field(default_factory=RunVerdicts)
    clashes: tuple[Source, ...] = ()
    late_rows: int = 0
    columns: Mapping[str, Sequence[Column]] = field(default_factory=dict)
    checkpoints: Mapping[str, LastSave] = field(default_factory=dict)
    alerts: tuple[Alert, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    mode: Mode = "observe"
    takes_commands: bool = False
    profiles: tuple[ProfilePair, ...] = ()
    gpus: Mapping[str, GpuUsage] = field(default_factory=dict)
    goodputs: Mapping[str, GoodputView] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    run_failures: Mapping[str, RunFailure] = field(default_factory=dict)
    settled: Mapping[str, Headline] = field(default_factory=dict)
    before: Mapping[str, WorldView] = field(default_factory=dict)
    _worlds: dict[str, WorldView] = field(default_factory=dict, repr=False)

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """All known groups; at least one."""
        windows = (shown.window.group for shown in self.windows)
        verdicts = (verdict.group for verdict in self.run_verdicts.current)
        return tuple(dict.fromkeys((*self.worlds, *self.hangs, *windows, *verdicts))) or ("",)

    def content(self) -> tuple[object, ...]:
        """Compared to detect changes of the view. Cost: O(ranks), microseconds."""
        hangs = any(hang.is_hung for hang in self.hangs.values())
        return (
            *self.listed(),
            tuple(self.worlds.items()),
            [(h.since_s, h.rank_states.tobytes(), h.findings) for h in self.hangs.values()],
            self.windows,
            len(self.run_verdicts.decisions),
            self.checkpoints,
            self.clashes,
            [(each.node, each.until_ns) for each in self.maintenance],
            self.profiles,
            [(alert.name, alert.starts_at_s) for alert in self.alerts],
            list(self.goodputs.items()),
            [(each, self.now_s >= each.final_at_s) for each in self.run_failures.values()],
            self.settled,
            list(self.before.items()),
            int(self.now_s / _SENTENCE_S) if hangs else 0,
        )

    def progress(self) -> tuple[object, ...]:
        """Compared to detect news of the ranks."""
        return (
            [(group, w.attempt, w.touched_at_s) for group, w in self.worlds.items()],
            [(hang.state, hang.since_s) for hang in self.hangs.values()],
            self.windows,
            len(self.run_verdicts.changes),
        )

    def listed(self) -> tuple[object, ...]:
        """Compared to detect changes of the entry in the list of runs, except ``received_at_s``."""
        return (
            self.run_id,
            [(group, hang.state) for group, hang in self.hangs.items()],
            len(self.run_verdicts.changes),
            self.run_verdicts.silenced,
            len(self.alerts),
            self.failures,
            self.settled,
        )

    def source_of(self, group: str, rank: int) -> Source | None:
        """The newest session of a rank that sends heartbeats and has not ended."""
        world = self.worlds.get(group)
        its = None if world is None else world.ranks.get(rank)
        if its is None or its.sent_at_s is None or its.finished_at_s is not None:
            return None
        return its.source

    def live_ranks(self, group: str) -> list[int]:
        world = self.worlds.get(group)
        ranks = [] if world is None else sorted(world.ranks)
        return [rank for rank in ranks if self.source_of(group, rank) is not None]

    def profiles_of(self, group: str | None) -> tuple[ProfilePair, ...]:
        """Those of a group (None: of all), with times of the wall clock."""
        return tuple(
            replace(pair, asked_at_s=pair.asked_at_s + self.ahead_s)
            for pair in self.profiles
            if group in (None, pair.group)
        )

    def is_acknowledged(self, group: str) -> bool:
        return hang_subject(group) in self.run_verdicts.silenced

    def failure_of(self, group: str) -> Failure | None:
        """What has failed for longest, by the wall clock; None if all works."""
        failures = [each for each in self.failures if each.group in ("", group)]
        first = min(failures, key=lambda each: each.since_s, default=None)
        return None if first is None else replace(first, since_s=first.since_s + self.ahead_s)

    def world(self, group: str) -> WorldView:
        """The view of one world, built once. Cost: O(ranks)."""
        if group not in self._worlds:
            self._worlds[group] = self._world(group)
        return self._worlds[group]

    def _world(self, group: str) -> WorldView:
        world = self.worlds.get(group)
        hang = self.hangs.get(group)
        ranks = [] if world is None else sorted(world.ranks.items(), key=lambda pair: pair[0])
        shown = next((each for each in self.windows if each.window.group == group), None)
        before = self.before.get(group) or WorldView(run_id=self.run_id, now_s=self.now_s)
        table = before.table if shown is None else shown.table
        window = None if shown is None else shown.window
        heartbeats = _heartbeats(ranks, self.now_s - self.ahead_s)
        sizes = [each.world_size for each in (world, window) if each is not None]
        attempts = [each.attempt for each in (world, window) if each is not None]
        alerts = (each for each in self.alerts if each.labels.get("group", "") in ("", group))
        return WorldView(
            run_id=self.run_id,
            job=self.jobs.get(group, ""),
            group=group,
            groups=self.groups,
            attempt=attempts[0] if attempts else 0,
            now_s=self.now_s,
            began_at_s=self._began_at_s(world, ranks, window),
            received_at_s=self._shown_s(world.touched_at_s or None) if world is not None else None,
            finished_at_s=None if world is None else self._shown_s(world.finished_at_s),
            outcome=_outcome(ranks) if hang is None else _OUTCOMES.get(hang.state),
            world_size=max(sizes, default=0),
            table=table,
            heartbeats=heartbeats,
            hang=hang,
            run_verdicts=self.run_verdicts,
            alerts=[shown_alert(alert) for alert in alerts],
            maintenance=_of_nodes(self.maintenance, table, heartbeats),
            is_acknowledged=self.is_acknowledged(group),
            mode=self.mode,
            clashes=[source for source in self.clashes if source.group == group],
            takes_commands=self.takes_commands,
            checkpoint=self.checkpoints.get(group) or before.checkpoint,
            profiles=self.profiles_of(group) or before.profiles,
            goodput=self.goodputs.get(group),
            clock_s=self._clock_s(ranks),
            gpus=self.gpus.get(group),
            failure=self.failure_of(group),
            run_failure=self.run_failures.get(group),
            settled=self.settled.get(group),
        )

    def with_failures(self, launches: Mapping[str, Sequence[LaunchEvent]]) -> RunView:
        """The same with the failures of its newest attempts. Cost: O(ranks) of a failed group.

        Args:
            launches: newest events of its launchers, by group.
        """
        failures = {}
        for group, hang in self.hangs.items():
            world = self.worlds.get(group)
            if hang.state != "failed" or world is None:
                continue
            heartbeats = _heartbeats(sorted(world.ranks.items()), self.now_s - self.ahead_s)
            left = [its.restarts_left for its in world.ranks.values()]
            if heartbeats is not None:
                failures[group] = run_failure(
                    heartbeats,
                    attempt=world.attempt,
                    now_s=self.now_s,
                    restarts_left=min((n for n in left if n is not None), default=None),
                    launches=launches.get(group, ()),
                )
        return replace(self, run_failures=failures) if failures else self

    def _shown_s(self, at_s: float | None) -> float | None:
        """Convert a time of the collector's clock to the wall clock."""
        return None if at_s is None else at_s + self.ahead_s

    def _clock_s(self, ranks: Sequence[tuple[int, RankStatus]]) -> float:
        """Offset of the collector's clock from the foremost clock of the ranks, which stamps the
        ends of windows and has the smallest delay."""
        delays = [rank.delay_s for _, rank in ranks if np.isfinite(rank.delay_s)]
        ahead_s = round(min(delays, default=-self.ahead_s) + self.ahead_s)
        return float(ahead_s) if abs(ahead_s) >= _CLOCKS_DIFFER_S else 0.0

    def _began_at_s(
        self,
        world: WorldStatus | None,
        ranks: Sequence[tuple[int, RankStatus]],
        window: WindowScores | None,
    ) -> float | None:
        first = min((rank for _, rank in ranks), key=lambda r: r.first_sent_at_s, default=None)
        began_at_s = None if first is None else first.here(first.first_sent_at_s)
        arrived_at_s = math.inf if world is None else world.began_at_s + self.ahead_s
        if first is not None and first.first_sent_at_s >= arrived_at_s:
            return arrived_at_s  # the sender's clock is ahead
        if began_at_s:
            return self._shown_s(began_at_s)
        return None if window is None else window.start_ns / 1e9


def _heartbeats(ranks: Sequence[tuple[int, RankStatus]], now_s: float) -> RankHeartbeats | None:
    if not ranks:
        return None
    return RankHeartbeats(
        ranks=np.array([rank for rank, _ in ranks], np.int64),
        nodes=[its.source.node for _, its in ranks],
        roles=[its.source.role for _, its in ranks],
        devices=[its.source.device for _, its in ranks],
        models=[its.source.device_model for _, its in ranks],
        parallels=[its.source.parallel for _, its in ranks],
        heartbeat_age_s=_ages(ranks, [its.sent_at_s for _, its in ranks], now_s),
        progress_age_s=_ages(ranks, [its.progress_at_s for _, its in ranks], now_s),
        step=np.array([NO_STEP if its.step is None else its.step for _, its in ranks], np.int64),
        open_section=[_open_section(its) for _, its in ranks],
        gpu_tier=[its.gpu_tier for _, its in ranks],
        gpu_reason=[its.gpu_reason for _, its in ranks],
        dropped=[its.dropped for _, its in ranks],
        outcomes=[its.outcome or "" for _, its in ranks],
        ended_age_s=_ages(ranks, [its.finished_at_s for _, its in ranks], now_s),
        failure_kinds=[its.failure.cause if its.failure else "" for _, its in ranks],
        failure_texts=[its.failure.text if its.failure else "" for _, its in ranks],
        **_step_times([its for _, its in ranks]),
        pids=[its.pid for _, its in ranks],
    )


def _step_times(ranks: Sequence[RankStatus]) -> dict[str, Any]:
    """Steps begun since the first report, and their mean time, both by the sender's clock."""
    steps = np.array([(its.step or 0) - (its.first_step or 0) for its in ranks], np.int64)
    lasted_s = np.array([(its.progress_at_s or np.nan) - its.first_sent_at_s for its in ranks])
    with np.errstate(divide="ignore", invalid="ignore"):
        return {"observed_steps": steps, "step_s": np.where(steps > 0, lasted_s / steps, np.nan)}


def _ages(
    ranks: Sequence[tuple[int, RankStatus]], at_s: Sequence[float | None], now_s: float
) -> Floats:
    """Ages on the collector's clock: :meth:`RankStatus.here`, vectorized."""
    times = np.array([np.nan if value is None else value for value in at_s])
    delay_s = np.array([rank.delay_s for _, rank in ranks])
    arrived_at_s = np.array([rank.arrived_at_s for _, rank in ranks])
    here_s = np.minimum(times + np.where(np.isfinite(delay_s), delay_s, 0.0), arrived_at_s)
    ages_s: Floats = np.maximum(now_s - here_s, 0.0)
    return ages_s


def _open_section(rank: RankStatus) -> str:
    if not rank.open_section or rank.open_section == STEP_SPAN:
        return ""
    return Section(rank.open_section).in_phase(rank.phase).name


def _outcome(ranks: Sequence[tuple[int, RankStatus]]) -> Outcome | None:
    outcomes = {rank.outcome for _, rank in ranks if rank.finished_at_s is not None}
    return outcomes.pop() if len(outcomes) == 1 else None


def _of_nodes(
    maintenance: tuple[Maintenance, ...], table: RankTable | None, heartbeats: RankHeartbeats | None
) -> list[Maintenance]:
    nodes = {node for part in (table, heartbeats) if part is not None for node in part.nodes}
    return [each for each in maintenance if each.node in nodes]
