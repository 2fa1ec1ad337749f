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
        """Put back what was there, unless somebody has replaced ours since."""
        if vars(self.owner).get(self.name) is self.ours:
            setattr(self.owner, self.name, self.before)


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
