"""Recorded = arrived once + counted as dropped; what is between, by the collector's endings.

Producers send in order and collectors pass on in order. So what a killed collector takes with it
is, in every series, one gap between the last run that it or one before it passed on, and the first
that a later one did.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.no_loss.counted import Series, compared
from benchmarks.no_loss.course import Ending, Outcome
from benchmarks.no_loss.ledger import Arrivals
from benchmarks.no_loss.memory import MIB, trend
from otel_straggler.client.recorder import RING_CAPACITY

RECORD_BYTES = 128
MAX_SPANS = 512
"""In a request."""
MAX_SPANS_PER_S = 100_000
"""That a collector takes and passes on from four processes here, at most."""
WARM_UP = 0.25
"""Of the quiet time, before memory is looked at."""
BEFORE_S = 5.0


@dataclass(frozen=True, slots=True)
class Doubts:
    """Runs of one series that did not arrive exactly once.

    Attributes:
        missing: whether it never came; else it came again.
        first_by, last_by: the collectors that passed it on, or those that passed on the runs
            before and after it; 0 if there are none.
        ended_s: Unix time; of a missing run, that of its neighbours.
    """

    missing: np.ndarray
    first_by: np.ndarray
    last_by: np.ndarray
    ended_s: np.ndarray

    def lie_around(self, number: int) -> np.ndarray:
        """Which lie between collector ``number``, from 1, or one before it, and a later one."""
        return (self.first_by <= number) & (self.last_by > number)

    def by_ending(self, endings: list[Ending]) -> np.ndarray:
        """The number of the ending that each is put down to, from 1: of a SIGKILL if there is one
        between, else of the first; 0 if none is between."""
        number = np.where(self.first_by < self.last_by, self.first_by, 0)
        is_done = np.zeros(len(number), bool)
        for killed in (n for n, ending in enumerate(endings, 1) if ending.how == "KILL"):
            here = self.lie_around(killed) & ~is_done
            number[here] = killed
            is_done |= here
        return number


def account(outcome: Outcome) -> dict:
    """The figures of a run.

    ``is_exact``: nothing came twice, and just as many are missing as producers say they dropped.
    ``unexplained``: runs in doubt, less those that were with a collector when it was killed.
    ``history``: runs in windows of the history, with a spool: all, and each once.
    """
    doubts = [doubts_of(arrivals) for arrivals in _series(outcome)]
    missing = sum(int(d.missing.sum()) for d in doubts)
    again = sum(int(a.times.sum()) - int((a.times > 0).sum()) for a in _series(outcome))
    dropped = _dropped(outcome)
    invented = _invented(outcome)
    return {
        "recorded": sum(sum(reported["recorded"].values()) for reported in outcome.reported),
        "taken_by_collectors": sum(collector.spans for collector in outcome.collectors),
        "arrived": sum(int((a.times > 0).sum()) for a in _series(outcome)),
        "missing": missing,
        "dropped_by_producers": dropped,
        "arrived_again": again,
        "never_recorded": invented,
        "is_exact": missing == sum(dropped.values()) and again == 0 and invented == 0,
        "unexplained": _unexplained(outcome, doubts),
        **({} if outcome.counted is None else {"history": _history(outcome, outcome.counted)}),
        "endings": [
            _around(outcome, number, doubts) for number in range(1, len(outcome.endings) + 1)
        ],
        "processes": [_process(reported) for reported in outcome.reported],
        "collectors": [
            {name: getattr(collector, name) for name in ("spans", "rows", "forwarded")}
            for collector in outcome.collectors
        ],
        "queue": _queue(outcome),
        "memory": _memory(outcome),
    }


def _history(outcome: Outcome, counted: dict[Series, int]) -> dict[str, int]:
    """Of all sections; steps are not scored."""
    recorded = {
        (reported["rank"], name): count
        for reported in outcome.reported
        for name, count in reported["recorded"].items()
        if name != "step"
    }
    return compared(counted, recorded)


def doubts_of(arrivals: Arrivals) -> Doubts:
    """Of all numbers that were recorded."""
    numbers = np.flatnonzero(arrivals.times != 1)
    known = np.flatnonzero(arrivals.times)
    missing = arrivals.times[numbers] == 0
    if len(known) == 0:
        zeros = np.zeros(len(numbers), int)
        return Doubts(missing, zeros, zeros, np.full(len(numbers), np.nan))
    at = np.searchsorted(known, numbers)
    before = np.where(at > 0, arrivals.last_by[known[np.maximum(at - 1, 0)]], 0)
    is_last = at == len(known)
    after = np.where(is_last, 0, arrivals.first_by[known[np.minimum(at, len(known) - 1)]])
    return Doubts(
        missing=missing,
        first_by=np.where(missing, before, arrivals.first_by[numbers]).astype(int),
        last_by=np.where(missing, after, arrivals.last_by[numbers]).astype(int),
        ended_s=np.interp(numbers, known, arrivals.ended_s[known]),
    )


def _series(outcome: Outcome) -> Iterator[Arrivals]:
    for reported in outcome.reported:
        for name, recorded in reported["recorded"].items():
            result = outcome.ledger.arrivals.get((reported["rank"], name), Arrivals())
            yield result.whole(recorded)


def _invented(outcome: Outcome) -> int:
    """Deliveries that no producer has recorded, and sessions too many."""
    recorded = {
        (reported["rank"], name): count
        for reported in outcome.reported
        for name, count in reported["recorded"].items()
    }
    beyond = sum(
        arrivals.beyond(recorded.get(series, 0))
        for series, arrivals in outcome.ledger.arrivals.items()
    )
    sessions = sum(len(ids) - 1 for ids in outcome.ledger.sessions.values())
    return beyond + sessions + len(outcome.ledger.bad)


def _unexplained(outcome: Outcome, doubts: list[Doubts]) -> int:
    """Less what producers say they dropped: a killed collector and a full queue leave one gap."""
    killed = [n for n, ending in enumerate(outcome.endings, 1) if ending.how == "KILL"]
    count = sum(int((~np.isin(one.by_ending(outcome.endings), killed)).sum()) for one in doubts)
    for number in killed:
        missing = sum(
            int((one.missing & (one.by_ending(outcome.endings) == number)).sum()) for one in doubts
        )
        count += max(0, missing - _held(outcome, number))
    return max(0, count - sum(_dropped(outcome).values()))


def _held(outcome: Outcome, number: int) -> int:
    """Runs that a killed collector had taken and not passed on, at most: after the last scrape
    it took what it could. With folding spans say nothing of runs."""
    if outcome.dose.span_budget:
        return sys.maxsize
    passed_on = sum(int((arrivals.first_by == number).sum()) for arrivals in _series(outcome))
    killed = outcome.collectors[number - 1]
    unseen = MAX_SPANS * outcome.dose.processes + round(MAX_SPANS_PER_S * killed.unseen_s)
    return max(0, killed.spans - passed_on) + unseen


def _around(outcome: Outcome, number: int, doubts: list[Doubts]) -> dict:
    """What lies between this collector and the next one."""
    ending = outcome.endings[number - 1]
    missing, again, oldest_s = 0, 0, 0.0
    for one in doubts:
        here = one.by_ending(outcome.endings) == number
        missing += int((one.missing & here).sum())
        again += int((~one.missing & here).sum())
        if here.any():
            oldest_s = max(oldest_s, ending.reported_at_s - float(one.ended_s[here].min()))
    return {
        "signal": f"SIG{ending.how}",
        "took_to_end_s": round(ending.gone_at_s - ending.reported_at_s, 2),
        "away_s": round(ending.back_at_s - ending.reported_at_s, 2),
        "missing": missing,
        "arrived_again": again,
        "oldest_before_s": round(oldest_s, 3),
    }


def _dropped(outcome: Outcome) -> dict[str, int]:
    """By reason, as the producers' last heartbeats say."""
    reasons: dict[str, int] = {}
    for of_rank in outcome.ledger.dropped.values():
        for reason, count in of_rank.items():
            reasons[reason] = reasons.get(reason, 0) + count
    return reasons


def _process(reported: dict) -> dict:
    spans = sum(reported["recorded"].values())
    return {
        name: reported[name] for name in ("rank", "recorder", "seconds", "cpu_s", "was_sent")
    } | {
        "spans_per_s": round(spans / reported["seconds"]),
        "log": reported["log"],
    }


def _queue(outcome: Outcome) -> list[dict]:
    """How much larger producers became while there was no collector, against what they may."""
    budget_mib = (outcome.dose.queue_bytes + RING_CAPACITY * RECORD_BYTES) / MIB
    result = []
    for ending in outcome.endings:
        grown_mib = []
        for rank in range(outcome.dose.processes):
            samples = outcome.memory.of(f"producer {rank}")
            at_s, size_mib = samples[:, 0], samples[:, 1]
            before = size_mib[
                (at_s > ending.reported_at_s - BEFORE_S) & (at_s < ending.reported_at_s)
            ]
            during = size_mib[(at_s > ending.reported_at_s) & (at_s < ending.back_at_s)]
            if len(before) and len(during):
                grown_mib.append(round(float(during.max() - np.median(before)), 2))
        result.append(
            {
                "grown_mib": grown_mib,
                "budget_mib": round(budget_mib, 2),
                "is_within": max(grown_mib, default=0.0) <= budget_mib,
            }
        )
    return result


def _memory(outcome: Outcome) -> dict:
    """Trends in the quiet time, from the return of the last collector to the end."""
    from_s = max([e.back_at_s for e in outcome.endings], default=outcome.began_at_s)
    from_s += WARM_UP * (outcome.done_at_s - from_s)
    names = [f"producer {rank}" for rank in range(outcome.dose.processes)]
    result = {}
    for name in (*names, f"collector {len(outcome.collectors)}"):
        samples = outcome.memory.of(name)
        peak_mib = round(float(samples[:, 1].max()), 2)
        result[name] = {"peak_mib": peak_mib} | trend(samples, from_s, outcome.done_at_s)
    return result
