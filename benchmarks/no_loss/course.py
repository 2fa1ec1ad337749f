"""The course of one run: producers, collectors that end and come back, a sink behind them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.no_loss.collectors import Counted
from benchmarks.no_loss.counted import Series, counted_in
from benchmarks.no_loss.ledger import Ledger, Sink
from benchmarks.no_loss.memory import Sampler
from benchmarks.no_loss.producer import RUN_ID, SECTIONS, STEP_S, runs_per_step

ROOT = Path(__file__).parents[2]
NO_BOUND = 10**9
SAVE_EVERY_S = 0.2
"""Often, so that even a short life has several checkpoints of a history with a spool."""
LONGEST_START_S = 60.0
LONGEST_END_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dose:
    """What is to happen.

    Attributes:
        seconds: that the producers record.
        rate: spans per second of all processes together.
        processes: that record.
        endings: how the collector ends each time: "TERM" or "KILL".
        away_s: how long there is none each time.
        span_budget: of each process; 0: nothing is folded.
        queue_bytes: of each process.
        protocol: of producers: "http/protobuf" or "grpc".
        has_spool: collectors have a history and a spool.
    """

    seconds: float = 600.0
    rate: float = 10_000.0
    processes: int = 4
    endings: tuple[str, ...] = ("TERM", "KILL")
    away_s: float = 10.0
    span_budget: int = 0
    queue_bytes: int = 64 << 20
    protocol: str = "http/protobuf"
    has_spool: bool = False

    @property
    def steps(self) -> int:
        return round(self.seconds / STEP_S)

    @property
    def runs(self) -> int:
        """Of each section in each step."""
        return runs_per_step(self.rate / self.processes)

    @property
    def spans(self) -> int:
        """All that is recorded."""
        return self.processes * self.steps * (1 + len(SECTIONS) * self.runs)

    @property
    def life_s(self) -> float:
        """How long a collector takes spans before it is ended: a third of the time for all of
        them, so that there is a long quiet time to watch memory."""
        return self.seconds / (3 * len(self.endings))


@dataclass(frozen=True, slots=True)
class Ending:
    """A collector that ended. Unix times: when it was asked to, when it was gone, when the next one
    was there."""

    how: str
    reported_at_s: float
    gone_at_s: float
    back_at_s: float


@dataclass(slots=True)
class Outcome:
    """What a run has left behind; ``counted``: by its history, if it had one."""

    dose: Dose
    ledger: Ledger
    memory: Sampler
    began_at_s: float = 0.0
    done_at_s: float = 0.0
    endings: list[Ending] = field(default_factory=list)
    collectors: list[Counted] = field(default_factory=list)
    reported: list[dict] = field(default_factory=list)
    folder: Path = field(kw_only=True)
    counted: dict[Series, int] | None = None

    @property
    def flags(self) -> list[str]:
        """Of a bound of traces that nothing reaches, and of a history and a spool."""
        config = self.folder / "collector.yaml"
        text = f"forward: {{max_trace_spans: {NO_BOUND}}}\n"
        flags = ["--config", str(config)]
        if self.dose.has_spool:
            text += f"history: {{save_every_seconds: {SAVE_EVERY_S}}}\n"
            history, spool = self.folder / "history.db", self.folder / "spool"
            flags += ["--history", str(history), "--spool", str(spool)]
        config.write_text(text)
        return flags


def run(dose: Dose) -> Outcome:
    """Let it happen. Raises RuntimeError if a process ends that should not."""
    with tempfile.TemporaryDirectory(prefix="otel-straggler-") as name:
        outcome = _run(dose, Path(name))
        if dose.has_spool:
            outcome.counted = counted_in(Path(name) / "history.db", RUN_ID)
        return outcome


def _run(dose: Dose, folder: Path) -> Outcome:
    ledger = Ledger()
    sink = Sink(ledger)
    outcome = Outcome(dose, ledger, Sampler(), folder=folder)
    producers: list[subprocess.Popen] = []
    try:
        _start_collector(outcome, sink)
        producers += [_start_producer(dose, rank, outcome) for rank in range(dose.processes)]
        _wait_for_all(ledger, producers)
        outcome.began_at_s = time.time()
        for how in dose.endings:
            _sleep_until(time.time() + dose.life_s, producers)
            _restart(outcome, sink, how)
        _sleep_until(outcome.began_at_s + dose.seconds, producers)
        outcome.done_at_s = time.time()
        outcome.reported = [_last_text(producer) for producer in producers]
        outcome.collectors[-1].wait_until_passed_on()
        outcome.collectors[-1].end(signal.SIGTERM)
    finally:
        for producer in producers:
            producer.kill()
            producer.communicate()
        for collector in outcome.collectors:
            collector.give_up()
        outcome.memory.close()
        sink.close()
    return outcome


def _wait_for_all(ledger: Ledger, producers: list[subprocess.Popen]) -> None:
    """Until spans of each have arrived."""
    ends_at_s = time.time() + LONGEST_START_S
    while len({rank for rank, _ in tuple(ledger.arrivals)}) < len(producers):
        if time.time() > ends_at_s:
            msg = f"after {LONGEST_START_S:.0f} s there are only {sorted(ledger.arrivals)}"
            raise RuntimeError(msg)
        _sleep_until(time.time() + 0.1, producers)


def _restart(outcome: Outcome, sink: Sink, how: str) -> None:
    reported_at_s = time.time()
    outcome.collectors[-1].end(signal.Signals[f"SIG{how}"])
    gone_at_s = time.time()
    time.sleep(outcome.dose.away_s)
    _start_collector(outcome, sink)
    outcome.endings.append(Ending(how, reported_at_s, gone_at_s, time.time()))


def _start_collector(outcome: Outcome, sink: Sink) -> None:
    addresses = outcome.collectors[0].addresses if outcome.collectors else None
    outcome.ledger.collector += 1
    flags = ("--forward", sink.url, *outcome.flags)
    outcome.collectors.append(Counted(*flags, addresses=addresses))
    name = f"collector {len(outcome.collectors)}"
    outcome.memory.watch(name, outcome.collectors[-1].pid)


def _start_producer(dose: Dose, rank: int, outcome: Outcome) -> subprocess.Popen:
    port = "otlp_grpc" if dose.protocol == "grpc" else "otlp_http"
    flags = {
        "endpoint": f"http://{outcome.collectors[0].addresses[port]}",
        "protocol": dose.protocol,
        "rank": rank,
        "processes": dose.processes,
        "steps": dose.steps,
        "runs": dose.runs,
        "span-budget": dose.span_budget,
        "queue-bytes": dose.queue_bytes,
    }
    text = [f"--{name}={value}" for name, value in flags.items()]
    producer = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.no_loss.producer", *text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *_python_path()])},
        text=True,
    )
    outcome.memory.watch(f"producer {rank}", producer.pid)
    return producer


def _python_path() -> list[str]:
    return [path for path in [os.environ.get("PYTHONPATH", "")] if path]


def _sleep_until(at_s: float, producers: list[subprocess.Popen]) -> None:
    """Raises RuntimeError if a producer has failed."""
    while time.time() < at_s:
        time.sleep(min(0.5, max(0.0, at_s - time.time())))
        for producer in producers:
            if producer.poll():
                raise RuntimeError(producer.communicate()[1][-2000:])


def _last_text(producer: subprocess.Popen) -> dict:
    out, err = producer.communicate(timeout=LONGEST_END_S)
    if producer.returncode:
        raise RuntimeError(err[-2000:])
    return {**json.loads(out.splitlines()[-1]), "log": err.splitlines()[-20:]}
