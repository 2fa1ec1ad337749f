"""Serves a large run's pages to a real Prometheus, and weighs what every query answers."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.grafana_sizes.asking import Grafana, Target, targets
from benchmarks.grafana_sizes.large_run import RUN_ID, LargeRun
from otel_straggler.demo.processes import Server, free_address

POINTS = 300
"""Of a line: pages ask for 200, and Grafana rounds the step to a usual length, which may be 1.5
times shorter."""
SCRAPE_S = 5
_PAGES = Path(__file__).parents[2] / "dashboards"


@dataclass(frozen=True)
class Answer:
    """What one query gives.

    Attributes:
        target: which.
        series: how many lines or rows.
        size: bytes of JSON, not compressed.
        seconds: until it was there.
        cpu_s: processor time of Prometheus for it, of all its threads; what it does besides is in
            it as well.
        samples: how many Prometheus read for it.
    """

    target: Target
    series: int
    size: int
    seconds: float
    cpu_s: float
    samples: int


class Prometheus:
    """Scrapes a page of the run after the other, then nothing more, so that it can answer.

    Attributes:
        url: of it.
        began_s, ended_s: when it had the first page, and the last one: between them no point of a
            line is missing, however long it took to start.

    Raises:
        FileNotFoundError: it is not installed.
    """

    def __init__(self, folder: Path, pages: list[bytes], scrape_s: int = SCRAPE_S) -> None:
        program = shutil.which("prometheus")
        if program is None:
            raise FileNotFoundError("prometheus is not installed (make servers)")
        self._closing = contextlib.ExitStack()
        self._scraped = threading.Semaphore(0)
        self._n_pages = len(pages)
        self.began_s = self.ended_s = 0.0
        with self._closing:
            target = self._serve(list(pages))
            address = free_address()
            config = folder / "prometheus.yml"
            seconds = f"{scrape_s}s"
            scrape = {"job_name": "straggler", "static_configs": [{"targets": [target]}]}
            config.write_text(
                json.dumps(
                    {
                        "global": {"scrape_interval": seconds, "scrape_timeout": seconds},
                        "scrape_configs": [scrape],
                    }
                )
            )
            flags = (
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
                "--query.timeout=5m",
            )
            server = Server([program, *flags], address, folder / "log")
            self._closing.callback(server.close)
            self.url = server.url
            self._closing = self._closing.pop_all()

    def wait(self) -> None:
        """Until every page was scraped, and what was scraped can be asked for.

        Raises:
            TimeoutError: it was not within minutes.
        """
        for _ in range(self._n_pages):
            if not self._scraped.acquire(timeout=120.0):
                raise TimeoutError("Prometheus does not scrape")
            self.began_s = self.began_s or time.time()
        until_s = time.monotonic() + 60.0
        self.ended_s = time.time()
        while len(self._ask(f"count_over_time(up[1h]) >= {self._n_pages}")) == 0:
            if time.monotonic() > until_s:
                raise TimeoutError("Prometheus keeps nothing of what it scraped")
            time.sleep(0.2)

    def close(self) -> None:
        self._closing.close()

    def series(self) -> int:
        """Of the run, in memory."""
        [result] = self._ask(f'count(last_over_time({{run_id="{RUN_ID}"}}[1h]))')
        return int(result["value"][1])

    def cpu_s(self) -> float:
        """Processor time that it has had, as it reports about itself."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=60) as answer:
            reported = dict(line.rsplit(b" ", 1) for line in answer if not line.startswith(b"#"))
        return float(reported[b"process_cpu_seconds_total"])

    def lost(self) -> int:
        """Pages that were served and came too late to be kept: what follows is too small."""
        [kept] = self._ask("sum_over_time(up[1h])")
        return self._n_pages - int(float(kept["value"][1]))

    def _ask(self, query: str) -> Any:
        url = f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return json.load(answer)["data"]["result"]

    def _serve(self, pages: list[bytes]) -> str:
        scraped = self._scraped

        class Pages(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if not pages:
                    self.send_error(503)
                    return
                body = pages.pop(0)
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                scraped.release()

            def log_message(self, *_: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._closing.callback(server.server_close)
        self._closing.callback(server.shutdown)
        return f"127.0.0.1:{server.server_address[1]}"


def measure(run: LargeRun, folder: Path, scrape_s: int = SCRAPE_S) -> tuple[list[Answer], int, int]:
    """Every query of every page, with all that a page can show; series of the run; and how many of
    its pages Prometheus lost, because taking one in took longer than ``scrape_s``."""
    prometheus = Prometheus(folder, run.pages, scrape_s)
    try:
        prometheus.wait()
        result = list(_answers(run, prometheus, scrape_s))
        return result, prometheus.series(), prometheus.lost()
    finally:
        prometheus.close()


def _answers(run: LargeRun, prometheus: Prometheus, scrape_s: int) -> Iterator[Answer]:
    reported = {"run_id": RUN_ID, "group": "", "rank": str(run.slow_rank)}
    end_s = prometheus.ended_s
    for path in sorted(_PAGES.glob("*.json")):
        page = json.loads(path.read_text(encoding="utf-8"))
        grafana = Grafana(
            prometheus.url,
            page,
            end_s=end_s,
            range_s=max(1, int(end_s - prometheus.began_s)),
            scrape_s=scrape_s,
            points=POINTS,
        )
        known = {name: value for name, value in reported.items() if name in grafana.variables}
        for target in targets(path.stem, page):
            cpu_s, began_s = prometheus.cpu_s(), time.monotonic()
            series, size = grafana.answer(target, known)
            took_s = time.monotonic() - began_s
            cpu_s = prometheus.cpu_s() - cpu_s
            samples = grafana.samples(target, known)
            yield Answer(target, len(series), size, took_s, cpu_s, samples)
