"""The decoded requests of an OTLP file, on their way to one batch."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from otel_straggler.model.kernels import KernelTimes
from otel_straggler.model.observation import ObservationBatch, merge_batches
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import SectionTimes
from otel_straggler.otlp import span_rules
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.section_rows import (
    HistogramDeltas,
    NewestPoints,
    process_of,
    rows_at_most,
    rows_of,
)
from otel_straggler.otlp.span_rules import DecodedSpans

Format = Literal["csv", "otlp-json", "otlp-proto"]
FORMATS: tuple[Format, ...] = ("csv", "otlp-json", "otlp-proto")

_MOST_ROWS = 4_000_000
_SCORED = frozenset({span_rules.ROW, span_rules.STEP})


@dataclass(frozen=True, slots=True)
class Decoders:
    """What reads OTLP."""

    spans: SpanDecoder = field(default_factory=SpanDecoder)
    metrics: MetricDecoder = field(default_factory=MetricDecoder)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """What a file held.

    Attributes:
        batch: rows in the order of the file.
        form: what the content turned out to be.
        not_scored: spans left out, by reason.
        skipped: requests with logs, or with metrics other than histograms of sections and kernels.
        kernels: histograms of kernels, in the order of the file.
        clashes: sessions that claim a rank of their run beside another one.
    """

    batch: ObservationBatch
    form: Format
    not_scored: dict[str, int] = field(default_factory=dict)
    skipped: int = 0
    kernels: tuple[KernelTimes, ...] = ()
    clashes: tuple[Source, ...] = ()


class Collected:
    """Decoded requests, collected."""

    def __init__(self, form: Format) -> None:
        self._form = form
        self._batches: list[ObservationBatch] = []
        self._outcomes: dict[str, int] = {}
        self._deltas = HistogramDeltas(math.inf)
        self._newest: NewestPoints = {}
        self._times: list[SectionTimes] = []
        self._kernels: list[KernelTimes] = []
        self.skipped = 0

    def add_spans(self, decoded: DecodedSpans) -> None:
        if len(decoded.batch):
            self._batches.append(decoded.batch)
        for outcome, count in decoded.outcomes.items():
            self._outcomes[outcome] = self._outcomes.get(outcome, 0) + count

    def add_metrics(self, decoded: DecodedMetrics) -> None:
        """Take histograms; a request without any is skipped."""
        self.skipped += not decoded.section_times and decoded.kernel_times is None
        if decoded.kernel_times is not None:
            self._kernels.append(decoded.kernel_times)
        added = (self._deltas.observe(times, self._newest) for times in decoded.section_times)
        self._times += [times for times in added if times is not None]

    def recording(self) -> Recording:
        batch = merge_batches([*self._batches, *self._histogram_rows()])
        return Recording(
            batch=batch,
            form=self._form,
            not_scored={
                outcome: n for outcome, n in self._outcomes.items() if outcome not in _SCORED
            },
            skipped=self.skipped,
            kernels=tuple(self._kernels),
            clashes=overlapping_sessions(batch),
        )

    def _histogram_rows(self) -> list[ObservationBatch]:
        """Of sections that the same process does not send as spans: no run counts twice."""
        if not self._times:
            return []
        in_spans = {
            (process_of(source), section.name)
            for batch in self._batches
            for source, section in batch.pairs()
        }
        kept = [t for t in self._times if (process_of(t.source), t.section.name) not in in_spans]
        return [rows_of(kept, rows_at_most(len(kept), _MOST_ROWS))]


def overlapping_sessions(batch: ObservationBatch) -> tuple[Source, ...]:
    """Sessions that worked as one rank of one attempt at the same time.

    One that begins after the other has ended is a restart. Cost: O(rows + sources * log sources).
    """
    limits = np.iinfo(np.int64)
    first = np.full(len(batch.sources), limits.max, np.int64)
    last = np.full(len(batch.sources), limits.min, np.int64)
    np.minimum.at(first, batch.source, batch.start_ns)
    np.maximum.at(last, batch.source, batch.start_ns)
    spans: dict[tuple[str, str, int, int], dict[tuple[str, str], tuple[int, int, Source]]] = {}
    for code, source in enumerate(batch.sources):
        rank = (source.run_id, source.group, source.attempt, source.rank)
        session = (source.session_id, source.node)
        sessions = spans.setdefault(rank, {})
        known = sessions.get(session, (int(first[code]), int(last[code]), source))
        sessions[session] = (
            min(known[0], int(first[code])), max(known[1], int(last[code])), source,
        )  # fmt: skip
    clashing: dict[Source, None] = {}
    for sessions in spans.values():
        ordered = sorted(sessions.values(), key=lambda span: span[:2])
        for earlier, later in itertools.pairwise(ordered):
            if later[0] < earlier[1]:
                clashing |= {earlier[2]: None, later[2]: None}
    return tuple(clashing)
