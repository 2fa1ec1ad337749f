"""What is lost, as parts of the run's actual step: the one definition behind every number shown.

With A the actual step (of the slowest rank: the others wait for it, whether or not their times
contain that), the loss of

- a verdict is the seconds per step that others wait for its subject / A;
- a run is what equal work would save, or what the costliest slow subject costs if that is more,
  or all those together that are slow in steps of their own. Without a pipeline it is theirs from
  half of that on: the rest is what ranks wait for each other by chance, as in any run;
  its slowdown is 1 / (1 - loss): actual step / step without the loss;
- ranks per hour is loss x ranks x 3600 seconds.

Subjects that are slow at once overlap: of two that are late to the same collective, repairing one
saves little. Losses of verdicts are therefore scaled so that they add up to at most the run's, or,
of suspects, to what it would be with the costliest of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace

from otel_straggler.detect.verdicts.sentences import sentence
from otel_straggler.model.verdict import CALLED_SLOW, RunVerdicts, Verdict, WorldSummary

HOUR_S = 3600.0
_MAIN_PART = 0.5
"""Parts of the balance's loss are kept where that is so much of the loss; and who costs so much of
it is the reason for it."""


def loss_of(verdict: Verdict, world: WorldSummary) -> float:
    """Part of the actual step that others wait for the subject, 0 to 1; 0 if unknown.

    ``loss_share`` of a verdict as evaluated is a part of the peers' usual step. A step cannot be
    shorter than what peers take and wait: that bounds the loss where the slow steps are few, so
    that the median does not contain them.
    """
    lost_per_hour = verdict.gpu_seconds_lost_per_hour
    if not lost_per_hour > 0.0 or not world.n_ranks:
        return 0.0
    lost_s = verdict.loss_share * world.step_s
    if not math.isfinite(lost_s) or not world.slowest_step_s > 0.0:
        return min(1.0, lost_per_hour / HOUR_S / world.n_ranks)
    is_own_time = verdict.cause != "late_arrival" and math.isfinite(verdict.peers_s)
    min_step_s = verdict.peers_s + lost_s if is_own_time else 0.0
    return min(1.0, lost_s / max(world.slowest_step_s, min_step_s))


def together(verdicts: Iterable[Verdict], losses: Iterable[float]) -> float:
    """What several subjects cost at once, 0 to 1: the costliest, or the sum of those that add
    up."""
    costliest, added = 0.0, 0.0
    for verdict, loss in zip(verdicts, losses, strict=True):
        costliest, added = max(costliest, loss), added + loss * verdict.adds_up
    return min(1.0, max(costliest, added))


def is_theirs(loss: float, of_balance: float, n_stages: int) -> bool:
    """Whether a run's loss is that of its slow subjects, not what equal work would save."""
    return loss > (of_balance if n_stages > 1 else _MAIN_PART * of_balance)


def is_in_balance(verdict: Verdict, n_stages: int) -> bool:
    """Whether the balance of work of a pipeline has this loss, with the waiting that the schedule
    needs anyway, and which one rank's excess over its peers does not show."""
    return n_stages > 1 and verdict.cause == "slow_gpu"


def with_costliest(world: WorldSummary, current: Iterable[Verdict]) -> WorldSummary:
    """A summary by its balance of work, with the loss of the costliest slow subject if that is
    more: the balance excludes data loading and work that hides in waiting."""
    n_stages = len({stage for stage, _, _ in world.heat})
    known_by = n_stages if math.isfinite(world.waste) else 0
    called = [v for v in current if v.state in CALLED_SLOW and not is_in_balance(v, known_by)]
    loss = together(called, [loss_of(verdict, world) for verdict in called])
    known = world.waste if math.isfinite(world.waste) else 0.0
    if not is_theirs(loss, known, n_stages):
        return world
    world = replace(world, waste=loss, slowdown=1.0 / (1.0 - loss) if loss < 1.0 else math.nan)
    return world if known >= _MAIN_PART * loss else replace(world, m_w=math.nan, m_s=math.nan)


def attributed(run_verdicts: RunVerdicts) -> RunVerdicts:
    """With the newest verdict of every subject in trouble at its part of what its world has lost.
    Suspects share what confirmed subjects leave of it, or of the costliest suspect's if that is
    more. Cost: O(changes)."""
    newest = {verdict.subject_id: at for at, verdict in enumerate(run_verdicts.changes)}
    changes = list(run_verdicts.changes)
    for world in run_verdicts.worlds:
        its = [changes[at] for at in newest.values() if changes[at].group == world.group]
        for verdict in _attributed_in(world, its) if world.n_ranks else ():
            changes[newest[verdict.subject_id]] = verdict
    return replace(run_verdicts, changes=tuple(changes))


def _attributed_in(world: WorldSummary, current: Collection[Verdict]) -> Iterable[Verdict]:
    """Suspects are no part of the run's loss yet. Theirs is what it would be if they were
    confirmed: the balance excludes data loading and work that hides in waiting."""
    left, called = world.waste if math.isfinite(world.waste) else 1.0, 0.0
    for states in (CALLED_SLOW, {"suspect"}):
        losses = [(v, loss_of(v, world)) for v in current if v.state in states]
        total = sum(loss for _, loss in losses)
        if "suspect" in states:
            left = max([left, *(loss - called for _, loss in losses)])
        part = min(1.0, left / total) if total > 0.0 else 1.0
        left, called = max(0.0, left - total), total
        for verdict, loss in losses:
            yield _with_loss(verdict, loss * part, world.n_ranks)


def _with_loss(verdict: Verdict, loss: float, n_ranks: int) -> Verdict:
    if not verdict.gpu_seconds_lost_per_hour > 0.0:
        return verdict
    per_hour = loss * n_ranks * HOUR_S
    if math.isclose(per_hour, verdict.gpu_seconds_lost_per_hour, rel_tol=1e-9):
        return verdict
    share = verdict.loss_share if math.isnan(verdict.loss_share) else loss
    verdict = replace(verdict, gpu_seconds_lost_per_hour=per_hour, loss_share=share)
    return replace(verdict, sentence=sentence(verdict)) if verdict.sentence else verdict
