"""Cumulative section times, for an endpoint that is no scorer and gets only a sample of the spans.

A stock Prometheus behind a stock collector can still compare ranks by them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from otel_straggler.client.recorder import Record, Recorder, RecordingSession, is_failure
from otel_straggler.client.topology import Topology, resource_attributes
from otel_straggler.client.worker import Clock
from otel_straggler.config import ClientSettings
from otel_straggler.model.observation import Section
from otel_straggler.otlp.encode_metrics import SectionHistogram, encode_histograms
from otel_straggler.semconv import STEP_SPAN

BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
MAX_SECTIONS = 200
_BOUNDS_NS = [round(bound * 1e9) for bound in BOUNDS_S]


class SectionHistograms:
    """Counts the executions of each section of the newest session, and encodes the counts now and
    then. A request that fails is not repeated: the next one holds the same counts and more.

    Args:
        settings: identity and interval.
        recorder: knows the session.
        clock: time.
        topology: what is known of the rank now.
    """

    def __init__(
        self,
        settings: ClientSettings,
        recorder: Recorder,
        clock: Clock,
        topology: Callable[[], Topology],
    ) -> None:
        self._settings = settings
        self._recorder = recorder
        self._clock = clock
        self._topology = topology
        self._started_at_s = clock.wall_ns() / 1e9
        self._next_s = clock.monotonic_s() + settings.histogram_s
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._sums_ns: dict[tuple[str, str], int] = {}
        self._session: RecordingSession | None = None

    def add(self, records: Sequence[Record]) -> None:
        """Count ``records``; failed runs say nothing about speed."""
        for (timer, span, start_ns, context, _), _, end_ns, error in records:
            if not is_failure(error) and span != context.step_span:
                key = (timer.name, timer.kind)
                if context.phase:  # an evaluation is compared with evaluations
                    section = Section(timer.name, timer.kind).in_phase(context.phase)  # type: ignore[arg-type]
                    key = (section.name, section.kind)
                self._count(context.session, key, end_ns - start_ns)

    def encoded_if_due(self, now_s: float) -> bytes | None:
        """A request with all that is counted, if ``now_s`` (monotonic) is the time for it."""
        if now_s < self._next_s:
            return None
        self._next_s = now_s + self._settings.histogram_s
        session_id = self._recorder.session.session_id
        return encode_histograms(
            [
                SectionHistogram(
                    section=name,
                    kind=kind,
                    bounds_s=BOUNDS_S,
                    counts=counts,
                    sum_s=self._sums_ns[name, kind] / 1e9,
                )
                for (name, kind), counts in self._counts.items()
            ],
            resource=resource_attributes(self._settings, session_id, self._topology()),
            started_at_s=self._started_at_s,
            now_s=self._clock.wall_ns() / 1e9,
        )

    def _count(self, session: RecordingSession, key: tuple[str, str], duration_ns: int) -> None:
        if session is not self._session:
            self._session = session
            self._counts, self._sums_ns = {}, {}
        if key not in self._counts:
            if len(self._counts) >= MAX_SECTIONS or key[0] == STEP_SPAN:
                return
            self._counts[key] = [0] * (len(BOUNDS_S) + 1)
            self._sums_ns[key] = 0
        self._counts[key][bisect_left(_BOUNDS_NS, duration_ns)] += 1
        self._sums_ns[key] += duration_ns
