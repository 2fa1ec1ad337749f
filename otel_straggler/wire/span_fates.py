"""What becomes of a span that came in."""

from __future__ import annotations

from dataclasses import dataclass, field

from otel_straggler.model.observation import NO_STEP, ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.wire.identity import BAD_RANK, NO_RANK

ROW = "row"
STEP = "step"
BAD_ID = "bad_id"
BAD_TIME = "bad_time"
BAD_FOLD = "bad_fold"
NO_NAME = "no_name"
DURATION_NOT_POSITIVE = "duration_not_positive"
ERROR_STATUS = "error_status"
EXCLUDED = "excluded"
TRUNCATED = "truncated"

FATES = (
    ROW, STEP, NO_RANK, ERROR_STATUS, EXCLUDED, TRUNCATED,
    BAD_ID, BAD_RANK, BAD_TIME, NO_NAME, DURATION_NOT_POSITIVE, BAD_FOLD,
)  # fmt: skip
MALFORMED = frozenset({BAD_ID, BAD_RANK, BAD_TIME, NO_NAME, DURATION_NOT_POSITIVE, BAD_FOLD})
"""Fates of spans that the sender is told were rejected."""

_MAX_NS = 2**63 - 1


def fate_of_times(start_ns: int, end_ns: int) -> str:
    """What is wrong with them; empty where nothing is."""
    if not (0 < start_ns <= _MAX_NS and 0 < end_ns <= _MAX_NS):
        return BAD_TIME
    return "" if end_ns > start_ns else DURATION_NOT_POSITIVE


@dataclass(slots=True)
class Progress:
    """How far one source has come, as its spans say."""

    step: int = NO_STEP
    end_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedSpans:
    """One trace request.

    Attributes:
        batch: the rows to score.
        fates: spans by what became of them; the sum is the number of spans received.
        progress: newest step (``NO_STEP`` if none) and newest end per source.
        refused_gpu_times: GPU times of rows that make no sense; the rows go by the host's clock.
    """

    batch: ObservationBatch
    fates: dict[str, int]
    progress: dict[Source, Progress] = field(default_factory=dict)
    refused_gpu_times: int = 0

    @property
    def rejected(self) -> dict[str, int]:
        """Malformed spans, by reason."""
        return {fate: count for fate, count in self.fates.items() if fate in MALFORMED}
