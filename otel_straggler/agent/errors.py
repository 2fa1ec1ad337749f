"""Errors between a rank and its agent."""

from __future__ import annotations

from otel_straggler.errors import StragglerError, UsageError


class RankMonitorClientError(UsageError):
    """Raised by ``RankMonitorClient``: it is used wrongly, or its agent cannot be reached."""


class ProtocolError(StragglerError):
    """A peer sent something that makes no sense.

    Attributes:
        reason: one word, under which it is counted.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
