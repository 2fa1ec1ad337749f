"""What stragglers cost: from changes of verdicts to periods in which steps wait."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from otel_straggler.goodput.account import StragglerLoss
from otel_straggler.goodput.activities import STEP, Activities
from otel_straggler.model.verdict import CALLED_SLOW, Verdict


def straggler_losses(
    changes: Iterable[Verdict], activities: Activities, group: str
) -> list[StragglerLoss]:
    """Periods of one group of a run in which a rank or host had a confirmed verdict.

    One begins with the step since which the subject is slow, where that is known, and lasts until
    its next change of state. Its share is the verdict's ``loss_share``: for the newest verdict of a
    subject of the actual step; for earlier ones of the peers' usual step, from which the share of
    the actual step follows.

    Args:
        changes: in order, with the newest of each subject as a part of the run's loss
            (``detect.verdicts.losses.attributed``).
    """
    by_subject: dict[str, list[Verdict]] = {}
    for change in changes:
        if change.group == group:
            by_subject.setdefault(change.subject_id, []).append(change)
    return [loss for of_one in by_subject.values() for loss in _of_subject(of_one, activities)]


def _of_subject(changes: list[Verdict], activities: Activities) -> Iterator[StragglerLoss]:
    was_slow = False
    for at, change in enumerate(changes):
        is_newest = at == len(changes) - 1
        is_slow = change.state in CALLED_SLOW
        share = change.loss_share
        if is_slow and math.isfinite(share) and share > 0.0:
            start_ns = change.at_ns
            if not was_slow and change.since_step is not None:
                start_ns = _start_of(change.since_step, change.attempt, activities, start_ns)
            end_ns = np.iinfo(np.int64).max if is_newest else changes[at + 1].at_ns
            yield StragglerLoss(start_ns, end_ns, share if is_newest else share / (1.0 + share))
        was_slow = is_slow


def _start_of(step: int, attempt: int, activities: Activities, otherwise_ns: int) -> int:
    rows = activities.is_a(STEP) & (activities.attempt == attempt)
    rows &= (activities.step <= step) & (activities.step + activities.steps > step)
    return int(activities.start_ns[rows].min()) if rows.any() else otherwise_ns
