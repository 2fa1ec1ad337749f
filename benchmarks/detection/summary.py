"""From records of runs to the rows of the tables. Every number is a sum over whole runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.detection.cases import BANDS, GRADUAL, REPORTED
from benchmarks.detection.metrics import Events, average_precision, interval, percentile, ratio
from benchmarks.detection.records import MethodRecord, RunRecord
from otel_straggler.model.observation import Floats

Row = dict[str, Any]
Interval = list[float]
"""Value, low, high."""
Choice = Callable[[RunRecord], bool]
LOW_NOISE = ("AR", "ST")


@dataclass(frozen=True, slots=True)
class Selected:
    """One method on the runs of a choice."""

    runs: list[RunRecord]
    method: str

    @classmethod
    def of(cls, runs: Sequence[RunRecord], method: str, choice: Choice) -> Selected:
        return cls([run for run in runs if choice(run) and method in run.methods], method)

    @property
    def records(self) -> list[MethodRecord]:
        return [run.methods[self.method] for run in self.runs]

    def total(self, name: str) -> float:
        """Sum of a number of the records."""
        return float(sum(getattr(record, name) for record in self.records))

    def events(self, name: str = "events") -> Events:
        """Sum of one of the three counts."""
        return sum((Events(*getattr(record, name)) for record in self.records), Events())

    def with_interval(
        self, columns: Sequence[Sequence[float]], measure: Callable[[Floats], float]
    ) -> Interval:
        """[value, low, high] of a measure of the sums of ``columns`` (one list per run)."""
        counts = np.asarray(columns, float)
        if not len(counts):
            return [float("nan")] * 3
        return [measure(counts.sum(axis=0)), *interval(counts, measure)]

    def f1(self, name: str = "events") -> Interval:
        """[F1, low, high]."""
        return self.with_interval(
            [list(getattr(record, name)) for record in self.records],
            lambda sums: Events(*sums).f1,
        )

    def false_per_1000_rank_hours(self) -> Interval:
        """[episodes, low, high] per 1,000 rank-hours."""
        columns = [[run.methods[self.method].events[1], run.ranks * run.hours] for run in self.runs]
        return self.with_interval(columns, lambda sums: 1000 * ratio(sums[0], sums[1]))

    def part(self, part: str, whole: str) -> Interval:
        """[sum of part / sum of whole, low, high]."""
        columns = [[getattr(r, part), getattr(r, whole)] for r in self.records]
        return self.with_interval(columns, lambda sums: ratio(sums[0], sums[1]))


def is_local_fault(run: RunRecord) -> bool:
    return run.family == "fault" and run.timing == "local"


def is_low_noise(run: RunRecord) -> bool:
    return run.noise in LOW_NOISE


def is_sudden(run: RunRecord) -> bool:
    """The fault has its whole dose from its onset on, in every step."""
    return is_local_fault(run) and not run.kind.startswith(GRADUAL)


def summarise(runs: Sequence[RunRecord], methods: Sequence[str]) -> dict[str, list[Row]]:
    """All tables by name. The first column of each is the method but for causes."""
    return {
        "overall": [_overall(runs, method) for method in methods],
        "bands": [_bands(runs, method, noise) for noise in ("low", "SE") for method in methods],
        "kinds": [_kinds(runs, method) for method in methods],
        "false_alarms": [_false_alarms(runs, method) for method in methods],
        "delays": [_delays(runs, method) for method in methods],
        "culprits": [_culprits(runs, method) for method in methods],
        "hidden": [_hidden(runs, method) for method in methods],
        "costs": [_costs(runs, method) for method in methods],
        "causes": _causes(runs, methods[0]) if methods else [],
        "sizes": [_sizes(runs, method) for method in methods],
    }


def _overall(runs: Sequence[RunRecord], method: str) -> Row:
    """Faults with local durations and step noise of at most 2.5 %."""
    chosen = Selected.of(runs, method, lambda r: is_local_fault(r) and is_low_noise(r))
    events = chosen.events()
    records = chosen.records
    return {
        "method": method,
        "runs": len(chosen.runs),
        "found": events.detected,
        "false": events.false,
        "missed": events.missed,
        "precision": events.precision,
        "recall": events.recall,
        "f1": chosen.f1(),
        "f1_by_rank": chosen.events("by_rank").f1,
        "f1_by_host": chosen.events("by_host").f1,
        "pr_auc": average_precision(
            [x for record in records for x in record.right],
            [x for record in records for x in record.wrong],
            events.detected + events.missed,
        ),
        "loss_found": chosen.part("loss_found", "loss"),
    }


def _bands(runs: Sequence[RunRecord], method: str, noise: str) -> Row:
    row: Row = {"method": method, "noise": "at most 2.5 %" if noise == "low" else "11.6 %"}
    for band in BANDS:
        chosen = Selected.of(
            runs,
            method,
            lambda r, band=band: (
                is_local_fault(r) and r.band == band and is_low_noise(r) == (noise == "low")
            ),
        )
        row[band] = chosen.f1()
    return row


def _kinds(runs: Sequence[RunRecord], method: str) -> Row:
    """F1 of every kind of fault of 256 ranks with local durations and ordinary noise."""
    here = [r for r in runs if is_local_fault(r) and r.ranks == 256 and r.noise == "ST"]
    row: Row = {"method": method}
    for kind in dict.fromkeys(run.kind for run in here if not run.kind.startswith("compute")):
        chosen = Selected.of(here, method, lambda r, kind=kind: r.kind == kind)
        row[kind] = chosen.events().f1
    return row


def _false_alarms(runs: Sequence[RunRecord], method: str) -> Row:
    row: Row = {"method": method}
    groups: dict[str, Choice] = {
        "healthy": lambda r: r.family == "healthy" and r.timing == "local",
        "negatives": lambda r: r.family == "negative" and r.timing == "local",
        "structures": lambda r: r.family == "structure",
        "with waiting inside": lambda r: r.family != "fault" and r.timing != "local",
    }
    for name, choice in groups.items():
        chosen = Selected.of(runs, method, choice)
        row[f"{name} rank-hours"] = round(sum(run.ranks * run.hours for run in chosen.runs))
        row[name] = chosen.false_per_1000_rank_hours()
    everything = Selected.of(runs, method, lambda r: r.family != "fault")
    row["all"] = everything.false_per_1000_rank_hours()
    row["false role and run verdicts"] = int(
        Selected.of(runs, method, lambda _: True).total("structures_false")
    )
    return row


def _delays(runs: Sequence[RunRecord], method: str) -> Row:
    row: Row = {"method": method}
    groups: dict[str, tuple[str, ...]] = {
        ">= 10 %": ("loud", "quiet", "ten"),
        "3-8 %": ("masked 5-8 %", "masked 3 %"),
    }
    for name, bands in groups.items():
        chosen = Selected.of(
            runs,
            method,
            lambda r, bands=bands: is_sudden(r) and is_low_noise(r) and r.band in bands,
        )
        values = [x for record in chosen.records for x in record.delays]
        row[f"{name} n"] = len(values)
        row[f"{name} p50"], row[f"{name} p95"] = percentile(values, 50), percentile(values, 95)
    gradual = Selected.of(runs, method, lambda r: is_local_fault(r) and not is_sudden(r))
    values = [x for record in gradual.records for x in record.delays]
    row["ramps and rare stalls p50"] = percentile(values, 50)
    born = Selected.of(runs, method, is_local_fault)
    values = [x for record in born.records for x in record.delays_born]
    row["from the first step p50"] = percentile(values, 50)
    return row


def _culprits(runs: Sequence[RunRecord], method: str) -> Row:
    """The rank most suspected at the end, where all others wait for the slow one."""
    row: Row = {"method": method}
    for noise in ("AR", "ST", "SE"):
        chosen = Selected.of(
            runs,
            method,
            lambda r, noise=noise: (
                r.family == "fault"
                and r.timing == "synchronised"
                and r.noise == noise
                and r.is_localisable
            ),
        )
        row[f"{noise} n"] = int(chosen.total("ranked"))
        row[f"{noise} top-1"] = chosen.part("top1", "ranked")
        row[f"{noise} top-3"] = chosen.part("top3", "ranked")[0]
        row[f"{noise} f1"] = chosen.events().f1
    low = Selected.of(
        runs,
        method,
        lambda r: (
            r.family == "fault"
            and r.timing == "synchronised"
            and is_low_noise(r)
            and r.is_localisable
        ),
    )
    row["low top-1"] = low.part("top1", "ranked")
    reported = Selected.of(
        runs, method, lambda r: r.family == "fault" and r.timing == "synchronised" + REPORTED
    )
    row["reported n"] = int(reported.total("ranked"))
    row["reported top-1"] = reported.part("top1", "ranked")
    row["reported f1"] = reported.events().f1
    local = Selected.of(runs, method, lambda r: is_local_fault(r) and is_low_noise(r))
    row["local top-1"] = local.part("top1", "ranked")
    row["local top-3"] = local.part("top3", "ranked")[0]
    return row


def _hidden(runs: Sequence[RunRecord], method: str) -> Row:
    """Where the times cannot name the culprit: asynchronous launches, collectives inside."""
    row: Row = {"method": method}
    groups: dict[str, Choice] = {
        "asynchronous": lambda r: r.timing == "asynchronous" and not r.is_localisable,
        "asynchronous, host": lambda r: r.timing == "asynchronous" and r.is_localisable,
        "synchronised": lambda r: r.timing == "synchronised" and not r.is_localisable,
        "asynchronous, reported": lambda r: r.timing == "asynchronous" + REPORTED,
    }
    for name, choice in groups.items():
        chosen = Selected.of(runs, method, lambda r, c=choice: r.family == "fault" and c(r))
        events = chosen.events()
        row[f"{name} runs"] = len(chosen.runs)
        row[f"{name} wrong"] = events.false
        row[f"{name} found"] = events.detected
        row[f"{name} cannot localise"] = ratio(chosen.total("unlocalised"), len(chosen.runs))
    return row


def _costs(runs: Sequence[RunRecord], method: str) -> Row:
    """Processor time for 1,000 ranks and 100 steps, and memory of state for 1,000 ranks."""
    row: Row = {"method": method}
    for ranks in sorted({run.ranks for run in runs if run.ranks >= 256}):
        chosen = Selected.of(runs, method, lambda r, n=ranks: r.ranks == n)
        rank_steps = sum(run.ranks * run.steps for run in chosen.runs)
        row[f"{ranks} cpu_s"] = ratio(chosen.total("cpu_s"), rank_steps / 1e5)
        row[f"{ranks} bytes"] = percentile(
            [1000 * run.methods[method].state_bytes / run.ranks for run in chosen.runs], 50
        )
    return row


def _sizes(runs: Sequence[RunRecord], method: str) -> Row:
    row: Row = {"method": method}
    for ranks in sorted({run.ranks for run in runs if is_local_fault(run)}):
        chosen = Selected.of(
            runs, method, lambda r, n=ranks: is_local_fault(r) and is_low_noise(r) and r.ranks == n
        )
        row[str(ranks)] = chosen.f1()
    return row


def _causes(runs: Sequence[RunRecord], method: str) -> list[Row]:
    """What was said of every true cause, local durations."""
    text: dict[str, dict[str, int]] = {}
    for run in runs:
        if run.timing == "local" and method in run.methods:
            for pair, n in run.methods[method].causes.items():
                truth, _, answer = pair.partition(" > ")
                of_truth = text.setdefault(truth, {})
                of_truth[answer] = of_truth.get(answer, 0) + n
    return [
        {
            "cause": truth,
            "n": sum(answers.values()),
            "right": answers.get(truth, 0),
            "missed": answers.get("missed", 0),
            "said instead": {
                k: n for k, n in sorted(answers.items()) if k not in (truth, "missed")
            },
        }
        for truth, answers in sorted(text.items())
    ]
