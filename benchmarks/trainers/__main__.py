"""Whether a slow rank is named in every way to have a training watched, and what that costs.

    python -m benchmarks.trainers [--loops A,B] [--runs N] [--json FILE]

Four real gloo ranks on CPU; a real collector. In each run a rank becomes slower by 20 % of the own
time of loading data, of forward, or of backward, after some 75 steps; ``--runs`` of each, and as
many without a fault. A run is right if the rank is confirmed, in the section that became slower, and
nobody else is; without a fault, if nobody is. Then runs with and without telemetry take turns, and
the medians of their steps are compared.

A table on standard output, progress on standard error. In a FILE the rows that were not asked for
stay. The loops are in ``loops.py``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.harness.about import about
from benchmarks.inside_backward.grading import DOSE as WRONG_DOSE
from benchmarks.inside_backward.grading import RIGHT, as_json
from benchmarks.trainers.loops import LOOPS
from benchmarks.trainers.running import DOSE, PLACES, RANKS, Result, TrainingJob

Json = dict[str, Any]
NEEDED = 0.95
MAX_OVERHEAD = 0.01


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 2 if there is no such loop, 1 if a row misses what it must show."""
    args = _parser().parse_args(arguments)
    names = args.loops.split(",") if args.loops else list(LOOPS)
    if unknown := set(names) - set(LOOPS):
        loops = ", ".join(LOOPS)
        print(f"no loop {', '.join(sorted(unknown))}; there are: {loops}", file=sys.stderr)
        return 2
    rows = {name: _row(name, args) for name in names}
    print(_table(rows))
    if args.json:
        _write(rows, args, Path(args.json))
    return int(any(row.get("missed") for row in rows.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trainers")
    parser.add_argument("--loops", metavar="A,B", help=f"of: {', '.join(LOOPS)}")
    parser.add_argument("--runs", type=int, default=20, help="with each fault, and without")
    parser.add_argument("--rounds", type=int, default=10, help="with and without telemetry")
    parser.add_argument("--steps", type=int, default=150, help="of a run")
    parser.add_argument("--share", action="store_true", help="ranks without real-time priority")
    parser.add_argument("--json", metavar="FILE", help="where the JSON goes")
    return parser


def _row(name: str, args: argparse.Namespace) -> Json:
    """The row, or why there is none: the others are not lost with it."""
    loop = LOOPS[name]
    row: Json = {"title": loop.title, "ranks": RANKS}
    if loop.why_not:
        return {**row, "not_run": loop.why_not}
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trainers-") as folder:
        job = TrainingJob(name, Path(folder), come_first=not args.share)
        try:
            results = []
            for result in job.results(args.runs, args.runs, args.steps):
                _print_progress(result)
                results.append(result)
            row["overhead"] = job.overhead(args.rounds, args.steps) if args.rounds else None
        except (RuntimeError, TimeoutError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return {**row, "not_run": f"failed: {error}"[-400:], "missed": ["it failed"]}
        finally:
            job.close()
    row["faults"] = {place: _counts(results, place) for place in PLACES}
    row["healthy"] = _counts(results, None)
    row["runs"] = [_run_json(result) for result in results]
    row["missed"] = _missed(row)
    return {**row, "wall_s": round(time.monotonic() - began_s, 1), "commit": about()["commit"]}


def _counts(results: Sequence[Result], place: str | None) -> Json:
    """Runs, those that are right, and of these those by what was planted."""
    graded = [r.grade.outcome for r in results if (r.fault.where if r.fault else None) == place]
    by_dose = graded.count(RIGHT)
    return {"runs": len(graded), "right": by_dose + graded.count(WRONG_DOSE), "by_dose": by_dose}


def _missed(row: Json) -> list[str]:
    missed = [
        place
        for place, counts in {**row["faults"], "healthy": row["healthy"]}.items()
        if counts["right"] < NEEDED * counts["runs"]
    ]
    overhead = row["overhead"]
    return [*missed, *(["overhead"] if overhead and overhead["ratio"] > 1 + MAX_OVERHEAD else [])]


def _run_json(result: Result) -> Json:
    fault = result.fault
    planted = {} if fault is None else {"where": fault.where, "rank": fault.rank}
    return {"run_id": result.run_id, **planted, **as_json(result.grade)}


def _print_progress(result: Result) -> None:
    fault, graded = result.fault, result.grade
    planted = "healthy" if fault is None else f"rank {fault.rank} +{fault.dose:.0%} {fault.where}"
    part = "" if graded.part is None else f", {graded.part:.2f} of what was planted"
    print(f"{result.run_id}: {planted}: {graded.outcome}{part}", file=sys.stderr, flush=True)
    if graded.outcome != RIGHT:
        print("   " + "; ".join(graded.texts), file=sys.stderr, flush=True)


def _table(rows: Json) -> str:
    titles = ("loop", *PLACES, "healthy", "step", "overhead")
    lines = [_line(titles), _line(["---"] * len(titles))]
    for row in rows.values():
        if "not_run" in row:
            lines.append(_line([row["title"], f"not run: {row['not_run']}"]))
            continue
        counts = [*row["faults"].values(), row["healthy"]]
        lines.append(
            _line(
                [
                    row["title"],
                    *(f"{count['right']} of {count['runs']}" for count in counts),
                    *_overhead_cells(row["overhead"]),
                ]
            )
        )
    return "\n".join(lines)


def _overhead_cells(overhead: Json | None) -> tuple[str, str]:
    if overhead is None:
        return "-", "-"
    return f"{overhead['without_ms']:.1f} ms", f"{overhead['ratio'] - 1:+.2%}"


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _write(rows: Json, args: argparse.Namespace, file: Path) -> None:
    """In the order of the table: rows that were not measured now stay as they are in the file."""
    before = json.loads(file.read_text())["rows"] if file.exists() else {}
    kept = {name: row for name in LOOPS if (row := rows.get(name, before.get(name)))}
    facts = about("torch", "transformers", "accelerate", "lightning", "deepspeed")
    result = {**facts, "steps": args.steps, "dose": DOSE, "rows": kept}
    file.write_text(json.dumps(result).replace('{"run_id"', '\n{"run_id"') + "\n")


if __name__ == "__main__":
    sys.exit(main())
