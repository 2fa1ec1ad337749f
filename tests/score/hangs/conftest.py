"""Signs of life by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from otel_straggler.detect.hangs.states import NOT_ENDED, HeartbeatTable
from otel_straggler.semconv import OUTCOMES

SECTIONS = ("data", "forward", "backward")
_CODES: dict[str, dict[Any, int]] = {
    "section": {"": -1, **{name: code for code, name in enumerate(SECTIONS)}},
    "ended": {outcome: code for code, outcome in enumerate(OUTCOMES)},
}


def heartbeats(ranks: int = 4, **columns: Any) -> HeartbeatTable:
    """All ranks alive and busy in ``backward`` of step 100; ``columns`` change some by rank, as
    ``step={2: 99}``. ``section`` and ``ended`` take names; a section of "" is none."""
    made: dict[str, Any] = {
        "silent_s": np.full(ranks, 1.0),
        "stalled_s": np.full(ranks, 1.0),
        "step": np.full(ranks, 100),
        "section": np.full(ranks, SECTIONS.index("backward"), np.int32),
        "is_working": np.full(ranks, True),
        "ended": np.full(ranks, NOT_ENDED, np.int32),
        "ended_s": np.full(ranks, np.nan),
        "node": np.zeros(ranks, np.int32),
        "began_s": np.full(ranks, 9_000.0),
        "first_step": np.zeros(ranks, np.int64),
    }
    for name, changes in columns.items():
        for rank, value in changes.items():
            made[name][rank] = _CODES.get(name, {}).get(value, value)
    untold = (made["ended"] != NOT_ENDED) & np.isnan(made["ended_s"])
    made["ended_s"][untold] = made["silent_s"][untold]
    return HeartbeatTable(ranks=np.arange(ranks), sections=SECTIONS, **made)


@pytest.fixture(scope="session")
def heartbeats_of() -> Callable[..., HeartbeatTable]:
    return heartbeats
