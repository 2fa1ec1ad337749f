"""What a collector has seen of a run: ranks, clashes, losses."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from otel_straggler import semconv
from otel_straggler.client.sender import GPU_REASONS
from otel_straggler.doctor.findings import Finding, info, ok, problem, warning
from otel_straggler.doctor.identity import RUN_ID_REMEDY
from otel_straggler.doctor.network import ClockBounds, clock_bounds
from otel_straggler.errors import ConfigError
from otel_straggler.otlp.clients.http import HttpClient
from otel_straggler.otlp.clients.token import token_headers
from otel_straggler.semconv import Metric
from otel_straggler.strict_json import parse_json

SILENT_S = 15.0
"""Three heartbeats."""
_MAX_LISTED = 10
_RESTART = "Look into the log of these ranks, then start them again."


def find_run(collector: Collector, wanted: str | None, own_run_id: str) -> str | None:
    """The requested run, this environment's, or the only one there is."""
    if wanted is not None:
        return wanted
    known = collector.run_ids()
    if own_run_id in known:
        return own_run_id
    return known[0] if len(known) == 1 and not own_run_id else None


def check_run(collector: Collector, wanted: str | None, own_run_id: str) -> Finding:
    known = collector.run_ids()
    listed = ", ".join(repr(run[:60]) for run in known[:_MAX_LISTED]) or "none yet"
    result = find_run(collector, wanted, own_run_id)
    if result in known:
        return ok("collector.run", f"{collector.url} knows the run {result!r}.", result)
    missing = result or own_run_id
    if missing:
        sentence = f"{collector.url} has nothing of the run {missing!r}; its runs: {listed}."
        remedy = (
            "otel-straggler doctor --run NAME   # or start the training; is its endpoint right?"
        )
        return warning("collector.run", sentence, remedy, known)
    count = f"{len(known):,} runs: {listed}" if known else "no run yet"
    sentence = f"{collector.url} knows {count}."
    return info("collector.run", sentence, known, "otel-straggler doctor --run NAME")


def check_ranks(collector: Collector, run_id: str) -> Iterator[Finding]:
    """Ranks that report, and ranks expected."""
    beats = {
        (s.labels.get("group", ""), int(s.labels["rank"])): s.value
        for s in collector.of(semconv.LAST_HEARTBEAT, run_id)
    }
    finished = {
        (s.labels.get("group", ""), int(s.labels["rank"]))
        for s in collector.of(semconv.RANK_FINISHED, run_id)
    }
    windows = collector.runs.get(run_id, {}).get("windows", [])
    scored = sum(window.get("ranks_reporting", 0) for window in windows)
    world = _world_size(collector, run_id)
    folded = _folded(collector, run_id)
    seen = max(len(beats) + folded, scored)
    value = {"seen": seen, "scored": scored, "world_size": world}
    if seen < world:
        known = {rank for _, rank in beats} | {
            int(key.rpartition("/")[2]) for window in windows for key in window.get("ranks", {})
        }
        absent = [rank for rank in range(world) if rank not in known]
        named = ", ".join(map(str, absent[:_MAX_LISTED])) + (" ..." if absent[10:] else "")
        who = f"; missing: {named}" if not folded else ""
        sentence = f"{seen} of {world} ranks report{who}."
        remedy = "otel-straggler doctor   # on those ranks"
        yield problem("collector.ranks", sentence, remedy, value)
    else:
        yield ok("collector.ranks", f"{seen} of {world} ranks report, {scored} scored.", value)
    unfinished = {key: at_s for key, at_s in beats.items() if key not in finished}
    yield from _silence(collector, unfinished)


def _folded(collector: Collector, run_id: str) -> int:
    """Ranks whose heartbeats the collector's series budget has folded."""
    family = semconv.LAST_HEARTBEAT.prometheus_name
    reported = collector.of(semconv.COLLECTOR_SERIES_FOLDED, run_id)
    return sum(int(s.value) for s in reported if s.labels.get("family") == family)


def _world_size(collector: Collector, run_id: str) -> int:
    """Of all groups together."""
    reported = sum(int(s.value) for s in collector.of(semconv.RUN_WORLD_SIZE, run_id))
    windows = collector.runs.get(run_id, {}).get("windows", [])
    return max(reported, sum(window.get("world_size") or 0 for window in windows))


def _silence(collector: Collector, beats: dict[tuple[str, int], float]) -> Iterator[Finding]:
    """Ranks that have not ended and are silent, on the collector's clock."""
    now_s = time.time() + (collector.clock.middle_s if collector.clock else 0.0)
    silent = {key: now_s - at_s for key, at_s in beats.items() if now_s - at_s > SILENT_S}
    if silent:
        longest = max(silent.values())
        ranks = ", ".join(str(rank) for _, rank in sorted(silent)[:_MAX_LISTED])
        sentence = f"No heartbeat from rank {ranks} for up to {longest:.0f} s."
        yield problem("collector.silent", sentence, _RESTART, sorted(rank for _, rank in silent))


def check_losses(collector: Collector, run_id: str) -> Iterator[Finding]:
    """Clashes of identity, and lost or unused data."""
    clashes = collector.runs.get(run_id, {}).get("clashes", [])
    if clashes:
        ranks = sorted({clash["rank"] for clash in clashes})
        named = ", ".join(map(str, ranks[:_MAX_LISTED]))
        sentence = (
            f"Two processes claim rank {named} of {run_id!r}: their telemetry is never merged, so "
            "one of each pair is not scored."
        )
        remedy = RUN_ID_REMEDY
        if ranks == [0] and _world_size(collector, run_id) <= 1:
            sentence = (
                f"{len(clashes) + 1:,} processes report as rank 0 of 1 of {run_id!r}: they do not "
                "know their rank, as when configure() runs before init_process_group()."
            )
            remedy = "torchrun ...   # or configure(rank=..., world_size=...)"
        yield problem("collector.clashes", sentence, remedy, ranks)
    yield from _dropped(collector, run_id)
    late = collector.runs.get(run_id, {}).get("not_scored", {}).get("late", 0)
    if late:
        sentence = f"{late:,} rows of {run_id!r} came too late to be scored."
        remedy = "scoring: {grace_seconds: 15}   # in the collector's --config"
        yield warning("collector.late", sentence, remedy, late)


_DROP_REMEDIES = {
    "ring_full": "configure(flush_s=0.2)   # or mark fewer sections",
    "queue_full": "configure(queue_bytes=256 * 2**20)   # how long was the collector away?",
    "rejected": "Look into the collector's log: it refused these spans.",
    **dict.fromkeys(GPU_REASONS, "Only GPU times are affected, no span. Look into the ranks' log."),
}


def _dropped(collector: Collector, run_id: str) -> Iterator[Finding]:
    by_reason: Counter[str] = Counter()
    for sample in collector.of(semconv.RECORDS_DROPPED, run_id):
        by_reason[sample.labels.get("reason", "")] += int(sample.value)
    for reason, count in sorted(by_reason.items()):
        if count:
            what = "GPU times" if reason in GPU_REASONS else "records"
            sentence = f"Ranks of {run_id!r} lost {count:,} {what}: {reason}."
            remedy = _DROP_REMEDIES.get(reason, "Look into the log of the ranks.")
            yield warning("collector.dropped", sentence, remedy, {"reason": reason, "count": count})


def check_collector(collector: Collector) -> Iterator[Finding]:
    """The collector's own counters, over all runs."""
    nameless = _total(collector, semconv.COLLECTOR_SPANS, outcome="no_rank")
    if nameless:
        sentence = f"{nameless:,} spans came without a rank: they are forwarded, not scored."
        remedy = 'export OTEL_RESOURCE_ATTRIBUTES="training.rank=$RANK,$OTEL_RESOURCE_ATTRIBUTES"'
        yield warning("collector.no_rank", sentence, remedy, nameless)
    yield from _crowded(collector)
    rejected = _total(collector, semconv.COLLECTOR_SPANS, outcome="rejected")
    if rejected:
        sentence = f"{rejected:,} spans were malformed and rejected."
        remedy = f"curl -s {collector.url}/metrics | grep collector_spans_total   # has the reasons"
        yield warning("collector.rejected", sentence, remedy, rejected)
    failures = _total(collector, semconv.COLLECTOR_FAILURES)
    if failures:
        sentence = f"The collector survived {failures:,} internal errors."
        yield warning("collector.failures", sentence, "Look into the collector's log.", failures)


def _crowded(collector: Collector) -> Iterator[Finding]:
    """Too many runs, groups or section names."""
    runs = _total(collector, semconv.COLLECTOR_REJECTED, what="run")
    if runs:
        sentence = (
            f"{runs:,} requests were rejected because more runs send than the collector accepts "
            "(scoring.max_runs). A common cause: a run id from a time stamp in each process."
        )
        yield problem("collector.crowded", sentence, RUN_ID_REMEDY, runs)
    groups = _total(collector, semconv.COLLECTOR_REJECTED, what="group")
    if groups:
        sentence = (
            f"{groups:,} requests were rejected because a run has more groups than the "
            "collector accepts (scoring.max_groups)."
        )
        remedy = "Give each world of ranks a group that keeps its name, or its own run id."
        yield problem("collector.groups", sentence, remedy, groups)
    folded = _total(collector, semconv.COLLECTOR_NAMES_FOLDED)
    if folded:
        sentence = (
            f"{folded:,} section executions count as <other>: a run has too many section names "
            "(scoring.max_section_names)."
        )
        remedy = 'section("forward")   # one name for the whole run, without the step in it'
        yield warning("collector.section_names", sentence, remedy, folded)


def _total(collector: Collector, metric: semconv.Metric, **labels: Any) -> int:
    wanted = labels.items()
    return int(sum(s.value for s in collector.of(metric) if wanted <= dict(s.labels).items()))


_MAX_BYTES = 256 * 1024 * 1024
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
    """A collector's report by run, its samples, its clock against ours, and whether it says that
    other machines may do everything there."""

    url: str
    runs: Mapping[str, Any]
    samples: tuple[Sample, ...]
    clock: ClockBounds | None
    is_insecure: bool = False

    def of(self, metric: Metric, run_id: str | None = None) -> Iterator[Sample]:
        """Samples of a metric, of one run if named."""
        for sample in self.samples:
            if sample.metric == metric.prometheus_name and (
                run_id is None or sample.labels.get("run_id") == run_id
            ):
                yield sample

    def run_ids(self) -> list[str]:
        seen = (s.labels["run_id"] for s in self.samples if "run_id" in s.labels)
        return list(dict.fromkeys((*self.runs, *seen)))


def read_collector(url: str, timeout_s: float) -> Collector | str:
    """Both pages of a collector, or why there are none."""
    base = url.rstrip("/").removesuffix("/v1/report").removesuffix("/metrics")
    report = fetch(f"{base}/v1/report", timeout_s)
    if report.trouble:
        return report.trouble
    try:
        runs = parse_json(report.body, None)["runs"]
        if not isinstance(runs, dict):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        return "it answers, but not with the report of a collector"
    metrics = fetch(f"{base}/metrics", timeout_s)
    if metrics.trouble:
        return metrics.trouble
    samples = tuple(read_samples(metrics.body.decode(errors="replace")))
    is_insecure = b'"is_insecure":true' in fetch(f"{base}/v1/runs", timeout_s).body
    return Collector(base, runs, samples, metrics.clock, is_insecure)


def check_exposure(collector: Collector) -> Iterator[Finding]:
    """Whether anybody who reaches it may change something."""
    if collector.is_insecure:
        sentence = (
            f"{collector.url} is open to other machines without authentication: anybody may "
            "silence its alerts and send telemetry in the name of any run."
        )
        remedy = "auth: {grant_files: [/etc/otel-straggler/grants]}   # docs/operate/security.md"
        yield warning("collector.insecure", sentence, remedy, True)


def fetch(url: str, timeout_s: float) -> Page:
    asked_s = time.time()
    client = HttpClient(url, timeout_s=timeout_s, max_bytes=_MAX_BYTES)
    try:
        response = client.get(headers=token_headers())
    except ConfigError as error:
        return Page(trouble=str(error))
    finally:
        client.close()
    if not response.is_success:
        return Page(trouble=response.error or f"HTTP {response.status}")
    clock = clock_bounds(response.headers.get("date", ""), asked_s, time.time())
    return Page(response.body, clock=clock)


def read_samples(text: str) -> Iterator[Sample]:
    """Lines of Prometheus' text format that have labels; all of ours do.

    >>> [*read_samples('a_b{x="1",y="q\\\\"q"} 2.5')]
    [Sample(metric='a_b', labels={'x': '1', 'y': 'q"q'}, value=2.5)]
    """
    for name, labels, value in _LINE.findall(text):
        named = {
            key: _ESCAPE.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], raw)
            for key, raw in _LABEL.findall(labels)
        }
        try:
            yield Sample(name, named, float(value))
        except ValueError:
            continue
