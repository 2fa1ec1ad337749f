"""From findings per quantity to one candidate per rank or host: section, cause, and cost."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from otel_straggler.detect.scores.medians import median_of
from otel_straggler.detect.verdicts.history import how_it_began
from otel_straggler.detect.verdicts.log import Work
from otel_straggler.detect.verdicts.stalls import Spikes, StallPattern
from otel_straggler.detect.verdicts.track import Track
from otel_straggler.detect.verdicts.turns import MIN_RUN
from otel_straggler.detect.verdicts.waits import Lateness
from otel_straggler.detect.verdicts.world import cause_of_section
from otel_straggler.model.causes import Cause
from otel_straggler.model.observation import Bools, Floats, Ints, Section
from otel_straggler.model.verdict import Beginning, Verdict

NAMED = 0.75
"""A section is named if it holds this part of the loss, else the whole step is."""
LATE_SHARE = 0.5
"""A rank is late if this part of its cost lies in no measured section."""
NEWEST_STEPS = 20
"""A rise that began later is measured since it began, ..."""
TIMES_AS_LONG = 4.0
"""Where ranks take turns, one is named that is slow for so many times as long as any other was."""
MAX_LOADER_SPREAD = 0.1
"""Where blocks of data loading differ by more, ranks wait for batches now and then."""
PREFETCHED = 0.01
"""Batches that are ready when they are asked for take less than this part of a step."""
NEWS_STEPS, QUIET_STEPS, REMEMBERED_STEPS = 40, 100, 400
"""A rank that waits for its loader is named after so many steps, and so many before them without;
or if it always did."""
MIN_STEPS = 5
"""... over at least so many steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A rank or host beyond its peers.

    Attributes:
        row, column: of the track; the quantity compared.
        sure: CUSUM alarms and is verified.
        section: where most of the time is lost; None for the whole step.
        effect: log excess in ``section``; normal: that it always had, NaN if unknown.
        floor: the smallest excess that counted.
        z: distance from the peers in robust standard deviations; z_limit: from which on it counts,
            NaN: as the settings say.
        lost_s: seconds per step that others may wait for it.
        own_s, peers_s: seconds per step in ``section``.
        since: observed step (a count) at which it began; 0: before all that is remembered; -1:
            unknown. onset: the same, more exactly, for people.
        is_late: seen only in others' waiting.
        heaviest: the section that loses most, where ``section`` is the whole step.
        stalling: set if only some steps are slow; the other numbers are means of all steps then.
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
    onset: int = -1
    began: Beginning = "unknown"
    normal: float = math.nan
    z_limit: float = math.nan
    is_late: bool = False
    heaviest: Section | None = None
    stalling: StallPattern | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepCost:
    """Usual seconds per step of the peers of each row: the cost of an excess of 1.

    Attributes:
        columns_s: (R, C) of the quantity; of lateness, the step.
        step_s: (R,) of the step.
    """

    columns_s: Floats
    step_s: Floats


class CostedFindings:
    """Findings of one track with their costs; what costs too little is left out.

    Args:
        minimum: (R, C) an excess below it never counts.
        min_share: nor one that costs less than this part of the step.
        only_known: a row without recent times keeps its verdict.
        was_named: (R,) whether a row has had a verdict of its own, now or before.
        late_s: (R, S) mean seconds beyond the peers; None: from the excesses.
    """

    def __init__(
        self,
        track: Track,
        minimum: Floats,
        costs: StepCost,
        sections: list[Section],
        min_share: float,
        *,
        was_named: Bools,
        only_known: bool = False,
        late_s: Floats | None = None,
    ) -> None:
        self.track = track
        self._was_named = was_named
        self._late_s = late_s
        self.costs = costs
        self.findings = track.evaluate(minimum)
        self._sections = sections
        with np.errstate(invalid="ignore"):
            lost_s = _lost_s(self.findings.effect, costs.columns_s)
            counts = lost_s >= min_share * costs.step_s[:, None]
        if only_known:
            counts &= np.isfinite(self.findings.recent)
        self._verified = self.findings.verified & counts
        self.flagged = self.findings.beyond & counts | self._verified

    def candidates(self) -> list[Candidate]:
        """Of rows beyond their peers; not of one that is late only by own work that is not."""
        found = map(self.candidate, np.flatnonzero(self.flagged.any(axis=1)).tolist())
        return [one for one in found if one.is_late or self.flagged[one.row, :-1].any()]

    def candidate(self, row: int) -> Candidate:
        findings, sections, flagged = self.findings, self._sections, self.flagged[row]
        z = np.where(flagged, np.nan_to_num(findings.z[row], nan=-np.inf), -np.inf)
        column = int(np.argmax(z))
        since = max(int(findings.since[row, column]), 0)
        effects = self._effects(row, since)
        lost = np.nan_to_num(_lost_s(effects, self.costs.columns_s[row]), nan=0.0)
        late = len(sections) + 1
        local_s = max(float(lost[0]), float(lost[1:late].max(initial=0.0)), 0.0)
        is_late = bool(flagged[late]) and local_s < LATE_SHARE * float(lost[late])
        main = late if is_late else _main_section(lost, local_s)
        if not (np.isfinite(effects[main]) and effects[main] > 0.0):
            main = column
        section = sections[main - 1] if 0 < main < late else None
        by_section = lost[1:late] if self._late_s is None else self._late_s[row]
        effect = effects[main] if effects[main] > 0.0 else findings.effect[row, column]
        peers_s = float(self.costs.columns_s[row, main])
        normal = self.track.normal_of(row, main)
        return Candidate(
            row=row,
            column=main,
            sure=bool(self._verified[row].any()),
            section=section,
            cause="late_arrival" if is_late else _cause(by_section, sections, section),
            effect=float(effect),
            floor=float(np.min(findings.floor[row][flagged])),
            z=float(np.nanmax(findings.z[row][flagged])),
            lost_s=max(local_s, float(lost[main]), float(lost[late]) if flagged[late] else 0.0),
            own_s=peers_s * float(np.exp(effect)),
            peers_s=peers_s,
            since=since,
            onset=self.track.onset(row, main, since),
            began=how_it_began(normal, float(effect)),
            normal=normal,
            is_late=is_late,
            heaviest=sections[int(np.argmax(by_section))] if sections else None,
        )

    def only_in(self, row: int, shared: Bools) -> bool:
        """Whether only ``shared`` sections are slow; if none is by itself, the largest counts."""
        flagged = self.flagged[row, 1:-1]
        if flagged.any():
            return not (flagged & ~shared).any()
        recent = np.nan_to_num(self.findings.recent[row, 1:-1], nan=-np.inf)
        return bool(shared[int(np.argmax(recent * self.costs.columns_s[row, 1:-1]))])

    def work_of(self, row: int) -> Work | None:
        """Own work now, and the peers'; None if unknown or in between two levels."""
        peers_s, excess = float(self.costs.columns_s[row, 0]), float(self.findings.recent[row, 0])
        if not (peers_s > 0.0 and math.isfinite(excess)):
            return None
        newest = self.track.since(np.array([row]), MIN_STEPS)[0, 0]
        return Work(math.log(peers_s) + excess, math.log(peers_s), abs(newest - excess))

    def takes_turns(self, one: Candidate) -> bool:
        """See :meth:`.Track.takes_turns`. Of ranks that wait for their loaders the one that has
        fallen behind stays behind by mere chance, for any length of time."""
        section = one.section or one.heaviest
        if section is None or section.kind != "data":
            return self._is_turn(one, TIMES_AS_LONG)
        spread = math.sqrt(float(self.track.noise.variance[0, 1 + self._sections.index(section)]))
        is_queue = self.waits_for_loader(one) or not spread < MAX_LOADER_SPREAD
        if is_queue and not self._is_news(one):
            return True
        return self._is_turn(one, math.inf, 1 if is_queue else MIN_RUN)

    def waits_for_loader(self, one: Candidate) -> bool:
        """Whether it waits for batches that are ready when its peers ask for them."""
        section = one.section or one.heaviest
        if section is None or section.kind != "data":
            return False
        usual_s = float(self.costs.columns_s[one.row, 1 + self._sections.index(section)])
        return usual_s < PREFETCHED * float(self.costs.step_s[one.row])

    def _is_turn(self, one: Candidate, times: float, min_run: int = MIN_RUN) -> bool:
        return self.track.takes_turns(
            one.row, one.column, one.effect, one.since, times, self._was_named, min_run
        )

    def _is_news(self, one: Candidate) -> bool:
        """Whether it lasts, and did not happen for long before; or has lasted for all that is
        remembered."""
        lasts = self.track.steps - one.since + 1
        return one.since >= 0 and (
            lasts >= REMEMBERED_STEPS or (lasts >= NEWS_STEPS and one.since >= QUIET_STEPS)
        )

    def slow_part(self, rows: Ints, one: Candidate, minimum: float) -> float:
        """Part of the rows whose local work or lateness since ``one`` began reaches ``minimum``."""
        steps = max(self.track.steps - one.since + 1, 5) if one.since > 0 else NEWEST_STEPS
        worst = np.fmax.reduce(self.track.since(rows, steps)[:, [0, -1]], axis=1)
        with np.errstate(invalid="ignore"):
            return float((worst >= minimum).mean())

    def is_clear(self, row: int, verdict: Verdict, floor: float) -> bool:
        """Whether the newest 20 steps are as the peers', with a margin for chance."""
        names = [section.name for section in self._sections]
        columns = [0, len(names) + 1]
        if verdict.section in names:
            columns.append(names.index(verdict.section) + 1)
        recent = self.findings.recent[row, columns]
        error = self.findings.recent_error[columns]
        known = np.isfinite(recent)
        if not known.any():
            return False
        return bool((recent[known] + error[known] <= np.maximum(0.5 * floor, error[known])).all())

    def _effects(self, row: int, since: int) -> Floats:
        """(C,) excesses since the rise began, or of the window in which they were found."""
        steps = self.track.steps - since + 1
        if since > 0 and steps < NEWEST_STEPS:
            return np.asarray(self.track.since(np.array([row]), max(steps, MIN_STEPS))[0])
        findings = self.findings
        known = np.where(findings.beyond[row], findings.effect[row], findings.recent[row])
        return np.asarray(known)


def spiking(
    row: int,
    spikes: Spikes,
    costs: StepCost,
    sections: list[Section],
    recent: Floats,
    stalling: Callable[[int, int], StallPattern | None],
) -> Candidate:
    """The candidate of a rank that stalls intermittently, in quantities that have a cost.

    Args:
        stalling: pattern of a row and column, if known.
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
    pattern = stalling(row, column)
    lost_s = float(lost.max()) if pattern is None else pattern.share * pattern.each_s
    cause: Cause = "late_arrival" if column == late else cause_of_section(section)
    return Candidate(
        row=row,
        column=column,
        sure=False,
        section=section,
        cause=cause if column == late or (section and section.kind == "data") else "unknown",
        effect=float(np.log1p(lost_s / peers_s) + max(float(np.nan_to_num(recent[column])), 0.0)),
        floor=0.0,
        z=float(spikes.z[row, column]),
        z_limit=float(spikes.z_limit[column]),
        lost_s=lost_s,
        own_s=peers_s + lost_s,
        peers_s=peers_s,
        since=-1,
        is_late=column == late,
        heaviest=sections[inside - 1] if inside else None,
        stalling=pattern,
    )


def late(row: int, lateness: Lateness, costs: StepCost, z: float) -> Candidate:
    """The candidate of a rank that is last now and then, for no measured reason."""
    step_s = float(costs.step_s[row])
    known = math.isfinite(lateness.now_s)
    lost_s = lateness.now_s if known else lateness.share * lateness.each_s
    return Candidate(
        row=row,
        column=costs.columns_s.shape[1] - 1,
        sure=False,
        section=None,
        cause="late_arrival",
        effect=math.log1p(lost_s / step_s),
        floor=0.0,
        z=z,
        lost_s=lost_s,
        own_s=step_s + lost_s,
        peers_s=step_s,
        since=-1,
        is_late=True,
    )


def _lost_s(effects: Floats, columns_s: Floats) -> Floats:
    """Seconds per step that log excesses cost."""
    with np.errstate(invalid="ignore", over="ignore"):  # numpy 1.24 warns of NaN
        return np.asarray(np.expm1(effects) * columns_s)


def _main_section(lost: Floats, local_s: float) -> int:
    """Column of the section that holds most of the loss; 0 if none does."""
    best = 1 + int(np.argmax(lost[1:-1])) if len(lost) > 2 else 0
    return best if best and lost[best] >= NAMED * local_s else 0


def _cause(by_section: Floats, sections: list[Section], section: Section | None) -> Cause:
    """By the section; of several, by where most is lost: on the GPU or before it."""
    if section is not None:
        return cause_of_section(section)
    by_cause: dict[Cause, float] = {}
    for value, one in zip(by_section.tolist(), sections, strict=True):
        cause = cause_of_section(one)
        by_cause[cause] = by_cause.get(cause, 0.0) + max(value, 0.0)
    return max(by_cause, key=by_cause.__getitem__) if by_cause else "unknown"


MANY = 0.25
"""Part of all that do the same work; fewer hardly move their median."""
FEW = 4
"""In a group of so many one slow rank alone moves the median, by half of what a step's times differ
by chance: it takes the place of one that is not slow."""


def against_the_others(
    one: Candidate, recent: Floats, group: Bools, peers: Bools, slow: Bools, minimum: int
) -> tuple[Candidate, Bools]:
    """Compare with those peers that are not slow, if many are, or one of few.

    If half of the peers are slow, the median lies halfway, and all of them would be named by half
    of their slowdown. Only the size of the slowdown is corrected.

    Args:
        recent: (R, C) recent excess over the median of the peers.
        group: (R,) ranks of that median; peers: those of them that are not of the candidate.
        slow: (R,) ranks found slow.
        minimum: with fewer peers that are not slow, nothing changes; of few, one less will do.

    Returns: the candidate, and (R,) with whom it is compared now.
    """
    known = np.isfinite(recent[:, one.column])
    others = peers & known & ~slow
    is_few = group.sum() <= FEW
    at_least = MANY * group.sum() if is_few else max(2, MANY * group.sum())
    if (group & slow).sum() < at_least or others.sum() < minimum - is_few:
        return one, peers
    lower = median_of(recent[others, one.column])
    if not lower < 0.0:
        return one, others
    peers_s = one.peers_s * math.exp(lower)
    lost_s = one.lost_s + one.peers_s - peers_s
    return replace(one, effect=one.effect - lower, peers_s=peers_s, lost_s=lost_s), others


def gpu_seconds_per_hour(excess_s: float, step_s: float, n_ranks: int) -> float:
    """Seconds that all ranks wait per hour of training: excess / step x n_ranks x 3600; NaN if
    either is unknown. It is the time beyond the peers as a part of their usual step; ``losses``
    relates it to the actual step, and to others that are slow at the same time.

    >>> gpu_seconds_per_hour(0.1, 1.0, 8)
    2880.0
    """
    if not step_s > 0.0 or math.isnan(excess_s):
        return math.nan
    return min(1.0, max(0.0, excess_s) / step_s) * n_ranks * 3600.0
