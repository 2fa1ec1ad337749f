"""What becomes of a span that came in."""

from __future__ import annotations

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
