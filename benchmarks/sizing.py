"""What a fleet needs: bytes, memory, series, and processor time of a collector by its ranks.

    python -m benchmarks.sizing [--ranks N ...] [--steps S]

For each number of ranks a collector in a process of its own, with a history, gets a run of S steps
with one microbatch (a rank is slow), encoded as the client does, as fast as it takes them. Then,
with ``spans_per_step`` of a rank:

- ``wire_bytes``: of a rank and step, as sent, and with gzip as an OpenTelemetry Collector sends;
- ``cpu_us_per_span``: processor time of the collector, with all verdicts, for all its threads;
- ``memory_mib``: resident at the end, above that of a collector without runs;
- ``series``, ``metrics_mib``: of one scrape of /metrics;
- ``history_bytes``: of a window and rank, in its row; ``history_fixed_mib``: of the file besides
  windows, which does not grow with time.

``per_day``, ``history_kib_per_rank_hour`` and ``retention_days``, at the default of
``history.max_mib``, are worked out from these for ranks that do one step a second, in windows of 20
steps; ``cores`` without the work of senders. Prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import sqlite3
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.harness.about import about
from benchmarks.harness.budgets import print_result
from benchmarks.harness.processes import cpu_ns, serving
from otel_straggler.collector.settings import HistorySettings
from otel_straggler.otlp.clients.http import HttpClient
from otel_straggler.simulate.faults import Fault
from otel_straggler.simulate.plan import Layout
from otel_straggler.simulate.runs import RunPlan, generate
from otel_straggler.simulate.writers import encode_requests

RANKS, STEPS = (1_000, 4_000, 16_384), 100
WINDOW_STEPS = 20
SAVED_S = 12.0
"""After so long the history is saved."""
_DAY_S, _HOUR_S = 86_400, 3_600
MAX_MIB = HistorySettings().max_mib
_PATIENCE_S = 600.0
Json = dict[str, Any]


def measure(ranks: int, steps: int) -> Json:
    """One collector, one run."""
    plan = RunPlan(
        layout=Layout(dp=ranks),
        steps=steps,
        microbatches=1,
        faults=(Fault.parse("compute:1.2@rank1:step0"),),
    )
    with tempfile.TemporaryDirectory() as folder:
        history = Path(folder) / "history.db"
        ports = [f"--{name}=127.0.0.1:0" for name in ("otlp-http", "otlp-grpc", "metrics")]
        command = [sys.executable, "-m", "otel_straggler.cli", "collector", *ports]
        with serving([*command, f"--history={history}"]) as (line, pid):
            addresses = json.loads(line)
            idle_mib, began_ns = resident_mib(pid), cpu_ns(pid)
            sent = send(plan, f"http://{addresses['otlp_http']}/v1/traces")
            page = wait_until_scored(f"http://{addresses['metrics']}", sent["spans"], steps)
            spent_ns, memory_mib = cpu_ns(pid) - began_ns, resident_mib(pid) - idle_mib
            time.sleep(SAVED_S)
            kept = history_of(history, at_least=steps // WINDOW_STEPS - 1)
    per_step = ranks * steps
    n_spans = sent["spans"] / per_step
    wire = {name: sent[name] / per_step for name in ("plain", "gzip")}
    series = sum(not each.startswith(b"#") for each in page.splitlines())
    cpu_us = spent_ns / 1e3 / sent["spans"]
    history_bytes = kept["window_bytes"] / ranks
    hour_bytes = history_bytes * _HOUR_S / WINDOW_STEPS
    room_bytes = MAX_MIB * 2**20 - kept["fixed_bytes"]
    return {
        "ranks": ranks,
        "spans_per_step": round(n_spans, 2),
        "wire_bytes": {name: round(value) for name, value in wire.items()},
        "cpu_us_per_span": round(cpu_us, 2),
        "memory_mib": round(memory_mib),
        "series": series,
        "metrics_mib": round(len(page) / 2**20, 1),
        "history_bytes": round(history_bytes, 1),
        "history_fixed_mib": round(kept["fixed_bytes"] / 2**20, 1),
        "history_kib_per_rank_hour": round(hour_bytes / 2**10, 1),
        "retention_days": round(room_bytes / (hour_bytes * ranks) / 24, 1),
        "per_day": {
            "wire_gib": round(wire["gzip"] * ranks * _DAY_S / 2**30, 1),
            "history_gib": round(hour_bytes * 24 * ranks / 2**30, 2),
            "cores": round(cpu_us * 1e-6 * n_spans * ranks, 2),
        },
    }


def history_of(file: Path, at_least: int) -> dict[str, float]:
    """Bytes of a window on average, and of the file without its windows, once so many are in it."""
    question = "SELECT count(*), coalesce(sum(length(blob)), 0) FROM windows"
    until_s, windows, stored = time.monotonic() + _PATIENCE_S, 0, 0
    with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        while windows < at_least:
            assert time.monotonic() < until_s, f"{windows} windows of {at_least}"
            time.sleep(0.1)
            [(windows, stored)] = connection.execute(question).fetchall()
    size = sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*"))
    return {"window_bytes": stored / max(windows, 1), "fixed_bytes": size - stored}


def send(plan: RunPlan, url: str) -> dict[str, int]:
    """Send a run; spans, and bytes with and without gzip."""
    client = HttpClient(url, timeout_s=60.0)
    sent = {"spans": 0, "plain": 0, "gzip": 0}
    for batch in generate(plan).batches():
        for body in encode_requests(batch, first_span=sent["spans"]):
            while True:
                answer = client.post(body, content_type="application/x-protobuf")
                if answer.is_success:
                    break
                time.sleep(answer.retry_after_s or 0.2)
            sent["plain"] += len(body)
            sent["gzip"] += len(gzip.compress(body, 1))
        sent["spans"] += len(batch)
    client.close()
    return sent


def wait_until_scored(url: str, spans: int, steps: int) -> bytes:
    """The text of /metrics, once all windows but the last are scored: the run does not end."""
    share = (steps // WINDOW_STEPS - 1) * WINDOW_STEPS / steps
    until_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until_s:
        with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
            page: bytes = answer.read()
        counts = [
            float(each.rsplit(b" ", 1)[1])
            for each in page.splitlines()
            if each.startswith(b"straggler_collector_rows_total") and b'"scored"' in each
        ]
        has_run = b"\nstraggler_run_world_size{" in page  # of a busy collector it comes later
        if has_run and counts and counts[0] >= spans * share * 0.99:
            return page
        time.sleep(0.5)
    raise TimeoutError(f"{url} has not scored {spans} spans within {_PATIENCE_S:g} s")


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(each for each in status.splitlines() if each.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    result = {**about("numpy"), "sizes": [measure(ranks, given.steps) for ranks in given.ranks]}
    print_result(result, {})


if __name__ == "__main__":
    main()
