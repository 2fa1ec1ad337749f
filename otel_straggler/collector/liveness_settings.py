"""When a rank is lost or stuck, as a collector's file says it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from otel_straggler.score.settings import HangSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessSettings:
    """See :class:`HangSettings`, whose names have ``_s`` for ``_seconds``.

    Attributes:
        lost_after_seconds: without a sign of life for so long a rank is lost.
        least_timeout_seconds: no progress for less is never called stuck.
        most_timeout_seconds: for more always, unless that is usual for the section.
        start_timeout_seconds: for a rank that has not progressed yet, and for the first steps.
        unknown_timeout_seconds: for a section that was seen too seldom to know.
        give_up_seconds: a stuck or lost run stays so long after its last sign of life, unless
            somebody acknowledges it; then it is ``forgotten`` for an hour, and goes.
    """

    lost_after_seconds: float = 20.0
    least_timeout_seconds: float = 30.0
    most_timeout_seconds: float = 480.0
    start_timeout_seconds: float = 3_600.0
    unknown_timeout_seconds: float = 480.0
    give_up_seconds: float = 259_200.0

    def for_judge(self) -> HangSettings:
        values = {
            field.name.removesuffix("_seconds") + "_s": getattr(self, field.name)
            for field in dataclasses.fields(self)
            if field.name != "give_up_seconds"
        }
        return HangSettings(**values)
