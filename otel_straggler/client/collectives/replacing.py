"""Attributes of torch that are ours for a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


class Restorable(Protocol):
    """A part of torch that is ours until it is restored."""

    def restore(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Replaced:
    """An attribute of a module or class that was replaced."""

    owner: Any
    name: str
    before: Any
    ours: Any

    def restore(self) -> None:
        """Put back what was there. If somebody has replaced ours since, that waits: until another
        of ours, which lies above it, is restored."""
        if vars(self.owner).get(self.name) is not self.ours:
            _COVERED[id(self.ours)] = self
            return
        before = self.before
        while id(before) in _COVERED:
            before = _COVERED.pop(id(before)).before
        setattr(self.owner, self.name, before)


_COVERED: dict[int, Replaced] = {}
"""Restored while something lay above them, by the ids of what is ours."""


def replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Replaced:
    """Replace ``owner.name`` by ``wrap(owner.name)``.

    Raises:
        AttributeError: there is no such attribute, or it was not replaced by setting it.
        TypeError: it cannot be called, or not be set.
    """
    original = getattr(owner, name)
    before = vars(owner).get(name, original)  # of a class, what makes a method of it
    if not callable(original):
        msg = f"{name} cannot be called"
        raise TypeError(msg)
    ours = wrap(original)
    setattr(owner, name, ours)
    if vars(owner).get(name) is not ours:
        msg = f"{name} cannot be replaced"
        raise AttributeError(msg)
    return Replaced(owner, name, before, ours)
