"""One run of which a collector's worker is told, by a clock that the ranks move."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from otel_straggler import semconv
from otel_straggler.collector.ingest.intake import ByteBudget
from otel_straggler.collector.settings import CollectorSettings, ScoringSettings
from otel_straggler.collector.views.run_json import run_json
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.collector.worker import Worker
from otel_straggler.model.observation import ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.span_rules import DecodedSpans

Json = dict[str, Any]
Ahead = Callable[[int, int], float]
"""Seconds that the clock of a rank is ahead in a step."""


def moved(batch: ObservationBatch, ahead: Ahead) -> ObservationBatch:
    ranks = [batch.sources[code].rank for code in batch.source.tolist()]
    ahead_s = [ahead(*each) for each in zip(ranks, batch.step.tolist(), strict=True)]
    by_ns = np.rint(np.array(ahead_s) * 1e9).astype(np.int64)
    return replace(batch, start_ns=batch.start_ns + by_ns)


class Collecting:
    """A collector's worker without its threads, by a clock that the steps of one run move."""

    def __init__(self, run_id: str, window_steps: int = 20, ahead: Ahead = lambda *_: 0.0) -> None:
        self.run_id = run_id
        self._ahead = ahead
        self.now_s = 1.79e9
        settings = replace(CollectorSettings(), scoring=ScoringSettings(window_steps=window_steps))
        self.worker = Worker(
            settings,
            ByteBudget(1 << 30),
            monotonic_ns=lambda: round(self.now_s * 1e9),
            wall_s=lambda: self.now_s,
        )
        self.worker.sign("c")

    def observe(self, *batches: ObservationBatch) -> None:
        """The rows of steps, one after the other."""
        for batch in batches:
            ends_s = batch.start_ns * 1e-9 + batch.duration_s
            self.now_s = max(self.now_s, float(ends_s.max()))
            spans = DecodedSpans(batch=moved(batch, self._ahead), outcomes={})
            self.worker.ingest(spans, 0)
            self.beat(batch.sources, int(batch.step.max()))

    def beat(self, sources: Sequence[Source], step: int, *, outcome: Any = None) -> None:
        """A sign of life of each rank, the last one if it has an outcome."""
        beats = []
        for source in sources:
            at_s = self.now_s + self._ahead(source.rank, step)
            ends = {} if outcome is None else {"finished_at_s": at_s, "outcome": outcome}
            at = {"sent_at_s": at_s, "progress_at_s": at_s, "step": step, **ends}
            beats.append(Heartbeat(source=source, open_section="", open_time_s=0.0, **at))
        self.worker.ingest(DecodedMetrics(heartbeats=tuple(beats), points={}), 0)
        self.worker.process_queued()
        self.look()

    def end(self, sources: Sequence[Source], step: int) -> None:
        """All ranks end, and time passes."""
        self.beat(sources, step, outcome="ok")
        for _ in range(30):
            self.now_s += 2.0
            self.look()

    def look(self) -> None:
        self.worker.show_soon()
        self.worker.request_page()
        self.worker.tick()

    # --- what is published --------------------------------------------------------------------

    @property
    def view(self) -> RunView:
        return self.worker.snapshot.runs[self.run_id]

    def page(self) -> Json:
        """The block ``run`` of ``/v1/run``."""
        return run_json(self.view.world(""))

    def report(self) -> Json:
        return dict(json.loads(self.worker.snapshot.report())["runs"][self.run_id])

    def samples(self, metric: semconv.Metric, **wanted: str) -> list[float]:
        """Values in the text page, as Prometheus' own parser reads them."""
        return [
            sample.value
            for family in text_string_to_metric_families(self.worker.snapshot.page.decode())
            for sample in family.samples
            if sample.name == metric.prometheus_name
            and all(sample.labels.get(name) == value for name, value in wanted.items())
        ]
