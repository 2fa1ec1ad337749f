"""What the worlds of one scorer share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from otel_straggler.detect.scores.references import ReferenceSet
from otel_straggler.detect.scores.settings import ScorerCounts, ScoreSettings, VerdictSettings
from otel_straggler.detect.scores.sources import SourceCache
from otel_straggler.detect.scores.stream import Stream
from otel_straggler.model.failure import Guard
from otel_straggler.model.step_table import StepTable, StepTimes
from otel_straggler.model.verdict import Verdict

_MAX_STEP_TIMES = 1_000
"""Tables with times to be drained; the oldest are dropped."""


class Shared:
    """What the worlds of one :class:`.Scorer` share; ``routes`` has where rows of a source belong,
    ``changes`` include subjects that began to page without one."""

    def __init__(
        self,
        settings: ScoreSettings | None,
        verdicts: VerdictSettings | None,
        on_table: Callable[[StepTable], None] | None,
        guard: Guard | None = None,
    ) -> None:
        self.settings = settings or ScoreSettings()
        self.verdicts = verdicts or VerdictSettings()
        self.on_table = on_table or (lambda _: None)
        self.guard = guard
        self.references = ReferenceSet.empty(self.settings.reference_half_life_s)
        self.counts = ScorerCounts()
        self.routes: SourceCache[Stream] = SourceCache()
        self.changes: deque[Verdict] = deque(maxlen=self.verdicts.max_changes)
        self.step_times: deque[StepTimes] = deque(maxlen=_MAX_STEP_TIMES)
