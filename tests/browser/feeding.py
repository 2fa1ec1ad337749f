"""Telemetry for tests in a browser: generated runs, sent to a real collector in portions."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from otel_straggler.model.observation import ObservationBatch
from otel_straggler.otlp.clients.http import HttpClient
from otel_straggler.simulate.faults import Fault
from otel_straggler.simulate.plan import Layout
from otel_straggler.simulate.replay import Ending, Replay
from otel_straggler.simulate.runs import RunPlan, generate

BATCH_STEPS = 20
_USUAL = {"steps": 4_000, "microbatches": 2, "noise": "AR"}
Change = Callable[[ObservationBatch], ObservationBatch]


class Feed:
    """One run that goes on when the test says so.

    Args:
        endpoint: of the collector.
        layout: as ``--layout``.
        faults: as ``--fault``.
        change: applied to every batch, such as other names.
        plan: further fields of the :class:`RunPlan`.
    """

    def __init__(
        self,
        endpoint: str,
        run_id: str = "run",
        layout: str = "pp2,dp4",
        *faults: str,
        change: Change = lambda batch: batch,
        **plan: Any,
    ) -> None:
        self._clients = {
            signal: HttpClient(f"{endpoint}/v1/{signal}") for signal in ("traces", "metrics")
        }
        self._replay = Replay(self._post, speed=0.0, ending=Ending(hold_s=0.0))
        made = generate(
            RunPlan(
                layout=Layout.parse(layout),
                faults=tuple(map(Fault.parse, faults)),
                **{**_USUAL, "run_id": run_id, "start_ns": time.time_ns(), **plan},
            )
        )
        self._batches: Iterator[ObservationBatch] = map(change, made.batches(BATCH_STEPS))

    def advance(self, steps: int) -> Feed:
        """Train so many steps more (a multiple of 20), and give a sign of life."""
        assert steps % BATCH_STEPS == 0, steps
        self._send(itertools.islice(self._batches, steps // BATCH_STEPS))
        self.beat()
        return self

    def beat(self) -> None:
        """A sign of life of every rank."""
        self._replay._beat(self._replay._ranks)

    def finish(self) -> None:
        """All ranks say that they ended well."""
        self._replay.ending = None
        self._send(())

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _send(self, batches: Iterable[ObservationBatch]) -> None:
        self._replay.run(batches)

    def _post(self, signal: str, body: bytes) -> None:
        answer = self._clients[signal].post(body, content_type="application/x-protobuf")
        assert answer.is_success, answer


def renamed(prefix: str) -> Change:
    """Nodes, roles, jobs and sections whose names begin with ``prefix``."""

    def change(batch: ObservationBatch) -> ObservationBatch:
        sources = tuple(
            replace(source, node=f"{prefix}{source.node}", role=f"{prefix}role", job=f"{prefix}job")
            for source in batch.sources
        )
        sections = tuple(
            replace(section, name=f"{prefix}{section.name}") for section in batch.sections
        )
        return replace(batch, sources=sources, sections=sections)

    return change
