"""Metrics of a rank: heartbeats, which say what it is doing now, and section histograms for an
endpoint that is no scorer. Small requests, never queued, never retried.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from otel_straggler import semconv
from otel_straggler.client.recorder import Record, RecordingSession, is_failure, open_work
from otel_straggler.client.sender import RING_FULL, post_metrics
from otel_straggler.client.topology import RankContext, Topology, resource_attributes, source_of
from otel_straggler.config import ClientSettings
from otel_straggler.model.observation import Section
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.clients.client import Response, client_for
from otel_straggler.otlp.encode_metrics import SectionHistogram, encode_heartbeat, encode_histograms
from otel_straggler.secret import without_secrets
from otel_straggler.semconv import STEP_SPAN, Outcome

_MAX_FOLDED = 100


class HeartbeatMaker:
    """Composes heartbeats from the recorder's state, the records lost by reason, and the folded
    executions by section."""

    def __init__(
        self,
        rank: RankContext,
        losses: Callable[[], dict[str, int]],
        folded: Callable[[], dict[str, int]],
    ) -> None:
        self._rank = rank
        self._losses = losses
        self._folded = folded
        self._started_at_s = rank.clock.wall_ns() / 1e9

    def heartbeat(self, outcome: Outcome | None = None) -> bytes:
        """An encoded heartbeat; with an outcome, the last one."""
        topology = self._rank.topology()
        session_id = self._rank.recorder.session.session_id
        return encode_heartbeat(
            self._beat(session_id, topology, outcome),
            resource=resource_attributes(self._rank.settings, session_id, topology),
            info=topology.info(),
            started_at_s=self._started_at_s,
        )

    def _beat(self, session_id: str, topology: Topology, outcome: Outcome | None) -> Heartbeat:
        recorder = self._rank.recorder
        wall_ns, perf_ns = self._rank.clock.wall_ns(), self._rank.clock.perf_ns()
        progress, section, context = recorder.progress(), open_work(recorder), recorder.context
        hottest = sorted(self._folded().items(), key=lambda item: -item[1])
        losses = self._losses()
        if recorder.dropped:
            losses[RING_FULL] = recorder.dropped
        return Heartbeat(
            source=source_of(self._rank.settings, session_id, topology),
            sent_at_s=wall_ns / 1e9,
            progress_at_s=(progress.at_ns + wall_ns - perf_ns) / 1e9,
            step=progress.step,
            open_section=section.name if section else "",
            open_time_s=max(0.0, (perf_ns - section.start_ns) / 1e9) if section else None,
            phase=context.phase if context else "",
            finished_at_s=wall_ns / 1e9 if outcome else None,
            outcome=outcome,
            dropped=losses,
            folded=dict(hottest[:_MAX_FOLDED]),
        )


LAST_WORD_PART = 0.25
"""Of the time in which a process has to end: for its end, if the exporter's thread still waits for
an answer then."""


def say_end(settings: ClientSettings, body: bytes, deadline_s: float) -> None:
    """Send an end on a connection of its own, from the caller's thread, before ``deadline_s``
    (monotonic). Where the collector is busy, or stopped for a moment, the exporter's thread waits
    for its answer, and the process would end without a word: its rank would be lost. The answer
    does not matter: what is sent is read once the collector goes on. Never raises."""
    if not settings.metrics.is_enabled:
        return
    try:
        client = client_for(settings.metrics, "metrics")
        left_s = max(deadline_s - time.monotonic(), MIN_WORD_S)
        post_metrics(client, settings, body, left_s, is_last=True)
        client.close()
    except Exception as error:  # noqa: BLE001  telemetry never stops the end of a process
        _LOG.info("otel-straggler: the end of this rank was not sent: %s", error)


MIN_WORD_S = 0.05
ESTIMATE_AFTER_S = 30.0
BYTES_PER_SPAN = 300
_LOG = logging.getLogger("otel_straggler")


class Handshake:
    """Decides between all spans and a sample, and logs it once."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._one_origin = is_one_origin(settings)
        self._spans = 0
        self._has_logged = settings.is_trusted or not settings.traces.is_enabled
        self.is_scorer = settings.is_trusted

    @property
    def sample_every(self) -> int:
        """Of how many steps one is sent."""
        return 1 if self.is_scorer else self._settings.sample_steps

    def record_traces_response(self, response: Response) -> None:
        if semconv.SCORER_HEADER in response.headers:
            self.is_scorer = True

    def record_metrics_response(self, response: Response) -> None:
        if self._one_origin:
            self.record_traces_response(response)

    def count_spans(self, spans: int, age_s: float) -> None:
        """``age_s`` after the start, log once what full rate would mean."""
        self._spans += spans
        if self._has_logged or age_s < ESTIMATE_AFTER_S:
            return
        self._has_logged = True
        if not self.is_scorer:
            self._log(self._spans / age_s)

    def _log(self, spans_per_s: float) -> None:
        level = logging.WARNING if self._settings.rank == 0 else logging.DEBUG
        _LOG.log(
            level,
            "%s did not say that it scores, so it gets the spans of 1 step in %d, heartbeats and "
            "histograms. This rank records %.1f spans/s; all of them would be about %s a day. "
            "If it is an otel-straggler collector, name it in OTEL_STRAGGLER_ENDPOINT or "
            "configure(endpoint=...).",
            without_secrets(self._settings.traces.url),
            self._settings.sample_steps,
            spans_per_s,
            _readable_bytes(spans_per_s * BYTES_PER_SPAN * 86_400),
        )


def is_one_origin(settings: ClientSettings) -> bool:
    """Whether spans and metrics go to one server."""
    return _origin(settings.traces.url) == _origin(settings.metrics.url)


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc


def _readable_bytes(count: float) -> str:
    """
    >>> _readable_bytes(25_920_000)
    '25.9 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


BOUNDS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
MAX_SECTIONS = 200
_BOUNDS_NS = [round(bound * 1e9) for bound in BOUNDS_S]


class SectionHistograms:
    """Counts the executions of each section of the newest session. A request that fails is not
    repeated: the next one holds the same counts and more."""

    def __init__(self, rank: RankContext) -> None:
        self._rank = rank
        self._started_at_s = rank.clock.wall_ns() / 1e9
        self._next_s = rank.clock.monotonic_s() + rank.settings.histogram_s
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._sums_ns: dict[tuple[str, str], int] = {}
        self._session: RecordingSession | None = None

    def add(self, records: Sequence[Record]) -> None:
        """Failed executions say nothing about speed."""
        for (timer, span, start_ns, context, _), _, end_ns, error, _ in records:
            if not is_failure(error) and span != context.step_span:
                key = (timer.name, timer.kind)
                if context.phase:  # an evaluation is compared with evaluations
                    section = Section(timer.name, timer.kind).in_phase(context.phase)  # type: ignore[arg-type]
                    key = (section.name, section.kind)
                self._count(context.session, key, end_ns - start_ns)

    def encoded_if_due(self, now_s: float) -> bytes | None:
        """A request with all counts, if ``now_s`` (monotonic) is the time for it."""
        if now_s < self._next_s:
            return None
        self._next_s = now_s + self._rank.settings.histogram_s
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
            resource=self._rank.resource(),
            started_at_s=self._started_at_s,
            now_s=self._rank.clock.wall_ns() / 1e9,
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
