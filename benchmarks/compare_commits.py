"""Benchmarks of this checkout and of another one, taking turns on the same machine.

    python -m benchmarks.compare_commits --parent ../parent [--turns 4] [NAME ...]

Every benchmark runs as a process of its own, parent, this, this, parent and so on, so that both see
the same noise. Each figure that both have is one line on standard error: the smallest and the
median of each side, and this / parent of both. The JSON on standard output has all values. Both
checkouts must be built (``make dev``, or ``build_ext --inplace``).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

HERE: Final = Path(__file__).parents[1]
TIMEOUT_S: Final = 1_800
Json = dict[str, Any]
Values = dict[str, tuple[list[float], list[float]]]
"""By figure, those of the parent and those of this checkout."""


@dataclass(frozen=True, slots=True)
class Dose:
    """How a benchmark is run.

    Attributes:
        usual, smallest: its arguments; the figures of the smallest mean nothing.
        figures: a pattern of the paths that are costs, in its JSON.
    """

    usual: str
    smallest: str
    figures: str


DOSES: Final[Mapping[str, Dose]] = {
    "sections": Dose("--rounds 20", "--rounds 1", r"ns/(?!nvrx|sdk|clock)"),
    "encode": Dose("--rounds 20", "--rounds 1", r"ns_per_span/native|gil_held|bytes_per_span/nat"),
    "scan": Dose("--rounds 20", "--rounds 1", r"cpu_ns_per_\w+/scan"),
    "export": Dose(
        "--groups 4 --block-s 5 --rates 5000",
        "--groups 1 --block-s 1 --rates 200",
        r"ways/native/.*(cpu|_ns|p50_ratio/median)",
    ),
    "ingest": Dose(
        "--rounds 2 --ranks 512 --only http|grpc",
        "--rounds 1 --ranks 4 --dose 1 --only ^http.512,.4.ranks:.score$",
        r"cases/(?!.*upb).*/cpu_us_per_span$",
    ),
    "verdict_window": Dose(
        "--ranks 1000 --sections 10", "--ranks 16 --sections 3", r"window/cpu_s|peak_gib"
    ),
    "page_view": Dose(
        "--ranks 1000 --views 10",
        "--ranks 8 --views 1",
        r"ranks/.*(first_ms|median|again_ms|scrape_ms|sent_bytes)|page/gzip_bytes",
    ),
    "no_loss": Dose(
        "--seconds 30 --rate 2000 --processes 2 --restarts TERM,KILL --away-s 2",
        "--seconds 2 --rate 100 --processes 1 --restarts TERM --away-s 0",
        r"missing$|unexplained|processes/\d+/cpu_s",
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--parent", type=Path, required=True, help="the other checkout")
    parser.add_argument("--turns", type=int, default=4, help="runs of each side; an even number")
    parser.add_argument("--smallest", action="store_true", help="only whether it works")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(DOSES))
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - DOSES.keys():
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(DOSES)}")
    if not (options.parent / "benchmarks").is_dir():
        parser.error(f"--parent {options.parent} is no checkout: it has no benchmarks/")
    result = {}
    for name in options.names or DOSES:
        dose = DOSES[name]
        chosen = (dose.smallest if options.smallest else dose.usual).split()
        checkouts = (options.parent.resolve(), HERE)
        values = take_turns(name, chosen, checkouts, options.turns, dose.figures)
        result[name] = {"arguments": chosen, "figures": compared(values)}
        print_figures(name, result[name]["figures"])
    sides = {"parent": commit_of(options.parent), "this": commit_of(HERE)}
    print(json.dumps({**sides, "turns": options.turns, "benchmarks": result}, indent=2))


def take_turns(
    name: str, arguments: Sequence[str], checkouts: tuple[Path, Path], turns: int, pattern: str
) -> Values:
    """Parent, this, this, parent; the figures that both have."""
    values: Values = {}
    for turn in range(turns):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            for path, value in figures_of(run(name, arguments, checkouts[side])):
                if re.search(pattern, path):
                    values.setdefault(path, ([], []))[side].append(value)
    return {path: sides for path, sides in values.items() if all(sides)}


def run(name: str, arguments: Sequence[str], checkout: Path) -> Json:
    """The JSON of one benchmark of one checkout.

    Raises:
        SystemExit: it failed; with the end of what it said.
    """
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False,
        timeout=TIMEOUT_S,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{name} of {checkout} failed:\n{done.stderr[-2000:]}")
    result: Json = json.loads(done.stdout)
    return result


def figures_of(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """All numbers of a result by their path.

    >>> dict(figures_of({"a": {"b": 2, "ok": True}, "c": [1.5]}))
    {'a/b': 2.0, 'c/0': 1.5}
    """
    if isinstance(value, Mapping) or (isinstance(value, list) and value):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for name, each in items:
            yield from figures_of(each, f"{path}/{name}" if path else str(name))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, float(value)


def compared(values: Values) -> dict[str, Json]:
    """The smallest and the median of both sides, and this / parent of each.

    >>> compared({"x": ([2.0, 4.0], [3.0, 3.0])})["x"]["min_ratio"]
    1.5
    """
    return {
        path: {
            "parent": parent,
            "this": this,
            "min_ratio": ratio(min(parent), min(this)),
            "median_ratio": ratio(median(parent), median(this)),
        }
        for path, (parent, this) in values.items()
    }


def ratio(parent: float, this: float) -> float | None:
    """1 where both are 0; None where only the parent is."""
    if parent == 0.0:
        return 1.0 if this == 0.0 else None
    return round(this / parent, 4)


def print_figures(name: str, figures: Mapping[str, Json]) -> None:
    print(f"== {name}: this / parent of the smallest, of the median", file=sys.stderr)
    for path, result in figures.items():
        ratios = (
            math.nan if result[k] is None else result[k] for k in ("min_ratio", "median_ratio")
        )
        both = f"{min(result['parent']):.5g} -> {min(result['this']):.5g}"
        print("{:7.3f} {:7.3f}".format(*ratios), f" {path}: {both}", file=sys.stderr, flush=True)


def commit_of(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    main()
