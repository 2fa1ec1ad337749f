"""One rank of NVRx's own report, run as a process of its own: real code, CPU, gloo.

Reads lists of windows from a JSON file, feeds their statistics (as NVRx computes them) to NVRx's
ReportGenerator on the default process group, one for each list, and on rank 0 prints its scores as
JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from nvidia_resiliency_ext.straggler.reporting import ReportGenerator
from nvidia_resiliency_ext.straggler.statistics import Statistic


def section_summary(durations: list[float]) -> dict[Statistic, float]:
    times = torch.tensor(durations, dtype=torch.float64)
    return {Statistic.MED: float(torch.median(times)), Statistic.NUM: len(durations)}


def kernel_summary(durations: list[float]) -> dict[Statistic, float]:
    times = torch.tensor(durations, dtype=torch.float64)
    return {
        Statistic.MED: float(torch.quantile(times, 0.5)),
        Statistic.AVG: float(times.mean()),
        Statistic.NUM: len(durations),
    }


def main() -> None:
    dist.init_process_group("gloo")
    result = [scores_of(windows) for windows in json.loads(Path(sys.argv[1]).read_text())]
    if dist.get_rank() == 0:
        print(json.dumps(result))
    dist.destroy_process_group()


def scores_of(windows: list[Any]) -> list[dict[str, Any]]:
    """In a row, of one history; empty but on rank 0."""
    rank = dist.get_rank()
    generator = ReportGenerator(
        scores_to_compute=["relative_perf_scores", "individual_perf_scores"],
        gather_on_rank0=True,
        node_name=f"node-{rank}",
    )
    reports = []
    for window in windows:
        mine = window[str(rank)]
        report = generator.generate_report(
            {name: section_summary(d) for name, d in mine["sections"].items() if d},
            {name: kernel_summary(d) for name, d in mine["kernels"].items() if d},
        )
        if rank == 0:
            reports.append(
                {
                    "section_relative": report.section_relative_perf_scores,
                    "section_individual": report.section_individual_perf_scores,
                    "gpu_relative": report.gpu_relative_perf_scores,
                    "gpu_individual": report.gpu_individual_perf_scores,
                }
            )
    return reports


if __name__ == "__main__":
    main()
