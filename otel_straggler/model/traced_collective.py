"""A collective operation as a profiler saw it on one rank."""

from __future__ import annotations

from typing import NamedTuple


class Collective(NamedTuple):
    """One collective operation on one rank, in us; ``size`` 0 and ``seq`` -1 are unknown."""

    begin: float
    end: float
    name: str
    group: str
    seq: int
    size: int
    stream: str
