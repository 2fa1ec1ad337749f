"""The state of every rank, from what it last said."""

from __future__ import annotations

import numpy as np

from otel_straggler.model.observation import NO_STEP, Codes, Floats
from otel_straggler.score.hangs.settings import HangSettings
from otel_straggler.score.hangs.signs import (
    FINISHED,
    LATE,
    LOST,
    OK,
    STARTING,
    STUCK,
    Signs,
)


def rank_states(signs: Signs, timeout_s: Floats, settings: HangSettings) -> Codes:
    """A state for each rank.

    finished: it said how it ended. lost: no sign of life for ``lost_after_s``, or it ended without
    saying how. stuck: alive, without progress for longer than its timeout, and work is pending:
    its own, or that of a rank which may wait for it. late: the same for a part of the timeout.
    starting: alive, and never began a step or a section.

    Args:
        signs: of R ranks.
        timeout_s: (R,) what each may take for what it does now.

    Returns:
        (R,) codes into ``RANK_STATES``. A rank never heard of is starting.

    Cost: O(R).
    """
    state = np.full(len(signs), OK, np.int32)
    is_known = ~np.isnan(signs.silent_s)
    has_begun = (signs.step != NO_STEP) | signs.is_working
    state[~is_known | ~has_begun] = STARTING
    is_pending = signs.is_working | bool(np.any(signs.is_working & ~signs.has_ended))
    overdue = np.where(is_pending, signs.stalled_s, 0.0) / timeout_s
    state[overdue > settings.late_part] = LATE
    state[overdue > 1.0] = STUCK
    is_gone = (signs.silent_s > settings.lost_after_s) | (signs.ended >= 0)
    state[is_gone] = LOST
    state[signs.has_ended] = FINISHED
    return state
