"""What PyTorch's flight recorder of one rank held when it was dumped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A group of ranks; the same on all of them.

    Attributes:
        description: what the program calls it; empty if it does not.
        ranks: global, in the order of the group.
    """

    description: str
    ranks: tuple[int, ...]

    def __str__(self) -> str:
        return self.description or f"group of ranks {', '.join(map(str, self.ranks))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One call that the recorder remembers, in the order of the calls.

    Attributes:
        group: of whom.
        sequence: its number among the collectives of the group (of a send or receive: among those).
        name: as ``all_reduce``, ``recv``.
        is_point_to_point: a send or receive.
        peer: global rank at the other end of a send or receive; None if it is not told.
        is_done: the rank has seen that it has completed.
        sizes: of the inputs, as told.
        dtypes: of the inputs.
    """

    group: ProcessGroup
    sequence: int
    name: str
    is_point_to_point: bool = False
    peer: int | None = None
    is_done: bool = False
    sizes: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()

    def __str__(self) -> str:
        peer = "" if self.peer is None else f" with rank {self.peer}"
        return f"{self.name}{peer} #{self.sequence} of {self.group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightRecord:
    """The dump of one rank.

    Attributes:
        rank: global.
        groups: that the rank belongs to.
        enqueued, completed: by group, the number of the newest collective that the rank has
            launched, and seen completed. Groups of which the dump does not tell are left out.
        calls: what the recorder still remembers, oldest first; empty if the rank has launched
            nothing lately, or could not say.
    """

    rank: int
    groups: tuple[ProcessGroup, ...] = ()
    enqueued: Mapping[ProcessGroup, int] = field(default_factory=dict)
    completed: Mapping[ProcessGroup, int] = field(default_factory=dict)
    calls: tuple[Collective, ...] = ()

    @property
    def pending(self) -> tuple[Collective, ...]:
        """Launched and not seen completed, oldest first."""
        return tuple(call for call in self.calls if not call.is_done)
