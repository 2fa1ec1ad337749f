"""Rows on their way from ingest to scoring: columns, never an object per span."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from otel_straggler import semconv
from otel_straggler.model.decoding import plain, read_as
from otel_straggler.model.rank import Source
from otel_straggler.semconv import (
    MEMORY_MARKS,
    NCCL_KERNEL_MARKS,
    PHASE_KINDS,
    KernelClass,
    SectionKind,
)

_Name = TypeVar("_Name", bound=Hashable)
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
Codes: TypeAlias = npt.NDArray[np.int32]
Floats: TypeAlias = npt.NDArray[np.float64]

NO_STEP = -1
NO_KERNEL = -1
NO_SEQ = np.iinfo(np.int64).min
"""Value of ``seq`` for a row that is never a duplicate."""


@dataclass(frozen=True, slots=True)
class Section:
    """A named piece of a step; ``parent`` is the section around it, empty for a top-level one."""

    name: str
    kind: SectionKind = "compute"
    parent: str = ""

    def in_phase(self, phase: str) -> Section:
        """As scored in a declared phase: apart from training, and with the kind of the phase.

        >>> Section("forward").in_phase("eval").name
        'eval/forward'
        """
        if not phase or phase == self.name:
            return self
        return Section(f"{phase}/{self.name}", PHASE_KINDS.get(phase, self.kind), self.parent)


@dataclass(frozen=True, slots=True)
class Kernel:
    """A CUDA kernel; ``nccl`` kernels wait for others and are kept out of GPU scores."""

    name: str
    kernel_class: KernelClass = "compute"


def kernel_class_of(name: str) -> KernelClass:
    """The class of a kernel by its name.

    >>> kernel_class_of("ncclSymkDevKernel_AllReduce_RSxLD_AGxST(ncclSymkDevWorkArgs4K)")
    'nccl'
    """
    lower = name.lower()
    if any(mark in lower for mark in NCCL_KERNEL_MARKS):
        return "nccl"
    return "memory" if lower.lstrip("[").startswith(MEMORY_MARKS) else "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationBatch:
    """Section runs and kernel runs of any number of ranks and runs. All columns have length n.

    Attributes:
        sources, sections, kernels: tables of names; the code columns index them.
        kernel: (n,) code, ``NO_KERNEL`` for a section run.
        step: (n,) optimizer step, or ``NO_STEP``.
        start_ns: (n,) on the sender's wall clock.
        duration_s: (n,) > 0 and finite.
        seq: (n,) rows of one source and section (and kernel) that share it are one run, delivered
            again; ``NO_SEQ`` for rows that are always distinct.
        runs: (n,) runs of the section that the row stands for, >= 1; None: each for one.
        tokens: (n,) work size of the row's runs together, NaN if unknown; None: no row has any.
        gpu: (n,) their time on the GPU; None: no row has any.
    """

    sources: tuple[Source, ...]
    sections: tuple[Section, ...]
    kernels: tuple[Kernel, ...] = ()
    source: Codes
    section: Codes
    kernel: Codes
    step: Ints
    start_ns: Ints
    duration_s: Floats
    seq: Ints
    runs: Codes | None = None
    tokens: Floats | None = None
    gpu: GpuTimes | None = None

    def __len__(self) -> int:
        return len(self.duration_s)

    def pairs(self) -> list[tuple[Source, Section]]:
        """Sections of which each source has rows. Cost: O(rows + sources * sections)."""
        n_sections = len(self.sections)
        cells = np.bincount(self.source.astype(np.int64) * n_sections + self.section)
        result = (divmod(cell, n_sections) for cell in np.flatnonzero(cells).tolist())
        return [(self.sources[source], self.sections[section]) for source, section in result]

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_] | slice) -> ObservationBatch:
        """The same tables with only ``rows``; a slice copies nothing."""
        columns = {
            name: column[rows]
            for name in (*_CODES, *_PLAIN, *_OPTIONAL)
            if (column := getattr(self, name)) is not None
        }
        return replace(self, gpu=None if self.gpu is None else self.gpu.take(rows), **columns)


_CODES = ("source", "section", "kernel")
_PLAIN = ("step", "start_ns", "duration_s", "seq")
_OPTIONAL = ("runs", "tokens")


def joined_columns(parts: Sequence[ObservationBatch]) -> dict[str, Any]:
    """All columns of the parts in order, but for the codes, whose tables may differ."""
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in _PLAIN
    }
    if any(part.runs is not None for part in parts):
        columns["runs"] = np.concatenate(
            [np.ones(len(p), np.int32) if p.runs is None else p.runs for p in parts]
        )
    if any(part.tokens is not None for part in parts):
        columns["tokens"] = np.concatenate(
            [np.full(len(p), np.nan) if p.tokens is None else p.tokens for p in parts]
        )
    columns["gpu"] = GpuTimes.join([part.gpu for part in parts], [len(part) for part in parts])
    return columns


def rows_state(parts: Sequence[ObservationBatch]) -> dict[str, Any]:
    """The rows of all parts, whose codes are of the same tables, without these; JSON types and
    arrays."""
    if not parts:
        return {}
    codes = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _CODES}
    return {name: plain(column) for name, column in (codes | joined_columns(parts)).items()}


def restored_rows(state: Mapping[str, Any]) -> list[ObservationBatch]:
    """The rows again, as one part or none.

    Raises:
        ValueError, TypeError: it is no state.
    """
    empty: dict[str, Any] = {"sources": [], "sections": []}
    return [read_as(ObservationBatch, {**empty, **state})] if state else []


class BatchBuilder:
    """Collects rows one by one, for decoders and tests; a million rows a second need columns."""

    def __init__(self) -> None:
        self._sources: dict[Source, int] = {}
        self._sections: dict[Section, int] = {}
        self._kernels: dict[Kernel, int] = {}
        self._rows: list[tuple[int, int, int, int, int, float, int, int, float]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def source_code(self, source: Source) -> int:
        return self._sources.setdefault(source, len(self._sources))

    def section_code(self, section: Section) -> int:
        return self._sections.setdefault(section, len(self._sections))

    def add(
        self,
        source: Source | int,
        section: Section | int,
        *,
        start_ns: int,
        duration_s: float,
        step: int = NO_STEP,
        seq: int = NO_SEQ,
        kernel: Kernel | None = None,
        runs: int = 1,
        tokens: float = float("nan"),
    ) -> None:
        """Append one row; ``source`` and ``section`` may be codes from ``*_code``."""
        kernel_code = (
            NO_KERNEL if kernel is None else self._kernels.setdefault(kernel, len(self._kernels))
        )
        self._rows.append(
            (
                source if isinstance(source, int) else self.source_code(source),
                section if isinstance(section, int) else self.section_code(section),
                kernel_code,
                step,
                start_ns,
                duration_s,
                seq,
                runs,
                tokens,
            )
        )

    def build(self) -> ObservationBatch:
        columns = list(zip(*self._rows, strict=True)) if self._rows else [()] * 9
        types = (*[np.int32] * 3, *[np.int64] * 2, np.float64, np.int64, np.int32, np.float64)
        named: dict[str, Any] = {
            name: np.array(column, kind)
            for name, column, kind in zip(
                (*_CODES, *_PLAIN, *_OPTIONAL), columns, types, strict=True
            )
        }
        if (named["runs"] == 1).all():
            del named["runs"]
        if np.isnan(named["tokens"]).all():
            del named["tokens"]
        return ObservationBatch(
            sources=tuple(self._sources),
            sections=tuple(self._sections),
            kernels=tuple(self._kernels),
            **named,
        )


Bases: TypeAlias = npt.NDArray[np.uint8]

HOST, EVENTS, CUPTI, COLLECTIVE, DDP = range(5)
"""Codes of ``GpuTimes.basis``. ``DDP`` is of step tables only: CUDA events of
DistributedDataParallel's own, in spans inside of the section that they time."""
BASIS_NAMES: Final = (
    semconv.HOST_BASIS,
    semconv.EVENTS_BASIS,
    semconv.CUPTI_BASIS,
    semconv.COLLECTIVE_BASIS,
    semconv.EVENTS_BASIS,
)
BASIS_CODES: Final = {name: code for code, name in enumerate(BASIS_NAMES[:DDP]) if code}
TELLS_WAITING: Final = (CUPTI, COLLECTIVE, DDP)
"""Codes of the bases that tell the rank's own work from its waiting in collectives."""
TIMED_ON_GPU: Final = (EVENTS, CUPTI, DDP)
"""Codes of the bases that are times of the GPU."""


@dataclass(frozen=True, slots=True, eq=False)
class GpuTimes:
    """GPU times, or waiting in collectives, of n rows; of a row that stands for many runs, sums.

    Attributes:
        basis: (n,) ``CUPTI`` if kernels were timed, ``EVENTS`` if the stream was, between two
            events, ``COLLECTIVE`` if the host's waiting in collectives was; ``HOST`` if unknown,
            and then all times are NaN.
        busy_s: (n,) with ``CUPTI`` time with at least one kernel at work, with ``EVENTS`` time
            between the events, idle gaps and waiting included, with ``COLLECTIVE`` the duration.
        nccl_s: (n,) of communication kernels, waiting included, or waiting in collectives; NaN
            with ``EVENTS``.
        kernel_s: (n,) of all kernels together; NaN but with ``CUPTI``, and if not reported.
    """

    basis: Bases
    busy_s: Floats
    nccl_s: Floats
    kernel_s: Floats

    def __len__(self) -> int:
        return len(self.basis)

    @classmethod
    def none(cls, n: int) -> GpuTimes:
        """Unknown times."""
        unknown = np.broadcast_to(np.nan, n)
        return cls(np.zeros(n, np.uint8), unknown, unknown, unknown)

    @classmethod
    def join(cls, parts: Sequence[GpuTimes | None], sizes: Sequence[int]) -> GpuTimes | None:
        """All parts in order, each of so many rows; None if none has any."""
        if all(part is None for part in parts):
            return None
        whole = [p or cls.none(n) for p, n in zip(parts, sizes, strict=True)]
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(p, name) for p in whole]) for name in names))

    def take(self, rows: Any) -> GpuTimes | None:
        """Only ``rows`` (numbers, flags, or a slice); None if none of them has any."""
        basis = self.basis[rows]
        if not basis.any():
            return None
        return GpuTimes(basis, self.busy_s[rows], self.nccl_s[rows], self.kernel_s[rows])

    def own_s(self) -> Floats:
        """(n,) the rank's own work without waiting, >= 0; NaN if unknown.

        With ``CUPTI`` busy - nccl if communication runs alone. If it overlaps other kernels, as
        training is built to do, these together (kernel - nccl) are the work, within the busy time.
        With ``EVENTS`` all the time between them, with ``COLLECTIVE`` duration - waiting.

        >>> times = GpuTimes(np.array([CUPTI, CUPTI, EVENTS], np.uint8), np.array([1.1, 1.1, 1.1]),
        ...     np.array([0.1, 0.9, np.nan]), np.array([1.1, 1.9, np.nan]))
        >>> times.own_s().round(9).tolist()
        [1.0, 1.0, 1.1]
        """
        alone_s = np.maximum(self.busy_s - self.nccl_s, 0.0)
        others_s = np.fmax(self.kernel_s - self.nccl_s, alone_s)
        own: Floats = np.fmin(others_s, self.busy_s)
        return own


def merge_batches(batches: Sequence[ObservationBatch]) -> ObservationBatch:
    """All rows in order, over common tables."""
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
        **joined_columns(batches),
    )


def _common(parts: Iterable[tuple[tuple[_Name, ...], Codes]]) -> tuple[tuple[_Name, ...], Codes]:
    table: dict[_Name, int] = {}
    by_id: dict[int, int] = {}  # the same object again needs no hash of all its fields
    columns: list[Codes] = []
    for names, codes in parts:
        new = [by_id.get(id(name), -1) for name in names]
        for at, code in enumerate(new):
            if code < 0:
                new[at] = by_id[id(names[at])] = table.setdefault(names[at], len(table))
        columns.append(np.array([*new, NO_KERNEL], np.int32)[codes])  # code -1 picks the last
    return tuple(table), np.concatenate(columns)


def first_and_last_start(batch: ObservationBatch) -> tuple[Ints, Ints]:
    """Per source code; the limits of the type where it has no rows."""
    limits = np.iinfo(np.int64)
    first = np.full(len(batch.sources), limits.max, np.int64)
    last = np.full(len(batch.sources), limits.min, np.int64)
    np.minimum.at(first, batch.source, batch.start_ns)
    np.maximum.at(last, batch.source, batch.start_ns)
    return first, last


def overlapping_sessions(batch: ObservationBatch) -> tuple[Source, ...]:
    """Sessions that worked as one rank of one attempt at the same time, unlike a restart."""
    first, last = first_and_last_start(batch)
    spans: dict[tuple[str, str, int, int], dict[tuple[str, str], tuple[int, int, Source]]] = {}
    for code, source in enumerate(batch.sources):
        rank = (source.run_id, source.group, source.attempt, source.rank)
        sessions = spans.setdefault(rank, {})
        begin, end = int(first[code]), int(last[code])
        known = sessions.get(source.session, (begin, end, source))
        sessions[source.session] = (min(known[0], begin), max(known[1], end), source)
    clashing: dict[Source, None] = {}
    for sessions in spans.values():
        ordered = sorted(sessions.values(), key=lambda span: span[:2])
        for earlier, later in itertools.pairwise(ordered):
            if later[0] < earlier[1]:
                clashing |= {earlier[2]: None, later[2]: None}
    return tuple(clashing)
