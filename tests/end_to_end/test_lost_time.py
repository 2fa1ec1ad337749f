"""One number for what is lost: page, report, alert, metrics and goodput against the truth.

The truth is the same plan without its faults: it draws the same numbers, so the difference of both
runs is what the faults cost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from otel_straggler import semconv
from otel_straggler.alerts.evaluation import AlertEvaluator
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.cli import main
from otel_straggler.simulate.runs import Fault, Layout, RunPlan, generate
from otel_straggler.simulate.writers import encode_requests_of, frame

from .collecting import Collecting

WITHIN = 0.03
STEPS, ONSET = 400, 160
"""A fault begins with a step of its own, behind the warm-up."""
PLANS = 50
PUSHED = (0, 7, 13, 21, 28, 35, 42, 49)
_RANKS_LOST = re.compile(r"loses the time of ([\d.]+) ranks")


def plan_of(number: int) -> RunPlan:
    """The plan of a number: mostly uncovered or mostly covered steps, with and without pauses."""
    rng = np.random.default_rng((35, number))
    ranks = int(rng.choice([3, 4, 8, 16]))
    step_s = float(rng.choice([0.005, 0.05, 0.5]))
    outside_s = step_s * float(rng.choice([0.0, 0.2, 3.0, 20.0]))
    # Of a step, and beyond what a group of three or four ranks needs for a verdict.
    whole_s = step_s + outside_s
    part = float(rng.uniform(0.15 if ranks < 5 else 0.08, 0.4))
    who = f"rank{int(rng.integers(ranks))}"
    fault = f"late:{part * whole_s:.6f}@{who}:step{ONSET}"
    if rng.random() < 0.5:
        kinds = {"compute": 0.95, "backward": 0.575}
        if outside_s <= step_s:  # else batches are ready when they are asked for
            kinds["data"] = 0.0
        kind = str(rng.choice([*kinds]))
        size = 1.0 + part * whole_s / (kinds[kind] * step_s) if kinds[kind] else part * whole_s
        fault = f"{kind}:{size:.6f}@{who}:step{ONSET}"
    faults = [Fault.parse(fault)]
    if ranks >= 8 and rng.random() < 0.3:  # two at once: the others wait for the slower one
        other = (faults[0].ranks[0] + 3) % ranks
        faults.append(replace(faults[0], ranks=(other,)))
    pauses = int(rng.choice([0, 0, 50]))
    per_node = int(rng.choice([1, 2]))
    if per_node == 2 and ranks >= 8 and len(faults) == 1 and rng.random() < 0.4:
        faults = [replace(faults[0], ranks=(), host=faults[0].ranks[0] // 2)]
    noise = float(rng.choice([0.005, 0.005, 0.03]))  # of those, ranks wait for each other by chance
    return RunPlan(
        layout=Layout(dp=ranks),
        steps=STEPS,
        seed=number,
        ranks_per_node=per_node,
        noise=noise,
        common_mode=0.005,
        rank_offset=0.002,
        spikes=0.0,
        microbatches=1,
        step_s=step_s,
        outside_s=outside_s,
        checkpoint_every=pauses,
        eval_every=pauses * 2,
        timing="synchronised" if rng.random() < 0.3 else "local",
        report_collectives=True,
        faults=tuple(faults),
        run_id=f"plan-{number}",
        start_ns=1_790_000_000 * 10**9,
    )


def ended_s(plan: RunPlan) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(T + 1,) when the steps of a plan end, on the last rank, since the first of all began."""
    tables = [*generate(plan).tables(20)]
    ends = np.concatenate([table.end_ns.max(axis=1) for table in tables])
    return (np.append(tables[0].start_ns.min(), ends) - tables[0].start_ns.min()) * 1e-9


def truth_of(plan: RunPlan) -> tuple[float, float]:
    """Parts of the time lost since the onset, and of the whole run."""
    slow_s, well_s = ended_s(plan), ended_s(replace(plan, faults=()))
    since = 1.0 - (well_s[-1] - well_s[ONSET]) / (slow_s[-1] - slow_s[ONSET])
    return since, 1.0 - well_s[-1] / slow_s[-1]


class Told:
    """What a collector says of a run, at its newest step."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self.collecting = Collecting(plan.run_id)
        alerts = AlertEvaluator(AlertSettings(straggling_for_seconds=0.0, keep_firing_seconds=0.0))
        for batch in generate(plan).batches(10):
            self.collecting.observe(batch)
            self.firing = alerts.evaluate(self.collecting.worker.snapshot.watched)

    def lost(self) -> dict[str, float]:
        """Part of the time lost now, by output."""
        ranks = self.plan.layout.ranks
        page, report = self.collecting.page(), self.collecting.report()
        current = {v["subject_id"]: v for v in report["verdicts"]}.values()
        standing = [v for v in current if v["state"] == "confirmed"]
        texts = (alert.annotations["description"] for alert in self.firing)
        alerts = [match for text in texts if (match := _RANKS_LOST.search(text))]
        return {
            "page": page["waste"],
            "page, per hour": page["gpu_seconds_lost_per_hour"] / 3600 / ranks,
            "report, run": report["run"]["waste"],
            "report, verdicts": sum(v["gpu_seconds_lost_per_hour"] for v in standing)
            / 3600
            / ranks,
            "alert": sum(float(match[1]) for match in alerts) / ranks,
            "metrics": self.sample(semconv.RUN_WASTE),
            "metrics, verdicts": self.sample(semconv.VERDICT_LOSS) / ranks,
        }

    def lost_in_all(self) -> dict[str, float]:
        """Part of the time lost since the begin, by output."""
        elapsed_s = ended_s(self.plan)[-1]
        view = self.collecting.view.goodputs[""]
        lost_s = self.sample(semconv.RUN_GPU_TIME_LOST) / self.plan.layout.ranks
        return {
            "metrics, in all": lost_s / elapsed_s,
            "goodput, live": view.time_ns.get("stragglers", 0) / view.wall_ns,
        }

    def sample(self, metric: semconv.Metric) -> float:
        return sum(self.collecting.samples(metric))


def recorded_goodput(plan: RunPlan, folder: Path) -> float:
    """Part of a recorded run that ``goodput`` says stragglers cost."""
    path, out = folder / "run.otlp", folder / "out.json"
    path.write_bytes(b"".join(map(frame, encode_requests_of(generate(plan).batches()))))
    assert main(["goodput", str(path), "--json", str(out)]) == 0
    [run] = json.loads(out.read_text())["runs"]
    return float(run["categories"]["stragglers"]["share"])


def differences(plan: RunPlan, folder: Path) -> Iterator[tuple[str, float, float]]:
    """Output, what it says, and the truth."""
    now, in_all = truth_of(plan)
    told = Told(plan)
    yield from ((name, lost, now) for name, lost in told.lost().items())
    yield from ((name, lost, in_all) for name, lost in told.lost_in_all().items())
    yield "goodput, recorded", recorded_goodput(plan, folder), in_all


@pytest.mark.parametrize(
    "number",
    [pytest.param(n, marks=() if n in PUSHED else pytest.mark.nightly) for n in range(PLANS)],
)
def test_what_is_lost_is_one_number_and_true(number: int, tmp_path: Path) -> None:
    """Within 3 points of the truth on every output."""
    wrong = [
        (name, round(lost, 3), round(truth, 3))
        for name, lost, truth in differences(plan_of(number), tmp_path)
        if not abs(lost - truth) <= WITHIN
    ]
    assert not wrong
