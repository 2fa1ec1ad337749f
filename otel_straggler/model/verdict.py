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
Evidence = Literal["host", "events", "cupti", "collective", "synchronised"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One change of state of one subject. Unknown numbers are NaN or None, unknown texts empty.

    Attributes:
        subject_id: key of the state; the same over restarts and renumbering.
        rank, node, role: of the subject at this moment, as far as its scope has them.
        section: where the time is lost; empty for the whole step.
        evidence: how times were measured; ``synchronised`` if the slow section contains waiting, so
            that culprit and victims look alike.
        slowdown: own time / time of the peers, in ``section``.
        since_step: first step of the change; confirmed_step: newest step at confirmation.
        since_ns: begin of the first step on the subject's host, by the foremost clock of the
            senders; 0 if unknown.
        at_step, at_ns: newest step and sender's time when the state changed.
        confidence: 0 to 1.
        gpu_seconds_lost_per_hour: time of all ranks that the whole job waits, per hour.
        loss_share: the same as a part of the step; of ranks and hosts. When evaluated, of the
            peers' usual step, above 1 where the excess is longer; of the newest verdicts of a
            :class:`RunVerdicts`, of the run's actual step, together at most the run's ``waste``.
        adds_up: the subject keeps others waiting in steps of its own, so that the losses of several
            such add up; else those of subjects that are slow at once are one loss.
        began: "became" if it was normal before, "born" if it was always slow, "unknown" without a
            past.
        n_peers: ranks it was compared with.
        own_s, peers_s: the times compared, seconds per step.
        pages: would notify people: confirmed, slow and costly enough.
        is_localised: False if the evidence cannot distinguish culprit and victims.
        is_inferred: the peers were found by clustering, because nobody reported the layout.
        detail: text that follows the cause.
        on_gpu: the subject (of a role or run any rank) reported its GPU; see :attr:`is_on_gpu`.
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
    since_ns: int = 0
    confirmed_step: int | None = None
    at_step: int | None = None
    at_ns: int = 0
    confidence: float = 0.0
    gpu_seconds_lost_per_hour: float = 0.0
    loss_share: float = float("nan")
    adds_up: bool = False
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
        """Whether it is known to compute on a GPU: it reported which, or was timed there."""
        return self.on_gpu or self.evidence in ("events", "cupti")


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionCost:
    """What a section adds to the step.

    Attributes:
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
    """Summary of a world (run and group), newest steps. NaN = unknown.

    Attributes:
        slowdown: actual step / step if all ranks of a role and all stages were equal (S), or if
            the costliest slow subject were like its peers, if that is more.
        waste: 1 - 1 / slowdown, part of the actual step.
        m_w, m_s: part of the loss that goes if the worst 3 % of the workers, or the last pipeline
            stage, took the mean; above 1 where the others take less than that, below 0 where they
            do. NaN where most of the loss is not in the balance of work.
        cause: of the costliest confirmed verdict, else of the structure of the run; or empty.
        resolvable_slowdown: detection limit of the windows so far (1.04 = 4 %).
        coverage: ranks reporting / ranks expected.
        n_ranks: ranks expected, or reporting if those are more; 0 if unknown.
        gpu_seconds_lost: since the start, ranks x time x the larger of ``waste`` and the cost of
            the costliest slow subject; in a collector also all ranks during hangs.
        on_gpu: any rank is known to compute on a GPU.
        step_s, slowest_step_s: median seconds per step, and of the slowest rank.
        heat: (stage, data rank, slowdown) of every worker; empty if the layout is unknown.
        ledger: exposed time of the newest steps.
        waits: per rank, those who cause most first; at most 100.
        waits_inside: section in which all ranks work and wait for each other, so that differences
            between ranks, and the numbers that rest on them, are unknown; or empty.
        waits_unseen: ranks wait for each other nowhere that is known, with the same effect.
        basis: what own work is measured by in all groups; the host's clock where they differ.
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
    n_ranks: int = 0
    gpu_seconds_lost: float = 0.0
    on_gpu: bool = False
    step_s: float = float("nan")
    slowest_step_s: float = float("nan")
    heat: tuple[tuple[int, int, float], ...] = ()
    ledger: tuple[SectionCost, ...] = ()
    waits: tuple[RankWaits, ...] = field(default=())
    waits_inside: str = ""
    waits_unseen: bool = False
    basis: Evidence = "host"

    @property
    def hides_waiting(self) -> bool:
        """Whether a slow rank may look like all others."""
        return self.waits_unseen or bool(self.waits_inside)

    @property
    def has_verdicts(self) -> bool:
        """Whether steps were evaluated: more is known than the cost of hangs."""
        return not math.isnan(self.coverage)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdicts:
    """Verdicts of one run.

    Attributes:
        changes: changes of state in order; the last per subject counts.
        worlds: one summary per group.
        decisions: of people, in order; silenced: subjects that notify nobody because of them.
    """

    changes: tuple[Verdict, ...] = ()
    worlds: tuple[WorldSummary, ...] = ()
    decisions: tuple[Decision, ...] = ()
    silenced: frozenset[str] = frozenset()

    @property
    def current(self) -> tuple[Verdict, ...]:
        """The newest verdict of every subject, in order of first appearance."""
        return tuple({verdict.subject_id: verdict for verdict in self.changes}.values())


def with_idle(
    run_verdicts: RunVerdicts, run_id: str, idle_gpu_s: Mapping[str, float], on_gpu: Collection[str]
) -> RunVerdicts:
    """With the time that hangs have cost (seconds of all ranks, by group); adds a world of which
    nothing else is known. ``on_gpu``: groups in which a rank reported a GPU."""
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
        action: ``dismiss``: a false alarm, silent until the subject was well and is called slow
            again (a hang: until there was progress and it hangs again). ``mute``: silent until
            ``until_ns``. ``restore``: undoes the last one.
        reason, by: why, and who.
        at_ns: when, on the collector's clock.
        verdict_at_ns: sender's time of the verdict's newest change that the person saw; of a hang,
            its begin on the collector's clock.
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
    cause: Cause = "unknown"


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
