"""Goodput from checkpoints alone: a second method, which needs no span."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from otel_straggler.goodput.job_events import (
    LOADED,
    SAVED,
    SCHEDULED,
    STARTED,
    TERMINATED,
    JobEvent,
    in_order,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointGoodput:
    """What saved steps would take at the reference step time, as a part of all time.

    Attributes:
        events: after those that repeat a start or an end are left out, and with the request for the
            run (``user_scheduled``), which the first event stands for where there is none.
        loaded: checkpoints that were loaded with a step above 0.
        total_s: from the first event to the last.
        effective_s: ``(max_saved_step - min_loaded_step) * reference_step_s``; 0 without both.
        goodput: 0 to 1, above 1 if the reference is too long; NaN without both or without time.
    """

    events: int
    started: int
    loaded: int
    saved: int
    min_loaded_step: int
    max_saved_step: int
    total_s: float
    effective_s: float
    goodput: float


def checkpoint_goodput(events: Sequence[JobEvent], reference_step_s: float) -> CheckpointGoodput:
    """Seconds; source: ``resiliency.goodput_measure`` (AI-Hypercomputer), whose numbers these are.

    Steps are -1 where no checkpoint was loaded, or saved. A run from scratch loads step 0.

    >>> at = [JobEvent(0, LOADED, 25), JobEvent(200 * 10**9, SAVED, 75)]
    >>> checkpoint_goodput(at, 2.0).goodput
    0.5
    """
    ordered = in_order(events)
    kept = _without_repeats(ordered)
    loaded = [event.step for event in kept if event.event_type == LOADED]
    saved = [event.step for event in kept if event.event_type == SAVED]
    total_s = (ordered[-1].at_ns - ordered[0].at_ns) / 1e9 if ordered else 0.0
    is_implied = bool(ordered) and ordered[0].event_type != SCHEDULED
    effective_s, goodput = 0.0, math.nan
    if loaded and saved and total_s > 0.0:
        effective_s = max(0, max(saved) - min(loaded)) * reference_step_s
        goodput = effective_s / total_s
    return CheckpointGoodput(
        events=len(kept) + is_implied,
        started=sum(event.event_type == STARTED for event in kept),
        loaded=sum(step > 0 for step in loaded),
        saved=len(saved),
        min_loaded_step=min(loaded, default=-1),
        max_saved_step=max(saved, default=-1),
        total_s=total_s,
        effective_s=effective_s,
        goodput=goodput,
    )


def _without_repeats(events: Sequence[JobEvent]) -> list[JobEvent]:
    """Of starts in a row, and of ends in a row, only the last: nodes report one by one."""
    kept: list[JobEvent] = []
    for event in events:
        is_repeat = bool(kept) and kept[-1].event_type == event.event_type
        if is_repeat and event.event_type in {STARTED, TERMINATED}:
            kept.pop()
        kept.append(event)
    return kept
