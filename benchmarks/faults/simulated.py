"""Faults of simulated fleets, in the time of the fleet: runs are generated, encoded, decoded and
scored by the collector's own worker, whose clock is that of the runs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any, Final

from benchmarks.faults.grading import HANGS, Watch, as_json, grade
from otel_straggler.alerts.catalogue import uninhibited
from otel_straggler.alerts.evaluation import AlertEvaluator
from otel_straggler.collector.ingest.intake import ByteBudget
from otel_straggler.collector.settings import CollectorSettings
from otel_straggler.collector.views.hang_json import hang_json
from otel_straggler.collector.views.verdict_json import verdict_json
from otel_straggler.collector.worker import Worker
from otel_straggler.model.alert import Alert
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.simulate.faults import Fault
from otel_straggler.simulate.plan import Layout, RunPlan
from otel_straggler.simulate.replay import Ending, Replay
from otel_straggler.simulate.runs import SimulatedRun, generate

Json = dict[str, Any]
LAYOUTS: Final = ("dp8", "dp16", "tp2,dp8", "pp2,dp8", "tp2,pp2,dp8")
SLOW_KINDS: Final = ("compute:1.25", "compute:1.5", "backward:1.5", "forward:1.5", "data:0.5",
                     "compute:2", "late:0.5")  # fmt: skip
HANG_KINDS: Final = ("crash", "hang_never_joined")
ONSETS: Final = range(70, 90)
LENGTH, QUIET, AFTER = 60, 60, 15
"""Steps of a slow rank, between two of them in one run, and after the last."""
HOLD_S: Final = 180.0
"""How long a run that hangs is watched."""
EVALUATE_S: Final = 15.0
STEP_S: Final = 2.0


def draw(n_faults: int, seed: int) -> list[RunPlan]:
    """So many runs: three of four have a rank that is slow for a while, one of four hangs."""
    chance = random.Random(seed)
    return [
        _hanging(chance, number) if number % 4 == 0 else _slow(chance, number, 1)
        for number in range(n_faults)
    ]


def in_turn(n_runs: int, seed: int) -> list[RunPlan]:
    """Runs in which a rank is slow, and when it has been well again for a while another one."""
    chance = random.Random(f"in turn {seed}")
    return [_slow(chance, number, 2) for number in range(n_runs)]


def healthy(n_runs: int, seed: int) -> list[RunPlan]:
    """Runs without a fault."""
    chance = random.Random(f"healthy {seed}")
    return [_plan(chance, f"healthy-{n}", (), 150) for n in range(n_runs)]


def _hanging(chance: random.Random, number: int) -> RunPlan:
    layout = Layout.parse(chance.choice(LAYOUTS))
    kind, step = HANG_KINDS[number // 4 % len(HANG_KINDS)], chance.choice(ONSETS)
    fault = Fault(kind=kind, ranks=(chance.randrange(layout.ranks),), onset_step=step)
    return _plan(chance, f"hang-{number}", (fault,), step + 1, layout)


def _slow(chance: random.Random, number: int, count: int) -> RunPlan:
    layout = Layout.parse(chance.choice(LAYOUTS))
    ranks = chance.sample(range(layout.ranks), count)
    faults = []
    onset = chance.choice(ONSETS)
    for at, rank in enumerate(ranks):
        kind, _, size = SLOW_KINDS[(number * count + at) % len(SLOW_KINDS)].partition(":")
        end = onset + LENGTH
        faults.append(
            Fault(kind=kind, size=float(size), ranks=(rank,), onset_step=onset, end_step=end)
        )
        onset = end + QUIET
    return _plan(chance, f"slow-{number}-{count}", tuple(faults), end + AFTER, layout)


def _plan(
    chance: random.Random, run_id: str, faults: tuple[Fault, ...], steps: int,
    layout: Layout | None = None,
) -> RunPlan:  # fmt: skip
    return RunPlan(
        layout=layout or Layout.parse(chance.choice(LAYOUTS)), steps=steps, step_s=STEP_S,
        seed=chance.randrange(2**31), noise=chance.choice(("AR", "ST")), timing="synchronised",
        microbatches=1, report_collectives=True, faults=faults, run_id=run_id,
    )  # fmt: skip


class Fleet:
    """A worker, its alerts, and the clock of both, which moves when the replay waits."""

    def __init__(self, run_id: str, start_s: float) -> None:
        self._run_id = run_id
        self._now_s = start_s
        settings = CollectorSettings()
        self._worker = Worker(
            settings, ByteBudget(1 << 40),
            monotonic_ns=lambda: int(self._now_s * 1e9), wall_s=lambda: self._now_s,
        )  # fmt: skip
        self._worker.sign("fleet")
        self._spans, self._metrics = SpanDecoder(), MetricDecoder()
        self._alerts = AlertEvaluator(settings.alerts)
        self._evaluated_s = 0.0
        self.watch = Watch()
        self.fired: dict[tuple[str, str], Alert] = {}

    def post(self, signal: str, body: bytes) -> None:
        decoder = self._spans if signal == "traces" else self._metrics
        self._worker.ingest(decoder.decode(body), len(body))

    def now_s(self) -> float:
        return self._now_s

    def sleep(self, duration_s: float) -> None:
        """Let time pass, a step's time at most at once."""
        until_s = self._now_s + duration_s
        while self._now_s < until_s:
            self._now_s = min(until_s, self._now_s + STEP_S)
            self._worker.process_queued()
            self._worker.tick()
            self._look()

    def _look(self) -> None:
        snapshot = self._worker.snapshot
        run = snapshot.runs.get(self._run_id)
        if run is None:
            return
        changes = [verdict_json(each) for each in run.run_verdicts.changes]
        hangs = [hang_json(group, hang) for group, hang in run.hangs.items()]
        self.watch.read({"verdicts": changes, "liveness": hangs}, self._now_s)
        if self._now_s - self._evaluated_s >= EVALUATE_S and snapshot.watched.collector:
            self._evaluated_s = self._now_s
            firing = self._alerts.evaluate(snapshot.watched)
            for alert in uninhibited(firing, firing):
                key = alert.name, alert.labels.get("rank", "")
                self.fired.setdefault(key, alert)


def run_one(plan: RunPlan) -> Json:
    """Replay a run, and grade its faults."""
    run = generate(plan)
    fleet = Fleet(plan.run_id, plan.start_ns / 1e9)
    hangs = [fault for fault in plan.faults if fault.kind in HANGS]
    ending = None
    if hangs:
        silent = frozenset(r for f in hangs if f.kind == "crash" for r in f.ranks)
        ending = Ending(silent=silent, hold_s=HOLD_S)
    Replay(fleet.post, speed=1.0, ending=ending, clock=fleet).run(
        run.batches(counts_microbatches=True)
    )
    fleet.sleep(5.0)
    return _graded(plan, run, fleet)


def _graded(plan: RunPlan, run: SimulatedRun, fleet: Fleet) -> Json:
    starts_s = _starts_s(run)
    faults, wrong = [], dict(fleet.watch.named)
    for fault in plan.faults:
        (rank,) = fault.ranks
        result, _ = grade(
            fleet.watch, fault.kind, rank, starts_s[fault.onset_step], fault.onset_step
        )
        faults.append({"fault": str(fault), **result})
        for way in ("hang", "verdict"):
            wrong.pop((way, f"rank {rank}"), None)
    at_fault = {str(rank) for fault in plan.faults for rank in fault.ranks}
    alerts = [{"alert": name, "rank": rank} for name, rank in sorted(fleet.fired)]
    return {
        "run": plan.run_id, "ranks": plan.layout.ranks, "layout": str(plan.layout),
        "faults": faults, "wrong": as_json(wrong.values()), "alerts": alerts,
        "wrong_alerts": [a for a in alerts if a["rank"] and a["rank"] not in at_fault],
    }  # fmt: skip


def _starts_s(run: SimulatedRun) -> dict[int, float]:
    """When each step began on its first rank, seconds since 1970; and the step after the last."""
    result: dict[int, float] = {}
    end_s = 0.0
    for table in run.tables(1):
        step = int(table.steps[0])
        result[step] = end_s or run.plan.start_ns / 1e9
        end_s = float(table.end_ns.max()) / 1e9
        result[step + 1] = end_s
    return result


def run_all(plans: Sequence[RunPlan], processes: int) -> Iterator[Json]:
    """In processes of their own."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        yield from pool.map(run_one, plans)
