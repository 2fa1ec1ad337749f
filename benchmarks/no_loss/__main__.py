"""Is every span counted once, while its collector is restarted, and is memory flat?

    python -m benchmarks.no_loss [--seconds 600 --rate 10000 --processes 4 --restarts TERM,KILL
                                  --away-s 10 --span-budget 0 --queue-bytes N
                                  --protocol http/protobuf|grpc --spool --json FILE]

Real producers, a real ``otel-straggler collector`` that ends and comes back on the same ports, and
a backend behind it (``--forward``) that enters every span by rank, section and ``straggler.seq``.
Ends with 1 unless every recorded span has arrived there once, or its producer says that it dropped
it. SIGKILL alone may take with it what the collector had not passed on yet, and bring again what it
had not answered yet: ``endings`` counts both, and ``unexplained`` is what that does not explain.

``--spool``: collectors have a history and a spool, and then each recorded run is in one window of
the history, however the collectors end (``--restarts KILL*20``).

``--restarts TERM --away-s 300 --seconds 600``: what a queue that is full costs, exactly.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks.no_loss.account import account
from benchmarks.no_loss.course import Dose, run


def main() -> int:
    options = _parser().parse_args()
    dose = Dose(
        seconds=options.seconds,
        rate=options.rate,
        processes=options.processes,
        endings=endings_of(options.restarts),
        away_s=options.away_s,
        span_budget=options.span_budget,
        queue_bytes=options.queue_bytes,
        protocol=options.protocol,
        has_spool=options.spool,
    )
    load_before = os.getloadavg()
    outcome = run(dose)
    result = {
        "command": "python -m benchmarks.no_loss " + " ".join(sys.argv[1:]),
        "machine": {
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "protobuf": version("protobuf"),
            "cpus": os.cpu_count(),
            "load_before": [round(x, 2) for x in load_before],
            "load_after": [round(x, 2) for x in os.getloadavg()],
        },
        **account(outcome),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")
    return 0 if is_kept(result, dose) else 1


def is_kept(result: dict, dose: Dose) -> bool:
    """Whether the product did what it promises."""
    is_counted = result["is_exact"] or "KILL" in dose.endings
    is_explained = result["unexplained"] == result["never_recorded"] == 0
    is_flat = all(one.get("is_flat", True) for one in result["memory"].values())
    is_bounded = all(one["is_within"] for one in result["queue"])
    history = result.get("history", {"lost": 0, "counted_twice": 0})
    is_in_history = history["lost"] <= sum(result["dropped_by_producers"].values())
    is_once = is_in_history and not history["counted_twice"]
    return is_counted and is_explained and is_flat and is_bounded and is_once


def endings_of(text: str) -> tuple[str, ...]:
    """
    >>> endings_of("TERM,KILL*2"), endings_of("")
    (('TERM', 'KILL', 'KILL'), ())
    """
    result: list[str] = []
    for part in filter(None, text.split(",")):
        name, _, times = part.partition("*")
        result += [name] * int(times or 1)
    return tuple(result)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=float, default=10_000.0, help="spans per second")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--restarts", default="TERM,KILL", help="signals, with commas: KILL*20")
    parser.add_argument("--spool", action="store_true", help="with a history and a spool")
    parser.add_argument("--away-s", type=float, default=10.0)
    parser.add_argument("--span-budget", type=int, default=0, help="0: nothing is folded")
    parser.add_argument("--queue-bytes", type=int, default=64 << 20)
    parser.add_argument("--protocol", choices=("http/protobuf", "grpc"), default="http/protobuf")
    parser.add_argument("--json", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
