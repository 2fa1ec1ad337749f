"""Requests of a simulated run, made once and sent to every receiver."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import cache, cached_property

from otel_straggler.simulate.scenarios import SECTIONS, Plan, simulate
from otel_straggler.simulate.writers import encode_requests

STEPS = {16: 2_048}
"""Steps by ranks; few ranks need many to make as many spans."""
WARM_UP_RANKS, WARM_UP_STEPS = 4, 45
STEPS_OF_OTHERS = 204
"""Two requests of 512 spans from each rank."""


@dataclass(frozen=True)
class Dose:
    """What is sent.

    Attributes:
        ranks, steps: of the run; each step of a rank is five spans.
        spans_per_request: at most; a request holds spans of one rank.
    """

    ranks: int
    steps: int
    spans_per_request: int

    @property
    def spans(self) -> int:
        return self.ranks * self.steps * len(SECTIONS)

    @cached_property
    def bodies(self) -> list[bytes]:
        """In the order in which a live run would send them: rank after rank, then the next."""
        return self._requests("measured", self.ranks, self.steps)

    @cached_property
    def warm_up(self) -> list[bytes]:
        """Of another run with the same names, small enough to cost nothing afterwards."""
        return self._requests("warm-up", WARM_UP_RANKS, WARM_UP_STEPS)

    @cached_property
    def zipped(self) -> list[bytes]:
        return [gzip.compress(body, 1) for body in self.bodies]

    def _requests(self, run_id: str, ranks: int, steps: int) -> list[bytes]:
        plan = Plan(run_id=run_id, ranks=ranks, steps=steps, slow_rank=ranks // 2)
        batch = simulate("one_slow_rank", plan).batch
        return [body for body in encode_requests(batch, self.spans_per_request) if body]


@cache
def dose(ranks: int, spans_per_request: int, part: float) -> Dose:
    """The usual dose, or a part of it; half of it in requests of few spans."""
    steps = STEPS.get(ranks, STEPS_OF_OTHERS) * part
    if spans_per_request < 100:
        steps /= 2
    return Dose(ranks, max(2, round(steps)), spans_per_request)
