"""Two live processes that claim one rank: a mistake in the job's set-up, never merged, shown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import Ints, ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.score.seen import SeenSources

SHOWN_FOR_S = 60.0
_Key = tuple[str, str, int, int]
"""Run, group, attempt and rank."""


@dataclass(slots=True)
class _Claim:
    source: Source
    first_start_ns: int
    clashed_at_ns: int | None = None


class ClashWatch:
    """Remembers who claimed each rank, in order, and who goes on after a newer claim."""

    def __init__(self, tolerance_s: float) -> None:
        self._tolerance_ns = int(tolerance_s * 1e9)
        self._claims: dict[_Key, list[_Claim]] = {}
        self._contested: dict[str, dict[_Key, None]] = {}
        self._alone: SeenSources[bool] = SeenSources()

    def observe(self, batch: ObservationBatch, now_ns: int) -> None:
        """An older session clashes once it sends work that began after the newer session's first
        work by more than the tolerance: a late delivery of old work is no clash."""
        used = np.flatnonzero(np.bincount(batch.source)).tolist()
        alone = self._alone.values_of([batch.sources[code] for code in used])
        if all(alone):
            return
        first, last = _first_and_last_start(batch)
        for code, is_alone in zip(used, alone, strict=True):
            if not is_alone:
                self._observe_one(batch.sources[code], int(first[code]), int(last[code]), now_ns)

    def _observe_one(self, source: Source, first_ns: int, last_ns: int, now_ns: int) -> None:
        key = (source.run_id, source.group, source.attempt, source.rank)
        claims = self._claims.setdefault(key, [])
        mine = next((c for c in claims if _same_session(c.source, source)), None)
        if mine is None:
            if claims:
                self._alone.clear()
                self._contested.setdefault(source.run_id, {})[key] = None
            claims.append(_Claim(source, first_ns))
        elif last_ns > claims[-1].first_start_ns + self._tolerance_ns:
            mine.clashed_at_ns = None if mine is claims[-1] else now_ns
        if len(claims) == 1:  # nobody to clash with
            self._alone.put(source, True)

    def live(self, run_id: str, now_ns: int) -> tuple[Source, ...]:
        """Sessions of the run that clashed within the last minute. Cost: O(ranks of the run that
        more than one session has claimed)."""
        return tuple(
            claim.source
            for key in self._contested.get(run_id, ())
            for claim in self._claims[key]
            if claim.clashed_at_ns is not None and now_ns - claim.clashed_at_ns < SHOWN_FOR_S * 1e9
        )

    def forget(self, *prefix: str | int) -> None:
        """Drop the claims of a run, or of a run, group and attempt."""
        self._alone.clear()
        for key in [key for key in self._claims if key[: len(prefix)] == prefix]:
            del self._claims[key]
            self._contested.get(key[0], {}).pop(key, None)
        for run_id in [run_id for run_id, keys in self._contested.items() if not keys]:
            del self._contested[run_id]


def _first_and_last_start(batch: ObservationBatch) -> tuple[Ints, Ints]:
    """Per source code: the first and the last start among its rows."""
    limits = np.iinfo(np.int64)
    first = np.full(len(batch.sources), limits.max, np.int64)
    last = np.full(len(batch.sources), limits.min, np.int64)
    np.minimum.at(first, batch.source, batch.start_ns)
    np.maximum.at(last, batch.source, batch.start_ns)
    return first, last


def _same_session(a: Source, b: Source) -> bool:
    return (a.session_id, a.node) == (b.session_id, b.node)
