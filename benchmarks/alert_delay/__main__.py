"""How long it takes from a fault in a real training to the webhook of a real Alertmanager.

    python -m benchmarks.alert_delay [--faults N] [--at-once N]

Real gloo ranks, Debian's Prometheus and Alertmanager, the rules that are handed out, and the test
intervals of ``servers.py``. ``detected`` is when the collector's report names the rank, ``arrived``
when the notification is at the webhook. The fault comes at any time between two heartbeats, scrapes
and evaluations. ``longest_s`` is the sum of all waits (``intervals_s``), the formula of
docs/operate/alerts.md with these intervals; a machine that is busy adds to it.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.alert_delay import servers
from benchmarks.alert_delay.jobs import Job
from benchmarks.alert_delay.stage import Stage
from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, print_result

Json = dict[str, Any]
RANK = 1
MAX_S = 15.0
POLL_S = 0.02


def _stop(job: Job) -> None:
    job.signal(signal.SIGSTOP, [RANK])


def _kill(job: Job) -> None:
    job.signal(signal.SIGKILL, [RANK])


def _deadlock(job: Job) -> None:
    job.order("stuck", rank=RANK)


def _slow(job: Job) -> None:
    job.order("slow", rank=RANK, value=0.05)


KINDS: dict[str, Callable[[Job], None]] = {
    "stopped": _stop,
    "killed": _kill,
    "deadlocked": _deadlock,
    "slow": _slow,
}
TIMEOUTS_S = {
    "stopped": servers.LOST_AFTER_S,
    "killed": servers.LOST_AFTER_S,
    "deadlocked": servers.MIN_TIMEOUT_S,
}


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=12, help="of each kind")
    parser.add_argument("--at-once", type=int, default=4, help="trainings")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="alert-delay-") as folder:
        stage = Stage(Path(folder))
        try:
            measured = measure(stage, args.faults, args.at_once)
        finally:
            stage.close()
    result = {
        **about("torch"),
        "faults_of_each_kind": args.faults,
        "trainings_at_once": args.at_once,
        "intervals_s": intervals(),
        "kinds": {kind: figures(delays) for kind, delays in measured.items()},
        "longest_s": {kind: longest_s(timeout_s) for kind, timeout_s in TIMEOUTS_S.items()},
    }
    print_result(result, budgets(measured))


def measure(stage: Stage, n_faults: int, at_once: int) -> dict[str, list[Json]]:
    """The delays of every fault, by kind."""
    wanted = [(kind, n) for n in range(n_faults) for kind in KINDS]
    with ThreadPoolExecutor(at_once) as pool:
        delays = pool.map(lambda each: _one(stage, *each), wanted)
        reported = list(zip(wanted, delays, strict=True))
    return {kind: [delay for (of, _), delay in reported if of == kind] for kind in KINDS}


def _one(stage: Stage, kind: str, n: int) -> Json:
    job = stage.trained(f"{kind}-{n}")
    time.sleep(random.uniform(0.0, 2.0))
    at_s = time.time()
    KINDS[kind](job)
    detected_s = _wait_until_named(stage, job, kind) - at_s
    arrived = stage.first(job.run_id)
    job.kill()
    return {
        "detected_s": detected_s,
        "arrived_s": arrived.at_s - at_s,
        "alerts": arrived.names(),
        "is_right": f"rank {RANK}" in arrived.text.lower() or RANK in arrived.ranks(),
    }


def _wait_until_named(stage: Stage, job: Job, kind: str) -> float:
    """When the report of the collector named the rank, seconds since 1970."""

    def is_named() -> bool:
        if kind != "slow":
            return RANK in (stage.liveness(job.run_id).get("culprits") or ())
        newest = {v["subject_id"]: v for v in stage.report(job.run_id).get("verdicts", ())}
        return any(v["rank"] == RANK and v["state"] == "confirmed" for v in newest.values())

    stage.wait_until(is_named, lambda: f"{job.run_id}: never named\n{job.log}", every_s=POLL_S)
    return time.time()


def figures(delays: list[Json]) -> Json:
    """Quantiles of both delays, how often the right rank was named, and [detected, arrived] of
    each."""
    return {
        "detected_s": _quantiles([delay["detected_s"] for delay in delays]),
        "arrived_s": _quantiles([delay["arrived_s"] for delay in delays]),
        "named": sum(delay["is_right"] for delay in delays),
        "alerts": sorted({name for delay in delays for name in delay["alerts"]}),
        "each_s": [[round(d["detected_s"], 2), round(d["arrived_s"], 2)] for d in delays],
    }


def _quantiles(seconds: list[float]) -> Json:
    ordered = sorted(seconds)
    at = statistics.quantiles(ordered, n=20, method="inclusive") if len(ordered) > 1 else ordered
    return {
        "p50": round(statistics.median(ordered), 2),
        "p95": round(at[-1], 2),
        "max": round(ordered[-1], 2),
    }


def intervals() -> Json:
    """What the waits of an alert are, in the order in which they come."""
    return {
        "heartbeat": servers.HEARTBEAT_S,
        "lost_after": servers.LOST_AFTER_S,
        "min_timeout": servers.MIN_TIMEOUT_S,
        "scrape": servers.SCRAPE_S,
        "evaluation": servers.EVALUATION_S,
        "hang_for": servers.ALERTS["hang_for_seconds"],
        "group_wait": servers.GROUP_WAIT_S,
    }


def longest_s(timeout_s: float) -> float:
    """timeout + 2 heartbeats + scrape + evaluation + for (whole evaluations) + group_wait."""
    evaluation_s, for_s = servers.EVALUATION_S, float(servers.ALERTS["hang_for_seconds"])
    rounded_s = -(-for_s // evaluation_s) * evaluation_s
    waits_s = servers.SCRAPE_S + evaluation_s + rounded_s + servers.GROUP_WAIT_S
    return timeout_s + 2 * servers.HEARTBEAT_S + waits_s


def budgets(measured: dict[str, list[Json]]) -> dict[str, Json]:
    """Half of all detected within the timeout and two heartbeats; all arrived within 15 s."""
    held = {}
    for kind, timeout_s in TIMEOUTS_S.items():
        median_s = statistics.median(delay["detected_s"] for delay in measured[kind])
        max_s = timeout_s + 2 * servers.HEARTBEAT_S
        held[f"{kind}: detected, p50"] = judge(median_s, max_s, "s")
    for kind, delays in measured.items():
        longest = max(delay["arrived_s"] for delay in delays)
        held[f"{kind}: arrived, longest"] = judge(longest, MAX_S, "s")
        wrong = sum(not delay["is_right"] for delay in delays)
        held[f"{kind}: named another rank"] = judge(wrong, 0.5, "")
    return held


if __name__ == "__main__":
    main()
