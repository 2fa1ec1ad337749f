"""The ranks and sections of one attempt, each with its place in the tables of layer 2."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from otel_straggler.model.gpu_times import HOST
from otel_straggler.model.observation import Ints, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import GpuSeconds, StepTable
from otel_straggler.score.verdicts.grouping import Groups
from otel_straggler.score.verdicts.peers import inner_key, is_told, peer_groups
from otel_straggler.score.verdicts.subjects import host_subject, rank_subject

LEAST_HOSTS = 3


class World:
    """Grows as ranks and sections appear.

    Attributes:
        sources: newest description of every rank, in order of appearance.
        sections: in the order in which they run.
        peers: who is compared with whom.
        hosts: ranks by node; a rank without one is a host of its own.
        inner: ranks that work on the same thing together, in every layer (tensor and context
            parallel); each alone where nobody told.
        is_inferred: the peers were found by clustering.
        doubtful_host: a host that was slow from the start where nobody told the roles, so that it
            may have other work; -1 if there is none.
        is_told: somebody said what the ranks do.
        expected: ranks of the run.
        on_gpu: any rank told of a GPU.
        rank_subjects, host_subjects: what verdicts call them.
        row_of_rank, row_of_host: where they stand.
    """

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self.sections: list[Section] = []
        self.peers = Groups.of([])
        self.hosts = Groups.of([])
        self.inner = Groups.of([])
        self.is_inferred = False
        self.doubtful_host = -1
        self.is_told = False
        self.expected = 0
        self.on_gpu = False
        self.rank_subjects: list[str] = []
        self.host_subjects: list[str] = []
        self.row_of_rank: dict[str, int] = {}
        self.row_of_host: dict[str, int] = {}
        self._row: dict[int, int] = {}
        self._column: dict[str, int] = {}
        self._seen: tuple[Source, ...] = ()
        self._rows = np.empty(0, np.int64)

    @property
    def n_ranks(self) -> int:
        return len(self.sources)

    def meet(self, table: StepTable) -> bool:
        """Take the names of a table in. True if ranks or peers are others than before, so that
        what is remembered by row means something else now."""
        self.expected = table.world_size or self.expected
        for section in table.sections:
            if section.name not in self._column:
                self._column[section.name] = len(self.sections)
                self.sections.append(section)
        if table.sources == self._seen:
            return False
        changed = self._take_sources(table.sources)
        self._seen = table.sources
        self._rows = np.array([self._row[s.rank] for s in table.sources], np.int64)
        return changed

    def use_inferred(self, groups: Groups) -> None:
        """Compare within these groups from now on.

        Two groups of which the smaller is one whole host, of several, may as well be a slow host:
        all are peers then, and the host is in doubt.
        """
        self.doubtful_host = self._only_host_of_the_smaller(groups)
        if self.doubtful_host < 0:
            self.peers = groups
            self.is_inferred = len(groups) > 1

    def _only_host_of_the_smaller(self, groups: Groups) -> int:
        if len(groups) != 2 or len(self.hosts) < LEAST_HOSTS:
            return -1
        smaller = int(np.argmin(groups.size))
        hosts = np.unique(self.hosts.code[groups.code == smaller])
        if len(hosts) != 1 or self.hosts.size[hosts[0]] != groups.size[smaller]:
            return -1
        return int(hosts[0])

    def align(self, table: StepTable) -> StepTable:
        """The table in this world's order; ranks and sections that it lacks are NaN, 0."""
        columns = np.array([self._column[s.name] for s in table.sections], np.int64)
        return replace(
            table,
            sources=tuple(self.sources),
            sections=tuple(self.sections),
            seconds=self._spread(table.seconds, columns, np.nan),
            runs=self._spread(table.runs, columns, 0),
            run_cv=self._spread(table.run_cv[None], columns, np.nan)[0],
            tokens=self._spread_rows(table.tokens, np.nan),
            start_ns=self._spread_rows(table.start_ns, 0),
            end_ns=self._spread_rows(table.end_ns, 0),
            gpu=None if table.gpu is None else self._spread_gpu(table.gpu, columns),
        )

    def _take_sources(self, sources: tuple[Source, ...]) -> bool:
        changed = False
        for source in sources:
            row = self._row.setdefault(source.rank, len(self.sources))
            if row == len(self.sources):
                self.sources.append(source)
                changed = True
            elif self.sources[row] != source:
                changed |= _place(self.sources[row]) != _place(source)
                self.sources[row] = source
            self.on_gpu |= source.tells_gpu
        if changed:
            self.peers = peer_groups(self.sources)
            self.is_told = is_told(self.sources)
            self.inner = Groups.of([inner_key(source) for source in self.sources])
            self.is_inferred = False
            self.doubtful_host = -1
            nodes = [source.node or f"rank {source.rank}" for source in self.sources]
            self.hosts = Groups.of(nodes)
            group = self.sources[0].group
            self.rank_subjects = [rank_subject(source) for source in self.sources]
            self.host_subjects = [host_subject(group, str(node)) for node in self.hosts.keys]
            self.row_of_rank = {name: row for row, name in enumerate(self.rank_subjects)}
            self.row_of_host = {name: row for row, name in enumerate(self.host_subjects)}
        return changed

    def _is_in_order(self, columns: Ints) -> bool:
        return (
            len(self._rows) == self.n_ranks
            and len(columns) == len(self.sections)
            and bool((self._rows == np.arange(self.n_ranks)).all())
            and bool((columns == np.arange(len(columns))).all())
        )

    def _spread(self, values: npt.NDArray[Any], columns: Ints, filler: float) -> npt.NDArray[Any]:
        if self._is_in_order(columns):
            return values
        shape = (len(values), self.n_ranks, len(self.sections))
        spread = np.full(shape, filler, values.dtype)
        spread[:, self._rows[:, None], columns[None, :]] = values
        return spread

    def _spread_gpu(self, gpu: GpuSeconds, columns: Ints) -> GpuSeconds:
        return GpuSeconds(
            self._spread(gpu.basis, columns, HOST),
            self._spread(gpu.own_s, columns, np.nan),
            self._spread(gpu.nccl_s, columns, np.nan),
        )

    def _spread_rows(self, values: npt.NDArray[Any], filler: float) -> npt.NDArray[Any]:
        if len(self._rows) == self.n_ranks and bool((np.diff(self._rows) == 1).all()):
            return values
        spread = np.full((len(values), self.n_ranks), filler, values.dtype)
        spread[:, self._rows] = values
        return spread


def _place(source: Source) -> tuple[object, ...]:
    """What decides with whom a rank is compared, and what its memory belongs to."""
    return source.role, source.parallel, source.node, source.device, source.local_rank
