"""What many small runs cost a collector, next to the OpenTelemetry Collector in the same run.

    python -m benchmarks.fleet [--runs 60] [--seconds 30] [--ranks 8 64 512 2048] [--rounds 3]

``flood``: CPU time per span of one run of so many ranks, in requests of 512 spans that come as fast
as they are taken: ours with all verdicts (``ours_us``), and the OpenTelemetry Collector, which
receives and throws away (``otelcol_us``; absent without its program, see ``OTELCOL``). Of several
rounds the least counts: other work on the machine can only add to it.

``live``: so many runs of 8 ranks at 5 steps a second, whose ranks each send a request a second and
a heartbeat every 5 s. ``cpu_ms_a_step``: CPU time of the collector per step of a run;
``is_kept_up``: whether it took all in time; ``found``: runs whose slow rank was confirmed, of those
that have one; ``delay_steps``: from its onset, the median, and the slowest.

Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, not_measured, print_result
from benchmarks.harness.processes import cpu_ns, serving
from benchmarks.ingest import otelcol
from benchmarks.ingest.cases import Case
from benchmarks.ingest.doses import Dose
from benchmarks.ingest.senders import Connection, send
from benchmarks.ingest.subjects import measure
from otel_straggler.model.rank_metrics import Heartbeat
from otel_straggler.otlp.encode_metrics import encode_heartbeat
from otel_straggler.simulate.scenarios import Plan, simulate
from otel_straggler.simulate.writers import encode_requests, resource_of

BUDGETS_US = {8: 6.0, 64: 2.5, 512: 1.5, 2_048: 1.5}
"""By ranks, per span."""
BUDGET_MS_A_STEP = 0.3
RANKS, STEPS_A_SECOND, BEAT_S, SENDERS = 8, 5, 5, 4
ONSET_STEP, SLOW_RANK = 100, 5
"""From when on this rank of every second run is slow."""
SETTLED_S = 10.0
"""A new run costs more than one that is known: that is not counted."""
NAME, FREE = b"fleet-0000", "127.0.0.1:0"
Json = dict[str, Any]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seconds", type=int, default=40)
    parser.add_argument("--ranks", type=int, nargs="*", default=list(BUDGETS_US))
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    flood = {str(ranks): _flood(ranks, args.rounds) for ranks in args.ranks}
    live = _live(args.runs, args.seconds) if args.runs else {}
    program = otelcol.find()
    result = {
        **about("protobuf", "httptools", "uvloop", "numpy"),
        "otelcol": "not found" if program is None else otelcol.version(program),
        "flood": flood,
        "live": live,
    }
    print_result(result, dict(_budgets(flood, live)))


def _budgets(flood: Json, live: Json) -> Iterator[tuple[str, Json]]:
    for ranks, figures in flood.items():
        if int(ranks) in BUDGETS_US:
            budget = judge(figures["ours_us"], BUDGETS_US[int(ranks)], "us a span")
            yield f"{ranks} ranks", budget
        peer = figures.get("otelcol_us")
        what = f"{ranks} ranks, of otelcol's"
        if peer is None:
            yield what, not_measured("no otelcol here")
        elif int(ranks) >= 64:
            yield what, judge(figures["ours_us"] / peer, 1.0, "")
    if live:
        yield "live", judge(live["cpu_ms_a_step"], BUDGET_MS_A_STEP, "ms a step")


def _flood(ranks: int, rounds: int) -> Json:
    case = Case(ranks, "score")
    ours = min(measure(case, 1.0).cpu_us_per_span for _ in range(rounds))
    program = otelcol.find()
    if program is None:
        return {"ours_us": round(ours, 3)}
    peer = min(_otelcol_us(program, case.dose(1.0)) for _ in range(rounds))
    return {"ours_us": round(ours, 3), "otelcol_us": round(peer, 3), "ratio": round(ours / peer, 3)}


def _otelcol_us(program: Any, dose: Dose) -> float:
    """CPU time per span; it has done all once it has answered."""
    with otelcol.serving(program) as (address, pid):
        send("http", address, dose.warm_up, is_zipped=False)
        before_ns = cpu_ns(pid)
        send("http", address, dose.bodies, is_zipped=False)
        return (cpu_ns(pid) - before_ns) / dose.spans / 1e3


# --- live ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Template:
    """What the ranks of a run send, second by second; the run's name is put in when it is sent.

    Attributes:
        spans: by second and rank.
        sources: of the ranks.
    """

    name: str
    spans: list[list[bytes]]
    sources: tuple[Any, ...]

    @staticmethod
    def of(name: str, slow_rank: int | None, seconds: int) -> _Template:
        plan = Plan(
            run_id=name,
            ranks=RANKS,
            steps=seconds * STEPS_A_SECOND,
            slow_rank=slow_rank or 0,
            slowdown=1.0 if slow_rank is None else 1.3,
            onset_step=ONSET_STEP,
        )
        batch = simulate("one_slow_rank", plan).batch
        second_of = np.asarray(batch.step - batch.step.min()) // STEPS_A_SECOND
        rows_of = [np.flatnonzero(second_of == second) for second in range(seconds)]
        spans = [list(encode_requests(batch.take(at), first_span=int(at[0]))) for at in rows_of]
        return _Template(name, spans, batch.sources)

    def beats(self, second: int) -> list[bytes]:
        """Heartbeats of all ranks, as of now."""
        now_s = time.time()
        step = second * STEPS_A_SECOND
        return [
            encode_heartbeat(
                Heartbeat(source=source, sent_at_s=now_s, progress_at_s=now_s, step=step),
                resource=resource_of(source),
                info={},
                started_at_s=now_s - second,
            )
            for source in self.sources
        ]


def _live(runs: int, seconds: int) -> Json:
    templates = [_Template.of("fleet-0000", rank, seconds) for rank in (None, SLOW_RANK)]
    command = [sys.executable, "-m", "otel_straggler.cli", "collector", "--otlp-grpc", FREE]
    command += ["--otlp-http", FREE, "--metrics", FREE]
    with serving(command) as (line, pid):
        reported = json.loads(line)
        late_s: list[float] = []
        send_some = partial(_send_runs, reported["otlp_http"], templates, late_s)
        senders = [
            threading.Thread(target=send_some, args=(range(at, runs, SENDERS),))
            for at in range(SENDERS)
        ]
        for sender in senders:
            sender.start()
        time.sleep(SETTLED_S)
        before_ns, began_s = cpu_ns(pid), time.monotonic()
        for sender in senders:
            sender.join()
        used_ns, took_s = cpu_ns(pid) - before_ns, time.monotonic() - began_s
        time.sleep(1.0)
        verdicts = [_verdict(reported["metrics"], f"fleet-{at:04}") for at in range(1, runs, 2)]
    delays = sorted(step - ONSET_STEP for step in verdicts if step is not None)
    return {
        "runs": runs,
        "cpu_ms_a_step": round(used_ns / 1e6 / (runs * STEPS_A_SECOND * took_s), 4),
        "cpu_percent": round(used_ns / took_s / 1e7, 1),
        "late_s": round(max(late_s), 2),
        "is_kept_up": max(late_s) < 1.0,
        "found": len(delays) / max(1, len(verdicts)),
        "delay_steps": {
            "p50": statistics.median(delays) if delays else math.nan,
            "max": delays[-1] if delays else math.nan,
        },
    }


def _send_runs(address: str, templates: list[_Template], late_s: list[float], runs: range) -> None:
    """Send these runs second by second, spread over each; how late the last request of a second
    was goes to ``late_s``."""
    names = [f"fleet-{at:04}".encode() for at in runs]
    began_s = time.monotonic()
    with Connection(address) as connection:
        for second in range(len(templates[0].spans)):
            beats = [template.beats(second) for template in templates]
            for at, (run, name) in enumerate(zip(runs, names, strict=True)):
                due_s = began_s + second + at / len(names)
                time.sleep(max(0.0, due_s - time.monotonic()))
                template = templates[run % 2]
                for body in template.spans[second]:
                    connection.post("traces", body.replace(NAME, name))
                if (second + run) % BEAT_S == 0:
                    for body in beats[run % 2]:
                        connection.post("metrics", body.replace(NAME, name))
                late_s.append(time.monotonic() - due_s)


def _verdict(address: str, run: str) -> int | None:
    """Step at which the slow rank of a run was confirmed; None: it was not."""
    with urllib.request.urlopen(f"http://{address}/v1/report?run={run}") as page:
        report = json.load(page)
    for verdict in report["runs"][run]["verdicts"]:
        if verdict["state"] == "confirmed" and verdict["rank"] == SLOW_RANK:
            return int(verdict["confirmed_step"])
    return None


if __name__ == "__main__":
    main()
