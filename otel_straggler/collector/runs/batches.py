"""Batches that wait are scored together: what scoring costs per batch is paid once for all."""

from __future__ import annotations

from otel_straggler.model.observation import ObservationBatch, merge_batches
from otel_straggler.model.rank import Source

MAX_ROWS = 1 << 17


class BatchCoalescer:
    """Batches on their way to the scorer, in the order in which they came.

    Two processes that claim one rank, and two descriptions of one process, are told apart by who
    came later, so they never stand in one batch.

    >>> from otel_straggler.model.observation import BatchBuilder
    >>> builder = BatchBuilder()
    >>> builder.add(Source(run_id="r", rank=0), 0, start_ns=1, duration_s=1.0)
    >>> coalescer = BatchCoalescer()
    >>> coalescer.add(builder.build(), 10, 1); coalescer.add(builder.build(), 10, 2)
    >>> coalescer.size, coalescer.newest_ns, len(coalescer.drain()), len(coalescer)
    (20, 2, 2, 0)

    Attributes:
        size: bytes of the requests, as they were reserved.
        newest_ns: when the last batch came.
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
        """Whether the batch, scored with those before it, comes to the same as after them."""
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
        """All rows in one batch; nothing is left. Cost: a copy, where there are several."""
        batches = self._batches
        self._clear()
        return batches[0] if len(batches) == 1 else merge_batches(batches)


def _rank(source: Source) -> tuple[str, str, int, int]:
    return source.run_id, source.group, source.attempt, source.rank
