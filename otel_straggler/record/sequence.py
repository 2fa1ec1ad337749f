"""``straggler.seq``: which run of its section a run is, in this session."""

from __future__ import annotations

from otel_straggler.record.recorder import Epoch


class SectionCounts:
    """Counts the runs of every section; begins anew with a new session id.

    Sinks that see the same runs give them the same numbers, so a collector that gets a run from
    both takes it once.
    """

    def __init__(self) -> None:
        self._epoch: Epoch | None = None
        self._counts: dict[str, int] = {}

    def next(self, epoch: Epoch, name: str) -> int:
        """The number of this run, from 0."""
        if epoch is not self._epoch:
            self._epoch = epoch
            self._counts = {}
        number = self._counts.get(name, 0)
        self._counts[name] = number + 1
        return number
