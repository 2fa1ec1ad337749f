"""Which place of a shared array belongs to which section or kernel: agreed once, then only used.

Every rank tells what the others have not heard of yet; all learn it in the same order, so the
tables stay equal on all ranks without a coordinator. Sections travel by name and kind. Of kernels,
whose names are long and many, only a hash travels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal, NamedTuple

from otel_straggler.model.observation import Section
from otel_straggler.semconv import SectionKind

MOST_COLUMNS = 65_536
"""Beyond it the tables are agreed anew, so that names out of use are forgotten."""


class Column(NamedTuple):
    """What is compared: within a role, one section or one kernel (by hash)."""

    role: str
    what: Literal["section", "kernel"]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What a rank says of itself."""

    rank: int
    node: str
    role: str


@dataclass(slots=True)
class Columns:
    """The tables that all ranks of a group hold alike.

    Attributes:
        place: of each column in the shared array.
        members: by rank.
        kinds: of sections by name, the first that was told.
    """

    place: dict[Column, int] = field(default_factory=dict)
    members: dict[int, Member] = field(default_factory=dict)
    kinds: dict[str, SectionKind] = field(default_factory=dict)
    _digest: bytes = b""

    def message(self, me: Member, sections: Iterable[Section], kernels: Iterable[str]) -> bytes:
        """What this rank has to tell; empty if the others know it all."""
        new_sections = [
            (s.name, s.kind)
            for s in sections
            if Column(me.role, "section", s.name) not in self.place
        ]
        new_kernels = [k for k in kernels if Column(me.role, "kernel", k) not in self.place]
        if self.members.get(me.rank) == me and not new_sections and not new_kernels:
            return b""
        told = {
            "rank": me.rank,
            "node": me.node,
            "role": me.role,
            "sections": new_sections,
            "kernels": new_kernels,
        }
        return json.dumps(told).encode()

    def learn(self, messages: Iterable[bytes]) -> None:
        """Take in what all ranks told, in the order of the group."""
        for message in messages:
            if message:
                self._digest = blake2b(self._digest + message, digest_size=6).digest()
                self._take(json.loads(message))

    def forget(self) -> None:
        """Begin anew; all ranks must."""
        self.place.clear()
        self.members.clear()
        self.kinds.clear()
        self._digest = b""

    @property
    def is_full(self) -> bool:
        return len(self.place) > MOST_COLUMNS

    @property
    def fingerprint(self) -> int:
        """The same number on ranks that learned the same; below 2**48, so exact as a float."""
        return int.from_bytes(self._digest, "big")

    @property
    def section_names(self) -> list[str]:
        """All sections of all roles, in the order learned."""
        return list(self.kinds)

    def _take(self, told: dict[str, object]) -> None:
        rank, node, role = told["rank"], told["node"], told["role"]
        self.members[rank] = Member(rank=rank, node=node, role=role)  # type: ignore[index,arg-type]
        for name, kind in told["sections"]:  # type: ignore[attr-defined]
            self.kinds.setdefault(name, kind)
            self.place.setdefault(Column(role, "section", name), len(self.place))  # type: ignore[arg-type]
        for name in told["kernels"]:  # type: ignore[attr-defined]
            self.place.setdefault(Column(role, "kernel", name), len(self.place))  # type: ignore[arg-type]


def kernel_hash(name: str) -> str:
    """
    >>> kernel_hash("gemm")
    'b4aeb0caeca95d7b'
    """
    return blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()
