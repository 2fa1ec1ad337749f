"""Pages of a collector's metrics address, read."""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from otel_straggler.doctor.clock import ClockBounds, clock_bounds
from otel_straggler.semconv import Metric

_LARGEST_BYTES = 256 * 1024 * 1024
_LINE = re.compile(r"^(\w+)\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class Page:
    """A page, or why there is none."""

    body: bytes = b""
    trouble: str = ""
    clock: ClockBounds | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """A line of /metrics."""

    metric: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Collector:
    """What a collector shows: its report by run, its samples, its clock against ours."""

    url: str
    runs: Mapping[str, Any]
    samples: tuple[Sample, ...]
    clock: ClockBounds | None

    def of(self, metric: Metric, run_id: str | None = None) -> Iterator[Sample]:
        """Samples of a metric, of one run if named."""
        for sample in self.samples:
            if sample.metric == metric.prometheus_name and (
                run_id is None or sample.labels.get("run_id") == run_id
            ):
                yield sample

    def run_ids(self) -> list[str]:
        """All runs, of the report or of the metrics."""
        seen = (s.labels["run_id"] for s in self.samples if "run_id" in s.labels)
        return list(dict.fromkeys((*self.runs, *seen)))


def look(url: str, timeout_s: float) -> Collector | str:
    """Both pages of a collector, or why they cannot be had."""
    base = url.rstrip("/").removesuffix("/v1/report").removesuffix("/metrics")
    report = fetch(f"{base}/v1/report", timeout_s)
    if report.trouble:
        return report.trouble
    try:
        runs = json.loads(report.body)["runs"]
        if not isinstance(runs, dict):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        return "it answers, but not with the report of a collector"
    metrics = fetch(f"{base}/metrics", timeout_s)
    if metrics.trouble:
        return metrics.trouble
    samples = tuple(read_samples(metrics.body.decode(errors="replace")))
    return Collector(base, runs, samples, metrics.clock)


def fetch(url: str, timeout_s: float) -> Page:
    """One page; never raises for what the other side does."""
    asked_s = time.time()
    try:
        request = urllib.request.Request(url)  # noqa: S310 (http(s), checked by the caller)
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:  # noqa: S310
            clock = clock_bounds(answer.headers.get("Date", ""), asked_s, time.time())
            return Page(answer.read(_LARGEST_BYTES), clock=clock)
    except urllib.error.HTTPError as error:
        return Page(trouble=f"HTTP {error.code}")
    except (OSError, ValueError) as error:
        return Page(trouble=str(getattr(error, "reason", None) or error))


def read_samples(text: str) -> Iterator[Sample]:
    """Lines of Prometheus' text format that have labels; ours all have.

    >>> [*read_samples('a_b{x="1",y="q\\\\"q"} 2.5')]
    [Sample(metric='a_b', labels={'x': '1', 'y': 'q"q'}, value=2.5)]
    """
    for name, labels, value in _LINE.findall(text):
        named = {key: _unescaped(raw) for key, raw in _LABEL.findall(labels)}
        try:
            yield Sample(name, named, float(value))
        except ValueError:
            continue


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)
