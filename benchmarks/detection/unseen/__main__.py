"""How well verdicts hold on noise that the detector's own generator does not make.

    python -m benchmarks.detection.unseen [--quick] [--families A,B] [--runs N] [--seed S]
    python -m benchmarks.detection.unseen --summary docs/measurements/detection-unseen.json
    python -m benchmarks.detection.unseen --render

Without --seed a new one is drawn and printed. Seeds below 1000 are for tuning: with them the
held-out families are left out. --explain prints what was missed or made up.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks.detection.methods import METHODS, OURS
from benchmarks.detection.page import ROOT, UNSEEN, fill
from benchmarks.detection.unseen import reality
from benchmarks.detection.unseen.families import CALIBRATED_RANKS, FAMILIES, Family
from benchmarks.detection.unseen.report import document, markdown
from benchmarks.detection.unseen.running import LimitTask, Task, run_all, run_limit_task, run_task
from benchmarks.detection.unseen.runs import Limits

MEASURED = ROOT / "docs" / "measurements" / "detection-unseen.json"
TUNING_SEEDS = 1000
LIMIT_RUNS = 20
LIMITS_NAME = "limits"
"""As a family: how well stated detection limits hold."""
QUICK = Limits(ranks=12, steps=200)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 2 if no family has such a name."""
    args = _parser().parse_args(arguments)
    if args.render:
        return fill(UNSEEN, markdown(json.loads(MEASURED.read_text())), check=args.check)
    seed = int(time.time()) if args.seed is None else args.seed
    families, notes = choose(args.families, seed)
    tasks, limit_tasks = list(_tasks(families, args, seed)), list(_limit_tasks(args, seed))
    if not (tasks or limit_tasks):
        message = f"no family matches {args.families!r}; --list prints them all"
        print(" ".join([message, *notes]), file=sys.stderr)
        return 2
    if args.list:
        print("\n".join([*(family.name for family in families), LIMITS_NAME]))
        return 0
    began_s = time.monotonic()
    records = list(run_all(run_task, tasks, args.processes))
    limits = list(run_all(run_limit_task, limit_tasks, args.processes))
    if args.explain:
        print("\n".join(story for record in records for story in record.stories))
    facts = {
        "method": args.method,
        "seed": seed,
        "is_quick": args.quick,
        "processes": args.processes,
        "notes": notes,
        "wall_s": round(time.monotonic() - began_s, 1),
    }
    _write(document(families, records, limits, **facts), args)
    return 0


def choose(names: str, seed: int) -> tuple[list[Family], list[str]]:
    """Families of these names that can be run, and why others are not."""
    named = [family for family in FAMILIES if _is_named(family.name, names)]
    absent, notes = set(), []
    if seed < TUNING_SEEDS:
        absent.add("held out")
        notes.append("A seed for tuning: the held-out families are left out.")
    if any(family.origin == "traces" for family in named) and not reality.is_available():
        absent.add("traces")
        notes.append(f"{reality.ABSENT}.")
    return [family for family in named if family.origin not in absent], notes


def _is_named(name: str, names: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in names.split(","))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.detection.unseen",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--families", default="*", metavar="A,B", help="by name; * and ? work")
    parser.add_argument("--runs", type=int, metavar="N", help="runs of every family")
    parser.add_argument("--seed", type=int, metavar="S", help="repeat the runs of this seed")
    parser.add_argument("--method", choices=list(METHODS), default=OURS, help="another method")
    parser.add_argument("--quick", action="store_true", help="one small run of every family")
    parser.add_argument("--explain", action="store_true", help="what was missed or made up")
    parser.add_argument("--list", action="store_true", help="print the names of the families")
    parser.add_argument("--json", metavar="FILE", help="where the JSON goes; - is standard output")
    parser.add_argument("--summary", metavar="FILE", help="the JSON without the single runs")
    parser.add_argument("--processes", type=int, choices=(1, 2), default=2)
    parser.add_argument(
        "--render", action="store_true", help="write docs/internals/detection-accuracy.md's tables"
    )
    parser.add_argument("--check", action="store_true", help="with --render: only compare")
    return parser


def _tasks(families: Sequence[Family], args: argparse.Namespace, seed: int) -> Iterator[Task]:
    limits = QUICK if args.quick else Limits()
    for family in families:
        runs = args.runs or (1 if args.quick else family.runs)
        yield from ((family.name, seed, at, limits, args.method) for at in range(runs))


def _limit_tasks(args: argparse.Namespace, seed: int) -> Iterator[LimitTask]:
    if args.method != OURS or not _is_named(LIMITS_NAME, args.families):
        return
    limits = QUICK if args.quick else Limits()
    runs = args.runs or (1 if args.quick else LIMIT_RUNS)
    for ranks in CALIBRATED_RANKS[:: 2 if args.quick else 1]:
        yield from ((ranks, seed, at, limits) for at in range(runs))


def _write(result: dict[str, Any], args: argparse.Namespace) -> None:
    text = json.dumps(result, separators=(",", ":")).replace('},{"family"', '},\n{"family"')
    if args.json == "-":
        print(text)
        return
    if args.json:
        Path(args.json).write_text(text + "\n")
    if args.summary:
        kept = {name: part for name, part in result.items() if name != "runs"}
        Path(args.summary).write_text(json.dumps(kept, indent=1) + "\n")
    print(markdown(result))


if __name__ == "__main__":
    sys.exit(main())
