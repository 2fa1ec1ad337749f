"""What kernel histograms cost: on the rank that sends them, and in the collector.

    python -m benchmarks.kernel_times [--ranks N --kernels K --sections S]

Every rank reports all its kernels in all sections, 1,600 runs each, once; in practice that is
every ten seconds. Processor time per data point, in one process: decoding (in C++ and in plain
Python), keeping, and scoring a window that they belong to, relative and individual scores, for the
rank and for each section; the window's few section runs are in it. ``percent_of_core`` is what the
whole takes of a core if every rank reports as much every ten seconds and a window closes as often.
Peak memory is that of the whole process, the requests included. Prints JSON.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, print_result
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.model.kernels import KernelCell, KernelCounts, KernelTimes
from otel_straggler.model.observation import BatchBuilder, Kernel, Section
from otel_straggler.model.rank import Source
from otel_straggler.native import NATIVE
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.encode_metrics import encode_kernel_times

RANKS, KERNELS, SECTIONS = 1_024, 64, 5
RUNS = 1_600
INTERVAL_S = 10.0
POINT_US = 10.0
"""A third of a core for 1,024 ranks x 64 kernels x 5 sections every ten seconds."""
S = 10**9
_Given = TypeVar("_Given")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=RANKS)
    parser.add_argument("--kernels", type=int, default=KERNELS)
    parser.add_argument("--sections", type=int, default=SECTIONS)
    args = parser.parse_args()
    figures = measure(args.ranks, args.kernels, args.sections)
    each = figures["us_per_point"]
    in_collector = each["decode"] + each["keep"] + each["score"]
    figures["percent_of_core"] = round(in_collector * figures["points"] / INTERVAL_S / 1e4, 2)
    print_result(
        {**about(), **figures},
        {
            "kernel times: CPU µs a data point, in the collector": judge(
                in_collector, POINT_US, "µs"
            )
        },
    )


def measure(ranks: int, kernels: int, sections: int) -> dict[str, Any]:
    """Processor time in µs per data point, by part."""
    points = ranks * kernels * sections
    counted = [_counted(rank, kernels, sections) for rank in range(min(ranks, 8))]
    encode_s, shapes = _timed(lambda: [_encoded(n, each) for n, each in enumerate(counted)])
    bodies = [_encoded(rank, counted[rank % len(counted)]) for rank in range(ranks)]
    decoder = MetricDecoder()
    decoder.decode(bodies[0])
    decode_s, decoded = _timed(lambda: [decoder.decode(body).kernel_times for body in bodies])
    plain = MetricDecoder(extension=None)
    plain_s, _ = _timed(lambda: [plain.decode(body) for body in shapes])
    scorer = Scorer(ScoreSettings(window_steps=None))
    keep_s, _ = _timed(lambda: [scorer.observe_kernels(_known(times)) for times in decoded])
    scorer.observe(_rows(ranks, sections), 0)
    score_s, windows = _timed(scorer.close_all)
    assert not np.isnan(windows[0].gpu_section_relative).any()
    in_shapes = len(shapes) * kernels * sections
    return {
        "ranks": ranks,
        "kernels": kernels,
        "sections": sections,
        "points": points,
        "bytes_per_point": round(sum(map(len, bodies)) / points, 1),
        "is_native": NATIVE is not None,
        "us_per_point": {
            "encode": round(encode_s / in_shapes * 1e6, 3),
            "decode": round(decode_s / points * 1e6, 3),
            "decode_in_python": round(plain_s / in_shapes * 1e6, 3),
            "keep": round(keep_s / points * 1e6, 3),
            "score": round(score_s / points * 1e6, 3),
        },
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3),
    }


def _timed(do: Callable[[], _Given]) -> tuple[float, _Given]:
    before_s = time.process_time()
    given = do()
    return time.process_time() - before_s, given


def _known(times: KernelTimes | None) -> KernelTimes:
    assert times is not None
    return times


def _counted(rank: int, kernels: int, sections: int) -> list[KernelCounts]:
    """Kernels whose times vary by some per cent, some by more, as they do."""
    noise = np.random.default_rng(rank)
    result = []
    for number in range(kernels):
        for section in range(sections):
            around_ns = noise.uniform(5e3, 5e6)
            times_ns = noise.normal(around_ns, around_ns * noise.choice([0.005, 0.02, 0.1]), RUNS)
            times_ns = np.maximum(times_ns, around_ns / 4).astype(np.int64)
            index = np.ceil(np.log2(times_ns / 1e9) * 128).astype(np.int64) - 1
            first = int(index.min())
            cell = KernelCell(f"section {section}", Kernel(_name(number)))
            counts = KernelCounts(cell)
            numbers = RUNS, int(times_ns.sum()), int(times_ns.min()), int(times_ns.max())
            counts.add(numbers, 7, first, np.bincount(index - first))
            counts.settle()
            result.append(counts)
    return result


def _name(number: int) -> str:
    """As long as a template's name in practice."""
    return f"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_{number}>" + "<float>" * 12


def _encoded(rank: int, counted: list[KernelCounts]) -> bytes:
    source = _source(rank)
    resource_of = {
        "service.name": source.job,
        "host.name": source.node,
        "straggler.session.id": source.session_id,
        "training.run.id": source.run_id,
        "training.rank": rank,
    }
    return encode_kernel_times(counted, resource=resource_of, start_ns=S, end_ns=11 * S)


def _source(rank: int) -> Source:
    return Source(
        run_id="r", rank=rank, job="job", node=f"node-{rank // 8}", session_id=f"{rank:016x}"
    )


def _rows(ranks: int, sections: int) -> Any:
    rows = BatchBuilder()
    for rank in range(ranks):
        for section in range(sections):
            name = Section(f"section {section}")
            rows.add(_source(rank), name, start_ns=2 * S, duration_s=0.5, step=1)
    return rows.build()


if __name__ == "__main__":
    main()
