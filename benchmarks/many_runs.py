"""What a collector with many runs costs, and how long its list of runs takes.

    python -m benchmarks.many_runs [--runs N ...] [--ranks R] [--seconds S] [--no-browser]

A real collector in this process, with N runs of R ranks each (data parallel, one of the runs with a
slow rank), whose windows are scored before anything is measured. Rows and heartbeats are handed
over decoded: what receiving costs is `benchmarks.ingest`'s. Then, for S seconds each:

- ``silent``: nothing is received, and there are no readers;
- ``alive``: every rank sends a heartbeat every 5 s, as ranks do;
- ``watched``: the same while a page of one run is open in headless Chromium;
- ``picker``: the same with its list of runs open (both are left out without a browser).

``cpu_percent`` is processor time of the collector's threads in percent of a core, by what they do;
that of Chromium's renderer is ``page_cpu_percent``. ``shown_every_s`` is how often the scoring
thread puts in place what pages and scrapes show. Then the list of runs and /metrics are asked for,
``--asks`` times each, while ranks go on sending heartbeats: wall time, which neighbours on the
machine lengthen. Prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from benchmarks.harness.about import about
from benchmarks.harness.budgets import print_result
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import (
    CollectorSettings,
    MetricsSettings,
    ReceiverSettings,
    ScoringSettings,
)
from otel_straggler.model.observation import ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.span_rules import DecodedSpans
from otel_straggler.simulate.faults import Fault
from otel_straggler.simulate.plan import Layout
from otel_straggler.simulate.runs import RunPlan, generate

FREE = "127.0.0.1:0"
RUNS, RANKS, SECONDS, ASKS = (120, 500), 64, 10.0, 10
BEAT_S = 5.0
TICK_S = 0.1
PATIENCE_S = 300.0
SETTLE_MS = 2_000
"""What a page draws only once is left out."""
THREADS = {
    "scoring": "straggler-scorer",
    "answering": "straggler-servers",
    "pages": "straggler-pages",
    "alerts": "straggler-alerts",
}
"""What the threads do that are watched, by the beginning of their names."""
Json = dict[str, Any]


def main() -> None:
    """Measure each number of runs and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, nargs="+", default=list(RUNS))
    parser.add_argument("--ranks", type=int, default=RANKS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--asks", type=int, default=ASKS)
    parser.add_argument("--no-browser", action="store_true")
    options = parser.parse_args()
    sizes = {str(runs): measure(runs, options) for runs in options.runs}
    figures = {"ranks": options.ranks, "seconds": options.seconds, "runs": sizes}
    print_result({**about("numpy", "playwright"), **figures}, {})


def measure(runs: int, options: argparse.Namespace) -> Json:
    """All figures of one collector."""
    collector = Collector(
        CollectorSettings(
            receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
            metrics=MetricsSettings(listen=FREE),
            scoring=ScoringSettings(grace_s=0.2, max_runs=runs),
        )
    )
    base = f"http://{collector.start()['metrics']}"
    ranks = Ranks(collector, runs, options.ranks)
    try:
        ranks.train()
        _until_all_are_shown(collector, runs)
        phases = {"silent": _spent(collector, options.seconds)}
        with ranks.alive():
            phases["alive"] = _spent(collector, options.seconds)
            if not options.no_browser:
                phases |= _in_a_browser(collector, base, options.seconds)
            asked = {path: _asked(base + path, options.asks) for path in ("/v1/runs", "/metrics")}
        return {"phases": phases, "asked": asked}
    finally:
        collector.stop()


class Ranks:
    """All ranks of all runs.

    Args:
        collector: what they report to.
        runs, ranks: how many; so many in each.
    """

    def __init__(self, collector: Collector, runs: int, ranks: int) -> None:
        self._collector = collector
        self._runs = runs
        self._layout = Layout(dp=ranks)
        self._sources: list[Source] = []

    def train(self) -> None:
        """Two windows of steps of every run, and a heartbeat."""
        plain, slow = self._rows(), self._rows(Fault.parse("compute:1.5@rank1:step0"))
        for number in range(self._runs):
            rows = slow if number == self._runs - 1 else plain
            for batch in rows:
                self._report(_renamed(batch, f"job-{number:03d}"))
            self._sources += _renamed(rows[0], f"job-{number:03d}").sources
            self._beat(self._sources[-len(rows[0].sources) :])

    @contextlib.contextmanager
    def alive(self) -> Iterator[None]:
        """All ranks send heartbeats meanwhile, evenly spread."""
        over = threading.Event()

        def beat() -> None:
            reported, began_s = 0, time.monotonic()
            while not over.wait(TICK_S):
                due = int((time.monotonic() - began_s) / BEAT_S * len(self._sources))
                self._beat([self._sources[n % len(self._sources)] for n in range(reported, due)])
                reported = due

        thread = threading.Thread(target=beat, name="ranks", daemon=True)
        thread.start()
        yield
        over.set()
        thread.join()

    def _rows(self, *faults: Fault) -> list[ObservationBatch]:
        plan = RunPlan(
            layout=self._layout, faults=faults, steps=60, microbatches=1, start_ns=time.time_ns()
        )
        return list(generate(plan).batches(20))

    def _report(self, batch: ObservationBatch) -> None:
        self._collector._worker.ingest(
            DecodedSpans(batch=batch, outcomes={"accepted": len(batch)}), 0
        )

    def _beat(self, sources: list[Source]) -> None:
        now_s = time.time()
        beats = tuple(
            Heartbeat(source=each, sent_at_s=now_s, progress_at_s=now_s, step=60, page=True)
            for each in sources
        )
        self._collector._worker.ingest(DecodedMetrics(heartbeats=beats, points={}), 0)


def _renamed(batch: ObservationBatch, run_id: str) -> ObservationBatch:
    sources = tuple(replace(each, run_id=run_id) for each in batch.sources)
    return replace(batch, sources=sources)


def _until_all_are_shown(collector: Collector, runs: int) -> None:
    """Every run, with a window that was scored."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        seen = collector._worker.snapshot.runs.values()  # no other code needs to reach it
        if sum(bool(run.windows) for run in seen) == runs:
            return
        time.sleep(0.1)
    raise SystemExit(f"the collector has not scored {runs} runs in time")


def _spent(collector: Collector, seconds: float) -> Json:
    """What the collector does within so many seconds."""
    began_s, before = time.monotonic(), _cpu_s()
    shown, last = 0, collector._worker.snapshot
    while time.monotonic() - began_s < seconds:
        time.sleep(0.01)
        newest = collector._worker.snapshot
        shown, last = shown + (newest is not last), newest
    took_s = time.monotonic() - began_s
    percent = {name: 100 * (now - before[name]) / took_s for name, now in _cpu_s().items()}
    return {
        "cpu_percent": {name: round(part, 1) for name, part in percent.items()},
        "shown_every_s": round(took_s / shown, 2) if shown else None,
    }


def _cpu_s() -> dict[str, float]:
    """Processor time of the collector's threads so far."""
    taken = dict.fromkeys(THREADS, 0.0)
    for thread in threading.enumerate():
        for what, beginning in THREADS.items():
            if thread.name.startswith(beginning) and thread.ident:
                clock = time.pthread_getcpuclockid(thread.ident)
                taken[what] += time.clock_gettime(clock)
    return taken


def _in_a_browser(collector: Collector, base: str, seconds: float) -> Json:
    """With a page open, and then with its list of runs open."""
    from tests.servers.chromium import running_chromium

    with running_chromium() as browser:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(base)
        page.wait_for_selector("body[data-ready]", state="attached")
        asks = browser.new_browser_cdp_session()

        def rendered_s() -> float:
            """Processor time of all renderers so far."""
            reported = asks.send("SystemInfo.getProcessInfo")["processInfo"]
            return float(sum(each["cpuTime"] for each in reported if each["type"] == "renderer"))

        page.wait_for_timeout(SETTLE_MS)
        result = {"watched": _with_page(collector, seconds, rendered_s)}
        page.locator("[data-part=picker]").get_by_role("button").first.click()
        page.wait_for_timeout(SETTLE_MS)
        result["picker"] = _with_page(collector, seconds, rendered_s)
    return result


def _with_page(collector: Collector, seconds: float, rendered_s: Callable[[], float]) -> Json:
    began_s, before_s = time.monotonic(), rendered_s()
    result = _spent(collector, seconds)
    spent_s = rendered_s() - before_s
    return {**result, "page_cpu_percent": round(100 * spent_s / (time.monotonic() - began_s), 1)}


def _asked(url: str, asks: int) -> Json:
    """An answer's size, how long one waits for it, and what it costs; asked for in a while each."""
    taken_ms, size, before = [], 0, _cpu_s()
    for _ in range(asks):
        time.sleep(1.1)  # an answer of the page is given again for a second
        began_s = time.monotonic()
        with urllib.request.urlopen(url, timeout=120) as answer:
            size = len(answer.read())
        taken_ms.append(1e3 * (time.monotonic() - began_s))
    after = _cpu_s()
    cpu_s = sum(after[name] - before[name] for name in ("answering", "pages"))
    return {
        "bytes": size,
        "ms": {"median": round(statistics.median(taken_ms), 1), "most": round(max(taken_ms), 1)},
        "cpu_ms": round(1e3 * cpu_s / asks, 1),
    }


if __name__ == "__main__":
    main()
