"""What pages of Grafana are answered about a large run.

    python -m benchmarks.grafana_sizes [RANKS STAGES]

Requests of all ranks go through the collector's own worker; Prometheus scrapes what it publishes;
every query of every page is asked with everything chosen. Prints JSON; fails
if an answer is too large, or a scrape was lost.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from benchmarks.grafana_sizes.large_run import LargeRun
from benchmarks.grafana_sizes.measuring import POINTS, measure
from benchmarks.harness.about import about

RANKS, STAGES = 10_000, 8
QUERY_BYTES, PAGE_BYTES = 256 * 1024, 1024 * 1024
SCRAPE_S = 15
"""Prometheus' time for taking in a page: in 5 s a busy machine loses some of 9 MB, and lines with a
gap weigh a third less."""
SAMPLES = 150_000
"""Stated in docs/operate/dashboards.md: of an answer, of a page, and what a query reads. Of 512
ranks one section of each at every point would be more."""


def main(ranks: int = RANKS, stages: int = STAGES) -> int:
    run = LargeRun(ranks, stages)
    with tempfile.TemporaryDirectory() as folder:
        answers, series, lost = measure(run, Path(folder), SCRAPE_S)
    by_page: Counter[str] = Counter()
    cpu_s: dict[str, float] = defaultdict(float)
    for answer in answers:
        by_page[answer.target.page] += answer.size
        cpu_s[answer.target.page] += answer.cpu_s
    largest = sorted(answers, key=lambda answer: -answer.size)[:8]
    costliest = sorted(answers, key=lambda answer: -answer.cpu_s)[:8]
    widest = sorted(answers, key=lambda answer: -answer.samples)[:8]
    reported = {
        **about("numpy"),
        "ranks": ranks,
        "series_of_the_run": series,
        "bytes_of_a_scrape": len(run.pages[-1]),
        "scrapes_lost": lost,
        "points_of_a_line": POINTS,
        "limits_bytes": {"query": QUERY_BYTES, "page": PAGE_BYTES},
        "limit_samples": SAMPLES,
        "bytes_by_page": dict(by_page),
        "cpu_s_by_page": {page: round(seconds, 2) for page, seconds in cpu_s.items()},
        "largest_queries": {str(answer.target): answer.size for answer in largest},
        "dearest_queries": {
            str(answer.target): {"cpu_s": round(answer.cpu_s, 2), "s": round(answer.seconds, 2)}
            for answer in costliest
        },
        "samples_read": {str(answer.target): answer.samples for answer in widest},
    }
    print(json.dumps(reported, indent=2))
    fits = largest[0].size <= QUERY_BYTES and max(by_page.values()) <= PAGE_BYTES
    fits &= widest[0].samples <= SAMPLES and lost == 0
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
