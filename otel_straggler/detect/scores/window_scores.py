"""The scores of one closed window."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from otel_straggler.detect.scores.ddp_timers import timer_of
from otel_straggler.detect.scores.formulas import (
    find_largest_excess,
    find_stragglers,
    individual_gpu_scores,
    individual_scores,
    relative_gpu_scores,
    relative_scores,
    slowdowns,
)
from otel_straggler.detect.scores.kernels import (
    CountedKernels,
    HistogramKernels,
    Kernels,
    NamedTimes,
    RowKernels,
)
from otel_straggler.detect.scores.lineages import costs_of
from otel_straggler.detect.scores.medians import (
    MAX_PADDING,
    group_times,
    median_of_rows,
    number_densely,
    placed_times,
    slices,
    sum_groups,
)
from otel_straggler.detect.scores.references import References, ReferenceSet
from otel_straggler.detect.scores.step_tables import (
    build_step_table,
    one_session_per_rank,
    rows_by_source,
    without_duplicates,
)
from otel_straggler.detect.verdicts.own_times import own_seconds
from otel_straggler.model.observation import NO_KERNEL, NO_STEP, Floats, Ints, Section
from otel_straggler.model.observation import ObservationBatch as Batch
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import KindOfScore, WindowScores

MIN_APART_NS = 10**9
"""By less than this and a window's length ranks of one clock are apart."""
_LATEST_NS = np.iinfo(np.int64).max
ClosedBy = Literal["complete", "grace", "idle", "end"]
MAX_NAMED_MISSING = 1000
_WHOLE = (Section(""),)
_GPU_SCORES: tuple[KindOfScore, ...] = ("gpu_relative", "gpu_individual")


def score_window(
    rows: Batch,
    history: ReferenceSet,
    *,
    world_size: int,
    threshold: float,
    min_reference_samples: int,
    closed_by: ClosedBy,
    full_steps: int = 0,
    counted_kernels: CountedKernels | None = None,
    incarnation: int = 0,
) -> WindowScores:
    """Score the rows (at least one) of one window of one run, attempt, and group.

    Args:
        rows: sources in the order in which they were first seen.
        history: own-history references; updated.
        world_size: ranks expected, 0 if unknown (then those with rows).
        threshold: a score strictly below it lists the rank.
        min_reference_samples: fewer runs never become a reference.
        full_steps: of a whole window. One that closes with fewer is cut short by the end of its
            run: there ranks wait for one that is gone, and few runs are not compared with the own
            best. At the end of the input ("end") they are.
        counted_kernels: histograms of the window, for rows without kernels.
        incarnation: of the attempt, whose steps may begin again with other work.

    Cost: O(n log n + ranks * (sections + kernels)), with a dense table of ranks x kernels.
    """
    delivered = len(rows)
    distinct = without_duplicates(rows)
    kept = one_session_per_rank(distinct)
    used = np.flatnonzero(rows_by_source(kept)).tolist()
    ranked = sorted(used, key=lambda code: kept.sources[code].rank)
    sources = tuple(kept.sources[code] for code in ranked)
    row_of_source = np.zeros(len(kept.sources), np.int64)
    row_of_source[ranked] = np.arange(len(ranked))
    table = _Table(kept, row_of_source, sources)
    end_ns = max(
        int((kept.start_ns[part] + (kept.duration_s[part] * 1e9).astype(np.int64)).max())
        for part in slices(len(kept))
    )

    median_s, count, step_s = table.section_times()
    own_s = table.section_own_s(step_s)
    eligible = count >= min_reference_samples
    part = f".{incarnation}" if len(table.steps) else f".{incarnation} by time"
    costs = costs_of(sources, kept.sections, step_s)
    table.begin(history.lineage_of(sources[0], part, costs, end_ns))
    names = table.section_names
    reference = history.sections.update(table.devices, names, median_s, eligible, end_ns)
    best_s, best_at_s = history.sections.bests(table.devices, names)
    relative = relative_scores(median_s, table.peers)
    individual = individual_scores(median_s, reference)
    kernels = table.kernels(counted_kernels)
    # Kernels that stand in have not met their best again since.
    kernels_ns = end_ns if kernels.end_ns is None else min(kernels.end_ns, end_ns)
    gpu = _gpu_scores(table, kernels, history, min_reference_samples, kernels_ns)
    steps = table.steps
    if 0 < len(steps) < full_steps and closed_by != "end":
        individual[~eligible | (closed_by == "idle")] = np.nan
    present = {s.rank for s in sources}
    missing = (r for r in range(world_size) if r not in present)
    stragglers = [
        *find_stragglers(relative, "section_relative", sources, kept.sections, threshold),
        *find_stragglers(individual, "section_individual", sources, kept.sections, threshold),
    ]
    for kind in _GPU_SCORES:
        stragglers += find_stragglers(gpu[kind][:, None], kind, sources, _WHOLE, threshold)
    first = sources[0]
    return WindowScores(
        run_id=first.run_id,
        job=first.job,
        group=first.group,
        attempt=first.attempt,
        first_step=int(steps[0]) if len(steps) else None,
        last_step=int(steps[-1]) if len(steps) else None,
        start_ns=table.start_ns(end_ns),
        lowest_ns=(int(table.spans_ns[0][0]), int(table.spans_ns[1][0])),
        end_ns=end_ns,
        n_steps=len(steps),
        sources=sources,
        sections=kept.sections,
        section_median_s=median_s,
        section_step_s=step_s,
        section_own_s=own_s,
        section_count=count,
        section_relative=relative,
        section_individual=individual,
        section_slowdown=slowdowns(median_s, table.peers),
        section_best_s=best_s,
        section_best_at_s=best_at_s,
        **gpu,
        gpu_age_s=_age_s(gpu["gpu_relative"], end_ns - kernels_ns),
        stragglers=tuple(sorted(stragglers, key=lambda s: (s.score, s.source.rank, s.section))),
        largest_excess=find_largest_excess(own_s, table.peers, sources, kept.sections),
        world_size=world_size or len(sources),
        missing_ranks=tuple(r for r, _ in zip(missing, range(MAX_NAMED_MISSING), strict=False)),
        duplicates=delivered - len(distinct),
        superseded=len(distinct) - len(kept),
        closed_by=closed_by,
    )


def _age_s(scores: Floats, age_ns: int) -> float:
    return math.nan if np.isnan(scores).all() else age_ns * 1e-9


def _gpu_scores(
    table: _Table, kernels: Kernels, history: ReferenceSet, min_samples: int, now_ns: int
) -> dict[str, Floats]:
    """Fields of ``WindowScores``: over all sections and per section, of compute kernels."""
    whole, by_section = table.n_ranks, (table.n_ranks, table.n_sections)
    relative, individual = np.full(whole, np.nan), np.full(whole, np.nan)
    relative_by_section, individual_by_section = (np.full(by_section, np.nan) for _ in range(2))

    def score(result: NamedTimes, references: References, scope: str) -> tuple[Floats, Floats]:
        times = result.times
        names = [f"{scope}\0{name}" for name in result.names]
        reference = references.update(
            table.devices, names, times.median_s, times.count >= min_samples, now_ns
        )
        return (
            relative_gpu_scores(times.median_s, times.total_s, table.peers),
            individual_gpu_scores(times.median_s, times.total_s, reference),
        )

    everywhere = kernels.of(None)
    if everywhere is not None:
        relative, individual = score(everywhere, history.kernels, "")
        for s, name in enumerate(table.section_names):
            inside = kernels.of(s)
            if inside is not None:
                relative_by_section[:, s], individual_by_section[:, s] = score(
                    inside, history.kernels_by_section, name
                )
    return {
        "gpu_relative": relative,
        "gpu_individual": individual,
        "gpu_section_relative": relative_by_section,
        "gpu_section_individual": individual_by_section,
    }


class _Table:
    """Rows of a window as dense tables with a line per rank."""

    def __init__(self, rows: Batch, line_of_source: Ints, sources: Sequence[Source]) -> None:
        self.rows = rows
        self.line_of_source = line_of_source
        self.sources = sources
        self.n_ranks = len(sources)
        self.n_sections = len(rows.sections)
        self.section_names = [s.name for s in rows.sections]
        roles: dict[str, int] = {}
        self.peers = np.array([roles.setdefault(s.role, len(roles)) for s in sources], np.int64)
        self.devices: list[tuple[str | int, ...]] = list(device_keys(sources))
        self.is_kernel = rows.kernel != NO_KERNEL
        self.steps = _distinct_steps(rows.step)

    def begin(self, lineage: str) -> None:
        """Compare devices with their past in this lineage only."""
        self.devices = [(lineage, *device) for device in self.devices]

    def section_times(self) -> tuple[Floats, Ints, Floats]:
        """(ranks, sections) median and count of section runs, and :meth:`section_step_s`."""
        shape = (self.n_ranks, self.n_sections)
        placed = None
        if not self.rows.kernels and len(self.steps):
            placed = self._times_by_step()
        if placed is not None:  # every run is all of its section in its step
            median_s = placed[0].reshape(shape)
            return median_s, placed[1].reshape(shape), median_s
        runs = np.flatnonzero(~self.is_kernel)
        cell = self._lines(runs) * self.n_sections + self.rows.section[runs].astype(np.int64)
        times = group_times(cell, self.rows.duration_s[runs], math.prod(shape)).reshape(*shape)
        return times.median_s, times.count, self.section_step_s()

    def _times_by_step(self) -> tuple[Floats, Ints] | None:
        """Median and count; None if a section ran twice in a step, or many steps are missing."""
        rows, width = self.rows, len(self.steps)
        first, last = int(self.steps[0]), int(self.steps[-1])
        n_cells = self.n_ranks * self.n_sections
        is_crowded = max(n_cells * width, last - first + 1) <= MAX_PADDING * len(rows)
        if not is_crowded or int(rows.step.min()) == NO_STEP:
            return None
        number = np.zeros(last - first + 1, np.int64)
        number[self.steps - first] = np.arange(width)

        def index(part: slice) -> Ints:
            cell = self._lines(part) * self.n_sections + rows.section[part]
            cell *= width
            cell += number[rows.step[part] - first]
            return cell

        return placed_times(index, rows.duration_s, n_cells, width)

    def _lines(self, rows: Ints | slice) -> Ints:
        lines: Ints = self.line_of_source[self.rows.source[rows]]
        return lines

    def section_step_s(self) -> Floats:
        """Median over steps of the time per step; a row without a step is its own."""
        rows = np.flatnonzero(~self.is_kernel)
        step = self.rows.step[rows]
        alone = step == NO_STEP
        # A row without a step gets a step of its own, behind the last one.
        apart = step.max(initial=0) + 1 + np.arange(len(rows))
        distinct, step_code = number_densely(np.where(alone, apart, step))
        n_steps = max(len(distinct), 1)
        cell = self._lines(rows) * self.n_sections + self.rows.section[rows]
        n_cells = self.n_ranks * self.n_sections
        filled, per_step_s = sum_groups(
            cell * n_steps + step_code, self.rows.duration_s[rows], n_cells * n_steps
        )
        times = group_times(filled // n_steps, per_step_s, n_cells)
        return times.median_s.reshape(self.n_ranks, self.n_sections)

    def section_own_s(self, step_s: Floats) -> Floats:
        """Own time per step; the duration (R, S) where nothing else is reported, or without steps.
        Nested sections count as such of their own."""
        if self.rows.gpu is None:
            return step_s
        sections = tuple(s if timer_of(s) else replace(s, parent="") for s in self.rows.sections)
        steps = build_step_table(replace(self.rows, sections=sections))
        if steps is None:
            return step_s
        line_of = {source.rank: line for line, source in enumerate(self.sources)}
        lines = [line_of[source.rank] for source in steps.sources]
        columns = [self.section_names.index(section.name) for section in steps.sections]
        own_s: Floats = step_s.copy()
        own_s[np.ix_(lines, columns)] = median_of_rows(own_seconds(steps))
        return own_s

    def kernels(self, counted: CountedKernels | None) -> Kernels:
        """Kernels of the rows; if there are none, those counted by their senders."""
        if self.is_kernel.any() or counted is None:
            return RowKernels(self.rows, self.line_of_source, self.n_ranks)
        result = counted(self.sources, *self.spans_ns, len(self.steps))
        return HistogramKernels(result, self.section_names, self.n_ranks)

    def start_ns(self, end_ns: int) -> int:
        """The first start, by the clock that has the last end; of clocks that differ by more than
        ranks can be apart, the start is that of the median rank."""
        first_ns, last_ns = self.spans_ns
        lasted_ns = int(np.sort(last_ns - first_ns)[(self.n_ranks - 1) // 2])
        earliest_ns = int(first_ns.min())
        is_one_clock = end_ns - earliest_ns <= 2 * lasted_ns + MIN_APART_NS
        return earliest_ns if is_one_clock else end_ns - lasted_ns

    @cached_property
    def spans_ns(self) -> tuple[Ints, Ints]:
        """(ranks,) first start and last end on the rank's own clock."""
        rows = self.rows
        first, last = np.full(self.n_ranks, _LATEST_NS), np.zeros(self.n_ranks, np.int64)
        for part in slices(len(rows)):
            line, start_ns = self._lines(part), rows.start_ns[part]
            np.minimum.at(first, line, start_ns)
            np.maximum.at(last, line, start_ns + (rows.duration_s[part] * 1e9).astype(np.int64))
        return first, last


def _distinct_steps(step: Ints) -> Ints:
    low, high = int(step.min()), int(step.max())
    if high - low >= MAX_PADDING * len(step):
        result = np.unique(step)
    else:
        seen = np.zeros(high - low + 1, bool)
        for part in slices(len(step)):
            seen[step[part] - low] = True
        result = np.flatnonzero(seen) + low
    distinct: Ints = result[result != NO_STEP]
    return distinct


DeviceKey: TypeAlias = tuple[str, str, str, str, str | int]


def device_keys(sources: Sequence[Source]) -> list[DeviceKey]:
    """Keys of own history, each another: of ranks on one GPU with the local rank, or with the rank
    where that is the same or unknown."""
    keys = [device_key(source) for source in sources]
    for name in ("local_rank", "rank"):
        counted = Counter(keys)
        if len(counted) < len(keys):
            keys = [
                (*key[:4], f"{key[4]}#{getattr(source, name)}") if counted[key] > 1 else key
                for source, key in zip(sources, keys, strict=True)
            ]
    return keys


def device_key(source: Source) -> DeviceKey:
    """Key of own history: the device, which survives renumbering of ranks; or else the rank."""
    device: str | int = source.device or source.local_rank
    if not source.node or device == -1:
        device = f"rank {source.rank}"
    return source.job, source.role, source.group, source.node, device
