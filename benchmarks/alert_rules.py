"""What an evaluation of the alert rules costs a real Prometheus: seconds an interval, by alert.

    python -m benchmarks.alert_rules [--rules NAME=FILE ...] [--runs N] [--ranks N] [--days D]

One Prometheus after the other, each with one file of rules (``now``: those of this checkout, and
those of ``--rules``, such as the ones of an earlier commit), with the same past and the same
present:

- past: of N runs the series that rules look up over days (or did so in earlier commits), a sample
  every 15 s, put into its database by ``promtool tsdb create-blocks-from openmetrics``; one run in
  ten has hung all the time;
- present: the same runs, in each of which five ranks are slow by verdict, by score, against their
  own past, and by their GPU, so that 20 alerts of each are active; and one healthy run of
  ``--ranks`` ranks with two sections. It is scraped every 15 s.

``seconds`` is ``evaluationTime`` of the rule group, wall time, of some evaluations, the first two
left out; ``cpu_seconds`` the processor time of Prometheus per evaluation, its scrapes included;
``milliseconds_by_alert`` the median of what is recorded for an alert and of the alert itself,
``milliseconds_of_slowest_rules`` that of single rules.
Prints JSON. Nothing is sent anywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from benchmarks.grafana_sizes.large_run import LargeRun
from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, print_result
from otel_straggler import semconv
from otel_straggler.alerts.prometheus import rules_file
from otel_straggler.alerts.promql import HUNG, HUNG_AT, HUNG_WHEN_LAST_SEEN, LAST_SEEN
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.collector.metrics.families import labels
from otel_straggler.collector.metrics.series_choice import QUANTILES
from otel_straggler.demo.processes import Server, free_address
from otel_straggler.semconv import Metric

Json = dict[str, Any]
MAX_S: Final = 1.0
STEP_S: Final = 15
BLOCK_S: Final = 18 * 3_600
"""Of the past: one of the lengths that Prometheus compacts blocks to."""
SLOW: Final = 5
SECTIONS: Final = ("forward", "backward")
_TYPICAL: Final = semconv.OVER_RANKS[semconv.SECTION_INDIVIDUAL.name]
WARM_UP, EVALUATIONS, FEWEST = 2, 4, 2
PATIENCE_S: Final = 300.0
COLLECTOR: Final = {"collector": "c1", "cluster": "prod"}


def main() -> int:
    """Measure every file of rules."""
    arguments = _arguments()
    files = {"now": rules_file(AlertSettings())}
    for pair in arguments.rules:
        name, _, path = pair.partition("=")
        files[name] = Path(path).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory(prefix="alert-rules-") as folder:
        past = Path(folder) / "past"
        samples = _make_past(past, arguments.runs, arguments.days)
        measured = {
            name: _measure(Path(folder) / f"rules-{n}", past, text, arguments)
            for n, (name, text) in enumerate(files.items())
        }
    result = {
        **about(),
        "prometheus": _version(arguments.prometheus),
        "runs": arguments.runs,
        "ranks_of_one_more": arguments.ranks,
        "all_series": arguments.all_series,
        "days": arguments.days,
        "samples_of_the_past": samples,
        "rules": measured,
    }
    worst = measured["now"]["seconds"]["median"]
    print_result(result, {"an evaluation, median": judge(worst, MAX_S, "s")})
    return 0 if worst <= MAX_S else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rules", metavar="NAME=FILE", action="append", default=[])
    parser.add_argument("--runs", type=int, default=200, help="five active alerts each")
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--all-series", action="store_true", help="of every rank")
    parser.add_argument("--days", type=float, default=4.0)
    parser.add_argument(
        "--prometheus", default="prometheus", help="program; promtool is next to it"
    )
    return parser.parse_args()


def _version(program: str) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return (done.stdout + done.stderr).partition("\n")[0]


# --- the past ------------------------------------------------------------------------------------


def _make_past(folder: Path, runs: int, days: float) -> int:
    """Blocks of what rules look up over days; how many samples there are."""
    promtool = shutil.which("promtool")
    if promtool is None:
        sys.exit("promtool is not installed; it is in Debian's package prometheus")
    folder.mkdir()
    end_s = int(time.time()) // STEP_S * STEP_S - 60
    samples, begin_s = 0, end_s - int(days * 86_400)
    while begin_s < end_s:
        until_s = min(end_s, (begin_s // BLOCK_S + 1) * BLOCK_S)
        text = folder.parent / "past.txt"
        with text.open("w", encoding="utf-8") as file:
            for line in _past(runs, range(begin_s, until_s, STEP_S)):
                samples += line.count("\n")
                file.write(line)
            file.write("# EOF\n")
        subprocess.run(
            [
                *(promtool, "tsdb", "create-blocks-from", "openmetrics", "--quiet"),
                *(f"--max-block-duration={BLOCK_S // 3_600}h", str(text), str(folder)),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        text.unlink()
        begin_s = until_s
    return samples


def _past(runs: int, times: range) -> Iterator[str]:
    """OpenMetrics, a series at a time."""
    stamps = [str(at) for at in times]
    for n in range(0, runs, 10):
        hung = f"{HUNG_WHEN_LAST_SEEN.name}{{{labels(**_run(n), mode='page', team='vision')}}}"
        yield "".join(f"{hung} {at} {at}\n" for at in stamps)
    for name, value in (
        (semconv.RUN_PAGES.prometheus_name, "1"),
        (semconv.RUN_INFO.prometheus_name, "1"),
        (semconv.RUN_HUNG.prometheus_name, "0"),
        (HUNG.name, "0"),
        (HUNG_AT.name, "1"),
        (LAST_SEEN.name, ""),
    ):
        for n in range(runs):
            its = {**_run(n), "mode": "page", "team": "vision"} if ":" in name else _run(n)
            if name == semconv.RUN_INFO.prometheus_name:
                its = {**its, "team": "vision", "attempt": "0"}
            series = f"{name}{{{labels(**its)}}}"
            yield "".join(f"{series} {value or at} {at}\n" for at in stamps)


def _run(n: int) -> Json:
    return {"run_id": f"run-{n}", "job_name": "llm", **COLLECTOR}


# --- the present ---------------------------------------------------------------------------------


def _present(runs: int, ranks: int) -> Iterator[str]:
    """The exposition of a collector with these runs, and a healthy one of so many ranks."""

    def one(metric: Metric, value: float, its: Json, **more: object) -> str:
        return f"{metric.prometheus_name}{{{labels(**{**its, **more})}}} {value!r}\n"

    now_s = time.time()
    yield one(semconv.COLLECTOR_START, now_s - 86_400, COLLECTOR)
    yield one(semconv.COLLECTOR_PAGES, 1, COLLECTOR)
    for n in range(runs + bool(ranks)):
        run = _run(n)
        yield one(semconv.RUN_PAGES, 1, run)
        yield one(semconv.RUN_INFO, 1, run, team="vision", attempt="0")
        yield one(semconv.RUN_HUNG, 0, run)
        yield one(semconv.RUN_STARTED, now_s - 86_400, run)
        yield one(semconv.RUN_SLOWDOWN, 1.1, run)
        for state in ("training", "stuck", "lost", "finished", "failed"):
            yield one(semconv.RUN_STATE, float(state == "training"), run, state=state)
        for section in SECTIONS:
            yield one(semconv.SECTION_INFO, 1, run, section=section, kind="compute")
            for below in QUANTILES:
                yield one(_TYPICAL, 0.95, run, section=section, ranks_below=str(below))
        slow = n < runs
        for rank in range(SLOW if slow else ranks):
            its = {**run, "rank": str(rank), "node": f"n{rank // 8}", "role": "default"}
            yield one(semconv.LAST_HEARTBEAT, now_s + 3_600, its)
            yield one(semconv.RANK_LAST_SCORED, now_s + 3_600, its)
            yield one(semconv.GPU_RELATIVE, 0.5 if slow else 0.95, its)
            for section in SECTIONS[: 1 if slow else None]:
                low = 0.5 if slow else 0.95
                yield one(semconv.SECTION_RELATIVE, low, its, section=section)
                yield one(semconv.SECTION_INDIVIDUAL, low, its, section=section)
            if slow:
                subject = {"subject_id": f"rank/{rank}", "scope": "rank", "section": "forward"}
                why = {"cause": "slow_gpu", "state": "confirmed", "evidence": "host"}
                yield one(semconv.VERDICT_INFO, 1, its, **subject, **why)
                yield one(semconv.VERDICT_LOSS, 2.0 + rank, its, **subject)
                yield one(semconv.VERDICT_SLOWDOWN, 1.5, its, **subject)
                yield one(semconv.VERDICT_PAGES, 1, its, **subject)
                yield one(semconv.VERDICT_SILENCED, 0, its, **subject)


def _exporter(body: bytes) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


# --- one Prometheus ------------------------------------------------------------------------------


def _measure(folder: Path, past: Path, rules: str, arguments: argparse.Namespace) -> Json:
    text = "".join(_present(arguments.runs, arguments.ranks if arguments.all_series else 0))
    if not arguments.all_series:
        large = LargeRun(arguments.ranks, stages=8, began_s=time.time() - 60.0)
        text += large.pages[-1].decode()
    exporter = _exporter(text.encode())
    shutil.copytree(past, folder / "data", copy_function=os.link)
    (folder / "rules.yaml").write_text(rules, encoding="utf-8")
    target = f"127.0.0.1:{exporter.server_address[1]}"
    (folder / "prometheus.yml").write_text(json.dumps(_config(folder, target)))
    address = free_address()
    flags = (
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--storage.tsdb.retention.time=30d",
    )
    server = Server([arguments.prometheus, *flags], address, folder / "log")
    try:
        evaluations = _evaluations(f"http://{address}", SLOW * arguments.runs)
        for _ in range(WARM_UP):
            next(evaluations)
        before_s = _cpu_s(address)
        groups = [*evaluations]
        cpu_s = _cpu_s(address) - before_s
        active = _query(f"http://{address}", "count(ALERTS)")
    finally:
        server.close()
        exporter.shutdown()
    times = [group["evaluationTime"] for group in groups]
    unwell = {r["name"]: r["lastError"] for r in groups[-1]["rules"] if r["health"] != "ok"}
    return {
        "seconds": {
            "median": round(statistics.median(times), 3),
            "longest": round(max(times), 3),
            "evaluations": len(times),
        },
        "cpu_seconds": round(cpu_s / len(groups), 3),
        "active_alerts": active,
        "series_of_the_present": sum(not line.startswith("#") for line in text.splitlines()),
        "milliseconds_by_alert": _by_alert(groups),
        "milliseconds_of_slowest_rules": _slowest(groups),
        "failing": unwell,
    }


def _config(folder: Path, target: str) -> Json:
    return {
        "global": {"scrape_interval": f"{STEP_S}s", "evaluation_interval": f"{STEP_S}s"},
        "rule_files": [str(folder / "rules.yaml")],
        "scrape_configs": [
            {
                "job_name": "straggler",
                "honor_labels": True,
                "static_configs": [{"targets": [target]}],
            }
        ],
    }


def _evaluations(url: str, expected: int) -> Iterator[Json]:
    """The rule group after each evaluation, once so many alerts are active; fewer where they take
    long."""
    seen, ends_at_s = "", time.monotonic() + PATIENCE_S
    found = 0
    while found < WARM_UP + EVALUATIONS:
        if time.monotonic() > ends_at_s:
            if found >= WARM_UP + FEWEST:
                return  # each takes longer than the interval
            sys.exit(f"{found} evaluations in {PATIENCE_S:.0f} s")
        time.sleep(0.5)
        [group] = _get(f"{url}/api/v1/rules")["groups"]
        active = sum(len(rule.get("alerts", ())) for rule in group["rules"])
        if group["lastEvaluation"] == seen or active < expected:
            continue
        seen, found = group["lastEvaluation"], found + 1
        yield group


def _by_alert(groups: Iterable[Json]) -> Json:
    """What is recorded for an alert counts to it; what all share is ``shared``."""
    by_name: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        of_group: dict[str, float] = defaultdict(float)
        names = [rule["name"] for rule in group["rules"] if rule["type"] == "alerting"]
        recorded = {_snake(name): name for name in names}
        for rule in group["rules"]:
            parts = rule["name"].split(":")
            name = recorded.get(parts[1], "shared") if len(parts) > 1 else rule["name"]
            of_group[name] += rule["evaluationTime"]
        for name, seconds in of_group.items():
            by_name[name].append(seconds)
    return {name: round(1e3 * statistics.median(its), 2) for name, its in sorted(by_name.items())}


def _slowest(groups: Iterable[Json]) -> Json:
    """The ten rules that take the longest; the median of each."""
    by_name: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        for rule in group["rules"]:
            by_name[rule["name"]].append(1e3 * rule["evaluationTime"])
    medians = {name: round(statistics.median(its), 2) for name, its in by_name.items()}
    return dict(sorted(medians.items(), key=lambda item: -item[1])[:10])


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def _query(url: str, expression: str) -> int:
    query = urllib.parse.urlencode({"query": expression})
    result = _get(f"{url}/api/v1/query?{query}")["result"]
    return int(float(result[0]["value"][1])) if result else 0


def _cpu_s(address: str) -> float:
    """What Prometheus has used so far."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("process_cpu_seconds"))


def _get(url: str) -> Json:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return dict(json.load(answer)["data"])


if __name__ == "__main__":
    sys.exit(main())
