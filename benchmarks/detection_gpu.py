"""Who is found where sections only launch kernels: by the host's clock, by events, by kernels.

    python -m benchmarks.detection_gpu [--seeds N] [--cases GLOB]

Generated runs with asynchronous launches: host times hide the work, what the GPU reports shows it.
The same runs six times: the host's clock alone (``off``), the time between events, that of kernels
(``cupti``), kernels in one step of 10 or 50 and events in all others, and kernels with one rank
that fell back to the host (``mixed``). Prints JSON: faults found, missed and wrongly named, F1,
steps from onset to confirmation, causes that are right, verdicts on the run that nothing explains,
and how often it was said that nothing can be localised.
A slow GPU of 10 % (a kernel that runs concurrently) has a budget of 50 steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from benchmarks.detection.cases import LAYOUTS, ORDINARY, Case, on_ranks
from benchmarks.detection.episodes import Episode
from benchmarks.detection.levels import by_event
from benchmarks.detection.matching import match
from benchmarks.detection.methods.ours import Ours
from benchmarks.detection.metrics import Events, percentile
from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, print_result
from otel_straggler.model.observation import HOST
from otel_straggler.model.step_table import StepTable
from otel_straggler.simulate.runs import RunPlan, generate

TABLE_STEPS = 5
FIRST_SEED = 7_000
LATEST_STEPS = 50
SAMPLED = {"cupti, 1 in 10": 10, "cupti, 1 in 50": 50}
WAYS = ("off", "events", "cupti", *SAMPLED, "mixed")
Change = Callable[[StepTable], StepTable]


@dataclass(slots=True)
class Tally:
    """What was made of all runs of one way."""

    runs: int = 0
    events: Events = field(default_factory=Events)
    delays: list[int] = field(default_factory=list)
    causes_right: int = 0
    wrong_structures: int = 0
    unlocalised: int = 0

    def as_json(self) -> dict[str, Any]:
        events = self.events
        return {
            "runs": self.runs,
            "found": events.detected,
            "missed": events.missed,
            "wrong": events.false,
            "f1": round(float(np.nan_to_num(events.f1)), 3),
            "delay_steps_p50": _rounded(percentile(self.delays, 50)),
            "delay_steps_p95": _rounded(percentile(self.delays, 95)),
            "causes_right": self.causes_right,
            "wrong_structures": self.wrong_structures,
            "runs_unlocalised": self.unlocalised,
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cases", default="*", help="such as '64 ST compute*'")
    args = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + args.seeds)
    result: dict[str, dict[str, Tally]] = {}
    for name, case in _cases():
        if not fnmatchcase(name, args.cases):
            continue
        for way in WAYS:
            tally = result.setdefault(name, {}).setdefault(way, Tally())
            for seed in seeds:
                _run(case.plan(seed), way, seed, tally)
    tables = {
        name: {way: tally.as_json() for way, tally in ways.items()} for name, ways in result.items()
    }
    print_result({**about("numpy"), "cases": tables}, _budgets(result))


def _budgets(result: dict[str, dict[str, Tally]]) -> dict[str, Any]:
    ten = [ways["cupti"] for name, ways in result.items() if name.endswith("1.10")]
    wrong = sum(ways[way].events.false for ways in result.values() for way in ("cupti", "mixed"))
    missed = sum(tally.events.missed for tally in ten)

    def beyond_events(what: str) -> float:
        """Of the sampled way that is worse, in all cases together."""
        totals = {
            way: sum(getattr(ways[way].events, what) for ways in result.values())
            for way in ("events", *SAMPLED)
        }
        return float(max(totals[way] for way in SAMPLED) - totals["events"])

    return {
        "10 % slower GPU, cupti: steps to the last confirmation": judge(
            max((delay for tally in ten for delay in tally.delays), default=np.inf),
            LATEST_STEPS,
            "steps",
        ),
        "10 % slower GPU, cupti: missed + 1": judge(missed + 1.0, 1.0, ""),
        "cupti and mixed: wrongly named + 1": judge(wrong + 1.0, 1.0, ""),
        "sampled: missed beyond those by events + 1": judge(
            max(0.0, beyond_events("missed")) + 1.0, 1.0, ""
        ),
        "sampled: wrongly named beyond those by events + 1": judge(
            max(0.0, beyond_events("false")) + 1.0, 1.0, ""
        ),
    }


def _cases() -> Iterator[tuple[str, Case]]:
    """By name: doses of a slow GPU with little and ordinary noise, and what is no slow GPU."""
    for ranks, layout in ((64, "pp2,dp32"), (256, LAYOUTS[256])):
        for noise in ("AR", "ST"):
            for kind, size in (("compute", 1.05), ("compute", 1.10), ("backward", 1.25)):
                name = f"{ranks} {noise} {kind} {size:.2f}"
                yield name, _case(name, ranks, layout, noise, kind, size)
        yield f"{ranks} ST data 0.5", _case("data", ranks, layout, "ST", "data", 0.5)
        healthy = _case("healthy", ranks, layout, "ST", "", 0.0)
        yield f"{ranks} ST healthy", healthy
        yield f"{ranks} ST ordinary", replace(healthy, kind="ordinary", fields=ORDINARY)


def _case(name: str, ranks: int, layout: str, noise: str, kind: str, size: float) -> Case:
    return Case(
        kind=name,
        family="fault" if kind else "healthy",
        ranks=ranks,
        layout=layout,
        noise=noise,
        timing="asynchronous",
        index=on_ranks(kind, size, 1) if kind else None,
    )


def _run(plan: RunPlan, way: str, seed: int, tally: Tally) -> None:
    sample_every = SAMPLED.get(way, 1)
    timing = "cupti" if way == "mixed" or sample_every > 1 else way
    run = generate(replace(plan, gpu_timing=timing, gpu_sample_every=sample_every))
    change = _one_falls_back(plan.layout.ranks, seed) if way == "mixed" else _nothing
    method = Ours()
    episodes: list[Episode] = []
    last = 0
    for table in run.tables(TABLE_STEPS):
        episodes += method.take(change(table))
        last = int(table.steps[-1])
    episodes += method.finish(last)
    matched = match(run.labels, episodes, has_host_scope=True)
    tally.runs += 1
    tally.events += by_event(matched.findings, matched.false)
    for finding in matched.findings:
        if finding.episode is not None and finding.delay_steps is not None:
            tally.delays.append(finding.delay_steps)
            tally.causes_right += finding.episode.cause == run.labels[finding.label].cause
    tally.wrong_structures += len(matched.false_structures)
    tally.unlocalised += bool(method.unlocalised)


def _nothing(table: StepTable) -> StepTable:
    return table


def _one_falls_back(ranks: int, seed: int) -> Change:
    """From some step on a rank, the culprit or another, reports the host's times only."""
    rng = np.random.default_rng(seed)
    who, first = int(rng.integers(ranks)), int(rng.integers(60, 220))

    def change(table: StepTable) -> StepTable:
        assert table.gpu is not None
        gone = np.ix_(table.steps >= first, [who])
        for cells, nothing in (
            (table.gpu.basis, HOST),
            (table.gpu.own_s, np.nan),
            (table.gpu.nccl_s, np.nan),
        ):
            cells[gone] = nothing
        return table

    return change


def _rounded(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 1)


if __name__ == "__main__":
    main()
