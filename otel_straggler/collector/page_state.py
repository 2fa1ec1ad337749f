"""Texts that change when what a page shows does: quick enough for the event loop."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final, TypeAlias

from otel_straggler.collector.watching import RunSeen
from otel_straggler.model.alert import Alert, Maintenance

Progress: TypeAlias = tuple[object, ...]
_TOLD_S: Final = 10.0
"""While a run hangs, its sentence says for how long."""


def state_of_run(
    run: RunSeen, alerts: Iterable[Alert], maintenance: Iterable[Maintenance], now_s: float
) -> str:
    """Changes when a picture of the run does. Cost: O(ranks), microseconds."""
    hangs = any(found.is_hung for found in run.found.values())
    told = (
        progress_of(run),
        (sorted(run.judged.silenced), len(run.judged.decisions)),
        [(each.node, each.until_ns) for each in maintenance],
        [(alert.name, alert.starts_at_s) for alert in alerts],
        int(now_s / _TOLD_S) if hangs else 0,
    )
    states = b"".join(found.rank_states.tobytes() for found in run.found.values())
    return digest(repr(told).encode() + states)


def progress_of(run: RunSeen) -> Progress:
    """Changes when anything is heard of a run, or found out about it. Cost: O(groups)."""
    return (
        tuple((group, w.attempt, w.touched_at_s) for group, w in run.worlds.items()),
        tuple((group, found.state, found.since_s) for group, found in run.found.items()),
        tuple((w.group, w.attempt, w.last_step, w.end_ns) for w in run.windows),
        len(run.judged.changes),
    )


def state_of_list(runs: Iterable[tuple[RunSeen, int]]) -> str:
    """Changes when an entry of the list of runs does, but for when they were heard of.

    Args:
        runs: each with how many alerts fire about it.
    """
    told = [
        (
            run.run_id,
            tuple((group, found.state) for group, found in run.found.items()),
            len(run.judged.changes),
            sorted(run.judged.silenced),
            n_alerts,
        )
        for run, n_alerts in runs
    ]
    return digest(repr(told).encode())


def digest(told: bytes) -> str:
    return hashlib.blake2b(told, digest_size=9).hexdigest()
