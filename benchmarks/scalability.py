"""What a scalability report takes of time and memory, and a real scaling run on CPUs.

    python -m benchmarks.scalability [--only-trace]

100 MB of a synthetic trace of torch.profiler are read by both commands, start of the interpreter
included, ``trace`` in two files of 50 MB; alongside, ``json.load`` of the same file, a floor for
any reader in Python. Other work on the machine changes the seconds of the clock more than those of
the CPU.
The scaling run is ``examples/11_scalability.py``: DDP on 1, 2 and 4 processes. Its plots stay in
``out/scalability``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness.about import about

Event = dict[str, Any]
TRACE_BYTES = 100_000_000
BUDGET_S, BUDGET_MIB = 15.0, 1_024
STEP_US, KERNELS = 50_000.0, 400
COMMAND = [sys.executable, "-m", "otel_straggler.cli"]
ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "11_scalability.py"
OUT = ROOT / "out" / "scalability"


def events(number: int) -> Iterator[Event]:
    """One step: an operator, a launch and a kernel at a time, every tenth of communication."""
    begin = number * STEP_US
    yield event("user_annotation", f"ProfilerStep#{number}", begin, STEP_US, {})
    for index in range(KERNELS):
        at, key = begin + index * STEP_US / KERNELS, number * KERNELS + index
        communicates = index % 10 == 9
        kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if communicates else f"gemm_{index % 40}"
        of_operator = {
            "External id": key, "Record function id": 0, "Ev Idx": key,
            "Input Dims": [[4096, 4096], [4096]],
        }  # fmt: skip
        of_launch = {"External id": key, "correlation": key}
        of_kernel = {
            **of_launch, "device": 0, "stream": 7 + communicates, "registers per thread": 96,
            "grid": [16, 1, 1], "block": [640, 1, 1], "est. achieved occupancy %": 5,
        }  # fmt: skip
        yield event("cpu_op", "aten::linear", at, 60.125, of_operator)
        yield event("cuda_runtime", "cudaLaunchKernel", at + 20, 7.5, of_launch)
        yield event("kernel", kernel, at + 40, 180.0 if communicates else 90.0, of_kernel)


def event(kind: str, name: str, at: float, length: float, arguments: Event) -> Event:
    return {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": 1, "ts": at, "dur": length,
            "args": arguments}  # fmt: skip


def write_trace(path: Path, size: int, rank: int = 0) -> int:
    """A trace of at least so many bytes; returns the number of events."""
    count, number = 0, 0
    with path.open("w") as file:
        file.write(
            f'{{"schemaVersion": 1, "distributedInfo": {{"rank": {rank}, "world_size": 8}}, '
            '"traceEvents": ['
        )
        while file.tell() < size:
            lines = [json.dumps(event) for event in events(number)]
            file.write((",\n" if number else "") + ",\n".join(lines))
            count, number = count + len(lines), number + 1
        file.write("]}\n")
    return count


def measured(command: list[str]) -> tuple[dict[str, Any], str]:
    """Seconds, of the clock and of the CPU, peak memory in MiB; and standard output."""
    began_s = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        output = run.stdout.read() if run.stdout else ""
        _, status, usage = os.wait4(run.pid, 0)
        run.returncode = os.waitstatus_to_exitcode(status)
    took_s = time.perf_counter() - began_s
    assert run.returncode == 0, output
    figures = {
        "seconds": round(took_s, 1),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "peak_memory_mib": usage.ru_maxrss // 1024,
    }
    return figures, output


def is_within_budget(figures: dict[str, Any]) -> bool:
    return bool(figures["seconds"] <= BUDGET_S and figures["peak_memory_mib"] <= BUDGET_MIB)


def trace_figures() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "rank-0.json"
        count = write_trace(path, TRACE_BYTES)
        verb = [*COMMAND, "scalability", str(path), "--plot-dir", "", "--json", "-"]
        figures, text = measured(verb)
        floor, _ = measured([sys.executable, "-c", f"import json; json.load(open({str(path)!r}))"])
        size = path.stat().st_size
    (point,) = json.loads(text)["points"]
    return {
        "bytes": size,
        "events": count,
        **figures,
        "is_within_budget": is_within_budget(figures),
        "json_load_alone": floor,
        "communication": round(point["gpu_time"]["communication"], 4),
    }


def scored_figures() -> dict[str, Any]:
    """Of ``trace``: two ranks, with their scores."""
    with tempfile.TemporaryDirectory() as name:
        for rank in (0, 1):
            write_trace(Path(name) / f"rank-{rank}.json", TRACE_BYTES // 2, rank)
        figures, text = measured([*COMMAND, "trace", name, "--json"])
    ranks = [each["rank"] for each in json.loads(text)["ranks"]]
    return {"ranks": ranks, **figures, "is_within_budget": is_within_budget(figures)}


def training_figures() -> dict[str, Any]:
    subprocess.run([sys.executable, str(EXAMPLE)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    verb = [*COMMAND, "scalability", str(OUT)]
    _, text = measured([*verb, "--plot-dir", "", "--json", "-"])
    report = json.loads(text)
    return {
        "plots": sorted(path.name for path in OUT.glob("*.png")),
        "points": [
            {
                "ranks": each["size"],
                "epoch_s": round(each["epoch_s"]["mean"], 3),
                "speedup": round(each["speedup"]["mean"], 3),
                "efficiency": round(each["efficiency"], 3),
            }
            for each in report["points"]
        ],
        "projection": report["projections"][0],
    }


def main(arguments: list[str]) -> None:
    """Measure and print."""
    result = {
        **about("numpy", "torch", "matplotlib"),
        "trace": trace_figures(),
        "scored": scored_figures(),
    }
    if "--only-trace" not in arguments:
        result["training"] = training_figures()
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
