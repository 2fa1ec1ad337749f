"""From findings per quantity to one candidate per rank or host: in which section, why, how dear."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import Floats, Section
from otel_straggler.model.verdict import Beginning, Cause
from otel_straggler.score.verdicts.findings import Findings, Flags
from otel_straggler.score.verdicts.intermittent import Spikes
from otel_straggler.score.verdicts.own_history import how_it_began
from otel_straggler.score.verdicts.stalls import Stalling
from otel_straggler.score.verdicts.subjects import cause_of_section
from otel_straggler.score.verdicts.track import Track

NAMED = 0.75
"""A section is named if it holds this part of what is lost, else the whole step is."""
MOST_OF_IT = 0.5
"""Late is who has this part of what he costs in no measured section."""
NEWEST_STEPS = 20
"""A rise that began later is measured since it began, ..."""
LEAST_STEPS = 5
"""... over so many steps at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A rank or host that is beyond its peers.

    Attributes:
        row, column: of the track; the quantity in which it is compared.
        sure: CUSUM alarms and is verified.
        section: where most of the time is lost; None for the whole step.
        cause: as far as the section tells.
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
    stalling: Stalling | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices:
    """What an excess of 1 costs: typical seconds per step of the peers of each row.

    Attributes:
        columns_s: (R, C) of the quantity; of lateness, the step.
        step_s: (R,) of the step.
    """

    columns_s: Floats
    step_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    """What an evaluation of a track gives, after what costs too little has been left out."""

    track: Track
    findings: Findings
    beyond: Flags
    verified: Flags


def material(findings: Findings, prices: Prices, least_share: float) -> tuple[Flags, Flags]:
    """(R, C) what is beyond, and what is verified, and costs enough of the step to matter."""
    with np.errstate(invalid="ignore"):
        dear = _lost_s(findings.effect, prices.columns_s) >= least_share * prices.step_s[:, None]
    return findings.beyond & dear, findings.verified & dear


def candidate(
    row: int,
    found: Found,
    prices: Prices,
    sections: list[Section],
) -> Candidate:
    """The candidate of a row in which something is beyond or verified."""
    track, findings = found.track, found.findings
    flagged = found.beyond[row] | found.verified[row]
    column = int(np.argmax(np.where(flagged, np.nan_to_num(findings.z[row], nan=-np.inf), -np.inf)))
    since = max(int(findings.since[row, column]), 0)
    effects = _effects(track, findings, row, since)
    lost = np.nan_to_num(_lost_s(effects, prices.columns_s[row]), nan=0.0)
    late = len(sections) + 1
    local_s = max(float(lost[0]), float(lost[1:late].max(initial=0.0)), 0.0)
    is_late = bool(flagged[late]) and local_s < MOST_OF_IT * float(lost[late])
    told = late if is_late else _main_section(lost, local_s)
    if not (np.isfinite(effects[told]) and effects[told] > 0.0):
        told = column
    section = sections[told - 1] if 0 < told < late else None
    effect = effects[told] if effects[told] > 0.0 else findings.effect[row, column]
    peers_s = float(prices.columns_s[row, told])
    normal = track.normal_of(row, told)
    return Candidate(
        row=row,
        column=told,
        sure=bool(found.verified[row].any()),
        section=section,
        cause="late_arrival" if is_late else _cause(lost, sections, section),
        effect=float(effect),
        floor=float(np.min(findings.floor[row][flagged])),
        z=float(np.nanmax(findings.z[row][flagged])),
        lost_s=max(local_s, float(lost[told]), float(lost[late]) if flagged[late] else 0.0),
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
    prices: Prices,
    sections: list[Section],
    recent: Floats,
    stalling: Callable[[int, int], Stalling | None],
) -> Candidate:
    """The candidate of a rank that stalls now and then, in quantities that have a price.

    Args:
        stalling: how often and how long a row does so in a column, if that is known.
    """
    late = len(sections) + 1
    held = np.where(prices.columns_s[row] > 0.0, spikes.lost_s[row], 0.0)
    lost = np.where(spikes.beyond[row], held, 0.0)
    column = 0 if lost[0] else int(np.argmax(lost))
    inside = 1 + int(np.argmax(held[1:late])) if late > 1 else 0
    if column == 0 and held[inside] >= NAMED * lost[0]:
        column = inside
    section = sections[column - 1] if 0 < column < late else None
    peers_s = float(prices.columns_s[row, column])
    found = stalling(row, column)
    lost_s = float(lost.max()) if found is None else found.share * found.each_s
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
        stalling=found,
    )


def _lost_s(effects: Floats, columns_s: Floats) -> Floats:
    """Seconds per step that log excesses cost; NaN where one is not known."""
    with np.errstate(invalid="ignore", over="ignore"):  # numpy 1.24 warns of NaN
        return np.asarray(np.expm1(effects) * columns_s)


def _effects(track: Track, findings: Findings, row: int, since: int) -> Floats:
    """(C,) excesses since the rise began, or of the window in which they were found."""
    steps = track.steps - since + 1
    if since > 0 and steps < NEWEST_STEPS:
        return np.asarray(track.since(np.array([row]), max(steps, LEAST_STEPS))[0])
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
