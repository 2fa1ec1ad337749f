"""E13: whether a run's numbers come in time where the GPU is never idle and never waited for."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.ways import CUPTI_WAYS, Timed

RATES = (1_000, 20_000)
"""Kernels a second: long ones, which fill no buffer of CUPTI's in time, and common ones."""
TICKS_PER_S = 1.9e9
SECTION = 10
"""Kernels in a section."""
AHEAD_S = 0.1
"""How far launches are ahead of the GPU: it never runs dry, and never has much to do."""
PATIENCE_S = 2.0
POLL_S = 0.1
TIMED = 2


def measure(notebook: Notebook) -> None:
    """Each way at each rate, one after the other."""
    seconds = notebook.steps(30 if notebook.is_quick else 60) / 10
    with arms_of(__name__, CUPTI_WAYS, {}) as arms:
        for rate in RATES:
            for name in CUPTI_WAYS:
                order = {"rate": rate, "seconds": seconds}
                reported = arms.round(0, seconds + 10, {name: order}).get(name)
                notebook.failures(arms.failures)
                notebook.fact(f"{rate} {name}", reported)
                if reported is not None and reported["runs"]:
                    notebook.figure(
                        f"timed at {rate} {name}", 100 * reported["timed"] / reported["runs"]
                    )
                    notebook.figure(f"delay at {rate} {name}", reported["delay_s"])


class Arm:
    """Launches ahead of the GPU, in sections, and takes what is ready, as the exporter does."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del options
        self._cuda = cuda()
        self._cuda.begin()
        self._way = Timed(self._cuda, prefers_launches=name == "m2")
        self._probe = self._cuda.probe()
        self._probe.open_launcher(self._cuda.driver)
        self._way.start()
        self._launched = 0

    def turn(self, rate: int, seconds: float) -> dict[str, Any]:
        """Of runs that had their time to become ready: how many, how many were timed, and the
        median of s from their end to their numbers."""
        self._way.begin_turn()
        began_s = next_s = time.monotonic()
        taken: list[tuple[int, float, float]] = []
        while (now_s := time.monotonic()) - began_s < seconds:
            if now_s >= next_s:
                next_s += POLL_S
                taken += self._take()
            self._section(int(TICKS_PER_S / rate))
            launched_s = self._launched / rate
            time.sleep(max(0.0, launched_s - (time.monotonic() - began_s) - AHEAD_S))
        taken += self._take()
        self._launched = 0
        self._cuda.synchronize()
        self._way.end_turn()
        until_s = time.monotonic() - PATIENCE_S - AHEAD_S
        return self._run_verdicts([one for one in taken if began_s <= one[1] < until_s])

    def _section(self, ticks: int) -> None:
        self._way.begin(1)
        code = self._probe.launch(SECTION, ticks, None)
        self._way.end()
        self._launched += SECTION
        if code < 0:
            raise RuntimeError(f"the driver refused a launch with {-code}")

    def _take(self) -> list[tuple[int, float, float]]:
        """State, end and delay of runs, in s."""
        ready = self._way.take_ready()
        now_s = time.monotonic()
        return [(state, end_ns / 1e9, now_s - end_ns / 1e9) for state, end_ns in ready]

    def _run_verdicts(self, due: list[tuple[int, float, float]]) -> dict[str, Any]:
        delays = [delay_s for state, _, delay_s in due if state == TIMED]
        return {
            "runs": len(due),
            "timed": len(delays),
            "delay_s": statistics.median(delays) if delays else None,
            "state": self._way.timer.state(),
        }

    def finish(self) -> dict[str, Any]:
        self._way.stop()
        return self._way.facts()


def _expected(rate: int, name: str) -> tuple[Expected, ...]:
    return (
        Expected(figure=f"timed at {rate} {name}", unit="%", minimum=99, is_requirement=True),
        Expected(figure=f"delay at {rate} {name}", unit="s", maximum=PATIENCE_S),
    )


make_arm = Arm
EXPERIMENT = Experiment(
    key="E13",
    question="Whether GPU times arrive within 2 s while the GPU is never idle",
    expected=tuple(e for rate in RATES for name in CUPTI_WAYS for e in _expected(rate, name)),
    limit_s=75,
    budget_s=40,
    measure=measure,
)
