"""How well verdicts hold on noise that the detector's own generator does not make.

    python -m benchmarks.detection.unseen [--families GLOB] [--runs N] [--seed S] [--explain]

One line per family: false alarms and pages per 1,000 rank-hours, faults found, missed and false, F1,
delay, and how often the culprit is the most suspected rank. Without ``--seed`` a new one is drawn
and printed. Seeds below 1000 are for tuning: with them the held-out families are left out.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from benchmarks.detection.episodes import Episode
from benchmarks.detection.matching import is_right, match
from benchmarks.detection.methods.ours import ACCUSED, Ours
from benchmarks.detection.metrics import Events, is_among_top, percentile, ratio
from benchmarks.detection.report import table
from benchmarks.detection.running import TABLE_STEPS
from benchmarks.detection.running_many import THREADS
from benchmarks.detection.unseen_families import FAMILIES, Family
from benchmarks.detection.unseen_runs import Limits, Planted, UnseenRun

TUNING_SEEDS = 1000
QUICK = Limits(ranks=16, steps=300)
Task = tuple[str, int, int, Limits]
"""Family, seed, number of the run, largest run."""


@dataclass(slots=True, kw_only=True)
class UnseenRecord:
    """What became of one run.

    Attributes:
        found, false, missed: events of ranks and hosts.
        pages: notifications about a rank or host at which nothing is wrong, or too little for it.
        delays, delays_born: steps from the onset to the episode, within the run and from its start.
        top1: faults whose rank is the most suspected at the end, of ``ranked``.
        endings_right: subjects whose newest verdict fits how the run ends, of ``endings``.
        wrong_causes: right episodes with a cause that is wrong there.
    """

    family: str
    run: int
    ranks: int
    steps: int
    hours: float
    sd: float
    correlation: float
    size: float
    found: int = 0
    false: int = 0
    missed: int = 0
    pages: int = 0
    delays: list[int] = field(default_factory=list)
    delays_born: list[int] = field(default_factory=list)
    top1: int = 0
    ranked: int = 0
    endings_right: int = 0
    endings: int = 0
    wrong_causes: int = 0
    stories: list[str] = field(default_factory=list)

    @property
    def rank_hours(self) -> float:
        return self.ranks * self.hours


def make_run(family: Family, seed: int, run: int, limits: Limits) -> UnseenRun:
    """The same for the same arguments."""
    rng = np.random.default_rng((seed, zlib.crc32(family.name.encode()), run))
    return family.make(rng, limits)


def run_task(task: Task) -> UnseenRecord:
    name, seed, at, limits = task
    family = next(each for each in FAMILIES if each.name == name)
    run = make_run(family, seed, at, limits)
    method, episodes = Ours(), []
    last_step = 0
    for block in run.tables(TABLE_STEPS):
        episodes += method.take(block)
        last_step = int(block.steps[-1])
    episodes += method.finish(last_step)
    return _record(family, at, run, method, episodes)


def _record(
    family: Family, at: int, run: UnseenRun, method: Ours, episodes: list[Episode]
) -> UnseenRecord:
    record = UnseenRecord(
        family=family.name,
        run=at,
        ranks=run.world.ranks,
        steps=run.world.steps,
        hours=run.hours,
        sd=run.sd,
        correlation=run.correlation,
        size=max((label.size for label in run.labels), default=1.0),
    )
    matched = match(run.labels, episodes, has_host_scope=True)
    wanted = [f for f in matched.findings if run.labels[f.label].is_required]
    record.found = sum(finding.is_result for finding in wanted)
    record.missed = len(wanted) - record.found
    record.false = len(matched.false)
    for finding in wanted:
        if finding.delay_steps is not None:
            is_born = run.labels[finding.label].onset_step == run.world.first_step
            (record.delays_born if is_born else record.delays).append(finding.delay_steps)
    _count_causes(record, run, episodes)
    _count_pages(record, run, method)
    _count_subjects(record, run, method)
    where = f"{family.name} run {at} ({_facts(run)})"
    record.stories += [f"MISSED {where}" for f in wanted if not f.is_result]
    record.stories += [
        f"FALSE  {where}: {e.scope} {sorted(e.ranks)[:8]} at step {e.begin_step}: {e.sentence}"
        for e in matched.false
    ]
    return record


def _facts(run: UnseenRun) -> str:
    world = run.world
    facts = ", ".join(f"{name} {value}" for name, value in run.facts.items())
    return (
        f"{world.ranks} ranks, {world.steps} steps from {world.first_step}, sd {run.sd:.4f},"
        f" correlation {run.correlation:.2f}, {facts}"
    )


def _count_causes(record: UnseenRecord, run: UnseenRun, episodes: Sequence[Episode]) -> None:
    for label in run.labels:
        record.wrong_causes += sum(
            e.cause in label.wrong_causes for e in episodes if is_right(e, (label,))
        )


def _count_pages(record: UnseenRecord, run: UnseenRun, method: Ours) -> None:
    """Those that no label allows."""
    allowed = [label for label in run.labels if label.may_page]
    for notification in method.engine.notifications:
        verdict = notification.verdict
        episode = Episode(
            scope=verdict.scope,
            ranks=method.accused(verdict),
            node=verdict.node if verdict.scope == "host" else "",
            begin_step=int(notification.at_step or 0),
        )
        if not is_right(episode, allowed):
            record.pages += 1
            record.stories.append(f"PAGE   {record.family} run {record.run}: {verdict.sentence}")


def _count_subjects(record: UnseenRecord, run: UnseenRun, method: Ours) -> None:
    """Where the slow ones stand at the end."""
    strengths = method.strengths
    for label in run.labels:
        if not label.is_required:
            continue
        if label.end_step is None and len(strengths) == run.world.ranks:
            record.ranked += 1
            record.top1 += is_among_top(strengths, sorted(label.ranks), 1)
        if label.ending:
            record.endings += 1
            record.endings_right += _ends_right(label, method)


def _ends_right(label: Planted, method: Ours) -> bool:
    """The subject's newest verdict: still slow and of the right size, or slow no more."""
    newest = [v for v in method.engine.changes if method.accused(v) == label.ranks]
    if not newest:
        return False
    is_slow = newest[-1].state in ACCUSED
    if label.ending == "well":
        return not is_slow
    return is_slow and abs(newest[-1].slowdown / label.final_size - 1.0) < 0.25


# --- many runs ---------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; 2 if no family has such a name."""
    args = _parser().parse_args(arguments)
    seed = int(time.time()) if args.seed is None else args.seed
    families = _families(args, seed)
    if not families:
        print(f"no family matches {args.families!r}; --list prints them all", file=sys.stderr)
        return 2
    if args.list:
        print("\n".join(family.name for family in families))
        return 0
    tasks = list(_tasks(families, args, seed))
    began_s = time.monotonic()
    records = list(_run_all(tasks, args.processes))
    if args.explain:
        print("\n".join(story for record in records for story in record.stories))
    print(f"Seed {seed}, {len(records)} runs, {time.monotonic() - began_s:.0f} s\n")
    print(table([_row(family, records) for family in families]))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.detection.unseen",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--families", default="*", metavar="GLOB", help="families by name")
    parser.add_argument("--runs", type=int, metavar="N", help="runs of every family")
    parser.add_argument("--seed", type=int, metavar="S", help="repeat the runs of this seed")
    parser.add_argument("--quick", action="store_true", help="one small run of every family")
    parser.add_argument("--explain", action="store_true", help="what was missed or made up")
    parser.add_argument("--list", action="store_true", help="print the names of the families")
    parser.add_argument("--processes", type=int, choices=(1, 2), default=2)
    return parser


def _families(args: argparse.Namespace, seed: int) -> list[Family]:
    return [
        family
        for family in FAMILIES
        if fnmatchcase(family.name, args.families)
        and not (family.is_held_out and seed < TUNING_SEEDS)
    ]


def _tasks(families: Sequence[Family], args: argparse.Namespace, seed: int) -> Iterator[Task]:
    limits = QUICK if args.quick else Limits()
    for family in families:
        runs = args.runs or (1 if args.quick else family.runs)
        yield from ((family.name, seed, at, limits) for at in range(runs))


def _run_all(tasks: Sequence[Task], processes: int) -> Iterator[UnseenRecord]:
    if processes == 1:
        yield from _reporting(map(run_task, tasks), len(tasks))
        return
    os.environ.update(dict.fromkeys(THREADS, "1"))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        yield from _reporting(pool.map(run_task, tasks, chunksize=4), len(tasks))


def _reporting(records: Iterator[UnseenRecord], n: int) -> Iterator[UnseenRecord]:
    for at, record in enumerate(records, 1):
        if at % max(1, n // 20) == 0 or at == n:
            print(f"{at}/{n} runs, now {record.family}", file=sys.stderr, flush=True)
        yield record


def _row(family: Family, records: Sequence[UnseenRecord]) -> dict[str, Any]:
    mine = [record for record in records if record.family == family.name]
    hours = sum(record.rank_hours for record in mine)
    found, false, missed = (sum(getattr(r, n) for r in mine) for n in ("found", "false", "missed"))
    delays = [delay for record in mine for delay in record.delays]
    return {
        "family": family.name,
        "runs": len(mine),
        "rank-hours": round(hours),
        "false / 1,000 h": 1000 * ratio(false, hours),
        "pages / 1,000 h": 1000 * ratio(sum(r.pages for r in mine), hours),
        "runs with false": sum(r.false > 0 for r in mine),
        "found": found,
        "missed": missed,
        "false": false,
        "F1": float("nan") if family.is_healthy else Events(found, false, missed).f1,
        "delay p50": percentile(delays, 50),
        "p95": percentile(delays, 95),
        "top-1": ratio(sum(r.top1 for r in mine), sum(r.ranked for r in mine)),
        "endings": ratio(sum(r.endings_right for r in mine), sum(r.endings for r in mine)),
    }


if __name__ == "__main__":
    sys.exit(main())
