"""What a launcher reports, as activities: the life of the processes, and why an attempt ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from otel_straggler.goodput.account import Account
from otel_straggler.goodput.activities import ATTEMPT, RUN, Activities, Activity
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.semconv import RECOVERY_CATEGORIES

STARTED: Final = "straggler.attempt.started"
ENDED: Final = "straggler.attempt.ended"
EXITED: Final = "straggler.rank.exited"
JOB_STARTED: Final = "straggler.job.started"
JOB_ENDED: Final = "straggler.job.ended"
_ENDS: Final = frozenset({ENDED, EXITED, "straggler.run.restarting"})
_OF_OTHERS: Final = frozenset({"membership", "SIGTERM"})
"""Reasons of a node that follows another one."""
_IS_WELL: Final = frozenset({"", "exit_0"})


class Disruption(NamedTuple):
    """An attempt that another one followed, and what that cost.

    Attributes:
        attempt: restart count of the attempt that ended.
        at_ns: its end, since 1970.
        reason: a word, such as ``SIGKILL``, or ``membership``; empty without a launcher's event.
        text: a sentence for people; empty as well.
        recovery_ns: from its last progress to the first step of the next, mean over the ranks.
        redone_ns: its steps that were done again.
    """

    attempt: int
    at_ns: int
    reason: str
    text: str
    recovery_ns: int
    redone_ns: int


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt on one node; ``end_ns`` is None while it lives."""

    start_ns: int
    ranks: tuple[int, ...]
    end_ns: int | None


def events_by_run(events: Iterable[LaunchEvent]) -> dict[str, list[LaunchEvent]]:
    """Events of each run in the order of time, each once. Those that came before the run had a
    name belong to the next one of their node."""
    in_order = sorted(dict.fromkeys(events), key=lambda event: event.at_unix_s)
    named: dict[str, str] = {}
    by_run: dict[str, list[LaunchEvent]] = {}
    for event in reversed(in_order):
        run_id = named[event.node] = event.run_id or named.get(event.node, "")
        if run_id:
            by_run.setdefault(run_id, []).append(replace(event, run_id=run_id))
    return {run_id: its[::-1] for run_id, its in by_run.items()}


def activities_of_launches(events: Sequence[LaunchEvent]) -> Activities:
    """Activities of one run, in the order of time: the life of every rank's process, and of the
    jobs. An attempt without an end lives as long as its spans."""
    rows = list(_jobs(events))
    for number, of_nodes in _attempts(events).items():
        for its in of_nodes:
            end_ns = its.start_ns if its.end_ns is None else its.end_ns
            rows += [Activity(ATTEMPT, its.start_ns, end_ns, rank, number) for rank in its.ranks]
    return Activities.of(rows)


def disruptions(of: Account, events: Sequence[LaunchEvent]) -> list[Disruption]:
    """Attempts that others followed, in order, with their reasons where a launcher reports them."""
    edges_ns = np.append(of.starts_ns, of.end_ns)
    if len(edges_ns) < 3:
        return []
    n_codes = len(of.categories)
    totals = sum(each.segments.totals_between(edges_ns, n_codes) for each in of.by_rank)
    by_attempt = np.asarray(totals) // len(of.by_rank)
    recovered = [of.categories.index(name) for name in RECOVERY_CATEGORIES if name != _STARTING]
    starting, redone = of.categories.index(_STARTING), of.categories.index("redone")
    endings = _endings(events)
    result = []
    for at, number in enumerate(of.attempts.tolist()[:-1]):
        ended = endings.get(number)
        recovery_ns = by_attempt[recovered, at].sum() + by_attempt[starting, at + 1]
        result.append(
            Disruption(
                attempt=number,
                at_ns=int(of.ends_ns[at]) if ended is None else _ns(ended),
                reason="" if ended is None else ended.reason,
                text="" if ended is None else ended.text,
                recovery_ns=int(recovery_ns),
                redone_ns=int(by_attempt[redone, at]),
            )
        )
    return result


_STARTING: Final = "reinitialization"


def _jobs(events: Sequence[LaunchEvent]) -> Iterator[Activity]:
    """From the start of torchrun to its end, each once."""
    for event in events:
        if event.name in {JOB_STARTED, JOB_ENDED}:
            yield Activity(RUN, _ns(event), _ns(event))


def _attempts(events: Sequence[LaunchEvent]) -> dict[int, list[_Attempt]]:
    """Attempts of nodes, by number."""
    attempts: dict[int, list[_Attempt]] = {}
    for event in events:
        if event.name == STARTED:
            ends = [
                each
                for each in events
                if (each.attempt, each.node) == (event.attempt, event.node)
                and each.name in _ENDS
                and each.at_unix_s >= event.at_unix_s
            ]
            ended = [each for each in ends if each.name == ENDED] or ends
            end_ns = _ns(ended[0]) if ended else None
            its = _Attempt(_ns(event), event.ranks, end_ns)
            attempts.setdefault(event.attempt, []).append(its)
    return attempts


def _endings(events: Sequence[LaunchEvent]) -> dict[int, LaunchEvent]:
    """Why each attempt ended that did not end well: the event of the node that failed first, not of
    those that followed it."""
    endings: dict[int, LaunchEvent] = {}
    for event in events:
        if event.name != ENDED or event.reason in _IS_WELL:
            continue
        known = endings.get(event.attempt)
        if known is None or (known.reason in _OF_OTHERS and event.reason not in _OF_OTHERS):
            endings[event.attempt] = event
    return endings


def _ns(event: LaunchEvent) -> int:
    return round(event.at_unix_s * 1e6) * 1000
