"""Whether a rank that is slow inside ``backward`` is named, where the host's clock cannot tell.

    python -m benchmarks.inside_backward [--runs N] [--rows A,B] [--json FILE]
    python -m benchmarks.inside_backward --render

Real gloo ranks on CPU, with the sections of the quick start and nothing else; a real collector. In
each run a rank becomes slower after some 75 steps by 10, 15 or 30 % of the own time of a section:
in forward, in backward, in one layer (both), or in loading data. In groups of 3 and 4 ranks, where
10 % is the limit below which nobody is named, it is 12 %. ``grading`` says what is right.
Half as many runs have no fault. Next to each answer stands that of the host's clock: the same
spans, scored without what the ranks have waited.

Ranks have real-time priority where that is permitted (``--share``: not), because a training has its
machine to itself.

A table on standard output, progress on standard error. ``--json -`` prints the JSON instead.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.harness.about import about
from benchmarks.inside_backward.faults import DOSES, DOSES_OF_FEW, WHERE
from benchmarks.inside_backward.grading import TOLERANCE
from benchmarks.inside_backward.rows import ROWS
from benchmarks.inside_backward.running import Result, Scene, run_row
from benchmarks.inside_backward.table import markdown, render, row_json

Json = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 2 if there is no such row."""
    args = _parser().parse_args(arguments)
    if args.render:
        return render(check=False)
    names = args.rows.split(",") if args.rows else list(ROWS)
    if unknown := set(names) - set(ROWS):
        print(f"no row {', '.join(sorted(unknown))}; there are: {', '.join(ROWS)}", file=sys.stderr)
        return 2
    began_s = time.monotonic()
    with ThreadPoolExecutor(args.at_once) as pool:
        rows = dict(zip(names, pool.map(lambda name: _row(name, args), names), strict=True))
    result = {
        **about("torch", "transformers", "accelerate", "lightning"),
        "steps": args.steps,
        "rows_at_once": args.at_once,
        "doses": DOSES,
        "doses_of_few": DOSES_OF_FEW,
        "where": list(WHERE),
        "tolerance": TOLERANCE,
        "real_time_priority": not args.share,
        "wall_s": round(time.monotonic() - began_s, 1),
        "rows": rows,
    }
    _print(result, args.json)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inside_backward")
    parser.add_argument("--runs", type=int, default=20, help="with a fault, of each row")
    parser.add_argument("--healthy", type=int, help="without one; half as many if left out")
    parser.add_argument("--rows", metavar="A,B", help=f"of: {', '.join(ROWS)}")
    parser.add_argument("--steps", type=int, default=150, help="of a run")
    parser.add_argument("--share", action="store_true", help="ranks without real-time priority")
    parser.add_argument("--at-once", type=int, default=2, help="rows")
    parser.add_argument("--json", metavar="FILE", help="where the JSON goes; - is standard output")
    parser.add_argument("--render", action="store_true", help="write the table of the page")
    return parser


def _row(name: str, args: argparse.Namespace) -> Json:
    """The row, or why there is none: the others are not lost with it."""
    row = ROWS[name]
    if row.why_not:
        return {"title": row.title, "ranks": row.ranks, "not_run": row.why_not}
    results = []
    try:
        for result in _results(name, args):
            _print_progress(result)
            results.append(result)
    except (RuntimeError, TimeoutError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return {"title": row.title, "ranks": row.ranks, "not_run": f"failed: {error}"[-400:]}
    return row_json(row, results)


def _results(name: str, args: argparse.Namespace) -> Iterator[Result]:
    n_healthy = args.runs // 2 if args.healthy is None else args.healthy
    scene = Scene()
    try:
        with tempfile.TemporaryDirectory(prefix="inside-backward-") as folder:
            yield from run_row(
                scene, name, n_faults=args.runs, n_healthy=n_healthy, steps=args.steps,
                folder=Path(folder), come_first=not args.share,
            )  # fmt: skip
    finally:
        scene.close()


def _print_progress(result: Result) -> None:
    fault, ours = result.fault, result.ours
    planted = "healthy" if fault is None else f"rank {fault.rank} +{fault.dose:.0%} {fault.where}"
    part = "" if ours.part is None else f", {ours.part:.2f} of what was planted"
    after = "" if ours.steps is None else f", after {ours.steps} steps"
    host = result.by_host.outcome
    print(f"{result.run_id}: {planted}: {ours.outcome}{part}{after}; by the host's clock {host}",
          file=sys.stderr, flush=True)  # fmt: skip


def _print(result: Json, where: str | None) -> None:
    text = json.dumps(result).replace('{"run_id"', '\n{"run_id"')
    if where == "-":
        print(text)
        return
    if where:
        Path(where).write_text(text + "\n")
    print(markdown(list(result["rows"].values())))


if __name__ == "__main__":
    sys.exit(main())
