"""Whether injected faults are found: who, where, why, how soon, and who else is named.

    python -m benchmarks.faults [--real N] [--simulated N] [--in-turn N] [--json FILE]
    python -m benchmarks.faults --render

Real: gloo ranks on CPU inject into themselves what ``OTEL_STRAGGLER_INJECT`` says, one fault in a
training of four ranks; a real collector with the short intervals of ``benchmarks.alert_delay``
scores them, notifies a webhook, and forwards the spans, from which the truth is read. Simulated:
the collector's own worker in the time of the fleet, with its default settings.

A fault is found if its rank is named: by a confirmed verdict if it makes the rank slow, as the one
that the others wait for if it stops the run. Delays are medians, in brackets the longest.
Tables on standard output, progress on standard error; ``--json -`` prints the JSON instead.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.faults import real, simulated
from benchmarks.faults.grading import summary
from benchmarks.faults.table import markdown, render
from benchmarks.harness.about import about

Json = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for."""
    args = _parser().parse_args(arguments)
    if args.render:
        return render(check=args.check)
    result: Json = {}
    if args.real:
        result["real"] = _measured(lambda: _real(args), args)
    if args.simulated:
        runs = [*simulated.draw(args.simulated, args.seed)]
        runs += simulated.healthy(args.simulated // 10, args.seed)
        result["simulated"] = _measured(lambda: simulated.run_all(runs, args.processes), args)
    n_turns = args.simulated // 20 if args.in_turn is None else args.in_turn
    if turns := simulated.in_turn(n_turns, args.seed):
        result["in_turn"] = _measured(lambda: simulated.run_all(turns, args.processes), args)
    if args.json == "-":
        print(json.dumps(result))
        return 0
    print(markdown(result))
    if args.json:
        _write(result, Path(args.json))
    return 0


def _measured(run: Callable[[], Iterable[Json]], args: argparse.Namespace) -> Json:
    """A part of the result, with what it must be read with."""
    part, began_s = {**about("torch"), "seed": args.seed}, time.monotonic()
    graded = summary(_seen(run()))
    return {**part, "wall_s": round(time.monotonic() - began_s, 1), **graded}


def _write(result: Json, file: Path) -> None:
    """Parts that were not measured now stay as they are."""
    before = json.loads(file.read_text()) if file.exists() else {}
    text = json.dumps({**before, **result}).replace('{"run"', '\n{"run"')
    file.write_text(text + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults")
    parser.add_argument("--real", type=int, default=20, help="faults in trainings; 0: none")
    parser.add_argument("--simulated", type=int, default=200, help="faults in simulated fleets")
    parser.add_argument("--in-turn", type=int, help="fleets with two; one in 20 of --simulated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=4, help="trainings")
    parser.add_argument("--processes", type=int, default=2, help="for simulated fleets")
    parser.add_argument(
        "--json", metavar="FILE", help="where the JSON goes, or - for standard output"
    )
    parser.add_argument("--render", action="store_true", help="write the tables of the page")
    parser.add_argument("--check", action="store_true", help="with --render: only compare")
    return parser


def _real(args: argparse.Namespace) -> Iterator[Json]:
    faults: list[Any] = [*real.draw(args.real, args.seed), *[None] * max(1, args.real // 5)]
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        scene = real.Scene(Path(folder))
        try:
            yield from real.run_all(scene, faults, args.at_once)
        finally:
            scene.close()


def _seen(runs: Iterable[Json]) -> list[Json]:
    """All of them; progress goes to standard error."""
    result = []
    for run in runs:
        result.append(run)
        for fault in run["faults"] or [{"fault": "healthy", "found": None}]:
            found = {True: "found", False: "MISSED", None: ""}[fault["found"]]
            after = f" after {fault['delay_s']} s" if "delay_s" in fault else ""
            wrong = f"; WRONG {run['wrong']} {run['wrong_alerts']}" if run["wrong"] else ""
            print(f"{run['run']}: {fault['fault']}: {found}{after}{wrong}",
                  file=sys.stderr, flush=True)  # fmt: skip
    return result


if __name__ == "__main__":
    sys.exit(main())
