"""Index of each section and kernel in the shared array.

Every rank reports what the others do not know yet; all learn it in the same order, so the tables
stay equal without a coordinator. Sections travel by name and kind, kernels by hash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal

from otel_straggler.errors import UsageError
from otel_straggler.model.observation import Section

MAX_COLUMNS = 65_536
"""Beyond it the tables are agreed on again, which drops unused names."""


What = Literal["section", "kernel"]
Column = tuple[str, What, str]
"""Role, and a section by name or a kernel by hash; a tuple, as reports make thousands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Description of a rank; ``settings`` must be the same on all."""

    rank: int
    node: str
    role: str
    settings: str


@dataclass(slots=True)
class Columns:
    """Tables that all ranks of a group hold alike.

    Attributes:
        index: of each column in the shared array.
        members: by rank.
        sections: of all roles by name, with the kind that was reported first, in the order learned.
    """

    index: dict[Column, int] = field(default_factory=dict)
    members: dict[int, Member] = field(default_factory=dict)
    sections: dict[str, Section] = field(default_factory=dict)
    _digest: bytes = b""
    _has_kernels: bool = False

    def news(self, me: Member, sections: Iterable[Section], kernels: Iterable[str]) -> bytes:
        """What this rank has to report; empty if the others know it all."""
        new_sections = [
            (s.name, s.kind) for s in sections if (me.role, "section", s.name) not in self.index
        ]
        new_kernels = [k for k in kernels if (me.role, "kernel", k) not in self.index]
        if self.members.get(me.rank) == me and not new_sections and not new_kernels:
            return b""
        news = {
            **self._state(me),
            "rank": me.rank,
            "node": me.node,
            "role": me.role,
            "sections": new_sections,
            "kernels": new_kernels,
        }
        return json.dumps(news).encode()

    def no_news(self, me: Member) -> bytes:
        """Message of a rank with nothing to report; shorter than any news."""
        return json.dumps(self._state(me)).encode()

    def learn(self, messages: Iterable[bytes]) -> bool:
        """Apply the reports of all ranks, in the order of the group. Returns: False if the ranks
        did not hold the same tables before; then nothing is learned. Raises: UsageError: the ranks
        do not have the same settings."""
        reports = [(message, json.loads(message)) for message in messages]
        settings = {each["settings"] for _, each in reports}
        if len(settings) > 1:
            raise UsageError.of(
                "report over the process group",
                " and ".join(sorted(settings)),
                "the same settings on all ranks",
                "Call Detector.initialize() with the same arguments everywhere.",
            )
        if len({each["digest"] for _, each in reports}) > 1:
            return False
        for message, each in reports:
            if "rank" in each:
                self._digest = blake2b(self._digest + message, digest_size=8).digest()
                self._add(each)
        return True

    def reset(self) -> None:
        """Start over; all ranks must."""
        self.index.clear()
        self.members.clear()
        self.sections.clear()
        self._digest = b""
        self._has_kernels = False

    @property
    def is_full(self) -> bool:
        return len(self.index) > MAX_COLUMNS

    @property
    def has_kernels(self) -> bool:
        """Whether any rank ever reported a kernel."""
        return self._has_kernels

    def _state(self, me: Member) -> dict[str, Any]:
        return {"digest": self._digest.hex(), "settings": me.settings}

    def _add(self, news: dict[str, Any]) -> None:
        role = news["role"]
        member = Member(rank=news["rank"], node=news["node"], role=role, settings=news["settings"])
        self.members[member.rank] = member
        for name, kind in news["sections"]:
            self.sections.setdefault(name, Section(name, kind))
            self.index.setdefault((role, "section", name), len(self.index))
        for name in news["kernels"]:
            self._has_kernels = True
            self.index.setdefault((role, "kernel", name), len(self.index))


def kernel_hash(name: str) -> str:
    """
    >>> kernel_hash("gemm")
    '18f2bfe625c20138'
    """
    return blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()
