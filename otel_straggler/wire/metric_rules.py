"""What data points mean: the rules that both ways of reading metrics requests share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from otel_straggler import semconv
from otel_straggler.model.heartbeat import Heartbeat
from otel_straggler.model.kernel_times import KernelTimes
from otel_straggler.model.rank import Source
from otel_straggler.model.section_times import SectionTimes
from otel_straggler.model.told_number import ToldNumber
from otel_straggler.semconv import Outcome
from otel_straggler.wire.identity import BAD_RANK, NO_RANK, Value, Values, as_bool

USED, SECTION_TIMES, UNKNOWN, MALFORMED = "used", "section_times", "unknown", "malformed"
KERNEL_TIMES, NOT_DELTA = "kernel_times", "not_delta"
USES = (USED, SECTION_TIMES, UNKNOWN, NO_RANK, BAD_RANK, MALFORMED, KERNEL_TIMES, NOT_DELTA)
"""What can become of a point."""
_REJECTED = frozenset({BAD_RANK, MALFORMED, NOT_DELTA})

_MAX_S = 2.0**63 / 1e9
_MAX_STEP = 2.0**62
_MAX_TEXT = 256
MOST_REASONS = 100
MOST_FOLDED = 200
NUMBERS = {
    semconv.HEARTBEAT.name: _MAX_S,
    semconv.PROGRESS.name: _MAX_S,
    semconv.PROGRESS_STEP.name: _MAX_STEP,
    semconv.SECTION_OPEN.name: _MAX_S,
    semconv.RANK_FINISHED.name: _MAX_S,
}
"""Metrics that make a heartbeat, in the order in which :func:`heartbeat` takes them, and their
largest values."""
COUNTS = {semconv.RECORDS_DROPPED.name: _MAX_STEP, semconv.RECORDS_FOLDED.name: _MAX_STEP}
"""Metrics that count by an attribute, and their largest values."""
LARGEST = {**NUMBERS, **COUNTS}
DATA_OF = {
    **dict.fromkeys((*LARGEST, semconv.RANK_INFO.name), ("gauge", "sum")),
    **dict.fromkeys((metric.name for metric in semconv.AS_TOLD), ("gauge", "sum")),
    semconv.SECTION_DURATION.name: ("histogram", "exponential_histogram"),
    semconv.KERNEL_DURATION.name: ("exponential_histogram",),
}
"""In which kinds of data a metric may come."""
TEXTS = (semconv.SECTION, semconv.PHASE, semconv.OUTCOME)
"""Attributes of a number's point that are texts of the heartbeat, in the order in which
:func:`heartbeat` takes them."""

Numbers: TypeAlias = tuple[
    float | None, float | None, float | None, float | None, float | None
]  # of NUMBERS
Texts: TypeAlias = tuple[str, str, str]  # of TEXTS


class RankTold(NamedTuple):
    """What a rank tells of itself beside its identity; see :class:`Heartbeat`."""

    gpu_tier: str = ""
    gpu_reason: str = ""
    page: bool | None = None
    team: str = ""
    is_ending: bool = False


NOTHING_TOLD = RankTold()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedMetrics:
    """One metrics request: signs of life, times of sections and kernels, numbers that are shown as
    told, and data points by what they were.

    ``used`` points make heartbeats or are shown as told, ``section_times`` histograms of sections,
    ``kernel_times`` those of kernels, ``unknown`` ones are metrics of others (or no numbers),
    ``no_rank`` ones of ours do not say who sent them, ``not_delta`` are kernel histograms that are
    not deltas.
    """

    heartbeats: tuple[Heartbeat, ...]
    section_times: tuple[SectionTimes, ...] = ()
    kernel_times: KernelTimes | None = None
    told: tuple[ToldNumber, ...] = ()
    points: dict[str, int]

    @property
    def rejected(self) -> dict[str, int]:
        """Malformed points, by reason."""
        return {use: count for use, count in self.points.items() if use in _REJECTED and count}


def heartbeat(
    source: Source,
    numbers: Numbers,
    texts: Texts,
    dropped: dict[str, int],
    folded: dict[str, int],
    told: RankTold = NOTHING_TOLD,
) -> Heartbeat:
    """A heartbeat of what the points of one process told."""
    sent_at_s, progress_at_s, step, open_time_s, finished_at_s = numbers
    section, phase, outcome = texts
    known: Outcome = outcome if outcome in semconv.OUTCOMES else "unknown"
    return Heartbeat(
        source=source,
        sent_at_s=sent_at_s,
        progress_at_s=progress_at_s,
        step=None if step is None else int(step),
        open_section=section,
        open_time_s=open_time_s,
        phase=phase,
        finished_at_s=finished_at_s,
        outcome=None if finished_at_s is None else known,
        dropped=dropped,
        folded=folded,
        gpu_tier=told.gpu_tier,
        gpu_reason=told.gpu_reason,
        page=told.page,
        team=told.team,
        is_ending=told.is_ending,
    )


def rank_told(description: Values, resource: Values) -> RankTold:
    """What a rank tells of itself.

    Args:
        description: attributes of ``straggler.rank.info``.
        resource: those of the resource; what the description says wins.
    """
    tier, reason = _gpu_told(description)
    page = as_bool(description.get(semconv.RUN_PAGE))
    team = description.get(semconv.TEAM) or resource.get(semconv.TEAM)
    return RankTold(
        gpu_tier=tier,
        gpu_reason=reason,
        page=as_bool(resource.get(semconv.RUN_PAGE)) if page is None else page,
        team=as_text(str(team)) if team else "",
        is_ending=bool(as_bool(description.get(semconv.RANK_ENDING))),
    )


def _gpu_told(description: Values) -> tuple[str, str]:
    tier, reason = (
        description.get(semconv.GPU_TIMING_TIER),
        description.get(semconv.GPU_TIMING_REASON),
    )
    if tier not in semconv.GPU_TIERS:
        return "", ""
    return str(tier), as_text(reason) if isinstance(reason, str) else ""


def as_text(value: str) -> str:
    """A text of a heartbeat, no longer than it may be."""
    return value[:_MAX_TEXT]


def counted(name: Value) -> str:
    """Under which name something is counted."""
    return str(name or "unknown")[:_MAX_TEXT]


def take_count(counts: dict[str, int], name: Value, count: int, most: int) -> None:
    """Keep a count if there is room for it."""
    if len(counts) < most:
        counts[counted(name)] = count
