"""One rank of the benchmark: both report over the same process group and take turns.

    RANK=0 WORLD_SIZE=4 ... python -m benchmarks.report.ranks ROUNDS SECTIONS [SECTIONS ...]

Every rank runs this; rank 0's figures count.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from benchmarks.harness import nvrx
from benchmarks.harness.intervals import median_of
from benchmarks.harness.turns import take_turns
from otel_straggler import section
from otel_straggler.client.native_recorder import NO_STEP
from otel_straggler.client.native_records import NO_SECTION, RECORD
from otel_straggler.client.recording import RECORDER
from otel_straggler.detector import Detector
from otel_straggler.native import NATIVE

SAMPLES = 100
Json = dict[str, Any]


def main(rounds: int, sizes: list[int]) -> None:
    """Measure and print."""
    dist.init_process_group("gloo")
    reports = {
        f"{dist.get_world_size()} ranks x {size} sections": _report(size, rounds) for size in sizes
    }
    result: Json = {"report": reports}
    if nvrx.is_installed():
        from benchmarks.report.agreement import agreement

        result["agreement"] = agreement()
    dist.destroy_process_group()
    print(json.dumps(result))


def _report(sections: int, rounds: int) -> Json:
    """``generate_report()`` of both: all scores, gathered, 100 runs of every section."""
    theirs = nvrx.their_detector(has_reports=True) if nvrx.is_installed() else None
    Detector.initialize()
    names = [f"section {n:04d}" for n in range(sections)]
    length_ms = 1.0 + 0.1 * dist.get_rank()

    def fill() -> None:
        _fill(names, length_ms)
        if theirs is not None:
            _fill_theirs(theirs, names, length_ms)

    cpu_ns: dict[str, list[int]] = {"own": []}
    ways = {"own": _timed(Detector.generate_report, cpu_ns["own"])}
    if theirs is not None:
        cpu_ns["nvrx"] = []
        ways["nvrx"] = _timed(theirs.generate_report, cpu_ns["nvrx"])
    fill()
    for way in ways.values():
        way()  # names are exchanged
    for times in cpu_ns.values():
        times.clear()
    took = take_turns(ways, rounds, time.perf_counter_ns, before=fill, before_each=dist.barrier)
    Detector.shutdown()
    return _summary(took, cpu_ns)


def _fill(names: list[str], length_ms: float) -> None:
    """Record runs of this length, as sections do."""
    context = RECORDER.context
    assert context is not None
    assert NATIVE is not None
    span = context.step_span
    step = NO_STEP if context.step is None else context.step
    times = step, 0, round(length_ms * 1e6), -1, -1
    session = len(RECORDER.sessions) - 1
    for name in names:
        numbers = section(name).section, NO_SECTION, 0, session, 0, 0
        record = RECORD.pack(2**64 - 1, span, span, *times, *numbers, 0, 0, 0)
        for _ in range(SAMPLES):
            NATIVE.keep(record)


def _fill_theirs(theirs: Any, names: list[str], length_ms: float) -> None:
    for name in names:
        with theirs.detection_section(name, profile_cuda=False):
            pass
        theirs.custom_sections[name].cpu_elapsed_times.extend([length_ms] * (SAMPLES - 1))


def _timed(way: Callable[[], object], cpu_ns: list[int]) -> Callable[[], None]:
    """Notes the processor time of this process, on all its threads."""

    def timed() -> None:
        begin_ns = time.process_time_ns()
        way()
        cpu_ns.append(time.process_time_ns() - begin_ns)

    return timed


def _summary(wall_ns: dict[str, list[int]], cpu_ns: dict[str, list[int]]) -> Json:
    """Medians over the rounds, and the median of the ratios within each round."""
    reported: Json = {}
    for key, taken in (("ms", wall_ns), ("cpu_ms", cpu_ns)):
        for name, times in taken.items():
            reported[f"{name}_{key}"] = round(statistics.median(times) / 1e6, 3)
        if "nvrx" in taken:
            rounds = zip(taken["own"], taken["nvrx"], strict=True)
            reported[f"own_over_nvrx_{key}"] = median_of([own / peer for own, peer in rounds])
    return reported


if __name__ == "__main__":
    main(int(sys.argv[1]), [int(size) for size in sys.argv[2:]])
