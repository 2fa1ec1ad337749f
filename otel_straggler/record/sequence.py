"""``straggler.seq``: which run of its section a run is, in this session."""

from __future__ import annotations

from otel_straggler.record.recorder import Epoch

_MOST_EPOCHS = 8


class SectionCounts:
    """Counts the runs of every section; begins anew with a new session id.

    Sinks that see the same runs give them the same numbers, so a collector that gets a run from
    both takes it once. Runs of the session before may still end after a new one has begun, so the
    counts of the last few are kept.
    """

    def __init__(self) -> None:
        self._epoch: Epoch | None = None
        self._counts: dict[str, int] = {}
        self._of_epochs: dict[Epoch, dict[str, int]] = {}

    def next(self, epoch: Epoch, name: str, runs: int = 1) -> int:
        """The number of this run, from 0; of several, that of the first, and the others follow."""
        if epoch is not self._epoch:
            self._epoch = epoch
            self._counts = self._of_epochs.setdefault(epoch, {})
            while len(self._of_epochs) > _MOST_EPOCHS:
                del self._of_epochs[next(iter(self._of_epochs))]
        number = self._counts.get(name, 0)
        self._counts[name] = number + runs
        return number
