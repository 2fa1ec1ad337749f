"""Requests without some of their senders, and with others in their place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Final, TypeAlias, TypeVar

import numpy as np

from otel_straggler.model.kernels import KernelTimes
from otel_straggler.model.observation import NO_STEP, ObservationBatch
from otel_straggler.model.rank import Source
from otel_straggler.model.rank_metrics import Heartbeat, PassthroughMetric, SectionTimes
from otel_straggler.otlp.metric_rules import DecodedMetrics
from otel_straggler.otlp.span_rules import DecodedSpans

Content: TypeAlias = DecodedSpans | DecodedMetrics
_Table = TypeVar("_Table", ObservationBatch, KernelTimes)
_BYTES_PER_ROW: Final = 64
_BYTES_PER_REPORT: Final = 1_000


def senders_of(content: Content) -> Iterator[Source]:
    """Every sender; some come several times."""
    if isinstance(content, DecodedSpans):
        is_whole = len(content.progress) >= len(content.batch.sources)
        return chain(content.progress, () if is_whole else content.batch.sources)
    return (source for source, _, _ in reports_of(content))


def reports_of(content: Content) -> Iterator[tuple[Source, float, int]]:
    """Every sender, the newest time that it reports (of its own wall clock; 0 if none), and its
    newest step (``NO_STEP`` if none); a sender may come several times. Not launchers: they send
    about ranks, and claim nothing."""
    if isinstance(content, DecodedSpans):
        for source, its in content.progress.items():
            yield source, its.end_ns * 1e-9, its.step
        if len(content.progress) < len(content.batch.sources):
            yield from ((source, 0.0, NO_STEP) for source in content.batch.sources)
        return
    for beat in content.heartbeats:
        yield beat.source, beat.sent_at_s or 0.0, NO_STEP if beat.step is None else beat.step
    for times in content.section_times:
        yield times.source, times.end_ns * 1e-9, NO_STEP
    yield from ((number.source, 0.0, NO_STEP) for number in content.passthrough)
    if content.kernel_times is not None:
        yield from ((source, 0.0, NO_STEP) for source in content.kernel_times.sources)


def without(content: Content, gone: Collection[Source]) -> Content:
    """A request without what these send; the same one if they send nothing in it."""
    return content if not gone else only(content, lambda source: source not in gone)


def only(content: Content, is_wanted: Callable[[Source], bool]) -> Content:
    """A request with only what the wanted senders send."""
    if isinstance(content, DecodedSpans):
        progress = {source: its for source, its in content.progress.items() if is_wanted(source)}
        return replace(content, batch=_only(content.batch, is_wanted), progress=progress)
    kernels = content.kernel_times
    if kernels is not None:
        kernels = _only(kernels, is_wanted)
    return replace(
        content,
        heartbeats=tuple(each for each in content.heartbeats if is_wanted(each.source)),
        section_times=tuple(each for each in content.section_times if is_wanted(each.source)),
        passthrough=tuple(each for each in content.passthrough if is_wanted(each.source)),
        kernel_times=kernels,
    )


def _only(table: _Table, is_wanted: Callable[[Source], bool]) -> _Table:
    """Rows of wanted sources, and only these in the table of sources."""
    is_left = np.array([is_wanted(source) for source in table.sources], bool)
    rows = table.take(is_left[table.source])
    sources = tuple(source for source, wanted in zip(table.sources, is_left, strict=True) if wanted)
    code = np.cumsum(is_left, dtype=np.int32) - np.int32(1)
    return replace(rows, sources=sources, source=code[rows.source])


def with_sources(content: Content, others: Mapping[Source, Source]) -> Content:
    """A request with other descriptions of some senders; the same one if there are none."""
    if not others:
        return content
    if isinstance(content, DecodedSpans):
        progress = {others.get(source, source): its for source, its in content.progress.items()}
        sources = tuple(others.get(source, source) for source in content.batch.sources)
        return replace(content, batch=replace(content.batch, sources=sources), progress=progress)
    return replace(
        content,
        heartbeats=_renamed(content.heartbeats, others),
        section_times=_renamed(content.section_times, others),
        passthrough=_renamed(content.passthrough, others),
        kernel_times=_with_sources(content.kernel_times, others),
    )


_Report = TypeVar("_Report", Heartbeat, SectionTimes, PassthroughMetric)


def _renamed(reports: tuple[_Report, ...], others: Mapping[Source, Source]) -> tuple[_Report, ...]:
    return tuple(
        replace(each, source=others[each.source]) if each.source in others else each
        for each in reports
    )


def _with_sources(times: KernelTimes | None, others: Mapping[Source, Source]) -> KernelTimes | None:
    if times is None:
        return None
    return replace(times, sources=tuple(others.get(source, source) for source in times.sources))


def count_of(content: Content) -> int:
    """Spans and reports in it that a sender is known of."""
    if isinstance(content, DecodedSpans):
        return max(len(content.batch), len(content.progress))
    parts = (content.heartbeats, content.section_times, content.passthrough, content.launches)
    kernels = content.kernel_times
    return sum(map(len, parts)) + (0 if kernels is None else len(kernels))


def size_of(content: Content) -> int:
    """Bytes in memory, roughly."""
    if isinstance(content, DecodedSpans):
        return _BYTES_PER_ROW * len(content.batch) + _BYTES_PER_REPORT * len(content.progress)
    kernels = content.kernel_times
    parts = (content.heartbeats, content.section_times, content.passthrough, content.launches)
    reports = sum(map(len, parts))
    return _BYTES_PER_REPORT * reports + (0 if kernels is None else kernels.nbytes)
