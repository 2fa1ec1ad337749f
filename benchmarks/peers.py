"""Beside NVRx 0.4.1 itself: what a section and a report cost, and whether the scores agree.

    make bench-peers        (or: python -m benchmarks.peers, where NVRx is installed)

Prints JSON; only the ratios count. Four ranks over gloo on one machine. NVRx runs its own code; of
its ``Detector`` only the parts that need a GPU are left out (CUPTI, synchronising the device), so
its report here costs less than it does in use. Both take turns, in one process per rank.
"""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import random
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.sections import their_detector
from otel_straggler import section
from otel_straggler.detector import Detector, Statistic
from otel_straggler.model.observation import Section
from otel_straggler.record.active import RECORDER
from otel_straggler.report.peers import TorchPeers
from otel_straggler.report.reporter import Reporter, ReportSettings
from otel_straggler.report.summaries import times_of

RANKS = 4
ROUNDS = 41
SAMPLES = 100
RUNS = 5_000
AGREED_WINDOWS = 50
Json = dict[str, Any]


class _Took(NamedTuple):
    """Nanoseconds: of the clock, and of this process on all its threads."""

    wall: float
    cpu: float


def main() -> None:
    """Measure and print."""
    if importlib.util.find_spec("nvidia_resiliency_ext") is None:
        why = "no wheel of nvidia-resiliency-ext 0.4.1 could be installed here"
        print(json.dumps({"installed": False, "why": why}))
        return
    if "RANK" in os.environ:
        print(json.dumps(_of_one_rank()))
        return
    machine = {"python": platform.python_version(), "cpus": os.cpu_count()}
    result = {"installed": True, "machine": machine, "section": _section(), **_of_all_ranks()}
    print(json.dumps(result, indent=2))


def _of_all_ranks() -> Json:
    """Rank 0's figures; all ranks run the same."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    env = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": str(RANKS),
        "OMP_NUM_THREADS": "1",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.peers"],
            env={**env, "RANK": str(rank)},
            stdout=subprocess.PIPE,
        )
        for rank in range(RANKS)
    ]
    first, *_ = [process.communicate(timeout=900)[0] for process in processes]
    found: Json = json.loads(first)
    return found


def _of_one_rank() -> Json:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    reports = {f"{RANKS} ranks x {n} sections": _report(n) for n in (2, 20, 200)}
    agreement = _agreement()
    dist.destroy_process_group()
    return {"report": reports, "agreement": agreement}


def _section() -> Json:
    """``with Detector.detection_section(name)`` of both, without a GPU."""
    theirs = _their_detector()
    Detector.initialize()

    def own() -> None:
        for _ in range(RUNS):
            with Detector.detection_section("forward"):
                pass

    def peer() -> None:
        for _ in range(RUNS):
            with theirs.detection_section("forward", profile_cuda=False):
                pass

    def empty() -> None:
        for _ in range(RUNS):
            pass

    taken = _alternate({"own": own, "peer": peer, "empty": empty}, between=RECORDER.drain)
    Detector.shutdown()
    own_ns, peer_ns = ((taken[n].wall - taken["empty"].wall) / RUNS for n in ("own", "peer"))
    return {"own_ns": own_ns, "nvrx_ns": peer_ns, "nvrx_over_own": peer_ns / own_ns}


def _report(sections: int) -> Json:
    """``generate_report()`` of both: all scores, gathered, 100 runs of every section."""
    import torch.distributed as dist

    theirs = _their_detector()
    Detector.initialize()
    names = [f"section {n:04d}" for n in range(sections)]
    rank = dist.get_rank()

    def ours() -> None:
        Detector.generate_report()

    def peer() -> None:
        theirs.generate_report()

    def fill() -> None:
        _fill(names, 1.0 + 0.1 * rank)
        for name in names:
            with theirs.detection_section(name, profile_cuda=False):
                pass
            times = theirs.custom_sections[name].cpu_elapsed_times
            times.extend([1.0 + 0.1 * rank] * (SAMPLES - 1))
        dist.barrier()

    fill()
    ours(), peer()  # names are exchanged
    taken = _alternate({"own": ours, "peer": peer}, between=list, before=fill)
    Detector.shutdown()
    own, theirs_took = taken["own"], taken["peer"]
    return {
        "own_ms": own.wall / 1e6,
        "nvrx_ms": theirs_took.wall / 1e6,
        "nvrx_over_own": theirs_took.wall / own.wall,
        "own_cpu_ms": own.cpu / 1e6,
        "nvrx_cpu_ms": theirs_took.cpu / 1e6,
        "nvrx_over_own_cpu": theirs_took.cpu / own.cpu,
    }


def _fill(names: list[str], length_ms: float) -> None:
    """Record runs of this length, as sections do."""
    context = RECORDER.context
    assert context is not None
    for name in names:
        frame = (section(name), -1, 0, context, None)
        for _ in range(SAMPLES):
            RECORDER.keep((frame, None, round(length_ms * 1e6), None, []))


def _their_detector() -> Any:
    """NVRx's Detector with what needs a GPU left out, and with its reports."""
    import torch
    from nvidia_resiliency_ext.straggler.reporting import ReportGenerator

    theirs = their_detector()
    if torch.distributed.is_initialized():
        scores = ["relative_perf_scores", "individual_perf_scores"]
        theirs.reporter = ReportGenerator(scores, gather_on_rank0=True, node_name="node")
    return theirs


def _agreement() -> Json:
    """The largest relative difference of any score, over windows of random statistics."""
    import torch.distributed as dist
    from nvidia_resiliency_ext.straggler.reporting import ReportGenerator
    from nvidia_resiliency_ext.straggler.statistics import Statistic as Theirs

    generator = ReportGenerator(["relative_perf_scores", "individual_perf_scores"])
    reporter = Reporter(ReportSettings())
    rng = random.Random(dist.get_rank())
    largest, compared = 0.0, 0
    for _ in range(AGREED_WINDOWS):
        sections = {f"s{n}": _statistics(rng) for n in range(8)}
        kernels = {f"k{n}": _statistics(rng) for n in range(24) if rng.random() < 0.95}
        their = generator.generate_report(_keyed(sections, Theirs), _keyed(kernels, Theirs))
        our = reporter.score(
            TorchPeers(),
            times_of(_keyed(sections, Statistic), 1e-3),
            [Section(name) for name in sections],
            times_of(_keyed(kernels, Statistic), 1e-6),
            0,
        )
        if our is None:
            continue
        for rank in our.ranks:
            pairs = [
                (their.gpu_relative_perf_scores[rank], our.gpu_relative[rank]),
                (their.gpu_individual_perf_scores[rank], our.gpu_individual[rank]),
            ]
            for at, each in enumerate(our.sections):
                relative = their.section_relative_perf_scores[each.name][rank]
                individual = their.section_individual_perf_scores[each.name][rank]
                pairs.append((relative, our.section_relative[rank, at]))
                pairs.append((individual, our.section_individual[rank, at]))
            defined = [(t, o) for t, o in pairs if t == t and o == o]
            compared += len(defined)
            largest = max(largest, *(abs(t - o) / o for t, o in defined))
    return {"scores_compared": compared, "largest_relative_difference": largest}


def _statistics(rng: random.Random) -> tuple[float, float, int]:
    return rng.uniform(0.5, 50.0), rng.uniform(0.5, 50.0), rng.randrange(5, 8000)


def _keyed(summaries: dict[str, tuple[float, float, int]], keys: Any) -> Json:
    return {
        name: {keys.MED: median, keys.AVG: mean, keys.NUM: runs}
        for name, (median, mean, runs) in summaries.items()
    }


def _alternate(
    candidates: dict[str, Callable[[], None]],
    between: Callable[[], object],
    before: Callable[[], None] | None = None,
) -> dict[str, _Took]:
    """What each candidate takes: the median over rounds that take turns."""
    taken: dict[str, list[_Took]] = {name: [] for name in candidates}
    for at in range(ROUNDS):
        order = list(candidates) if at % 2 else list(reversed(candidates))
        if before is not None:
            before()
        for name in order:
            if before is not None:
                _barrier()
            wall_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
            candidates[name]()
            took = _Took(time.perf_counter_ns() - wall_ns, time.process_time_ns() - cpu_ns)
            taken[name].append(took)
            between()
    return {
        name: _Took(
            statistics.median(each.wall for each in took),
            statistics.median(each.cpu for each in took),
        )
        for name, took in taken.items()
    }


def _barrier() -> None:
    import torch.distributed as dist

    dist.barrier()


if __name__ == "__main__":
    main()
