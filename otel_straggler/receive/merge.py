"""Many batches to one, and ranks that two processes claim."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from otel_straggler.model.observation import (
    NO_KERNEL,
    BatchBuilder,
    Codes,
    ObservationBatch,
    join_gpu,
    join_runs,
    join_tokens,
)
from otel_straggler.model.rank import Source

Name = TypeVar("Name", bound=Hashable)


def merge_batches(batches: Sequence[ObservationBatch]) -> ObservationBatch:
    """All rows, in order, over common tables. Cost: O(rows + names of every batch)."""
    if not batches:
        return BatchBuilder().build()
    sources, source = _common((b.sources, b.source) for b in batches)
    sections, section = _common((b.sections, b.section) for b in batches)
    kernels, kernel = _common((b.kernels, b.kernel) for b in batches)
    return ObservationBatch(
        sources=sources,
        sections=sections,
        kernels=kernels,
        source=source,
        section=section,
        kernel=kernel,
        step=np.concatenate([b.step for b in batches]),
        start_ns=np.concatenate([b.start_ns for b in batches]),
        duration_s=np.concatenate([b.duration_s for b in batches]),
        seq=np.concatenate([b.seq for b in batches]),
        runs=join_runs(batches),
        tokens=join_tokens(batches),
        gpu=join_gpu(batches),
    )


def _common(parts: Iterable[tuple[tuple[Name, ...], Codes]]) -> tuple[tuple[Name, ...], Codes]:
    table: dict[Name, int] = {}
    by_id: dict[int, int] = {}  # the same object again needs no hash of all its fields
    columns: list[Codes] = []
    for names, codes in parts:
        new = [by_id.get(id(name), -1) for name in names]
        for at, code in enumerate(new):
            if code < 0:
                new[at] = by_id[id(names[at])] = table.setdefault(names[at], len(table))
        columns.append(np.array([*new, NO_KERNEL], np.int32)[codes])  # code -1 picks the last
    return tuple(table), np.concatenate(columns)


def split_csv_clashes(batch: ObservationBatch) -> tuple[ObservationBatch, tuple[Source, ...]]:
    """A CSV has no sessions, so a rank of a run on two nodes or in two roles is two processes.

    Returns:
        The batch with a session id for each of them, so that their times never mix; and them.

    >>> builder = BatchBuilder()
    >>> for node in "ab":
    ...     builder.add(Source(run_id="r", rank=0, node=node), 0, start_ns=1, duration_s=1.0)
    >>> [source.node for source in split_csv_clashes(builder.build())[1]]
    ['a', 'b']
    """
    claims: dict[tuple[str, int], set[tuple[str, str]]] = {}
    for source in batch.sources:
        claims.setdefault((source.run_id, source.rank), set()).add((source.node, source.role))
    sources = tuple(
        replace(source, session_id=f"{source.node}/{source.role}")
        if len(claims[source.run_id, source.rank]) > 1
        else source
        for source in batch.sources
    )
    clashing = {(s.run_id, s.rank, s.session_id): s for s in sources if s.session_id}
    return replace(batch, sources=sources), tuple(clashing.values())


def overlapping_sessions(batch: ObservationBatch) -> tuple[Source, ...]:
    """Sessions that worked as one rank of one attempt at the same time.

    One that begins after the other has ended is a restart. Cost: O(rows + sources * log sources).
    """
    limits = np.iinfo(np.int64)
    first = np.full(len(batch.sources), limits.max, np.int64)
    last = np.full(len(batch.sources), limits.min, np.int64)
    np.minimum.at(first, batch.source, batch.start_ns)
    np.maximum.at(last, batch.source, batch.start_ns)
    spans: dict[tuple[str, str, int, int], dict[tuple[str, str], tuple[int, int, Source]]] = {}
    for code, source in enumerate(batch.sources):
        rank = (source.run_id, source.group, source.attempt, source.rank)
        session = (source.session_id, source.node)
        sessions = spans.setdefault(rank, {})
        known = sessions.get(session, (int(first[code]), int(last[code]), source))
        sessions[session] = (
            min(known[0], int(first[code])), max(known[1], int(last[code])), source,
        )  # fmt: skip
    clashing: dict[Source, None] = {}
    for sessions in spans.values():
        ordered = sorted(sessions.values(), key=lambda span: span[:2])
        for earlier, later in itertools.pairwise(ordered):
            if later[0] < earlier[1]:
                clashing |= {earlier[2]: None, later[2]: None}
    return tuple(clashing)
