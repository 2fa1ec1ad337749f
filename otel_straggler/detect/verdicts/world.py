"""Ranks and sections of one attempt, who is compared with whom, and subject ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from otel_straggler.detect.scores.medians import Groups, median_of_rows
from otel_straggler.model.causes import Cause
from otel_straggler.model.observation import HOST, Bools, Floats, Ints, Section
from otel_straggler.model.rank import Source, sharing_a_gpu
from otel_straggler.model.step_table import GpuSeconds, StepTable
from otel_straggler.model.verdict import Verdict
from otel_straggler.semconv import DEFAULT_ROLE

MIN_HOSTS = 3


class World:
    """Grows as ranks and sections appear.

    Attributes:
        sources: newest description of every rank, in order of appearance.
        sections: in the order in which they run.
        peers: who is compared with whom; hosts: ranks by node, or alone without one.
        inner: ranks that share the work of every layer (tensor and context parallel); or alone.
        is_inferred: the peers were found by clustering.
        doubtful_host: a host that was slow from the start without reported roles; -1 if none.
        is_reported: some rank reported its role or place.
        expected: ranks of the run.
        shares_gpu: (R,) ranks on whose GPU another one computes.
        renamed: subjects that the last update gave another name, by the earlier one.
    """

    def __init__(self, shared: set[str] | None = None) -> None:
        """``shared``: names that were too many ranks', as :func:`rank_subjects` has them."""
        self.sources: list[Source] = []
        self.sections: list[Section] = []
        self.peers = Groups.of([])
        self.hosts = Groups.of([])
        self.inner = Groups.of([])
        self.is_inferred = False
        self.doubtful_host = -1
        self.is_reported = False
        self.expected = 0
        self.on_gpu = False
        self.rank_subjects: list[str] = []
        self.host_subjects: list[str] = []
        self.row_of_rank: dict[str, int] = {}
        self.row_of_host: dict[str, int] = {}
        self.shares_gpu: Bools = np.zeros(0, bool)
        self.renamed: dict[str, str] = {}
        self._shared = set() if shared is None else shared
        self._row: dict[int, int] = {}
        self._column: dict[str, int] = {}
        self._seen: tuple[Source, ...] = ()
        self._rows = np.empty(0, np.int64)

    @property
    def n_ranks(self) -> int:
        return len(self.sources)

    def update(self, table: StepTable) -> bool:
        """Add the names of a table. True if ranks or peers have changed, and with them the rows."""
        self.renamed = {}
        self.expected = table.world_size or self.expected
        for section in table.sections:
            if section.name not in self._column:
                self._column[section.name] = len(self.sections)
                self.sections.append(section)
        if table.sources == self._seen:
            return False
        changed = self._add_sources(table.sources)
        self._seen = table.sources
        self._rows = np.array([self._row[s.rank] for s in table.sources], np.int64)
        return changed

    def use_inferred(self, groups: Groups) -> None:
        """Compare within these groups from now on. If the smaller of two is one whole host of
        several, it may as well be a slow host: all are peers then, and the host is doubtful."""
        self.doubtful_host = self._only_host_of_the_smaller(groups)
        if self.doubtful_host < 0:
            self.peers = groups
            self.is_inferred = len(groups) > 1

    def peers_of(self, members: Ints) -> Bools:
        """(R,) peers of a rank, or of a host's first rank; of a host on other hosts, if any."""
        code = self.peers.code
        same: Bools = code == code[members[0]]
        same[members[0]] = False
        elsewhere = same.copy()
        elsewhere[members] = False
        return elsewhere if elsewhere.any() else same

    def _only_host_of_the_smaller(self, groups: Groups) -> int:
        if len(groups) != 2 or len(self.hosts) < MIN_HOSTS:
            return -1
        smaller = int(np.argmin(groups.size))
        hosts = np.unique(self.hosts.code[groups.code == smaller])
        if len(hosts) != 1 or self.hosts.size[hosts[0]] != groups.size[smaller]:
            return -1
        return int(hosts[0])

    def align(self, table: StepTable) -> StepTable:
        """The table in this world's order; NaN or 0 for ranks and sections that it lacks."""
        columns = np.array([self._column[s.name] for s in table.sections], np.int64)
        sources, sections = tuple(self.sources), tuple(self.sections)
        if self._is_in_order(columns):
            return replace(table, sources=sources, sections=sections)
        return replace(
            table,
            sources=sources,
            sections=sections,
            seconds=self._spread(table.seconds, columns, np.nan),
            runs=self._spread(table.runs, columns, 0),
            run_cv=self._spread(table.run_cv[None], columns, np.nan)[0],
            tokens=self._spread_rows(table.tokens, np.nan),
            start_ns=self._spread_rows(table.start_ns, 0),
            end_ns=self._spread_rows(table.end_ns, 0),
            section_end_ns=None
            if table.section_end_ns is None
            else self._spread(table.section_end_ns, columns, 0),
            gpu=None if table.gpu is None else self._spread_gpu(table.gpu, columns),
            step_s=None if table.step_s is None else self._spread_rows(table.step_s, np.nan),
        )

    def _add_sources(self, sources: tuple[Source, ...]) -> bool:
        changed = False
        before = dict(zip(self.rank_subjects, map(rank_subject, self.sources), strict=True))
        for source in sources:
            row = self._row.setdefault(source.rank, len(self.sources))
            if row == len(self.sources):
                self.sources.append(source)
                changed = True
            elif self.sources[row] != source:
                changed |= _index(self.sources[row]) != _index(source)
                self.sources[row] = source
            self.on_gpu |= source.reports_gpu
        if changed:
            self.peers = peer_groups(self.sources)
            self.is_reported = is_reported(self.sources)
            self.inner = Groups.of([inner_key(source) for source in self.sources])
            self.is_inferred = False
            self.doubtful_host = -1
            nodes = [source.node or f"rank {source.rank}" for source in self.sources]
            self.hosts = Groups.of(nodes)
            self._name_subjects()
            self.renamed = {
                old: new
                for (old, device), source, new in zip(
                    before.items(), self.sources, self.rank_subjects, strict=False
                )
                if old != new and device == rank_subject(source)
            }
        return changed

    def _name_subjects(self) -> None:
        group = self.sources[0].group
        self.rank_subjects = rank_subjects(self.sources, self._shared)
        self.host_subjects = [host_subject(group, str(node)) for node in self.hosts.keys]
        self.row_of_rank = {name: row for row, name in enumerate(self.rank_subjects)}
        self.row_of_host = {name: row for row, name in enumerate(self.host_subjects)}
        self.shares_gpu = np.zeros(self.n_ranks, bool)
        devices = [source.device for source in self.sources]
        for rows in sharing_a_gpu(devices, [source.node for source in self.sources]):
            self.shares_gpu[rows] = True

    def _is_in_order(self, columns: Ints) -> bool:
        return (
            len(self._rows) == self.n_ranks
            and len(columns) == len(self.sections)
            and bool((self._rows == np.arange(self.n_ranks)).all())
            and bool((columns == np.arange(len(columns))).all())
        )

    def _spread(self, values: npt.NDArray[Any], columns: Ints, filler: float) -> npt.NDArray[Any]:
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


def _index(source: Source) -> tuple[object, ...]:
    """What decides who is compared with a rank, and whose memory it has."""
    return source.role, source.parallel, source.node, source.device, source.local_rank


MIN_GAP = 0.10
"""Roles that nobody reported must lie 10 % apart."""
MIN_CLUSTER = 3
INNER = ("tensor", "context")


def peer_groups(sources: Sequence[Source]) -> Groups:
    return Groups.of([peer_key(source) for source in sources])


def peer_key(source: Source) -> tuple[str, tuple[tuple[str, int], ...]]:
    """What peers have in common: role and all indexes but the data-parallel one.

    >>> peer_key(Source(run_id="r", rank=9, parallel=(("data", 1), ("pipeline", 3))))
    ('default', (('pipeline', 3),))
    """
    return source.role, tuple(sorted([pair for pair in source.parallel if pair[0] != "data"]))


def inner_key(source: Source) -> tuple[object, ...]:
    """What ranks have in common that split the same layers: all but the tensor and context index.

    >>> inner_key(Source(run_id="r", rank=9, parallel=(("data", 1), ("tensor", 3))))
    ('default', (('data', 1),))
    >>> inner_key(Source(run_id="r", rank=9, parallel=(("data", 1),)))
    ('rank', 9)
    """
    outer = [pair for pair in source.parallel if pair[0] not in INNER]
    if len(outer) == len(source.parallel):
        return "rank", source.rank
    return source.role, tuple(sorted(outer))


def describe_peers(key: tuple[str, tuple[tuple[str, int], ...]]) -> str:
    """Name of a peer group.

    >>> describe_peers(("default", (("pipeline", 3),))), describe_peers(("actor", ()))
    ('pipeline 3', 'actor')
    """
    role, indices = key
    text = [f"{name} {index}" for name, index in indices]
    return ", ".join(text if role == DEFAULT_ROLE and text else [role, *text])


def is_reported(sources: Sequence[Source]) -> bool:
    return any(source.parallel or source.role != DEFAULT_ROLE for source in sources)


def inferred_groups(log_seconds: Floats, noise: float) -> Groups:
    """Roles by clustering (R, C) log medians per step with standard error ``noise``, if not
    reported. A section splits the ranks where sorted times leave a gap of 10 % and 6 times the
    noise, with at least 3 ranks on both sides; fewer are suspects and no role. Ranks are peers if
    no section splits them."""
    gap = max(MIN_GAP, 6.0 * noise)
    log_seconds = np.where(np.isfinite(log_seconds), log_seconds, np.nan)
    label = np.zeros(len(log_seconds), np.int64)
    for column in log_seconds.T:
        part = _parts(column, gap)
        label = np.unique(label * (int(part.max(initial=0)) + 1) + part, return_inverse=True)[1]
    return _without_small(label, log_seconds)


def _parts(column: Floats, gap: float) -> Ints:
    """(R,) number of the part between gaps; NaN goes with the lowest part."""
    order = np.argsort(np.where(np.isnan(column), -np.inf, column), kind="stable")
    ordered = column[order]
    part = np.zeros(len(column), np.int64)
    cuts = np.flatnonzero(np.diff(ordered) >= gap) + 1
    bounds, last = [], 0
    for cut in cuts.tolist():
        if cut - last >= MIN_CLUSTER and len(column) - cut >= MIN_CLUSTER:
            bounds.append(cut)
            last = cut
    for number, cut in enumerate(bounds, 1):
        part[order[cut:]] = number
    return part


def _without_small(label: Ints, log_seconds: Floats) -> Groups:
    """Ranks of small clusters go to the cluster with the nearest times."""
    size = np.bincount(label)
    large = np.flatnonzero(size >= MIN_CLUSTER)
    if len(large) == 0:
        return Groups.of([(DEFAULT_ROLE, ())] * len(label))
    centre = np.array([median_of_rows(log_seconds[label == code]) for code in large])
    for row in np.flatnonzero(size[label] < MIN_CLUSTER).tolist():
        apart = np.nan_to_num(np.abs(centre - log_seconds[row]), nan=0.0).sum(axis=1)
        label[row] = large[int(np.argmin(apart))]
    names = {int(code): f"inferred {n}" for n, code in enumerate(large, 1)}
    if len(names) == 1:
        names = dict.fromkeys(names, DEFAULT_ROLE)
    return Groups.of([(names[code], ()) for code in label.tolist()])


def rank_subjects(sources: Sequence[Source], shared: set[str]) -> list[str]:
    """Subject ids of the ranks of a world, each another: :func:`rank_subject`, with the local rank
    where several ranks have the same GPU. Where that does not tell them apart either, as with two
    launchers on a node, or is unknown, it is the rank number.

    Args:
        shared: names that several ranks have had so far; theirs are added. A rank keeps the name
            that it got so, also while it is the only one on its GPU: those of a restart report one
            after the other.

    >>> two = [Source(run_id="r", rank=n, node="n1", local_rank=n, device="GPU-1") for n in (0, 1)]
    >>> rank_subjects(two, set()), rank_subjects(two[:1], set())
    (['rank/n1/GPU-1#0', 'rank/n1/GPU-1#1'], ['rank/n1/GPU-1'])
    """
    names = [rank_subject(source) for source in sources]
    for by_rank in (False, True):
        shared.update(name for name, ranks in Counter(names).items() if ranks > 1)
        names = [
            _own_subject(source, name, by_rank=by_rank) if name in shared else name
            for source, name in zip(sources, names, strict=True)
        ]
    return names


def _own_subject(source: Source, name: str, *, by_rank: bool) -> str:
    if by_rank or not source.device or source.local_rank < 0:
        return _in_group(source.group, f"rank/{source.rank}")
    return f"{name}#{source.local_rank}"


def rank_subject(source: Source) -> str:
    """The device rather than the rank number, which an elastic restart may reassign. Several ranks
    may have the same: :func:`rank_subjects`."""
    device = source.device or (str(source.local_rank) if source.local_rank >= 0 else "")
    name = f"{source.node}/{device}" if source.node and device else f"{source.rank}"
    return _in_group(source.group, f"rank/{name}")


def host_subject(group: str, node: str) -> str:
    return _in_group(group, f"host/{node}")


def draft_of(source: Source, cause: Cause, role: str = "", **fields: Any) -> Verdict:
    """A suspicion about a role, or about the whole run."""
    subject = role_subject(source.group, role, cause) if role else run_subject(source.group, cause)
    return Verdict(
        run_id=source.run_id,
        group=source.group,
        attempt=source.attempt,
        subject_id=subject,
        scope="role" if role else "run",
        role=role,
        cause=cause,
        state="suspect",
        **fields,
    )


def role_subject(group: str, role: str, cause: Cause) -> str:
    return _in_group(group, f"role/{role}/{cause}")


def run_subject(group: str, cause: Cause) -> str:
    return _in_group(group, f"run/{cause}")


def _in_group(group: str, name: str) -> str:
    return f"{group}:{name}" if group else name


def cause_of_section(section: Section | None) -> Cause:
    """By the kind of the section that loses time."""
    if section is None or section.kind == "compute":
        return "slow_gpu"
    return "slow_host"
