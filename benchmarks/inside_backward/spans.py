"""What the ranks have sent, as the collector passes it on: own times, and the host's answer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from otel_straggler.collector.views.report_json import RunReport, report_json, window_json
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.model.observation import COLLECTIVE, ObservationBatch, merge_batches
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.testing import TRACES_PATH, CapturedRequests

Json = dict[str, Any]
WINDOW_STEPS = 20


def spans_of(sink: CapturedRequests, run_id: str) -> ObservationBatch:
    """All spans of a run, by their starts."""
    decoder = SpanDecoder()
    bodies = [request.body for request in sink.requests if request.path == TRACES_PATH]
    batch = merge_batches([decoder.decode(body).batch for body in bodies])
    is_of_run = np.array([source.run_id == run_id for source in batch.sources], bool)
    rows = np.flatnonzero(is_of_run[batch.source])
    return batch.take(rows[np.argsort(batch.start_ns[rows], kind="stable")])


def own_times(batch: ObservationBatch, first_step: int) -> dict[str, float]:
    """By section, the median over ranks and steps of seconds per step, less the waiting."""
    waited_s = np.zeros(len(batch))
    if batch.gpu is not None:
        waited_s = np.where(batch.gpu.basis == COLLECTIVE, batch.gpu.nccl_s, 0.0)
    own_s: dict[str, dict[tuple[int, int], float]] = defaultdict(lambda: defaultdict(float))
    columns = (batch.section, batch.source, batch.step, batch.duration_s - waited_s)
    for section, source, step, seconds in zip(*(c.tolist() for c in columns), strict=True):
        if step >= first_step:
            own_s[batch.sections[section].name][source, step] += seconds
    return {name: median(of_steps.values()) for name, of_steps in own_s.items()}


def host_report(batch: ObservationBatch, run_id: str) -> Json:
    """What the same spans say if nobody measures what ranks wait: by the host's clock."""
    scorer = Scorer(ScoreSettings(window_steps=WINDOW_STEPS))
    rows = replace(batch, gpu=None)
    scorer.observe(rows, int(rows.start_ns[-1]))
    windows = [window_json(window) for window in scorer.close_all()]
    report = RunReport(windows=windows, run_verdicts=scorer.verdicts(run_id))
    result: Json = report_json({run_id: report})["runs"][run_id]
    return result
