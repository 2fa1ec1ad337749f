"""The user's edge: a mistake in telemetry is logged once, counted and survived.

Only ``configure()`` and its kin (set-up, called once) raise. With ``strict=True``, which tests use,
everything raises.
"""

from __future__ import annotations

import logging

from otel_straggler.errors import StragglerError, UsageError

_LOG = logging.getLogger("otel_straggler")


class Guard:
    """Counts mistakes by kind."""

    def __init__(self) -> None:
        self.is_strict = False
        self._counts: dict[str, int] = {}

    def begin(self, *, is_strict: bool) -> None:
        self.is_strict = is_strict
        self._counts = {}

    def record(self, kind: str, error: StragglerError) -> None:
        """Raise ``error`` if strict, else log the first of its kind and count all."""
        if self.is_strict:
            raise error
        earlier = self._counts.get(kind, 0)
        self._counts[kind] = earlier + 1
        if not earlier:
            _LOG.warning("%s (further ones are counted, not logged)", error)

    def record_misuse(
        self, kind: str, where: str, value: object, expected: str, remedy: str
    ) -> None:
        """Record a :class:`UsageError` with these parts; see ``describe``."""
        self.record(kind, UsageError.of(where, value, expected, remedy))

    def counts(self) -> dict[str, int]:
        return dict(self._counts)


GUARD = Guard()
