"""What it costs to get spans out of a training process, and whether training notices.

    python -m benchmarks.export [--groups 6] [--block-s 1] [--rates 2000 10000]

Ours in C++, ours in plain Python (``OTEL_STRAGGLER_NATIVE=off``) and the stock OpenTelemetry SDK,
each with its defaults and in a process of its own, take turns; spans go over loopback HTTP to a
sink in another process. No section runs twice in a step, so our span budget folds nothing: every
run is a span.

``wake_up``: a thread sleeps a millisecond again and again and notes how late it wakes; quiet (A)
and while spans are made at a rate and exported (B), in the order ABBA. The ratio of a pair is B / A
of its 99th percentile (and of its median, and of its longest); the budget is on the median of the
pairs. Noise of the machine in both hides a difference, so ``calm_half`` takes the pairs whose quiet
block was calmest, which noise can only raise.

``cpu``: processor time per span that is not recording (drain, encode, queue, send): when 2,000
spans are made and flushed at once, and off the training thread at each rate, where it is also given
per 10,000 spans a second as a share of one core; what the quiet blocks use is not subtracted.
``spans_arrived``: the stock processor drops what its queue of 2,048 cannot hold. Prints JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import urllib.request
from typing import Any

from benchmarks.harness.about import about
from benchmarks.harness.budgets import judge, not_measured, print_result
from benchmarks.harness.intervals import median_of
from benchmarks.harness.processes import serving
from otel_straggler.native import NATIVE, REASON

MAX_P99_RATIO = 2.0
WAYS = ("native", "python", "sdk")
Json = dict[str, Any]


def main() -> None:
    """Measure and print."""
    options = _options()
    ways = [way for way in WAYS if NATIVE is not None or way != "native"]
    sinking = serving([sys.executable, "-m", "benchmarks.export.sink"])
    with sinking as (sink, _), contextlib.ExitStack() as stack:
        trainers = {way: _Trainer(way, sink, options, stack) for way in ways}
        for at in range(options.groups):
            for way in ways if at % 2 else reversed(ways):
                trainers[way].do_group()
        measured = {way: trainer.summary(options.rates) for way, trainer in trainers.items()}
    result = {
        **about("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http", "protobuf"),
        "groups": options.groups,
        "pairs_per_rate": 2 * options.groups,
        "block_s": options.block_s,
        "ways": measured,
        "sdk_over_own": _compared(measured),
    }
    print_result(result, _budgets(measured, options.rates))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--groups", type=int, default=6, help="two ABBA pairs per rate each")
    parser.add_argument("--block-s", type=float, default=1.0, help="whole seconds see every flush")
    parser.add_argument("--rates", type=int, nargs="+", default=[2_000, 10_000], help="spans/s")
    return parser.parse_args()


class _Trainer:
    """A child that measures, and what it has reported so far."""

    def __init__(
        self, way: str, sink: str, options: argparse.Namespace, stack: contextlib.ExitStack
    ) -> None:
        command = [sys.executable, "-m", "benchmarks.export.trainer", way, sink]
        command += [str(options.block_s), *map(str, options.rates)]
        form = "off" if way == "python" else "auto"
        self._child = stack.enter_context(
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OTEL_STRAGGLER_NATIVE": form},
            )
        )
        self._sink = sink
        self._groups: list[Json] = []
        self._made = self._arrived = 0
        self._answer()  # it has warmed up

    def do_group(self) -> None:
        """One group of blocks; everything it made has been sent or dropped afterwards."""
        assert self._child.stdin is not None
        arrived_before = _arrived(self._sink)
        self._child.stdin.write("go\n")
        self._child.stdin.flush()
        self._groups.append(self._answer())
        self._made += self._groups[-1]["made"]
        self._arrived += _arrived(self._sink) - arrived_before

    def _answer(self) -> Json:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._child.args} has ended; its error is above")
        answer: Json = json.loads(line)
        return answer

    def summary(self, rates: list[int]) -> Json:
        """Figures over all groups; the child ends."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        bursts = [burst for group in self._groups for burst in group["bursts"]]
        return {
            "wake_up": {str(rate): _wake_up(self._groups, rate) for rate in rates},
            "cpu": {
                "flushed_at_once": {
                    key: round(statistics.median(burst[key] for burst in bursts))
                    for key in ("export_ns", "record_ns")
                },
                "quiet_export_share": _median(self._groups, "export_cpu_share"),
                "at_rate": {str(rate): _cpu(self._groups, rate) for rate in rates},
            },
            "spans_arrived": self._arrived,
            "spans_made": self._made,
        }


def _arrived(sink: str) -> int:
    with urllib.request.urlopen(f"{sink}/spans") as answer:
        return int(answer.read())


def _wake_up(groups: list[Json], rate: int) -> Json:
    """Each block at this rate against the quiet one on its side of the group."""
    pairs = [
        pair
        for group in groups
        for pair in zip(group["quiet"], group["at_rate"][str(rate)], strict=True)
    ]
    figures: Json = {
        "wake_ups_per_block": round(statistics.median(a["wake_ups"] for a, _ in pairs))
    }
    calm = sorted(pairs, key=lambda pair: pair[0]["p99_us"])[: (len(pairs) + 1) // 2]
    figures["p99_ratio_calm_half"] = median_of([b["p99_us"] / a["p99_us"] for a, b in calm])
    for key in ("p50", "p99", "longest"):
        figures[f"{key}_ratio"] = median_of([b[f"{key}_us"] / a[f"{key}_us"] for a, b in pairs])
        for name, at in (("quiet", 0), ("exporting", 1)):
            middle = statistics.median(pair[at][f"{key}_us"] for pair in pairs)
            figures[f"{key}_us_{name}"] = round(middle, 1)
    return figures


def _cpu(groups: list[Json], rate: int) -> Json:
    blocks = [block for group in groups for block in group["at_rate"][str(rate)]]
    share = statistics.median(block["export_cpu_share"] for block in blocks)
    spans_per_s = statistics.median(block["spans_per_s"] for block in blocks)
    trainer = statistics.median(block["trainer_cpu_share"] for block in blocks)
    return {
        "spans_per_s": round(spans_per_s),
        "export_ns_per_span": round(share / spans_per_s * 1e9),
        "export_core_share_per_10000_spans_per_s": round(share / spans_per_s * 1e4, 4),
        "trainer_core_share": round(trainer, 4),
    }


def _median(groups: list[Json], key: str) -> float:
    return round(statistics.median(block[key] for g in groups for block in g["quiet"]), 4)


def _compared(measured: dict[str, Json]) -> Json:
    """How many times more the stock SDK costs, per span flushed at once."""
    theirs = measured["sdk"]["cpu"]["flushed_at_once"]
    return {
        way: {key: round(theirs[key] / own["cpu"]["flushed_at_once"][key], 1) for key in theirs}
        for way, own in measured.items()
        if way != "sdk"
    }


def _budgets(measured: dict[str, Json], rates: list[int]) -> dict[str, Json]:
    """One for each of our ways and rates; the stock SDK is reported the same way, not judged."""
    budgets: dict[str, Json] = {}
    for way in WAYS[:-1]:
        for rate in rates:
            name = f"{way}: wake-up p99 exporting {rate} spans/s / quiet, median of pairs"
            if way in measured:
                ratio = measured[way]["wake_up"][str(rate)]["p99_ratio"]["median"]
                budgets[name] = judge(ratio, MAX_P99_RATIO, "")
            else:
                budgets[name] = not_measured(str(REASON))
    return budgets


if __name__ == "__main__":
    main()
