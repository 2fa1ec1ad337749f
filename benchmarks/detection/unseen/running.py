"""One run through the verdicts, and many of them in one or two processes."""

from __future__ import annotations

import multiprocessing
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np

from benchmarks.detection.episodes import Episode
from benchmarks.detection.matching import Matched, is_right, match
from benchmarks.detection.methods import METHODS, Method
from benchmarks.detection.methods.ours import ACCUSED, Ours
from benchmarks.detection.metrics import is_among_top
from benchmarks.detection.running import TABLE_STEPS
from benchmarks.detection.running_many import THREADS
from benchmarks.detection.unseen.families import FAMILIES, Family, at_limit
from benchmarks.detection.unseen.runs import MIN_NAMED, Limits, Planted, UnseenRun

Task = tuple[str, int, int, Limits, str]
"""Family, seed, number of the run, largest run, method."""
LimitTask = tuple[int, int, int, Limits]
"""Ranks, seed, number of the run, largest run."""


@dataclass(slots=True, kw_only=True)
class UnseenRecord:
    """What became of one run.

    Attributes:
        size: time / usual time at the onset of its fault; 1: nobody is slow.
        found, false, missed: events of ranks and hosts.
        pages: notifications about a rank or host that no label allows.
        delays, delays_born: steps from the onset to the episode, within the run and from its start.
        top1: faults whose rank is the most suspected at the end, of ``ranked``.
        endings_right: subjects whose newest verdict fits how the run ends, of ``endings``.
        wrong_causes: right episodes with a cause that is wrong there.
        stories: what ``--explain`` prints; not written to files.
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

    def as_json(self) -> dict[str, Any]:
        """Without stories, and counts that are 0."""
        document = asdict(self)
        del document["stories"]
        return {name: value for name, value in document.items() if value or name == "run"}


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRecord:
    """A fault as large as the detection limit that the same run states without it.

    Attributes:
        limit: slowdown; NaN if none is stated, and then nothing is planted.
    """

    ranks: int
    run: int
    limit: float
    is_found: bool = False
    false: int = 0


def run_task(task: Task) -> UnseenRecord:
    """Make the run of a family, seed, and number, and count what a method says of it."""
    name, seed, at, limits, method_name = task
    family = next(each for each in FAMILIES if each.name == name)
    run = make_run(family, seed, at, limits)
    method = METHODS[method_name]()
    return _record(family, at, run, method, observe(run, method))


def make_run(family: Family, seed: int, at: int, limits: Limits) -> UnseenRun:
    """The same for the same arguments."""
    rng = np.random.default_rng((seed, zlib.crc32(family.name.encode()), at))
    return family.make(rng, limits)


def run_limit_task(task: LimitTask) -> LimitRecord:
    """Ask a healthy run for its detection limit, and plant a fault of that size in the same run."""
    ranks, seed, at, limits = task

    def made(size: float | None) -> UnseenRun:
        rng = np.random.default_rng((seed, zlib.crc32(b"limit"), ranks, at))
        return at_limit(ranks, rng, limits, size)

    method = Ours()
    observe(made(None), method)
    summary = method.engine.summary()
    limit = summary.resolvable_slowdown if summary else float("nan")
    if not np.isfinite(limit):
        return LimitRecord(ranks=ranks, run=at, limit=float("nan"))
    run = made(limit)
    matched = match(run.labels, observe(run, Ours()), has_host_scope=True)
    return LimitRecord(
        ranks=ranks,
        run=at,
        limit=limit,
        is_found=any(finding.is_result for finding in matched.findings),
        false=len(matched.false),
    )


def observe(run: UnseenRun, method: Method) -> list[Episode]:
    """Feed a run to a method, five steps at a time."""
    episodes: list[Episode] = []
    last_step = 0
    for block in run.tables(TABLE_STEPS):
        episodes += method.take(block)
        last_step = int(block.steps[-1])
    if isinstance(method, Ours):
        episodes += method.finish(last_step)
    return episodes


def _record(
    family: Family, at: int, run: UnseenRun, method: Method, episodes: list[Episode]
) -> UnseenRecord:
    record = UnseenRecord(
        family=family.name,
        run=at,
        ranks=run.world.ranks,
        steps=run.world.steps,
        hours=round(run.hours, 4),
        sd=round(run.sd, 5),
        correlation=round(run.correlation, 4),
        size=max((label.size for label in run.labels if label.is_required), default=1.0),
    )
    matched = match(run.labels, episodes, has_host_scope=method.has_host_scope)
    _count_events(record, run, matched)
    _count_top(record, run, method)
    if isinstance(method, Ours):
        _count_pages(record, run, method)
        _count_endings(record, run, method)
    for label in run.labels:
        right = [episode for episode in episodes if is_right(episode, (label,))]
        record.wrong_causes += sum(episode.cause in label.wrong_causes for episode in right)
    where = f"{family.name} run {at}"
    if record.stories:
        record.stories.insert(0, f"RUN    {where}: {_facts(run)}")
    return record


def _facts(run: UnseenRun) -> str:
    world = run.world
    facts = ", ".join(f"{name} {value}" for name, value in run.facts.items())
    return (
        f"{world.ranks} ranks, {world.per_host} a host, {world.steps} steps from"
        f" {world.first_step}, sd {run.sd:.4f}, correlation {run.correlation:.2f}, {facts}"
    )


def _count_events(record: UnseenRecord, run: UnseenRun, matched: Matched) -> None:
    wanted = [f for f in matched.findings if run.labels[f.label].is_required]
    record.found = sum(finding.is_result for finding in wanted)
    record.missed = len(wanted) - record.found
    record.false = len(matched.false)
    for finding in wanted:
        if finding.delay_steps is None:
            record.stories.append(f"MISSED {finding.scope} {sorted(finding.ranks)}")
            continue
        is_born = run.labels[finding.label].onset_step == run.world.first_step
        (record.delays_born if is_born else record.delays).append(finding.delay_steps)
    record.stories += [
        f"FALSE  {e.scope} {sorted(e.ranks)[:8]} at step {e.begin_step}: {e.sentence}"
        for e in matched.false
    ]


def _count_pages(record: UnseenRecord, run: UnseenRun, method: Ours) -> None:
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
            record.stories.append(f"PAGE   at step {episode.begin_step}: {verdict.sentence}")


def _count_top(record: UnseenRecord, run: UnseenRun, method: Method) -> None:
    """Where those who are slow at the end stand then."""
    strengths = method.strengths
    lasting = [label for label in run.labels if label.is_required and label.end_step is None]
    for label in lasting:
        record.ranked += 1
        if len(strengths) == run.world.ranks:
            record.top1 += is_among_top(strengths, sorted(label.ranks), 1)


def _count_endings(record: UnseenRecord, run: UnseenRun, method: Ours) -> None:
    for label in run.labels:
        if label.ending:
            record.endings += 1
            ends_right = _ends_right(label, method, run.world.ranks)
            record.endings_right += ends_right
            if not ends_right:
                record.stories.append(f"ENDING is not {label.ending}, x{label.final_size:.3g}")


def _ends_right(label: Planted, method: Ours, n_ranks: int) -> bool:
    """The newest verdicts: slow to within 25 % of the true size, or slow no more.

    In worlds so small that no rank need be named a verdict on the run is as good, of any size.
    """
    of_rank = [v for v in method.engine.changes if method.accused(v) == label.ranks]
    of_run = [v for v in method.engine.changes if v.scope == "run" and n_ranks < MIN_NAMED]
    claims = of_rank or of_run
    if not claims:
        return n_ranks < MIN_NAMED  # nothing was claimed
    newest = claims[-1]
    by_subject = {v.subject_id: v.state for v in claims}
    is_slow = any(state in ACCUSED for state in by_subject.values())
    if label.ending == "well":
        return not is_slow
    is_of_size = not of_rank or abs(newest.slowdown / label.final_size - 1.0) < 0.25
    return is_slow and is_of_size


# --- many runs ---------------------------------------------------------------------------------

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def run_all(
    run: Callable[[_Task], _Result], tasks: Sequence[_Task], processes: int
) -> Iterator[_Result]:
    """Results in the order of the tasks; progress goes to standard error."""
    report = partial(_reporting, n=len(tasks))
    if processes == 1 or len(tasks) < 2:
        yield from report(map(run, tasks))
        return
    os.environ.update(dict.fromkeys(THREADS, "1"))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        yield from report(pool.map(run, tasks, chunksize=4))


def _reporting(results: Iterator[_Result], n: int) -> Iterator[_Result]:
    for at, result in enumerate(results, 1):
        if at % max(1, n // 20) == 0 or at == n:
            print(f"{at}/{n} runs", file=sys.stderr, flush=True)
        yield result
