"""What a view of the live page costs the collector, against a scrape; and what the page weighs.

    python -m benchmarks.page_view [--ranks N ...]

A real collector in this process, fed over HTTP with a simulated run, and a timeline of 360 windows.
A browser's requests come from another process: all files of the page, the list of runs, the
view, the timeline, the first event, all as gzip. Processor time of the threads that answer is
counted, not that of the one that scores. ``first`` is a view that finds nothing made or kept:
it also zips the files, once in the life of a collector; ``view``, against which the budget is held,
the median of those that follow, each after something new has come and of a timeline that was not
requested before; ``again`` a view by a client that has the files, without anything new. A scrape is
the answer to /metrics, whose text the scoring thread has made before. Prints JSON.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, not_measured, print_result
from otel_straggler import page, semconv
from otel_straggler.collector.api.cache import GZIP_FROM
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import (
    CollectorSettings,
    MetricsSettings,
    ReceiverSettings,
)
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.encode_metrics import encode_heartbeat

FREE = "127.0.0.1:0"
RANKS = (1_000, 10_000)
STEPS = 50
COLUMNS = 360
VIEWS = 6
MAX_MS, MAX_RANKS = 50.0, 1_000
MAX_BYTES = 1_000_000
PATIENCE_S = 600.0
BEATS_AT_ONCE = 500
PIPELINE = 4
ANSWERING = ("straggler-servers", "straggler-pages")
"""Names of threads: the loop, and those that make what pages ask for."""
Json = dict[str, Any]

VIEW = """
import sys, urllib.request, json
base, names = sys.argv[1], json.loads(sys.argv[2])
def get(path, lines=None):
    request = urllib.request.Request(base + path, headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        if lines:
            return sum(len(answer.readline()) for _ in range(lines))
        return len(answer.read())
for line in sys.stdin:
    what, section = line.rstrip("\\n").split(" ")
    sizes = {"files": sum(get(path) for path in names)} if what == "all" else {}
    for path in ("/v1/runs", "/v1/run"):
        sizes[path] = get(path)
    sizes["/v1/timeline"] = get("/v1/timeline?section=" + section)
    sizes["/v1/events"] = get("/v1/events", lines=5)
    print(json.dumps(sizes), flush=True)
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=list(RANKS))
    parser.add_argument("--views", type=int, default=VIEWS)
    options = parser.parse_args()
    runs = {str(ranks): measure(ranks, options.views) for ranks in options.ranks}
    result = {**about("numpy", "httptools"), "page": weight(), "ranks": runs}
    print_result(result, _budgets(result))


def weight() -> Json:
    """Of the files of the page, as they are and as they are sent."""
    contents = {name: asset.content for name in page.names() if (asset := page.asset(name))}
    zipped = {
        name: len(gzip.compress(content, 1)) if len(content) >= GZIP_FROM else len(content)
        for name, content in contents.items()
    }
    return {
        "files": len(contents),
        "bytes": sum(map(len, contents.values())),
        "gzip_bytes": sum(zipped.values()),
    }


def measure(ranks: int, views: int) -> Json:
    """All figures at one size."""
    collector = Collector(
        CollectorSettings(
            receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
            metrics=MetricsSettings(listen=FREE),
        )
    )
    addresses = {name: f"http://{address}" for name, address in collector.start().items()}
    try:
        _feed(addresses, ranks)
        _lengthen(collector)
        return _measured(addresses, ranks, views)
    finally:
        collector.stop()


def _measured(addresses: dict[str, str], ranks: int, views: int) -> Json:
    base = addresses["metrics"]
    names = json.dumps(["/", *(f"/page/{name}" for name in page.names() if name != "index.html")])
    command = [sys.executable, "-c", VIEW, base, names]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as browser:

        def view(what: str, section: str = "") -> Json:
            assert browser.stdin is not None
            assert browser.stdout is not None
            browser.stdin.write(f"{what} {section}\n")
            browser.stdin.flush()
            result: Json = json.loads(browser.stdout.readline())
            return result

        _news(addresses, ranks)
        first_ms, sizes = _cpu_ms(lambda: view("all"))
        viewed, scraped = [], []
        sections = [section["name"] for section in _get(f"{base}/v1/run")["sections"]]
        for section in sections[:views]:
            _news(addresses, ranks)
            viewed.append(_cpu_ms(partial(view, "all", section))[0])
            scraped.append(_cpu_ms(lambda: urllib.request.urlopen(f"{base}/metrics").read())[0])
        again_ms = [_cpu_ms(lambda: view("data"))[0] for _ in range(views)]
        browser.stdin.close()  # type: ignore[union-attr]
    run_view = _get(f"{base}/v1/run")
    view_ms, scrape_ms = statistics.median(viewed), statistics.median(scraped)
    return {
        "sections": len(run_view["sections"]),
        "columns": run_view["timeline"]["n_columns"],
        "next_look_s": run_view["next_look_s"],
        "sent_bytes": sizes,
        "first_ms": round(first_ms, 2),
        "view_ms": {"median": round(view_ms, 2), "most": round(max(viewed), 2)},
        "again_ms": round(statistics.median(again_ms), 2),
        "scrape_ms": round(scrape_ms, 2),
        "view_over_scrape": round(view_ms / scrape_ms, 2),
    }


def _cpu_ms(work: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of the threads that answer, while something is asked of them."""
    before = _answering_s()
    result = work()
    time.sleep(0.02)  # what follows an answer: connections that close
    return 1e3 * (_answering_s() - before), result


def _answering_s() -> float:
    threads = [t for t in threading.enumerate() if t.name.startswith(ANSWERING) and t.ident]
    if len(threads) < 2:
        raise SystemExit(f"no executor among {[t.name for t in threading.enumerate()]}")
    return sum(time.clock_gettime(time.pthread_getcpuclockid(t.ident)) for t in threads if t.ident)


def _feed(addresses: dict[str, str], ranks: int) -> None:
    """A run in four stages with a slow rank; waits until it is judged."""
    command = [
        *(sys.executable, "-m", "otel_straggler.cli", "simulate"),
        *("--layout", f"pp{PIPELINE},dp{ranks // PIPELINE}", "--steps", str(STEPS)),
        *("--run-id", "run", "--fault", "compute:1.3@rank5:step0"),
        *("--send", addresses["otlp_http"]),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for first in range(0, ranks, BEATS_AT_ONCE):
        _beat(addresses, range(first, min(first + BEATS_AT_ONCE, ranks)), ranks)
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        if _get(f"{addresses['metrics']}/v1/runs")["runs"]:
            run_view = _get(f"{addresses['metrics']}/v1/run")
            if run_view["heat"]["cells"] and run_view["timeline"]["n_columns"] >= 2:
                return
        time.sleep(1.0)
    raise SystemExit("the collector has not scored the run in time")


def _lengthen(collector: Collector) -> None:
    """Repeat the newest windows, as if the run had trained for two hours."""
    worker = collector._worker  # no other code needs to reach it
    view = worker.snapshot.runs["run"]
    columns = view.columns[""]
    many = [replace(columns[at % len(columns)], seq=at) for at in range(COLUMNS)]
    worker.backfill(view.world(""), many)
    while len(worker.snapshot.runs["run"].columns[""]) < COLUMNS:
        time.sleep(0.1)


def _news(addresses: dict[str, str], ranks: int) -> None:
    """One rank says that it lives, and the answers that are kept grow old."""
    run_view = _get(f"{addresses['metrics']}/v1/run")
    _beat(addresses, range(1), ranks)
    time.sleep(max(1.0, run_view["next_look_s"]) + 0.3)


def _beat(addresses: dict[str, str], of: range, ranks: int) -> None:
    """Heartbeats of several ranks in one request."""
    requests = []
    for rank in of:
        session = f"{rank:016x}"
        source = Source(run_id="run", rank=rank, session_id=session, world_size=ranks)
        resource: dict[str, str | int | float | bool] = {
            semconv.RUN_ID: "run",
            semconv.RANK: rank,
            semconv.WORLD_SIZE: ranks,
            semconv.SESSION_ID: session,
        }
        beat = Heartbeat(
            source=source, sent_at_s=time.time(), progress_at_s=time.time(), step=STEPS
        )
        requests.append(encode_heartbeat(beat, resource=resource, info={}, started_at_s=1.0))
    # Messages that follow each other are one message with the parts of all.
    _post(f"{addresses['otlp_http']}/v1/metrics", b"".join(requests))


def _post(url: str, body: bytes) -> None:
    headers = {"Content-Type": "application/x-protobuf"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60):
        pass


def _get(url: str) -> Json:
    with urllib.request.urlopen(url, timeout=60) as answer:
        result: Json = json.load(answer)
        return result


def _budgets(result: Json) -> dict[str, Json]:
    name = f"a view at {MAX_RANKS:,} ranks"
    of_size = result["ranks"].get(str(MAX_RANKS))
    view = (
        not_measured("this run had other sizes")
        if of_size is None
        else judge(of_size["view_ms"]["median"], MAX_MS, "ms")
    )
    return {
        name: view,
        "weight of the page": judge(result["page"]["bytes"], MAX_BYTES, "bytes"),
    }


if __name__ == "__main__":
    main()
