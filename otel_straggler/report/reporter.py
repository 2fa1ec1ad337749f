"""Scores of all ranks of a group, over ``torch.distributed``.

A report makes few, small collectives:

1. Does any rank have a name that others do not know? (``all_reduce`` of one number; if so, names
are exchanged by one ``all_gather``);
2. gathered: every rank's medians and own scores go to the first rank (``gather``), which compares
them with the functions of ``detect/scores/``, as the collector does;
3. not gathered, or with kernels: the smallest medians over the ranks (``all_reduce``), with which
every rank scores itself. Kernels are many, so their medians are never gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from otel_straggler.detect.scores.formulas import (
    gpu_relative_to_best,
    individual_gpu_scores,
    individual_scores,
    relative_scores,
    relative_to_best,
)
from otel_straggler.model.missing_gpu_scores import (
    number_of_reason,
    reason_of_number,
    why_missing,
)
from otel_straggler.model.observation import Floats, Ints, Section
from otel_straggler.report.columns import Columns, Member, What, kernel_hash
from otel_straggler.report.own_best import OwnBest
from otel_straggler.report.peers import Peers
from otel_straggler.report.statistics import Times

MAX_KERNELS = 2_000
"""Kernels compared per rank: those with the most time."""
_LACKS = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings:
    """Settings that all ranks of a group share, and this rank's own.

    Attributes:
        relative, individual: scores to compute.
        gather: the first rank gets the scores of all; else every rank gets its own.
        node, role: of this rank, which is compared within its role. Empty role: that of
            ``set_topology()`` at the time of a report.
        on_all_ranks: compare only what all ranks ran, as NVRx does; else ranks that did not run it
            are left out.
        min_reference_samples: a median of fewer runs never becomes a reference by itself.
        half_life_s: a best that is not reached again doubles in this time.
    """

    relative: bool = True
    individual: bool = True
    gather: bool = True
    node: str = ""
    role: str = ""
    on_all_ranks: bool = False
    min_reference_samples: int = 5
    half_life_s: float = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScores:
    """Scores of R ranks in S sections; NaN = no data or nothing to compare with.

    Attributes:
        ranks: (R,) global ranks.
        section_relative, section_individual: (R, S).
        gpu_relative, gpu_individual: (R,).
        gpu_missing: (R,) codes of why these two are NaN, one of ``MISSING_GPU_SCORES`` each; "" of
            one that is not.
    """

    ranks: tuple[int, ...]
    sections: tuple[Section, ...]
    section_relative: Floats
    section_individual: Floats
    gpu_relative: Floats
    gpu_individual: Floats
    gpu_missing: tuple[tuple[str, str], ...] = ()

    @classmethod
    def none(cls) -> GroupScores:
        """Empty scores."""
        nothing = np.empty((0, 0))
        return cls(
            ranks=(),
            sections=(),
            section_relative=nothing,
            section_individual=nothing,
            gpu_relative=nothing[0:0].ravel(),
            gpu_individual=nothing[0:0].ravel(),
        )


class Reporter:
    """Scores one window after another; keeps references and agreed names between them.

    Attributes:
        role: of this rank; may change between reports.
    """

    def __init__(self, settings: ReportSettings) -> None:
        self._settings = settings
        self.role = settings.role
        self._columns = Columns()
        of_rank = settings.half_life_s, settings.min_reference_samples
        self._section_best, self._kernel_best = OwnBest(*of_rank), OwnBest(*of_rank)

    @property
    def nodes(self) -> dict[int, str]:
        """Node by rank, of all known ranks."""
        return {rank: member.node for rank, member in self._columns.members.items()}

    def score(
        self,
        peers: Peers,
        sections: Times,
        kinds: Sequence[Section],
        kernels: Times,
        now_ns: int,
        why_no_kernels: str = "no_kernels",
    ) -> GroupScores | None:
        """Score one window. A collective over ``peers``, unless neither relative nor gathered.

        Args:
            peers: the same group at every call; call :meth:`reset_group` first for a new one.
            sections: times of this rank's sections, named as in ``kinds``.
            kernels: times of this rank's compute kernels.
            now_ns: end of the window.
            why_no_kernels: code of ``MISSING_GPU_SCORES``, for a window without any.

        Returns: None on a rank from which the scores were gathered. Raises: UsageError: the ranks
        do not have the same settings. Cost: O(names) on every rank, O(ranks * sections) on the
        first if gathered.
        """
        row = _Row(kinds, sections, _longest(kernels))
        row.why_no_kernels = "" if kernels.names else why_no_kernels
        wanted = self._settings
        if wanted.individual:
            self._score_individually(row, now_ns)
        if wanted.relative or wanted.gather:
            self._agree(peers, row)
        if wanted.relative and (self._columns.has_kernels or not wanted.gather):
            self._score_relatively(peers, row)
        scores = self._gathered(peers, row) if wanted.gather else row.alone(peers.rank)
        if self._columns.is_full:
            self._columns.reset()
        return scores

    def reset_group(self) -> None:
        """The group has changed: names must be agreed on again."""
        self._columns.reset()

    def _agree(self, peers: Peers, row: _Row) -> None:
        """Exchange names until all ranks hold the same tables."""
        while True:
            me = self._me(peers)
            news = self._columns.news(me, row.kinds, row.hashes)
            longest = -int(peers.minimum(np.array([-float(len(news))]))[0])
            if longest == 0:
                return
            messages = peers.exchange(news or self._columns.no_news(me), longest)
            if self._columns.learn(messages):
                return
            self._columns.reset()

    def _me(self, peers: Peers) -> Member:
        own = self._settings
        settings = f"relative={own.relative}, individual={own.individual}, gather={own.gather}"
        return Member(rank=peers.rank, node=own.node, role=self.role, settings=settings)

    def _score_individually(self, row: _Row, now_ns: int) -> None:
        """Without a reference there is no score: it would be 1.0 however slow the rank is."""
        best_s = self._section_best.update(row.sections, now_ns)
        scores = individual_scores(row.sections.median_s[None], best_s[None])[0]
        row.section_individual = np.where(np.isnan(best_s), np.nan, scores)
        kernels, best_s = row.kernels, self._kernel_best.update(row.kernels, now_ns)
        known = ~np.isnan(best_s)
        row.gpu_individual = float(
            individual_gpu_scores(
                kernels.median_s[known][None], kernels.total_s[known][None], best_s[known][None]
            )[0]
        )

    def _score_relatively(self, peers: Peers, row: _Row) -> None:
        sections = self._indexes("section", row.sections.names)
        kernels = self._indexes("kernel", row.hashes)
        values = np.full(len(self._columns.index), np.inf)
        on_all_ranks = self._settings.on_all_ranks
        if len(kernels) or on_all_ranks:
            values[self._indexes_of_role("kernel")] = _LACKS
        if on_all_ranks:
            values[self._indexes_of_role("section")] = _LACKS
        values[sections], values[kernels] = row.sections.median_s, row.kernels.median_s
        best_s = peers.minimum(values)
        best_s = np.where(best_s == _LACKS, np.nan, best_s)
        row.section_relative = relative_to_best(row.sections.median_s, best_s[sections])
        row.gpu_relative = gpu_relative_to_best(
            row.kernels.median_s, row.kernels.total_s, best_s[kernels]
        )

    def _indexes(self, what: What, names: Sequence[str]) -> Ints:
        index, role = self._columns.index, self.role
        return np.array([index[role, what, name] for name in names], np.intp)

    def _indexes_of_role(self, what: What) -> list[int]:
        return [
            index
            for column, index in self._columns.index.items()
            if column[:2] == (self.role, what)
        ]

    def _gathered(self, peers: Peers, row: _Row) -> GroupScores | None:
        sections = self._columns.sections
        at = {name: i for i, name in enumerate(sections)}
        own = [at[name] for name in row.sections.names]
        packed = np.full((2, 2 + len(sections)), np.nan)
        packed[:, 0] = row.gpu_relative, row.gpu_individual
        packed[:, 1] = [number_of_reason(code) for code in row.missing]
        packed[0, 2:][own], packed[1, 2:][own] = row.sections.median_s, row.section_individual
        parts = peers.gather(packed)
        if parts is None:
            return None
        table = np.stack(parts)
        median_s = table[:, 0, 2:]
        relative = np.full_like(median_s, np.nan)
        if self._settings.relative:
            relative = relative_scores(median_s, self._roles(peers))
            if self._settings.on_all_ranks:
                relative[:, np.isnan(median_s).any(axis=0)] = np.nan
        return GroupScores(
            ranks=peers.ranks,
            sections=tuple(sections.values()),
            section_relative=relative,
            section_individual=table[:, 1, 2:],
            gpu_relative=table[:, 0, 0],
            gpu_individual=table[:, 1, 0],
            gpu_missing=tuple(
                (reason_of_number(a), reason_of_number(b)) for a, b in table[:, :, 1].tolist()
            ),
        )

    def _roles(self, peers: Peers) -> Ints:
        numbers: dict[str, int] = {}
        roles = [self._columns.members[rank].role for rank in peers.ranks]
        return np.array([numbers.setdefault(role, len(numbers)) for role in roles], np.int64)


class _Row:
    """Measurements and scores of one rank."""

    def __init__(self, kinds: Sequence[Section], sections: Times, kernels: Times) -> None:
        self.kinds = kinds
        self.sections = sections
        self.kernels = kernels
        self.hashes = [kernel_hash(name) for name in kernels.names]
        self.section_relative = np.full(len(sections.names), np.nan)
        self.section_individual = np.full(len(sections.names), np.nan)
        self.gpu_relative = float("nan")
        self.gpu_individual = float("nan")
        self.why_no_kernels = ""

    @property
    def missing(self) -> tuple[str, str]:
        """Why the two GPU scores are NaN."""
        return why_missing(self.gpu_relative, self.gpu_individual, self.why_no_kernels)

    def alone(self, rank: int) -> GroupScores:
        return GroupScores(
            ranks=(rank,),
            sections=tuple(self.kinds),
            section_relative=self.section_relative[None],
            section_individual=self.section_individual[None],
            gpu_relative=np.array([self.gpu_relative]),
            gpu_individual=np.array([self.gpu_individual]),
            gpu_missing=(self.missing,),
        )


def _longest(kernels: Times) -> Times:
    if len(kernels.names) <= MAX_KERNELS:
        return kernels
    kept = np.sort(np.argsort(-kernels.total_s, kind="stable")[:MAX_KERNELS])
    return Times(
        tuple(kernels.names[k] for k in kept.tolist()),
        kernels.median_s[kept],
        kernels.total_s[kept],
        kernels.count[kept],
    )
