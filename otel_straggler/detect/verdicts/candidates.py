"""From findings per quantity to one candidate per rank or host: section, cause and cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from otel_straggler.detect.scores.medians import median_of
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.history import how_it_began
from otel_straggler.detect.verdicts.significance import Findings
from otel_straggler.detect.verdicts.stalls import Spikes, StallPattern
from otel_straggler.detect.verdicts.track import Track
from otel_straggler.detect.verdicts.world import World, cause_of_section
from otel_straggler.model.causes import Cause
from otel_straggler.model.observation import Bools, Floats, Ints, Section
from otel_straggler.model.verdict import Beginning, Verdict

NAMED = 0.75
"""A section is named if it holds this part of what is lost, else the whole step is."""
LATE_SHARE = 0.5
"""Late is who has this part of what he costs in no measured section."""
NEWEST_STEPS = 20
"""A rise that began later is measured since it began, ..."""
MIN_STEPS = 5
"""... over so many steps at minimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A rank or host that is beyond its peers.

    Attributes:
        row, column: of the track; the quantity in which it is compared.
        sure: CUSUM alarms and is verified.
        section: where most of the time is lost; None for the whole step.
        cause: as far as the section shows it.
        effect: log excess in ``section``.
        floor: the least excess that counted.
        z: distance from the peers in robust standard deviations.
        lost_s: seconds per step that the others may wait for it.
        own_s, peers_s: seconds per step in ``section``.
        since: count of observed steps at which it began; 0: as far back as can be seen; -1: not
            known.
        began: whether it was normally like this, or became so.
        normal: log excess that it always had, as long as it is known; NaN: not known.
        is_late: seen only in others' waiting.
        heaviest: the section in which most is lost, where ``section`` is the whole step.
        stalling: how often and how long, where it is slow in some steps only; the other numbers are
            the mean of all steps then.
    """

    row: int
    column: int
    sure: bool
    section: Section | None
    cause: Cause
    effect: float
    floor: float
    z: float
    lost_s: float
    own_s: float
    peers_s: float
    since: int
    began: Beginning = "unknown"
    normal: float = math.nan
    is_late: bool = False
    heaviest: Section | None = None
    stalling: StallPattern | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepCost:
    """What an excess of 1 costs: typical seconds per step of the peers of each row.

    Attributes:
        columns_s: (R, C) of the quantity; of lateness, the step.
        step_s: (R,) of the step.
    """

    columns_s: Floats
    step_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evaluation:
    """What an evaluation of a track gives, after what costs too little has been left out."""

    track: Track
    findings: Findings
    beyond: Bools
    verified: Bools


def material(findings: Findings, costs: StepCost, min_share: float) -> tuple[Bools, Bools]:
    """(R, C) what is beyond, and what is verified, and costs enough of the step to matter."""
    with np.errstate(invalid="ignore"):
        is_costly = _lost_s(findings.effect, costs.columns_s) >= min_share * costs.step_s[:, None]
    return findings.beyond & is_costly, findings.verified & is_costly


def candidate(
    row: int,
    result: Evaluation,
    costs: StepCost,
    sections: list[Section],
) -> Candidate:
    """The candidate of a row in which something is beyond or verified."""
    track, findings = result.track, result.findings
    flagged = result.beyond[row] | result.verified[row]
    column = int(np.argmax(np.where(flagged, np.nan_to_num(findings.z[row], nan=-np.inf), -np.inf)))
    since = max(int(findings.since[row, column]), 0)
    effects = _effects(track, findings, row, since)
    lost = np.nan_to_num(_lost_s(effects, costs.columns_s[row]), nan=0.0)
    late = len(sections) + 1
    local_s = max(float(lost[0]), float(lost[1:late].max(initial=0.0)), 0.0)
    is_late = bool(flagged[late]) and local_s < LATE_SHARE * float(lost[late])
    main = late if is_late else _main_section(lost, local_s)
    if not (np.isfinite(effects[main]) and effects[main] > 0.0):
        main = column
    section = sections[main - 1] if 0 < main < late else None
    effect = effects[main] if effects[main] > 0.0 else findings.effect[row, column]
    peers_s = float(costs.columns_s[row, main])
    normal = track.normal_of(row, main)
    return Candidate(
        row=row,
        column=main,
        sure=bool(result.verified[row].any()),
        section=section,
        cause="late_arrival" if is_late else _cause(lost, sections, section),
        effect=float(effect),
        floor=float(np.min(findings.floor[row][flagged])),
        z=float(np.nanmax(findings.z[row][flagged])),
        lost_s=max(local_s, float(lost[main]), float(lost[late]) if flagged[late] else 0.0),
        own_s=peers_s * float(np.exp(effect)),
        peers_s=peers_s,
        since=since,
        began=how_it_began(normal, float(effect)),
        normal=normal,
        is_late=is_late,
        heaviest=sections[int(np.argmax(lost[1:late]))] if sections else None,
    )


def spiking(
    row: int,
    spikes: Spikes,
    costs: StepCost,
    sections: list[Section],
    recent: Floats,
    stalling: Callable[[int, int], StallPattern | None],
) -> Candidate:
    """The candidate of a rank that stalls now and then, in quantities that have a price.

    Args:
        stalling: how often and how long a row does so in a column, if that is known.
    """
    late = len(sections) + 1
    held = np.where(costs.columns_s[row] > 0.0, spikes.lost_s[row], 0.0)
    lost = np.where(spikes.beyond[row], held, 0.0)
    column = 0 if lost[0] else int(np.argmax(lost))
    inside = 1 + int(np.argmax(held[1:late])) if late > 1 else 0
    if column == 0 and held[inside] >= NAMED * lost[0]:
        column = inside
    section = sections[column - 1] if 0 < column < late else None
    peers_s = float(costs.columns_s[row, column])
    result = stalling(row, column)
    lost_s = float(lost.max()) if result is None else result.share * result.each_s
    cause: Cause = "late_arrival" if column == late else cause_of_section(section)
    return Candidate(
        row=row,
        column=column,
        sure=False,
        section=section,
        cause="slow_host" if column == 0 else cause,
        effect=float(np.log1p(lost_s / peers_s) + max(float(np.nan_to_num(recent[column])), 0.0)),
        floor=0.0,
        z=float(spikes.z[row].max()),
        lost_s=lost_s,
        own_s=peers_s + lost_s,
        peers_s=peers_s,
        since=-1,
        is_late=column == late,
        heaviest=sections[inside - 1] if inside else None,
        stalling=result,
    )


def _lost_s(effects: Floats, columns_s: Floats) -> Floats:
    """Seconds per step that log excesses cost; NaN where one is not known."""
    with np.errstate(invalid="ignore", over="ignore"):  # numpy 1.24 warns of NaN
        return np.asarray(np.expm1(effects) * columns_s)


def _effects(track: Track, findings: Findings, row: int, since: int) -> Floats:
    """(C,) excesses since the rise began, or of the window in which they were found."""
    steps = track.steps - since + 1
    if since > 0 and steps < NEWEST_STEPS:
        return np.asarray(track.since(np.array([row]), max(steps, MIN_STEPS))[0])
    known = np.where(findings.beyond[row], findings.effect[row], findings.recent[row])
    return np.asarray(known)


def _main_section(lost: Floats, local_s: float) -> int:
    """Column of the section that holds most of what is lost; 0 if none does."""
    best = 1 + int(np.argmax(lost[1:-1])) if len(lost) > 2 else 0
    return best if best and lost[best] >= NAMED * local_s else 0


def _cause(lost: Floats, sections: list[Section], section: Section | None) -> Cause:
    """By the section; where several lose, by where most is lost: on the GPU or before it."""
    if section is not None:
        return cause_of_section(section)
    by_cause: dict[Cause, float] = {}
    for value, one in zip(lost[1:-1].tolist(), sections, strict=True):
        cause = cause_of_section(one)
        by_cause[cause] = by_cause.get(cause, 0.0) + max(value, 0.0)
    return max(by_cause, key=by_cause.__getitem__) if by_cause else "unknown"


class View:
    """Findings of one track with their costs."""

    def __init__(
        self,
        track: Track,
        minimum: Floats,
        costs: StepCost,
        world: World,
        settings: VerdictSettings,
        *,
        only_known: bool,
    ) -> None:
        self.track = track
        self.findings = track.evaluate(minimum)
        self.costs = costs
        self._world = world
        beyond, verified = material(self.findings, costs, settings.min_share)
        if only_known:  # who no longer reports its GPU time keeps the verdict that it has
            known = np.isfinite(self.findings.recent)
            beyond, verified = beyond & known, verified & known
        self._result = Evaluation(
            track=track, findings=self.findings, beyond=beyond, verified=verified
        )

    def candidates(self) -> list[Candidate]:
        rows = np.flatnonzero((self._result.beyond | self._result.verified).any(axis=1)).tolist()
        sections = self._world.sections
        return [candidate(row, self._result, self.costs, sections) for row in rows]

    def only_in(self, row: int, shared: Bools) -> bool:
        """Whether no section but these is slow; where none is by itself, by the largest."""
        flagged = (self._result.beyond[row] | self._result.verified[row])[1:-1]
        if flagged.any():
            return not (flagged & ~shared).any()
        recent = np.nan_to_num(self.findings.recent[row, 1:-1], nan=-np.inf)
        lost = recent * self.costs.columns_s[row, 1:-1]
        return bool(shared[int(np.argmax(lost))])

    def worst_of(self, rows: Ints, one: Candidate) -> Floats:
        """(rows,) excess of the local work or lateness since ``one`` began."""
        steps = max(self.track.steps - one.since + 1, 5) if one.since > 0 else NEWEST_STEPS
        since = self.track.since(rows, steps)[:, [0, -1]]
        return np.asarray(np.fmax.reduce(since, axis=1))

    def is_clear(self, row: int, verdict: Verdict, floor: float) -> bool:
        """Whether the newest 20 steps are as those of the peers, with a margin for chance."""
        names = [section.name for section in self._world.sections]
        columns = [0, len(names) + 1]
        if verdict.section in names:
            columns.append(names.index(verdict.section) + 1)
        recent = self.findings.recent[row, columns]
        error = self.findings.recent_error[columns]
        known = np.isfinite(recent)
        if not known.any():
            return False
        return bool((recent[known] + error[known] <= np.maximum(0.5 * floor, error[known])).all())


MANY = 0.25
"""Part of all that do the same work; fewer hardly move their median. One alone is not many."""


def against_the_others(
    one: Candidate, recent: Floats, group: Bools, peers: Bools, slow: Bools, minimum: int
) -> tuple[Candidate, Bools]:
    """The candidate against those of its peers that are not slow, if many are.

    Times are compared with the median of all peers. If half of them are slow it lies halfway, and
    all of them are named by half of what they are slow. Who is found stays as it is; only by how
    much is corrected.

    Args:
        one: of a rank or a host.
        recent: (R, C) excess of the ranks over the median of their peers, of late.
        group: (R,) whose median it was compared with.
        peers: (R,) those of them who are not of it.
        slow: (R,) who is found slow.
        minimum: with fewer that are not, all stays as it is.

    Returns: The candidate, and (R,) with whom it is compared now.
    """
    known = np.isfinite(recent[:, one.column])
    others = peers & known & ~slow
    if (group & slow).sum() < max(2, MANY * group.sum()) or others.sum() < minimum:
        return one, peers
    lower = median_of(recent[others, one.column])
    if not lower < 0.0:
        return one, others
    peers_s = one.peers_s * math.exp(lower)
    return replace(
        one,
        effect=one.effect - lower,
        peers_s=peers_s,
        lost_s=one.lost_s + one.peers_s - peers_s,
    ), others


SECONDS_PER_HOUR = 3600.0


def gpu_seconds_per_hour(excess_s: float, step_s: float, n_ranks: int) -> float:
    """Time that all ranks wait, per hour of training.

    excess_s / step_s x n_ranks x 3600. The excess is part of ``step_s``, so it is never more than
    all of it. It is what the subject takes beyond its peers: what is lost once all others that are
    slow are mended. Where two are slow at once, mending the slower one alone wins less. Returns:
    Seconds; NaN if the excess or the time of a step is not known.

    >>> gpu_seconds_per_hour(0.1, 1.0, 8)
    2880.0
    """
    if not step_s > 0.0 or math.isnan(excess_s):
        return math.nan
    return min(1.0, max(0.0, excess_s) / step_s) * n_ranks * SECONDS_PER_HOUR
