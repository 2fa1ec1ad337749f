"""Timeouts of one rank by its own heartbeats and sections: learned, and exceeded or not.

Names, fields and rules are NVRx's (``fault_tolerance``): a timeout is a safety factor times the
longest interval that any rank had, averaged with the current one if that was learned, too. One rule
is ours: of 30 intervals or more the longest 5 % are outliers, such as checkpoints, and count with
1.2 instead of the safety factor, so that one slow checkpoint does not hide hangs for an hour.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

SAFETY_FACTOR: Final = 5.0
OUTLIER_FACTOR: Final = 1.2
MIN_FOR_OUTLIERS: Final = 30
USUAL_PART: Final = 0.95
MAX_LEARNED_S: Final = 86_400.0
"""No interval that somebody claims hides a hang for longer."""
STEP_SECTION: Final = "step"
WARMUP: Final = "warmup"
"""Key of ``rank_section_timeouts``: the timeout of "step" in the first iterations."""


@dataclass(frozen=True)
class HeartbeatTimeouts:
    """Seconds until a rank without a heartbeat counts as stuck; None: never.

    Attributes:
        initial: until its first heartbeat.
        subsequent: between two.
        were_calculated: from observed intervals.
    """

    initial: float | None = None
    subsequent: float | None = None
    were_calculated: bool | None = None

    @property
    def are_valid(self) -> bool:
        return self.initial is not None and self.subsequent is not None

    def __str__(self) -> str:
        return (
            f"HeartbeatTimeouts(initial={_shown(self.initial)}, "
            f"subsequent={_shown(self.subsequent)}, were_calculated={self.were_calculated})"
        )


@dataclass(frozen=True)
class SectionTimeouts:
    """Seconds until an open section, or time in none, counts as stuck; None: never.

    Attributes:
        section: by name.
        out_of_section: while no section is open.
        calculated_sections, is_out_of_section_calculated: which come from observed intervals.
    """

    section: Mapping[str, float | None] = field(default_factory=dict)
    out_of_section: float | None = None
    calculated_sections: Collection[str] = frozenset()
    is_out_of_section_calculated: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "calculated_sections", frozenset(self.calculated_sections))

    @property
    def were_calculated(self) -> bool:
        return self.calculated_sections == set(self.section) and self.is_out_of_section_calculated

    @property
    def are_valid(self) -> bool:
        return None not in self.section.values() and self.out_of_section is not None

    def updated_by(self, saved: SectionTimeouts) -> SectionTimeouts:
        """With saved values of the same sections; others are ignored."""
        known = {name: s for name, s in saved.section.items() if name in self.section}
        return SectionTimeouts(
            {**self.section, **known},
            saved.out_of_section,
            frozenset(saved.calculated_sections) & frozenset(known),
            saved.is_out_of_section_calculated,
        )

    def __str__(self) -> str:
        sections = ", ".join(f"{name}={_shown(s)}" for name, s in self.section.items())
        return (
            f"SectionTimeouts(out_of_section={_shown(self.out_of_section)}, sections=[{sections}], "
            f"calculated_sections={sorted(self.calculated_sections)}, "
            f"is_out_of_section_calculated={self.is_out_of_section_calculated})"
        )


def _shown(timeout_s: float | None) -> str:
    return "None" if timeout_s is None else f"{timeout_s:.2f}"


# --- learning -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Intervals:
    """Observed intervals of one kind, by powers of two of a nanosecond.

    Attributes:
        counts, longest_ns: by ``ns.bit_length()``; of equal length.
    """

    counts: Sequence[int] = ()
    longest_ns: Sequence[int] = ()

    @property
    def count(self) -> int:
        return sum(self.counts)

    def timeout_s(self, safety_factor: float = SAFETY_FACTOR) -> float:
        """The timeout that they call for; 0 if there are none."""
        total, seen, usual_ns = self.count, 0, 0
        for number, longest_ns in zip(self.counts, self.longest_ns, strict=True):
            if total >= MIN_FOR_OUTLIERS and seen >= USUAL_PART * total:
                break
            seen += number
            usual_ns = max(usual_ns, longest_ns)
        longest_ns = max(self.longest_ns, default=0)
        return max(safety_factor * usual_ns, OUTLIER_FACTOR * longest_ns) / 1e9


def merged(intervals: Iterable[Intervals]) -> Intervals:
    """Of several ranks."""
    known = [one for one in intervals if one.counts]
    return Intervals(
        [sum(column) for column in zip(*(one.counts for one in known), strict=True)],
        [max(column) for column in zip(*(one.longest_ns for one in known), strict=True)],
    )


@dataclass(frozen=True, slots=True)
class LearningRules:
    """How timeouts follow from intervals: times ``safety_factor``, at least ``min_s`` and at most
    ``MAX_LEARNED_S``."""

    safety_factor: float = SAFETY_FACTOR
    min_s: float = 0.0

    def timeout_s(self, intervals: Intervals) -> float:
        return min(max(intervals.timeout_s(self.safety_factor), self.min_s), MAX_LEARNED_S)


def learned_heartbeat_timeouts(
    initial: Intervals, gaps: Intervals, current: HeartbeatTimeouts, rules: LearningRules
) -> HeartbeatTimeouts | None:
    """None before the second heartbeat."""
    if not (initial.count and gaps.count):
        return None
    return averaged_heartbeat_timeouts(rules.timeout_s(initial), rules.timeout_s(gaps), current)


def averaged_heartbeat_timeouts(
    initial_s: float, subsequent_s: float, current: HeartbeatTimeouts
) -> HeartbeatTimeouts:
    """New timeouts, averaged with the current ones if these were calculated.

    >>> print(averaged_heartbeat_timeouts(10.0, 5.0, HeartbeatTimeouts(20.0, 15.0, True)))
    HeartbeatTimeouts(initial=15.00, subsequent=10.00, were_calculated=True)
    """
    if current.were_calculated:
        initial_s = _averaged(initial_s, current.initial)
        subsequent_s = _averaged(subsequent_s, current.subsequent)
    return HeartbeatTimeouts(initial_s, subsequent_s, True)


def learned_section_timeouts(
    observed: Mapping[str, Intervals],
    out_of_section: Intervals,
    current: SectionTimeouts,
    rules: LearningRules,
    selected: Collection[str] | None = None,
    *,
    with_out_of_section: bool = True,
) -> SectionTimeouts | None:
    """None unless each selected section has been closed once.

    Args:
        observed: by section, of all sections that have a timeout.
        selected: those to learn; None: all of them.
        with_out_of_section: learn the timeout outside of sections, too.
    """
    names = list(observed) if selected is None else list(selected)
    if not all(observed[name].count for name in names):
        return None
    if with_out_of_section and not out_of_section.count:
        return None
    section = dict(current.section)
    for name in names:
        before = section.get(name) if name in current.calculated_sections else None
        section[name] = _averaged(rules.timeout_s(observed[name]), before)
    outside = current.out_of_section
    if with_out_of_section:
        before = outside if current.is_out_of_section_calculated else None
        outside = _averaged(rules.timeout_s(out_of_section), before)
    return SectionTimeouts(
        section,
        outside,
        frozenset(current.calculated_sections) | frozenset(names),
        current.is_out_of_section_calculated or with_out_of_section,
    )


def _averaged(new_s: float, before_s: float | None) -> float:
    return new_s if before_s is None else (new_s + before_s) / 2


# --- watching -------------------------------------------------------------------------------------

OverdueKind = Literal["initial_heartbeat", "heartbeat", "section", "out_of_section"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBeats:
    """What a rank has reported. Times are seconds of one monotonic clock.

    Attributes:
        started_s: when its monitoring began.
        heartbeats: number so far; last_heartbeat_s: of the newest, if any.
        open_s: begin of the open sections, by name.
        outside_since_s: end of the last section, or ``started_s``; for when none is open.
        has_sections: it has opened one.
        step, first_step: now, and when monitoring began; None if not known.
        has_stepped: the section "step" has been opened.
        warmup_steps: steps that count as warm-up.
    """

    started_s: float
    heartbeats: int = 0
    last_heartbeat_s: float | None = None
    open_s: Mapping[str, float] = field(default_factory=dict)
    outside_since_s: float
    has_sections: bool = False
    step: int | None = None
    first_step: int | None = None
    has_stepped: bool = False
    warmup_steps: int = 0

    @property
    def is_warming_up(self) -> bool:
        """In its first steps, as far as it counts them."""
        if self.step is None or self.first_step is None:
            return False
        return self.step - self.first_step < self.warmup_steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Overdue:
    """A timeout that is exceeded; ``section``: empty unless it is a section's."""

    kind: OverdueKind
    section: str = ""
    elapsed_s: float
    timeout_s: float

    def __str__(self) -> str:
        what = {
            "initial_heartbeat": "no first heartbeat",
            "heartbeat": "no heartbeat",
            "section": f"section {self.section!r} open",
            "out_of_section": "no section open",
        }[self.kind]
        return f"{what} for {self.elapsed_s:.1f} s (timeout {self.timeout_s:.1f} s)"


def overdue(
    beats: RankBeats, heartbeat: HeartbeatTimeouts, section: SectionTimeouts, now_s: float
) -> list[Overdue]:
    """All timeouts that a rank exceeds, the one that it exceeds by most first.

    Of nested sections each counts for itself. A rank that works with sections and has not sent a
    heartbeat yet is not expected to send any.
    """
    exceeded = [
        one
        for one in (*_heartbeat(beats, heartbeat, now_s), *_sections(beats, section, now_s))
        if one.elapsed_s > one.timeout_s
    ]
    return sorted(exceeded, key=lambda one: one.timeout_s - one.elapsed_s)


def _heartbeat(beats: RankBeats, its: HeartbeatTimeouts, now_s: float) -> Iterator[Overdue]:
    if beats.last_heartbeat_s is not None:
        if its.subsequent is not None:
            elapsed_s = now_s - beats.last_heartbeat_s
            yield Overdue(kind="heartbeat", elapsed_s=elapsed_s, timeout_s=its.subsequent)
    elif its.initial is not None and not beats.has_sections:
        elapsed_s = now_s - beats.started_s
        yield Overdue(kind="initial_heartbeat", elapsed_s=elapsed_s, timeout_s=its.initial)


def _sections(beats: RankBeats, its: SectionTimeouts, now_s: float) -> Iterator[Overdue]:
    for name, since_s in beats.open_s.items():
        timeout_s = its.section.get(name)
        if name == STEP_SECTION and beats.is_warming_up and WARMUP in its.section:
            timeout_s = its.section[WARMUP]
        if timeout_s is not None:
            elapsed_s = now_s - since_s
            yield Overdue(kind="section", section=name, elapsed_s=elapsed_s, timeout_s=timeout_s)
    if beats.open_s or its.out_of_section is None:
        return
    is_excused = beats.is_warming_up and not beats.has_stepped and WARMUP not in its.section
    if not (is_excused and STEP_SECTION in its.section):
        elapsed_s = now_s - beats.outside_since_s
        yield Overdue(kind="out_of_section", elapsed_s=elapsed_s, timeout_s=its.out_of_section)
