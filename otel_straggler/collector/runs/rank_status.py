"""The status of a rank, by its newest session.

Times of a sender are moved to the collector's clock by the smallest delay of its session, so that a
heartbeat delivered late or twice never looks fresh, and a wrong clock on a node does not make its
rank look dead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from otel_straggler.model.rank import Source
from otel_straggler.model.rank_failure import RankFailure
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.span_rules import Progress
from otel_straggler.semconv import Outcome

_DELAY_KEPT_S = 600.0
"""The smallest delay is that of the last one to two of these: clocks drift, and are set."""
_DAY_S = 86_400.0
_MAX_FOLDED = 200
MAX_REASONS = 100
"""Of losses; others are not counted."""
ENDED_TOLERANCE_S: Final = 1.0
"""What a rank reports within this time after its end is part of it."""
_STEPPED_BACK = 3
"""So many heartbeats in a row, older than the newest but at the rate of the clock, mean that the
sender's clock was set back."""


@dataclass(slots=True)
class RankStatus:
    """The newest session of one rank. Sender's times, but ``arrived_at_s`` and ``delay_s`` are of
    the collector's clock (``clock.py``).

    Attributes:
        source: newest description.
        first_sent_at_s: first report of the session.
        delay_s: smallest (arrival - sending); infinite before the first heartbeat.
        sent_at_s, progress_at_s, step: newest; None if never reported.
        finished_at_s, outcome: set once the rank has ended, until it reports again.
        open_section, phase: at the last heartbeat; empty if nothing was open.
        dropped: records lost in this session, by reason.
        folded: executions sent in spans for several, by section.
        gpu_tier, gpu_reason: what times its GPU, and why not more; empty if unknown.
        page, team: None and empty if not reported.
        is_ending: after SIGTERM.
        failure: how it failed; None while it has not, or if that is not known.
        restarts_left: how often its launcher may still restart the run; None if unknown.
        pid: of its process, in its own PID namespace; 0 if not reported.
        awaited_at_s: its silence counts from then at the earliest: nobody could hear it before,
            because the collector was restarted.
    """

    source: Source
    first_sent_at_s: float
    arrived_at_s: float
    delay_s: float = float("inf")
    sent_at_s: float | None = None
    progress_at_s: float | None = None
    step: int | None = None
    open_section: str = ""
    phase: str = ""
    finished_at_s: float | None = None
    outcome: Outcome | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    folded: dict[str, int] = field(default_factory=dict)
    gpu_tier: str = ""
    gpu_reason: str = ""
    first_step: int | None = None
    page: bool | None = None
    team: str = ""
    is_ending: bool = False
    failure: RankFailure | None = None
    restarts_left: int | None = None
    pid: int = 0
    awaited_at_s: float = float("-inf")
    _has_reported_losses: bool = False
    _newer_delay_s: float = float("inf")
    _delay_since_s: float = 0.0
    _older: tuple[float, float, int] | None = None

    def copied(self) -> RankStatus:
        """A copy to change: published ones never change."""
        return RankStatus(*_VALUES(self))

    def here(self, sender_time_s: float | None) -> float | None:
        """Convert a time of the sender to the collector's clock; at most the newest arrival."""
        if sender_time_s is None:
            return None
        if self.delay_s == float("inf"):
            return min(sender_time_s, self.arrived_at_s)
        return min(sender_time_s + self.delay_s, self.arrived_at_s)

    def silent_s(self, now_s: float) -> float:
        """Seconds without a heartbeat, as far as anybody listened; NaN before the first."""
        at_s = self.here(self.sent_at_s)
        return float("nan") if at_s is None else max(now_s - max(at_s, self.awaited_at_s), 0.0)

    def observe_losses(self, dropped: Mapping[str, int]) -> dict[str, int]:
        """Record losses so far; returns the growth since the heartbeat before, none for the
        first."""
        grown: dict[str, int] = {}
        for reason, count in dropped.items():
            before = self.dropped.get(reason)
            if before is None and len(self.dropped) >= MAX_REASONS:
                continue
            if count > (before or 0):
                self.dropped = {**self.dropped, reason: count}
                grown[reason] = count - (before or 0)
        was_known, self._has_reported_losses = self._has_reported_losses, True
        return grown if was_known else {}

    def observe(self, beat: Heartbeat, now_s: float) -> None:
        """Record a heartbeat of this session, except its losses."""
        self.source = beat.source
        if beat.finished_at_s is not None:
            self.finished_at_s, self.outcome = beat.finished_at_s, beat.outcome
            self.failure = beat.failure or self.failure
        for section, count in beat.folded.items():
            if section in self.folded or len(self.folded) < _MAX_FOLDED:
                known = self.folded.get(section, 0)
                if count > known or section not in self.folded:
                    self.folded = {**self.folded, section: max(known, count)}
        if beat.sent_at_s is None or not self._is_news(beat.sent_at_s, now_s):
            return
        if beat.finished_at_s is None:
            self._go_on_after(beat.sent_at_s)
        self.arrived_at_s = now_s
        self.sent_at_s = beat.sent_at_s
        self._record_delay(now_s - beat.sent_at_s, now_s)
        self.page, self.team = beat.page, beat.team
        self.is_ending = beat.is_ending
        self.restarts_left = beat.restarts_left
        self.pid = beat.pid
        self.open_section, self.phase = beat.open_section, beat.phase
        if beat.gpu_tier:
            self.gpu_tier, self.gpu_reason = beat.gpu_tier, beat.gpu_reason
        if beat.progress_at_s is not None:
            self.progress_at_s = beat.progress_at_s
        if beat.step is not None:
            self._reach(beat.step)

    def may_end_as(self, outcome: Outcome) -> bool:
        """Whether a launcher's word for its end says more than its own."""
        is_vague = self.outcome == "unknown" or (self.outcome == "failed" and not self.failure)
        return self.finished_at_s is None or (is_vague and outcome == "failed")

    def end(self, at_s: float, outcome: Outcome, failure: RankFailure | None, now_s: float) -> None:
        """Record an end that its launcher saw, at a time of the same host's clock."""
        self.finished_at_s = at_s if self.finished_at_s is None else self.finished_at_s
        self.outcome, self.failure = outcome, failure
        self.arrived_at_s = now_s

    def observe_progress(
        self, source: Source, progress: Progress, now_s: float, wall_s: float
    ) -> None:
        """Record spans; their times count only for a rank that sends no heartbeats."""
        if progress.step >= 0:
            self._reach(progress.step)
        ended_at_s = progress.end_ns * 1e-9
        if ended_at_s < wall_s + _DAY_S:
            self._go_on_after(ended_at_s)
        if self.sent_at_s is None and ended_at_s < wall_s + _DAY_S:
            self.source = source
            self.arrived_at_s = now_s
            self.delay_s = min(self.delay_s, now_s - ended_at_s)
            self.progress_at_s = max(self.progress_at_s or 0.0, ended_at_s)

    def _go_on_after(self, sent_at_s: float) -> None:
        """A rank that reports what came after its end has not ended."""
        if self.finished_at_s is not None and sent_at_s > self.finished_at_s + ENDED_TOLERANCE_S:
            self.finished_at_s = self.outcome = self.failure = None

    def _reach(self, step: int) -> None:
        if self.first_step is None:
            self.first_step = step
        self.step = max(step, self.step or 0)

    def _record_delay(self, delay_s: float, now_s: float) -> None:
        if now_s - self._delay_since_s >= _DELAY_KEPT_S:
            self.delay_s, self._newer_delay_s = self._newer_delay_s, float("inf")
            self._delay_since_s = now_s
        self._newer_delay_s = min(self._newer_delay_s, delay_s)
        self.delay_s = min(self.delay_s, self._newer_delay_s)

    def _is_news(self, sent_at_s: float, now_s: float) -> bool:
        if self.sent_at_s is None or sent_at_s > self.sent_at_s:
            self._older = None
            return True
        if not self._was_set_back(sent_at_s, now_s):
            return False
        self._older = None
        self.delay_s = self._newer_delay_s = now_s - sent_at_s
        return True

    def _was_set_back(self, sent_at_s: float, now_s: float) -> bool:
        if self._older is None or sent_at_s <= self._older[0]:
            if self._older is None:
                self._older = (sent_at_s, now_s, 1)
            return False
        then_sent_s, then_s, count = self._older
        drift_s = (now_s - then_s) - (sent_at_s - then_sent_s)
        in_step = abs(drift_s) < 1.0 and now_s - then_s >= 0.5
        self._older = (sent_at_s, now_s, count + 1 if in_step else 1)
        return in_step and self._older[2] >= _STEPPED_BACK


_VALUES: Final = attrgetter(*RankStatus.__slots__)
