"""Whether what is said of real trainings is true: who, since when, what it costs, and who is paged.

    python -m benchmarks.real_runs [--healthy 20] [--faulty 20] [--seconds 120] [--json FILE]

Four gloo ranks on CPU train a small transformer under DDP with README's two lines; a collector with
its default settings scores them and pages a webhook. In half of the runs a rank becomes slower in
the second quarter: in loading data, in forward, in backward, or outside all sections, by 15 to
200 % of a step. The page is read every second, as somebody who looks at it would. Truth is what the
ranks saw by their own clocks.

A summary on standard output, progress on standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.harness.about import about
from benchmarks.real_runs.grading import Watch, grade, summary
from benchmarks.real_runs.planning import RANKS, Plan, draw
from otel_straggler.demo.processes import Collector, free_address
from otel_straggler.demo.receiver import Receiver

Json = dict[str, Any]
SETTLE_S: Final = 90.0
"""After the end of a run, for alerts that fire about what is over."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Train all runs, and say how they were judged."""
    args = _parser().parse_args(arguments)
    plans = list(draw(args.healthy, args.faulty, args.seconds, args.seed))
    with tempfile.TemporaryDirectory() as name, _scene(Path(name)) as (collector, receiver):
        folder = Path(name)
        with ThreadPoolExecutor(args.at_once) as pool:
            plans = [replace(plan, endpoint=collector.endpoint) for plan in plans]
            watches = pool.map(lambda plan: _train(plan, collector, folder), plans)
            ended = [(plan, watch) for plan, watch in zip(plans, watches, strict=True)]
        time.sleep(args.settle)
        runs = [_graded(plan, watch, folder, receiver) for plan, watch in ended]
    result = {**about("torch"), "seed": args.seed, **summary(runs), "runs": runs}
    if args.json:
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(summary(runs), indent=2))


@contextlib.contextmanager
def _scene(folder: Path) -> Iterator[tuple[Collector, Receiver]]:
    with contextlib.ExitStack() as closing:
        receiver = Receiver()
        closing.callback(receiver.close)
        notify = {"webhook": receiver.url}
        file = folder / "collector.yaml"
        file.write_text(json.dumps({"alerts": {"mode": "page", "notify": notify}}))
        collector = Collector(f"--config={file}")
        closing.callback(collector.close)
        yield collector, receiver


def _train(plan: Plan, collector: Collector, folder: Path) -> Watch:
    file = folder / f"{plan.run_id}.json"
    file.write_text(json.dumps(plan.as_json()))
    host, _, port = free_address().rpartition(":")
    command = [
        *(sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}"),
        *(f"--master-addr={host}", f"--master-port={port}"),
        *("-m", "benchmarks.real_runs.rank", str(file)),
    ]
    watch = Watch()
    with (folder / f"{plan.run_id}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        while process.poll() is None:
            _read(watch, collector, plan.run_id)
            time.sleep(1.0)
    time.sleep(5.0)
    _read(watch, collector, plan.run_id)
    if process.returncode:
        raise RuntimeError(f"{plan.run_id}: {(folder / f'{plan.run_id}.log').read_text()[-3000:]}")
    print(f"{plan.run_id}: {' / '.join(watch.headlines)}", file=sys.stderr)
    return watch


def _read(watch: Watch, collector: Collector, run_id: str) -> None:
    with contextlib.suppress(urllib.error.HTTPError):  # not known yet
        url = f"{collector.url}/v1/run?run={run_id}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            watch.read(json.load(answer))


def _graded(plan: Plan, watch: Watch, folder: Path, receiver: Receiver) -> Json:
    files = [folder / f"{plan.run_id}.rank{rank}.json" for rank in range(RANKS)]
    begun_s = [json.loads(file.read_text()) for file in files]
    return grade(plan, watch, begun_s, _pages(receiver, plan.run_id, begun_s[0][-1]))


def _pages(receiver: Receiver, run_id: str, ended_s: float) -> list[Json]:
    """Alerts that called somebody about a run, each once; and how long after its end they came."""
    pages: dict[tuple[str, str], Json] = {}
    for one in receiver.received:
        for alert in one.payload["alerts"]:
            labels = alert["labels"]
            is_page = alert["status"] == "firing" and labels.get("severity") == "critical"
            if is_page and labels.get("run_id") == run_id:
                key = labels["alertname"], labels.get("rank", "")
                page = {
                    "alert": key[0],
                    "rank": key[1],
                    "after_end_s": round(one.at_s - ended_s, 1),
                }
                pages.setdefault(key, page)
    return list(pages.values())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_runs")
    parser.add_argument("--healthy", type=int, default=20, help="runs without a fault")
    parser.add_argument("--faulty", type=int, default=20, help="runs with one")
    parser.add_argument("--seconds", type=float, default=120.0, help="of a run, about")
    parser.add_argument("--settle", type=float, default=SETTLE_S, help="s after the last one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=2, help="runs")
    parser.add_argument("--json", help="also write all runs to this file")
    return parser


if __name__ == "__main__":
    main()
