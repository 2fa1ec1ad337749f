"""Verdicts: the subject to act on, since when, why, and its cost; and people's decisions."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from otel_straggler.model.causes import Cause

Scope = Literal["rank", "host", "role", "run"]
State = Literal["ok", "suspect", "confirmed", "recovered", "flapping"]
CALLED_SLOW: Final = frozenset({"confirmed", "flapping"})
"""States in which a subject counts as slow."""
Beginning = Literal["born", "became", "unknown"]
Evidence = Literal["host", "events", "cupti", "synchronised"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One change of state of one subject.

    Attributes:
        run_id, group, attempt: of which world.
        subject_id: what the state belongs to; the same over restarts and renumbering.
        scope: what kind of subject it is.
        rank, node, role: of the subject at this moment; rank is None but for a rank, node empty
            for a role or a run.
        section: where the time is lost; empty for the whole step.
        cause: of the closed list.
        state: what the subject is now.
        evidence: what the times were measured with; ``synchronised`` if the section that is slow
            contains waiting, so that culprit and victims look alike.
        slowdown: own time / time of the peers, in ``section``; NaN if not known.
        since_step: first step of the change, as far as can be known; None if steps are unknown.
        confirmed_step: newest step that was seen when the state became confirmed; None before.
        at_step, at_ns: newest step and sender's time when the state changed.
        confidence: 0 to 1.
        gpu_seconds_lost_per_hour: time of all ranks that the whole job waits, per hour.
        loss_share: the same as a part of the step; above 1 where the excess is longer than the
            usual step; NaN if not known, or of a role or a run.
        began: "became" if it was normal before, "born" if it was slow for as long as its device is
            known, "unknown" without a past.
        n_peers: ranks it was compared with.
        own_s, peers_s: the times compared, seconds per step; NaN if there are none.
        pages: whether somebody should be called: confirmed, >= 10 % and dear enough.
        is_localised: False if the evidence cannot distinguish culprit and victims.
        is_inferred: the peers were found by clustering, because nobody reported the layout.
        detail: of the cause, in words that follow it; empty if there is nothing more to say.
        on_gpu: the subject, of a role or a run any rank, reported on which GPU it computes; see
            :attr:`is_on_gpu`.
        sentence: all of this for a person.
    """

    run_id: str
    group: str = ""
    attempt: int = 0
    subject_id: str
    scope: Scope
    rank: int | None = None
    node: str = ""
    role: str = ""
    section: str = ""
    cause: Cause = "unknown"
    state: State
    evidence: Evidence = "host"
    slowdown: float = float("nan")
    since_step: int | None = None
    confirmed_step: int | None = None
    at_step: int | None = None
    at_ns: int = 0
    confidence: float = 0.0
    gpu_seconds_lost_per_hour: float = 0.0
    loss_share: float = float("nan")
    began: Beginning = "unknown"
    n_peers: int = 0
    own_s: float = float("nan")
    peers_s: float = float("nan")
    pages: bool = False
    is_localised: bool = True
    is_inferred: bool = False
    on_gpu: bool = False
    detail: str = ""
    sentence: str = ""

    @property
    def is_on_gpu(self) -> bool:
        """True if it is known to compute on a GPU: it reported which, or was timed there."""
        return self.on_gpu or self.evidence in ("events", "cupti")


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionCost:
    """One line of the exposed-time ledger: what a section adds to the step.

    Attributes:
        section: name.
        exposed_s: seconds per step by which the slowest path grows in this section.
        typical_s: median over ranks of the section's own time per step.
        leader_rank: rank that is last at the end of the section most often; None if ambiguous.
    """

    section: str
    exposed_s: float
    typical_s: float
    leader_rank: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWaits:
    """Seconds that a rank made others wait, and waited for others, since the start.

    Attributes:
        rank, node, role, group: whose.
        caused_s: sum over collectives of what the median peer waited when this rank came last.
        suffered_s: sum over collectives of what this rank waited for the last one.
    """

    rank: int
    node: str
    role: str
    group: str
    caused_s: float
    suffered_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSummary:
    """Verdict summary of a whole world (run and group), newest steps. NaN = not known.

    Attributes:
        slowdown: time of the run / time if all ranks of a role and all stages were equal (S).
        waste: 1 - 1 / slowdown.
        m_w, m_s: part of the loss that goes if the worst 3 % of the workers, or the last pipeline
            stage, took the mean of all; above 1 where the others take less than that, below 0
            where they take less themselves.
        cause: of the dearest confirmed verdict, else of the structure of the run; empty if none.
        resolvable_slowdown: the smallest slowdown that 20 steps can show (1.04 = 4 %).
        coverage: ranks reporting / ranks expected.
        gpu_seconds_lost: since the start, over blocks of steps: ranks x time x the larger of
            1 - 1 / slowdown and what the dearest verdict that stands costs, as a part of the time;
            and in a collector all ranks of the run while it hung.
        on_gpu: any rank is known to compute on a GPU: what is lost is time of GPUs.
        step_s: median seconds per step.
        slowest_step_s: the same of the slowest rank.
        heat: (stage, data rank, slowdown) of every worker; empty where layout is unknown.
        ledger: the exposed-time ledger of the newest steps.
        waits: per rank, those who cause most first; at most 100.
        waits_inside: the section in which all ranks work and wait for each other, so that all take
            equally long and who is slow does not show; empty where that is not so, or not known.
            What rests on differences between ranks (``slowdown``, ``waste``, ``m_w``, ``m_s``,
            ``resolvable_slowdown``) is not known then.
    """

    run_id: str
    group: str = ""
    attempt: int = 0
    slowdown: float = float("nan")
    waste: float = float("nan")
    m_w: float = float("nan")
    m_s: float = float("nan")
    cause: str = ""
    resolvable_slowdown: float = float("nan")
    coverage: float = float("nan")
    gpu_seconds_lost: float = 0.0
    on_gpu: bool = False
    step_s: float = float("nan")
    slowest_step_s: float = float("nan")
    heat: tuple[tuple[int, int, float], ...] = ()
    ledger: tuple[SectionCost, ...] = ()
    waits: tuple[RankWaits, ...] = field(default=())
    waits_inside: str = ""

    @property
    def has_verdicts(self) -> bool:
        """True if steps were evaluated: more is known than the cost of hangs."""
        return not math.isnan(self.coverage)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdicts:
    """Verdicts of one run.

    Attributes:
        changes: changes of state of all subjects, in order; the last per subject counts.
        worlds: one summary per group.
        decisions: what people have decided about them, in order.
        silenced: subjects for which nobody is called because of that.
    """

    changes: tuple[Verdict, ...] = ()
    worlds: tuple[WorldSummary, ...] = ()
    decisions: tuple[Decision, ...] = ()
    silenced: frozenset[str] = frozenset()

    @property
    def current(self) -> tuple[Verdict, ...]:
        """The newest verdict of every subject, in the order in which subjects first appeared."""
        return tuple({verdict.subject_id: verdict for verdict in self.changes}.values())


def with_idle(
    run_verdicts: RunVerdicts, run_id: str, idle_gpu_s: Mapping[str, float], on_gpu: Collection[str]
) -> RunVerdicts:
    """With the time that hangs have cost among what is lost; a world of which nothing else is
    known (:attr:`WorldSummary.has_verdicts`) is added for it.

    Args:
        idle_gpu_s: seconds of all ranks, by group.
        on_gpu: the groups in which a rank reported a GPU.
    """
    if not idle_gpu_s:
        return run_verdicts
    worlds = [
        replace(world, gpu_seconds_lost=world.gpu_seconds_lost + idle_gpu_s.get(world.group, 0.0))
        for world in run_verdicts.worlds
    ]
    for group in idle_gpu_s.keys() - {world.group for world in worlds}:
        lost_s = idle_gpu_s[group]
        worlds.append(
            WorldSummary(
                run_id=run_id, group=group, gpu_seconds_lost=lost_s, on_gpu=group in on_gpu
            )
        )
    return replace(run_verdicts, worlds=tuple(worlds))


Action = Literal["dismiss", "mute", "restore"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
_HANG: Final = "hang:"


def hang_subject(group: str) -> str:
    """The ``subject_id`` of a world that is stuck or lost.

    >>> hang_subject("actor"), hang_subject("")
    ('hang:actor', 'hang:')
    """
    return _HANG + group


def hung_group(subject_id: str) -> str | None:
    """The group of a :func:`hang_subject`; None if it is none."""
    return subject_id.removeprefix(_HANG) if subject_id.startswith(_HANG) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One decision; the newest on a subject counts.

    Attributes:
        action: ``dismiss``: it was wrong, nobody is called for it until the subject was well and is
            called slow again; of a hang: until there was progress and it hangs again. ``mute``:
            nobody is called until ``until_ns``, whatever it does.
            ``restore``: the one before no longer counts.
        run_id, subject_id: about whom.
        reason, by: why, and who.
        at_ns: when, on the collector's clock.
        until_ns: the end of a mute; None for the others.
        verdict_at_ns: sender's time of the verdict's newest change, which the person saw; of a
            hang, when it began, on the collector's clock.
        cause: of that verdict.
    """

    action: Action
    run_id: str
    subject_id: str
    reason: str
    by: str = ""
    at_ns: int
    until_ns: int | None = None
    verdict_at_ns: int = 0
    cause: str = "unknown"


WAITS_INSIDE: Final = (
    'put what waits (the collective) into a section of its own with kind="wait", or time kernels '
    "(gpu_timing)"
)
"""Where work and waiting lie in one section, so that all ranks take equally long."""


def time_text(*, on_gpu: bool) -> str:
    """
    >>> time_text(on_gpu=True), time_text(on_gpu=False)
    ('GPU time', 'rank time')
    """
    return "GPU time" if on_gpu else "rank time"


def hours_text(*, on_gpu: bool) -> str:
    """
    >>> hours_text(on_gpu=True), hours_text(on_gpu=False)
    ('GPU-hours', 'rank-hours')
    """
    return "GPU-hours" if on_gpu else "rank-hours"
