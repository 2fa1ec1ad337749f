"""Flight records: the collectives that a rank has launched, from PyTorch's flight recorder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

_MAX_LISTED = 8
_UNNAMED = frozenset({"", "undefined"})
"""Descriptions of groups that the program has not described."""


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """One process group, the same on all of its members.

    Attributes:
        description: the program's, or empty.
        ranks: global ranks in the group's order.
        name: PyTorch's; tells apart groups of the same ranks. Empty if unknown.
        backend: which recorder has it, as "nccl"; empty if unknown. A group may have several
            backends, each with sequence numbers of its own.
    """

    description: str
    ranks: tuple[int, ...]
    name: str = ""
    backend: str = ""

    def __hash__(self) -> int:
        """Cost: the same for any number of ranks."""
        return hash((self.name, self.description, self.backend, len(self.ranks), self.ranks[:2]))

    def __str__(self) -> str:
        if self.description not in _UNNAMED:
            return self.description
        if len(self.ranks) > _MAX_LISTED:
            return f"group of {len(self.ranks):,} ranks from {min(self.ranks)} on"
        return f"group of ranks {', '.join(map(str, self.ranks))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One call that the recorder remembers.

    Attributes:
        sequence: number among the collectives of the group (or among its sends and receives).
        name: as ``all_reduce``, ``recv``.
        peer: global rank at the other end of a send or receive; None if unknown.
        is_done: the rank has seen its completion.
        age_s: since the rank launched it, on the rank's clock when it was read; NaN if unknown.
        sizes, dtypes: of the inputs, as recorded.
    """

    group: ProcessGroup
    sequence: int
    name: str
    is_point_to_point: bool = False
    peer: int | None = None
    is_done: bool = False
    age_s: float = field(default=math.nan, compare=False)
    sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()

    def __str__(self) -> str:
        peer = "" if self.peer is None else f" with rank {self.peer}"
        return f"{self.name}{peer} #{self.sequence} of {self.group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightRecord:
    """What one rank has launched.

    Attributes:
        groups: of the rank.
        enqueued, completed: newest collective that the rank has launched, and seen completed, by
            group, as far as recorded.
        calls: that the recorder remembers, oldest first.
        read_at_s: when it was read, on one clock for all ranks; NaN for a file.
        ignored: entries that say nothing, by reason.
    """

    rank: int
    groups: tuple[ProcessGroup, ...] = ()
    enqueued: Mapping[ProcessGroup, int] = field(default_factory=dict)
    completed: Mapping[ProcessGroup, int] = field(default_factory=dict)
    calls: tuple[Collective, ...] = ()
    read_at_s: float = math.nan
    ignored: Mapping[str, int] = field(default_factory=dict)

    @property
    def pending(self) -> tuple[Collective, ...]:
        """Launched and not seen completed, oldest first."""
        return tuple(call for call in self.calls if not call.is_done)
