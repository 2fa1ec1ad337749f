"""Signs of life: what the rank is doing now, as one small request. Never queued, never retried."""

from __future__ import annotations

from collections.abc import Callable

from otel_straggler.config import ClientSettings
from otel_straggler.export.drops import RING_FULL
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.record.clock import Clock
from otel_straggler.record.description import Topology, resource_attributes, source_of
from otel_straggler.record.histograms import SectionHistograms
from otel_straggler.record.recorder import OpenSection, Progress, Recorder
from otel_straggler.semconv import STEP_SPAN, Outcome
from otel_straggler.wire.encode_metrics import encode_heartbeat, encode_histograms

_MOST_FOLDED = 100


class HeartbeatMaker:
    """Composes heartbeats from the recorder's state.

    Args:
        settings: identity.
        recorder: progress, open section, session id.
        clock: time.
        topology: what is known of the rank now.
        losses: records lost so far, by reason.
        folded: runs sent in spans for several so far, by section.
    """

    def __init__(
        self,
        settings: ClientSettings,
        recorder: Recorder,
        clock: Clock,
        topology: Callable[[], Topology],
        losses: Callable[[], dict[str, int]],
        folded: Callable[[], dict[str, int]] = dict,
    ) -> None:
        self._settings = settings
        self._recorder = recorder
        self._clock = clock
        self._topology = topology
        self._losses = losses
        self._folded = folded
        self._started_at_s = clock.wall_ns() / 1e9

    def heartbeat(self, outcome: Outcome | None = None) -> bytes:
        """An encoded heartbeat; with an outcome, the last one."""
        topology = self._topology()
        session_id = self._recorder.epoch.session_id
        return encode_heartbeat(
            self._beat(session_id, topology, outcome),
            resource=resource_attributes(self._settings, session_id, topology),
            info=topology.attributes(),
            started_at_s=self._started_at_s,
        )

    def histograms(self, histograms: SectionHistograms) -> bytes:
        """Encoded section histograms."""
        session_id = self._recorder.epoch.session_id
        return encode_histograms(
            histograms.snapshot(),
            resource=resource_attributes(self._settings, session_id, self._topology()),
            started_at_s=self._started_at_s,
            now_s=self._clock.wall_ns() / 1e9,
        )

    def _beat(self, session_id: str, topology: Topology, outcome: Outcome | None) -> Heartbeat:
        wall_ns = self._clock.wall_ns()
        perf_ns = self._clock.perf_ns()
        progress = self._recorder.progress()
        section = self._recorder.open_section() or self._between(progress)
        context = self._recorder.context
        return Heartbeat(
            source=source_of(self._settings, session_id, topology),
            sent_at_s=wall_ns / 1e9,
            progress_at_s=(progress.at_ns + wall_ns - perf_ns) / 1e9,
            step=progress.step,
            open_section=section.name if section else "",
            open_time_s=max(0.0, (perf_ns - section.start_ns) / 1e9) if section else None,
            phase=context.phase if context else "",
            finished_at_s=wall_ns / 1e9 if outcome else None,
            outcome=outcome,
            dropped=self._all_losses(),
            folded=self._hottest(),
        )

    def _between(self, progress: Progress) -> OpenSection | None:
        """The step, where one is open and none of its sections is."""
        context = self._recorder.context
        if context is None or context.step is None:
            return None
        return OpenSection(STEP_SPAN, progress.at_ns, context.phase)

    def _hottest(self) -> dict[str, int]:
        """The sections of which most was folded."""
        hottest = sorted(self._folded().items(), key=lambda item: -item[1])
        return dict(hottest[:_MOST_FOLDED])

    def _all_losses(self) -> dict[str, int]:
        losses = self._losses()
        if self._recorder.dropped:
            losses[RING_FULL] = self._recorder.dropped
        return losses
