"""Ranks by their main threads' stacks: the many wait, the few are waited for.

Stacks are compared by function names, as line numbers differ between turns of a loop, and addresses
and counters in names between processes. Source: ByteRobust (the dominant cluster are victims, the
smallest are suspects).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from otel_straggler.model.diagnostics import StackFrame, ThreadStack

_NOT_OWN = re.compile(
    r"/(?:site|dist)-packages/|/lib/python\d|/lib64/python\d|/otel_straggler/|^<frozen|^<__|\.so\b|^$"
)
_WRAPPERS = "/otel_straggler/client/collectives/"
"""Frames that measure how long a rank waits in a call, and not what it calls."""
_CHANGING = re.compile(r"0x[0-9a-fA-F]+|\d+")

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Ranks whose main threads are in the same functions.

    Attributes:
        innermost: Python frame of the first of them; None if the stack is empty.
        own: its innermost frame of the program's own code; or None.
    """

    ranks: tuple[int, ...]
    innermost: StackFrame | None
    own: StackFrame | None


@dataclass(frozen=True, slots=True)
class Clusters:
    """``dominant``: more than half of the ranks, which wait; ``others``: smallest first."""

    dominant: Cluster | None
    others: tuple[Cluster, ...]

    @property
    def suspects(self) -> tuple[Cluster, ...]:
        return self.others if self.dominant is not None else ()


def cluster(stacks: Iterable[tuple[int, ThreadStack]]) -> Clusters:
    """Group ranks by their main threads. Cost: O(frames)."""
    members: dict[Path, list[tuple[int, ThreadStack]]] = {}
    for rank, thread in sorted(stacks, key=lambda one: one[0]):
        members.setdefault(_path(thread), []).append((rank, thread))
    result = sorted(map(_cluster, members.values()), key=lambda one: (len(one.ranks), one.ranks))
    total = sum(len(one.ranks) for one in result)
    if result and 2 * len(result[-1].ranks) > total:
        return Clusters(result[-1], tuple(result[:-1]))
    return Clusters(None, tuple(result))


def own_frame(thread: ThreadStack) -> StackFrame | None:
    """The innermost frame outside of Python, installed packages, and this one."""
    return next((frame for frame in thread.frames if not _NOT_OWN.search(frame.file)), None)


def _cluster(members: list[tuple[int, ThreadStack]]) -> Cluster:
    thread = members[0][1]
    innermost = next(iter(_reported(thread)), None)
    return Cluster(tuple(rank for rank, _ in members), innermost, own_frame(thread))


def _path(thread: ThreadStack) -> Path:
    """Outermost first."""
    return tuple(_normal(frame) for frame in reversed(_reported(thread)))


def _reported(thread: ThreadStack) -> tuple[StackFrame, ...]:
    """Python frames alone, where there are any: stacks may contain C++. Without our own around
    torch's calls."""
    frames = (frame for frame in thread.frames if _WRAPPERS not in frame.file.replace("\\", "/"))
    python = (frame for frame in frames if frame.file.endswith((".py", ">")))
    return tuple(python) or thread.frames


def _normal(frame: StackFrame) -> str:
    """
    >>> _normal(StackFrame("forward_12", "/a/train.py", 7))
    'train.py:forward_#'
    >>> _normal(StackFrame("Loop.run", "train.py", 7))  # py-spy's word for what others call run
    'train.py:run'
    """
    file = frame.file.replace("\\", "/").rpartition("/")[2]
    return f"{file}:{_CHANGING.sub('#', frame.function.rpartition('.')[2])}"
