"""A collector's worker and a simulated run, both by a clock that only the run moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from otel_straggler.collector.ingest.intake import ByteBudget
from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.collector.views.page_json import ResponseMeta, page_json
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.collector.worker import Worker
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.simulate.replay import Replay
from otel_straggler.simulate.runs import Fault, Layout, RunPlan, SimulatedRun, generate

TICK_S = 1.0


class VirtualRun:
    """Replays a run of a plan in its own time; the worker publishes every second.

    Args:
        look: called with this after each publication.
    """

    def __init__(
        self,
        layout: str,
        *faults: str,
        look: Callable[[VirtualRun], None] = lambda _: None,
        **plan: Any,
    ) -> None:
        self._now_s = self._tick_at_s = 1.79e9
        self._look = look
        self.worker = Worker(
            CollectorSettings(),
            ByteBudget(1 << 30),
            monotonic_ns=lambda: int(self._now_s * 1e9),
            wall_s=lambda: self._now_s,
        )
        self.worker.sign("c")
        self.run: SimulatedRun = generate(
            RunPlan(
                layout=Layout.parse(layout),
                faults=tuple(map(Fault.parse, faults)),
                run_id="run",
                start_ns=int(self._now_s * 1e9),
                **plan,
            )
        )
        Replay(self._post, speed=1.0, clock=self).run(self.run.batches(5))

    # --- as the clock of a replay ---

    def now_s(self) -> float:
        return self._now_s

    def sleep(self, duration_s: float) -> None:
        until_s = self._now_s + duration_s
        while self._now_s < until_s:
            self._now_s = min(until_s, self._tick_at_s)
            if self._now_s >= self._tick_at_s:
                self._tick_at_s += TICK_S
                self.worker.show_soon()
                self.worker.tick()
                self._look(self)

    def _post(self, signal: str, body: bytes) -> None:
        decoder = SpanDecoder() if signal == "traces" else MetricDecoder()
        self.worker.ingest(decoder.decode(body), 0)
        self.worker.process_queued()

    # --- what is published ---

    @property
    def view(self) -> WorldView | None:
        run = self.worker.snapshot.runs.get("run")
        return None if run is None else run.world("")

    @property
    def page(self) -> dict[str, Any] | None:
        """The body of ``/v1/run``; None before the first heartbeat."""
        view = self.view
        return None if view is None else page_json(view, ResponseMeta(version="1"))
