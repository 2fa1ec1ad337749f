"""Coalesces waiting batches, so that the cost per batch is paid once."""

from __future__ import annotations

from otel_straggler.model.observation import ObservationBatch, merge_batches
from otel_straggler.model.rank import Source

MAX_ROWS = 1 << 17


class BatchCoalescer:
    """Batches on their way to the scorer, in order of arrival.

    Two processes that claim one rank, or two descriptions of one process, are separated by which
    came later, so they are never in one batch.

    >>> from otel_straggler.model.observation import BatchBuilder
    >>> builder = BatchBuilder()
    >>> builder.add(Source(run_id="r", rank=0), 0, start_ns=1, duration_s=1.0)
    >>> coalescer = BatchCoalescer()
    >>> coalescer.add(builder.build(), 10, 1); coalescer.add(builder.build(), 10, 2)
    >>> coalescer.size, coalescer.newest_ns, len(coalescer.drain()), len(coalescer)
    (20, 2, 2, 0)

    Attributes:
        size: reserved bytes of the requests.
        newest_ns: arrival of the last batch.
    """

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.size = 0
        self.newest_ns = 0
        self._batches: list[ObservationBatch] = []
        self._rows = 0
        self._claims: dict[tuple[str, str, int, int], Source] = {}

    def __len__(self) -> int:
        """Rows."""
        return self._rows

    def has_room_for(self, batch: ObservationBatch) -> bool:
        """Whether scoring it with the others equals scoring it after them."""
        if self._rows and self._rows + len(batch) > MAX_ROWS:
            return False
        claims = self._claims
        for source in batch.sources:
            claim = claims.get(_rank(source), source)
            if claim is not source and claim != source:
                return False
        return True

    def add(self, batch: ObservationBatch, size: int, now_ns: int) -> None:
        self.size += size
        self.newest_ns = now_ns
        self._batches.append(batch)
        self._rows += len(batch)
        for source in batch.sources:
            self._claims[_rank(source)] = source

    def drain(self) -> ObservationBatch:
        """Remove all rows, as one batch. Cost: a copy, where there are several."""
        batches = self._batches
        self._clear()
        return batches[0] if len(batches) == 1 else merge_batches(batches)


def _rank(source: Source) -> tuple[str, str, int, int]:
    return source.run_id, source.group, source.attempt, source.rank
