"""Headlines about healthy runs last: another one is shown after it has been right for a while."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from otel_straggler.collector.views.answer_type import Json
from otel_straggler.collector.views.world_view import Headline

DWELL_S: Final = 30.0


@dataclass(slots=True)
class HeadlineDwell:
    """The headline of one world.

    Attributes:
        shown: None while the answer needs no dwell: it is no healthy run, or it is the first.
    """

    shown: Headline | None = None
    _next: Headline | None = None
    _since_s: float = 0.0

    @property
    def is_pending(self) -> bool:
        return self._next is not None

    def settle(self, answer: Json, now_s: float) -> None:
        """Take the newest answer, at ``now_s`` of any monotonic clock."""
        new = (answer["headline"], answer["tone"]) if answer["kind"] == "healthy" else None
        if self.shown is None or new is None or new == self.shown:
            self.shown, self._next = new, None
        elif self._next is None or new[0] != self._next[0]:
            self._next, self._since_s = new, now_s
        elif now_s - self._since_s >= DWELL_S:
            self.shown, self._next = new, None
