"""Maintenance of a node, as a person has announced it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """Nobody is called because ranks on ``node`` are lost or stuck, until ``until_ns``.

    Attributes:
        reason, by: why, and who said so.
        at_ns, until_ns: when it was said, and its end, on the collector's clock.
    """

    node: str
    reason: str
    by: str = ""
    at_ns: int
    until_ns: int
