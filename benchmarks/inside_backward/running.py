"""The runs of a row: trained by real ranks, scored by a real collector."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.inside_backward.faults import Fault, draw
from benchmarks.inside_backward.grading import Grade, grade
from benchmarks.inside_backward.jobs import Job
from benchmarks.inside_backward.rows import ROWS
from benchmarks.inside_backward.spans import host_report, own_times, spans_of
from otel_straggler.demo.processes import Collector
from otel_straggler.testing import CapturedRequests

Json = dict[str, Any]
WARM_UP_STEPS = 20
LONGEST_S = 60.0
"""Until a run that is over has been scored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A run and the two answers about it; ``fault`` is None if nothing was planted."""

    run_id: str
    fault: Fault | None
    ours: Grade
    by_host: Grade


class Scene:
    """A collector that the runs of a row share, and what it passes on; ``close()`` ends both."""

    def __init__(self) -> None:
        self.sink = CapturedRequests()
        self.collector = Collector(f"--forward={self.sink.url}")

    def close(self) -> None:
        self.collector.close()
        self.sink.close()

    def report(self, run_id: str, steps: int) -> Json:
        """Of a run that is over, once its last step has been scored and passed on.

        Raises:
            TimeoutError: it is not.
        """
        url = f"{self.collector.url}/v1/report?run={run_id}"
        ends_at_s = time.monotonic() + LONGEST_S
        while time.monotonic() < ends_at_s:
            with urllib.request.urlopen(url, timeout=LONGEST_S) as answer:
                run: Json = json.load(answer)["runs"].get(run_id, {})
            if run.get("windows") and run["windows"][-1]["last_step"] == steps - 1:
                return run
            time.sleep(0.1)
        raise TimeoutError(f"{run_id}: step {steps - 1} is not scored after {LONGEST_S} s")


def run_row(
    scene: Scene,
    name: str,
    *,
    n_faults: int,
    n_healthy: int,
    steps: int,
    folder: Path,
    come_first: bool = True,
) -> Iterator[Result]:
    """All runs of a row; the first healthy one also says what a dose is in seconds."""
    row = ROWS[name]
    job = Job(row.training, row.ranks, folder / f"{name}.log", come_first=come_first)
    try:
        plan = {"steps": steps * row.longer, "scale": row.scale}
        _train(scene, job, f"{name}.base", plan, None)
        base_s = own_times(spans_of(scene.sink, f"{name}.base"), WARM_UP_STEPS)
        faults = draw(row, base_s, n_faults, seed=name)
        for number, fault in enumerate(_mixed(faults, n_healthy)):
            run_id = f"{name}.{number}"
            scene.sink.requests.clear()
            run = _train(scene, job, run_id, plan, fault)
            by_host = host_report(spans_of(scene.sink, run_id), run_id)
            yield Result(
                run_id=run_id, fault=fault, ours=grade(run, fault), by_host=grade(by_host, fault)
            )
    finally:
        job.close()


def _mixed(faults: Sequence[Fault], n_healthy: int) -> Iterator[Fault | None]:
    """Healthy runs spread over the others: a machine is quiet at one time and busy at another."""
    total, given = len(faults) + n_healthy, 0
    left = iter(faults)
    for at in range(total):
        is_healthy = (at + 1) * n_healthy // total > given
        given += is_healthy
        yield None if is_healthy else next(left)


def _train(scene: Scene, job: Job, run_id: str, plan: Json, fault: Fault | None) -> Json:
    added = {} if fault is None else {fault.rank: fault.sleeps}
    job.train({"run_id": run_id, "endpoint": scene.collector.endpoint, **plan}, added)
    return scene.report(run_id, plan["steps"])
