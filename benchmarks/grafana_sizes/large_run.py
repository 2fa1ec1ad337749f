"""What a collector's /metrics says of a large run, by the collector's own worker.

Rows, heartbeats and sensors are handed to it as if they had been decoded: how they are encoded
is not looked at here, and would take minutes for 10,000 ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from otel_straggler.collector.ingest.intake import ByteBudget
from otel_straggler.collector.settings import CollectorSettings, MetricsSettings, ScoringSettings
from otel_straggler.collector.worker import Worker
from otel_straggler.model.kernels import KernelCell, KernelTimes, KernelTimesBuilder
from otel_straggler.model.observation import Kernel, ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat, PassthroughMetric
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.span_rules import DecodedSpans
from otel_straggler.simulate.auxiliary_metrics import Sensors
from otel_straggler.simulate.runs import Fault, Layout, RunPlan, generate

RUN_ID = "large"
WINDOW_STEPS, WINDOWS = 10, 4
SLOW_RANKS = 60
"""More than any panel shows."""
KERNELS = 12
"""Of a rank; ten are shown."""
_PER_NODE = 8
_BEGAN_S = 1.79e9


def plan_of(ranks: int, stages: int, began_s: float = _BEGAN_S) -> RunPlan:
    """``SLOW_RANKS`` GPUs are slow from the first step on."""
    slow = [ranks * n // SLOW_RANKS for n in range(SLOW_RANKS)]
    return RunPlan(
        layout=Layout(pp=stages, dp=ranks // stages),
        steps=WINDOW_STEPS * WINDOWS,
        microbatches=1,
        ranks_per_node=_PER_NODE,
        faults=(Fault(kind="compute", size=2.5, ranks=tuple(slow)),),
        report_hardware=True,
        checkpoint_every=WINDOW_STEPS,
        run_id=RUN_ID,
        start_ns=int(began_s * 1e9),
    )


class LargeRun:
    """Taken in once, window by window.

    Attributes:
        pages: text of /metrics after each window.
        slow_rank: one that is slow.
    """

    def __init__(
        self, ranks: int, stages: int, series_budget: int = 50_000, began_s: float = _BEGAN_S
    ) -> None:
        run = generate(plan_of(ranks, stages, began_s))
        self.slow_rank = run.plan.faults[0].ranks[-1]
        self.pages: list[bytes] = []
        self._now_s = began_s
        self._sensors = Sensors(run.labels)
        settings = CollectorSettings(
            scoring=ScoringSettings(window_steps=WINDOW_STEPS, grace_s=0.5),
            metrics=MetricsSettings(series_budget=series_budget, cluster="eu-1"),
        )
        self._worker = Worker(
            settings,
            ByteBudget(1 << 30),
            monotonic_ns=lambda: int(self._now_s * 1e9),
            wall_s=lambda: self._now_s,
        )
        self._worker.sign("c")
        for rows in run.batches(WINDOW_STEPS):
            self._take(rows)

    def _take(self, rows: ObservationBatch) -> None:
        self._now_s = float((rows.start_ns * 1e-9 + rows.duration_s).max())
        self._worker.ingest(DecodedSpans(batch=rows, outcomes={}), 0)
        step = int(rows.step.max())
        beats = tuple(self._beat(source, step) for source in rows.sources)
        reported = tuple(one for source in rows.sources for one in self._reported(source, step))
        kernels = self._kernels(rows)
        metrics = DecodedMetrics(
            heartbeats=beats, kernel_times=kernels, passthrough=reported, points={}
        )
        self._worker.ingest(metrics, 0)
        self._worker.process_queued()
        for _ in range(2):  # windows close, then they are published
            self._now_s += 1.0
            self._worker.show_soon()
            self._worker.request_page()
            self._worker.tick()
        self.pages.append(self._worker.snapshot.page)

    def _beat(self, source: Source, step: int) -> Heartbeat:
        return Heartbeat(
            source=source,
            sent_at_s=self._now_s,
            progress_at_s=self._now_s,
            step=step,
            open_section="forward",
            open_time_s=0.1,
        )

    def _reported(self, source: Source, step: int) -> Iterator[PassthroughMetric]:
        for metric, attributes, value in self._sensors.numbers(source, step, self._now_s):
            values = tuple(attributes[key] for key in metric.labels or ())
            yield PassthroughMetric(source, metric, values, value)

    def _kernels(self, rows: ObservationBatch) -> KernelTimes:
        """Of the slow rank, which is the one that a page shows."""
        builder = KernelTimesBuilder()
        end_ns = int(self._now_s * 1e9)
        for number in range(KERNELS):
            name = f"ampere_bf16_s16816gemm_128x256_ldg8_f2f_stages_64x{number}_nn" * 2
            builder.add(
                rows.sources[self.slow_rank],
                KernelCell("forward", Kernel(name, "compute")),
                start_ns=end_ns - 10**9,
                end_ns=end_ns,
                count=40,
                sum_s=0.1,
                min_s=2.4e-3,
                max_s=2.6e-3,
                scale=6,
                first=-557,
                runs=np.array([40], np.int64),
            )
        return builder.build()
