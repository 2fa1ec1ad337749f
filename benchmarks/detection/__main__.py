"""Who finds the slow rank: methods side by side on the same labelled runs.

    python -m benchmarks.detection [--quick] [--set A|B] [--cases GLOB] [--json FILE] [--explain]
    python -m benchmarks.detection --render

Markdown on standard output, progress on standard error. ``--json -`` prints the JSON instead;
``--summary FILE`` keeps it without the counts of every single run.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from benchmarks.detection.cases import SEEDS, Case, full_set, quick_set
from benchmarks.detection.methods import METHODS, OURS
from benchmarks.detection.page import render
from benchmarks.detection.report import document, markdown
from benchmarks.detection.running_many import Task, run_all


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 2 if no case has such a name."""
    args = _parser().parse_args(arguments)
    if args.render:
        return render(check=args.check)
    cases = [case for case in _cases(args) if fnmatchcase(case.name, args.cases)]
    if not cases:
        print(f"no case matches {args.cases!r}; --list prints them all", file=sys.stderr)
        return 2
    if args.list:
        print("\n".join(case.name for case in cases))
        return 0
    methods = tuple(METHODS) if args.methods is None else tuple(args.methods.split(","))
    tasks = list(_tasks(cases, args, methods))
    began_s = time.monotonic()
    runs = list(run_all(tasks, args.processes))
    if args.explain:
        print("\n".join(story for run in runs for story in run.stories))
    facts = {
        "set": args.set,
        "is_quick": args.quick,
        "processes": args.processes,
        "wall_s": round(time.monotonic() - began_s, 1),
    }
    _report(document(cases, runs, methods, **facts), args)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.detection", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few small cases")
    parser.add_argument("--set", choices=list(SEEDS), default="B", help="seeds: A tunes, B reports")
    parser.add_argument("--cases", default="*", metavar="GLOB", help="cases by name")
    parser.add_argument("--seeds", type=int, metavar="N", help="runs of every case")
    methods = ", ".join(METHODS).replace("%", "%%")
    parser.add_argument("--methods", metavar="A,B", help=f"of: {methods}")
    parser.add_argument("--json", metavar="FILE", help="where the JSON goes; - is standard output")
    parser.add_argument("--summary", metavar="FILE", help="the JSON without the single runs")
    parser.add_argument("--explain", action="store_true", help=f"what {OURS} misses or makes up")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--processes", type=int, choices=(1, 2), default=2)
    parser.add_argument(
        "--render", action="store_true", help="write docs/internals/detection-accuracy.md's tables"
    )
    parser.add_argument("--check", action="store_true", help="with --render: only compare")
    return parser


def _cases(args: argparse.Namespace) -> list[Case]:
    return quick_set() if args.quick else full_set()


def _tasks(
    cases: Sequence[Case], args: argparse.Namespace, methods: tuple[str, ...]
) -> Iterator[Task]:
    """Large runs first, so that no process is left alone with one at the end."""
    first = SEEDS[args.set]
    for case in reversed(cases):
        n = args.seeds or (1 if args.quick else case.n_seeds)
        yield from ((case.name, first + at, methods) for at in range(n))


def _report(result: dict[str, object], args: argparse.Namespace) -> None:
    text = json.dumps(result, indent=None, separators=(",", ":")).replace(
        '},{"case"', '},\n{"case"'
    )
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
