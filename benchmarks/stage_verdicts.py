"""How often a pipeline stage is called too long where none is, and how long one must be.

    python -m benchmarks.stage_verdicts [--seeds N] [--quick]

Runs of 200 steps of 2 s are made (``otel_straggler.simulate``) and judged. ``even`` are runs whose
stages are equal, with the noise of public traces, with one slow rank, with sequences of unequal
length: every stage that is confirmed is false. ``uneven`` are runs in which stage 1 takes longer,
from the beginning or from step 100 on: whether that stage and no other is confirmed, and since
when it is said to be so.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.verdict import Verdict
from otel_straggler.simulate.runs import Fault, Layout, RunPlan, generate

STEPS, ONSET = 200, 100
LAYOUTS = ("pp2,dp4", "pp4,dp1", "pp4,dp8", "pp8,dp2", "pp16,dp4")
TIMINGS = ("local", "synchronised")
EVEN: dict[str, dict[str, Any]] = {
    "noise of 0.9 %": {"noise": "AR"},
    "noise of 2.4 %": {"noise": "ST"},
    "noise of 11.6 %": {"noise": "SE"},
    "one rank 1.3x": {"noise": "ST", "faults": (Fault.parse("compute:1.3@rank1:step0"),)},
    "sequences": {"noise": "ST", "sequence_cv": 0.6},
}
FACTORS = (1.03, 1.05, 1.1, 1.2, 1.3)


def main() -> None:
    """Print JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="two seeds")
    args = parser.parse_args()
    print(json.dumps(measure(2 if args.quick else args.seeds), indent=2))


def measure(seeds: int) -> dict[str, Any]:
    """All cases, ``seeds`` runs of each."""
    even = [
        _even(name, layout, timing, seeds)
        for name in EVEN
        for layout in LAYOUTS
        for timing in TIMINGS
        # A stage of a single rank cannot be compared, so whether it is slow is unknown.
        if not (name == "one rank 1.3x" and layout.endswith("dp1"))
    ]
    uneven = [
        _uneven(factor, onset, layout, seeds)
        for factor in FACTORS
        for onset in (0, ONSET)
        for layout in ("pp4,dp1", "pp4,dp8")
    ]
    runs = seeds * len(even)
    return {
        "seeds": seeds,
        "even_runs": runs,
        "false_runs": sum(case["false"] for case in even),
        "even": even,
        "uneven": uneven,
    }


def _even(name: str, layout: str, timing: str, seeds: int) -> dict[str, Any]:
    named = [_stages(layout, seed, timing=timing, **EVEN[name]) for seed in range(seeds)]
    return {"even": name, "layout": layout, "timing": timing, "false": sum(map(bool, named))}


def _uneven(factor: float, onset: int, layout: str, seeds: int) -> dict[str, Any]:
    faults = (Fault.parse(f"compute:{factor}@stage1:step{onset}"),)
    named = [_stages(layout, seed, noise="ST", faults=faults) for seed in range(seeds)]
    right = [each[0] for each in named if [v.role for v in each] == ["pipeline 1"]]
    since = [verdict.since_step for verdict in right]
    return {
        "factor": factor,
        "since": onset,
        "layout": layout,
        "right": len(right),
        "other": sum(bool(each) for each in named) - len(right),
        "said_to_be_always_so": since.count(None),
        "largest_error_of_onset": max((abs(s - onset) for s in since if s is not None), default=0),
    }


def _stages(layout: str, seed: int, **plan: Any) -> list[Verdict]:
    """The newest verdict of each stage that was ever confirmed."""
    run = generate(RunPlan(layout=Layout.parse(layout), steps=STEPS, seed=seed, **plan))
    judge = VerdictEngine()
    for table in run.tables(5):
        judge.observe(table)
    judge.finish()
    of_stages = [v for v in judge.changes if v.cause == "stage_imbalance"]
    called = {v.subject_id: v for v in of_stages if v.state in ("confirmed", "flapping")}
    return list(called.values())


if __name__ == "__main__":
    main()
