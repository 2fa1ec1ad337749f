"""CPU time (user and system, all processes) that the collector spends per span, and spans/s.

    python -m benchmarks.ingest [--rounds 2] [--ranks 16 256 1024] [--only REGEX]

The real command in a process of its own, over 4 kept connections from this one. Cases are named
``PROTOCOL SPANS [gzip], RANKS ranks: STAGE``, with SPANS per request and the stages

- ``receive``: take the request and decode it to columns;
- ``score``: that, and score it until every window and verdict that is due has been made;
- ``forward``, ``forward sampled``: that, and send it on to a receiver that throws it away.

Windows and verdicts cost by steps and ranks, not by spans, so what scoring costs per span depends
on how many ranks share it: stages are reported for several. Requests hold spans of one rank, and a
step of a rank is five spans. ``ms_per_step_of_scoring`` is the same cost per step of the job. All
arrives as fast as it is taken: with 16 ranks that is thousands of steps a second, which no job has.

Alongside, in the same run and with the same requests: the smallest receivers one can write on the
same libraries, which parse each request with upb and throw it away (``upb parse``) or also read the
fields that scoring needs (``upb read``), and Rotel where it is installed. A small run warms each up
and is not counted. Of several rounds the least CPU time counts: other work on the machine can only
add to it. The budget is 1.0 us for receiving, scoring and forwarding, over HTTP, 512 spans per
request, uncompressed. Prints JSON.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any

from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, not_measured, print_result
from benchmarks.ingest import rotel
from benchmarks.ingest.cases import ROTEL, STAGES, UPB_PARSE, UPB_READ, Case, cases_of
from benchmarks.ingest.doses import Dose
from benchmarks.ingest.subjects import Figures, measure
from otel_straggler.simulate.scenarios import SECTIONS

BUDGET_US = 1.0
SPANS_A_STEP = len(SECTIONS)
"""Of one rank."""
Json = dict[str, Any]


def main() -> None:
    """Measure and print."""
    options = _options()
    program = rotel.find()
    cases = [
        case
        for case in cases_of(options.ranks, has_rotel=program is not None)
        if re.search(options.only, case.name)
    ]
    rounds = [
        {case.name: measure(case, options.dose) for case in (cases if at % 2 == 0 else cases[::-1])}
        for at in range(options.rounds)
    ]
    measured = {case.name: _best([each[case.name] for each in rounds]) for case in cases}
    result = {
        **about("protobuf", "httptools", "uvloop", "grpcio", "numpy"),
        "rotel": "not installed" if program is None else rotel.version(program),
        "rounds": options.rounds,
        "doses": [_reported(dose) for dose in dict.fromkeys(c.dose(options.dose) for c in cases)],
        "cases": measured,
        "us_per_span_of_stages": dict(_stages(measured, options.ranks)),
        "ratio_to_peers": dict(_ratios(measured)),
    }
    print_result(result, dict(_budgets(measured, options.ranks)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--ranks", type=int, nargs="+", default=[16, 256, 1_024])
    parser.add_argument("--only", default="", help="cases whose name has this regular expression")
    parser.add_argument("--dose", type=float, default=1.0, help="part of the usual steps")
    return parser.parse_args()


def _reported(dose: Dose) -> Json:
    return {
        "ranks": dose.ranks,
        "steps": dose.steps,
        "spans": dose.spans,
        "spans_per_request": dose.spans_per_request,
        "bytes_per_span": round(sum(map(len, dose.bodies)) / dose.spans),
    }


def _best(rounds: list[Figures]) -> Json:
    """The least CPU time and the highest rate, with all rounds."""
    best = min(rounds, key=lambda each: each.cpu_us_per_span)
    reported: Json = {"cpu_us_per_span": round(best.cpu_us_per_span, 3)}
    reported["spans_per_s"] = round(max(each.spans_per_s for each in rounds))
    reported["cpu_us_per_span_of_rounds"] = [round(each.cpu_us_per_span, 3) for each in rounds]
    return reported


def _stages(measured: dict[str, Json], ranks: list[int]) -> Iterator[tuple[str, Json]]:
    """What each stage adds, by ranks."""
    for number in ranks:
        receive, score, forward, sampled = (
            _cost(measured, Case(number, stage)) for stage in STAGES
        )
        reported: Json = {"receive": receive}
        for name, cost, before in (
            ("+ score", score, receive),
            ("+ forward", forward, score),
            ("+ forward sampled", sampled, score),
        ):
            if cost is not None and before is not None:
                reported[name] = round(cost - before, 3)
        if "+ score" in reported:
            reported["ms_per_step_of_scoring"] = round(
                reported["+ score"] * number * SPANS_A_STEP / 1e3, 2
            )
        if receive is not None:
            yield f"{number} ranks", reported


def _ratios(measured: dict[str, Json]) -> Iterator[tuple[str, Json]]:
    """Each case of ours against the peers under the same load; forwarding also against theirs."""
    for name, reported in measured.items():
        load, _, stage = name.partition(": ")
        rivals = [f"{peer}, receive" for peer in (UPB_PARSE, UPB_READ, ROTEL)]
        rivals += [f"{ROTEL}, forward"] * stage.startswith("forward")
        peers = {peer: _cost_of(measured, f"{load}: {peer}") for peer in rivals}
        ratios = {
            p: round(reported["cpu_us_per_span"] / cost, 2) for p, cost in peers.items() if cost
        }
        if stage in STAGES and ratios:
            yield name, ratios


def _budgets(measured: dict[str, Json], ranks: list[int]) -> Iterator[tuple[str, Json]]:
    for number in ranks:
        cost = _cost(measured, Case(number, "forward"))
        name = f"receive + score + forward a span, {number} ranks"
        if cost is None:
            yield name, not_measured("left out by --only")
        else:
            yield name, judge(cost, BUDGET_US, "us")


def _cost(measured: dict[str, Json], case: Case) -> float | None:
    return _cost_of(measured, case.name)


def _cost_of(measured: dict[str, Json], name: str) -> float | None:
    return measured[name]["cpu_us_per_span"] if name in measured else None


if __name__ == "__main__":
    main()
