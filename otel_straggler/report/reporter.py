"""Scores of all ranks of a group, from what each of them measured, over ``torch.distributed``.

A report makes few collectives, and small ones:

1. the smallest median of every section and kernel over the ranks (one ``all_reduce``);
2. if it is gathered, every rank's scores to the first rank (one ``gather``).

Only when a rank has a name that the others have not heard of, two more come between: names are
exchanged (``all_gather``) and the first is made again. Individual scores that are not gathered need
none. Every rank scores itself with the functions of ``score/``, as the collector does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from otel_straggler.errors import UsageError, describe
from otel_straggler.model.observation import Floats, Section
from otel_straggler.report.columns import Column, Columns, Member, kernel_hash
from otel_straggler.report.peers import Peers
from otel_straggler.report.summaries import Times
from otel_straggler.score.gpu_scores import individual_gpu_scores
from otel_straggler.score.own_scores import gpu_relative_to_best, relative_to_best
from otel_straggler.score.references import References
from otel_straggler.score.section_scores import individual_scores

MOST_KERNELS = 2_000
"""Kernels that one rank compares: those in which it spends most time."""
_HEAD = 3
_SMALLEST = 256
_LACKS = -1.0
_DEVICE = ("this device",)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSettings:
    """What all ranks of a group must agree on, and what is this rank's own.

    Attributes:
        relative, individual: which scores to compute.
        gather: give the first rank the scores of all; else every rank gets its own.
        node, role: of this rank; it is compared with ranks of its role.
        min_reference_samples: a median of fewer runs never becomes a reference.
        half_life_s: a best that is not met again doubles in this time.
    """

    relative: bool = True
    individual: bool = True
    gather: bool = True
    node: str = ""
    role: str = "default"
    min_reference_samples: int = 5
    half_life_s: float = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScores:
    """Scores of R ranks in S sections; NaN = no data or nothing to compare with.

    Attributes:
        ranks: (R,) global ranks.
        sections: (S,) with their kinds.
        section_relative, section_individual: (R, S).
        gpu_relative, gpu_individual: (R,).
    """

    ranks: tuple[int, ...]
    sections: tuple[Section, ...]
    section_relative: Floats
    section_individual: Floats
    gpu_relative: Floats
    gpu_individual: Floats

    @classmethod
    def none(cls) -> GroupScores:
        """No scores of nobody."""
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
    """Scores windows one after another; keeps references and the agreed names between them."""

    def __init__(self, settings: ReportSettings) -> None:
        self._settings = settings
        self._columns = Columns()
        self._section_references = References(settings.half_life_s)
        self._kernel_references = References(settings.half_life_s)

    @property
    def nodes(self) -> dict[int, str]:
        """Node by rank, of all ranks that are known."""
        return {rank: member.node for rank, member in self._columns.members.items()}

    def score(
        self,
        peers: Peers,
        sections: Times,
        kinds: Sequence[Section],
        kernels: Times,
        now_ns: int,
    ) -> GroupScores | None:
        """Score one window. A collective over ``peers``, unless neither relative nor gathered.

        Args:
            peers: the same group at every call; a new one begins anew with :meth:`forget_group`.
            sections: times of this rank's sections, named as in ``kinds``.
            kinds: (N,) the sections.
            kernels: times of this rank's kernels, without those that wait for other ranks.
            now_ns: end of the window.

        Returns:
            None on a rank from which the scores were gathered.

        Raises:
            UsageError: the ranks do not agree on the settings.

        Cost: O(names) on every rank, O(ranks * sections) on the first if gathered.
        """
        kernels = _longest(kernels)
        row = _Row(kinds, sections, kernels)
        if self._settings.individual:
            self._score_individually(row, now_ns)
        if self._settings.relative or self._settings.gather:
            best_s = self._agree(peers, row)
            if self._settings.relative:
                self._score_relatively(row, best_s)
        scores = self._gathered(peers, row) if self._settings.gather else row.alone(peers.rank)
        if self._columns.is_full:
            self._columns.forget()
        return scores

    def forget_group(self) -> None:
        """The group is another one: its names have to be agreed anew."""
        self._columns.forget()

    def _score_individually(self, row: _Row, now_ns: int) -> None:
        least = self._settings.min_reference_samples
        sections, kernels = row.sections, row.kernels
        reference = self._section_references.update(
            _DEVICE,
            sections.names,
            sections.median_s[None],
            (sections.count >= least)[None],
            now_ns,
        )
        row.section_individual = individual_scores(sections.median_s[None], reference)[0]
        reference = self._kernel_references.update(
            _DEVICE, kernels.names, kernels.median_s[None], (kernels.count >= least)[None], now_ns
        )
        row.gpu_individual = float(
            individual_gpu_scores(kernels.median_s[None], kernels.total_s[None], reference)[0]
        )

    def _score_relatively(self, row: _Row, best_s: Floats) -> None:
        section_s = best_s[self._places("section", row.sections.names)]
        row.section_relative = relative_to_best(row.sections.median_s, section_s)
        kernel_s = best_s[self._places("kernel", row.hashes)]
        kernel_s = np.where(kernel_s == _LACKS, np.nan, kernel_s)
        row.gpu_relative = gpu_relative_to_best(row.kernels.median_s, row.kernels.total_s, kernel_s)

    def _agree(self, peers: Peers, row: _Row) -> Floats:
        """Smallest medians over the ranks, by place; exchanges names first where they are new."""
        me = Member(rank=peers.rank, node=self._settings.node, role=self._settings.role)
        was_told = False
        while True:
            message = self._columns.message(me, row.kinds, row.hashes)
            values = self._values(row)
            mark = float(self._fingerprint())
            shared = peers.minimum(np.concatenate([[-float(len(message)), mark, -mark], values]))
            if shared[1] != -shared[2]:
                if was_told:
                    raise UsageError(_disagreement(self._settings))
                self._columns.forget()
                was_told = True
            elif shared[0] < 0:
                self._columns.learn(peers.exchange(message, -int(shared[0])))
            else:
                return shared[_HEAD:]

    def _values(self, row: _Row) -> Floats:
        """This rank's medians at their places; infinite where it has nothing to say, and
        ``_LACKS`` for kernels of its role that it did not run, if it ran any."""
        size = _SMALLEST
        while size < len(self._columns.place):
            size *= 2
        values = np.full(size, np.inf)
        if not self._settings.relative:
            return values
        if row.hashes:
            role = self._settings.role
            values[
                [
                    place
                    for column, place in self._columns.place.items()
                    if column.what == "kernel" and column.role == role
                ]
            ] = _LACKS
        for what, names, times in (
            ("section", row.sections.names, row.sections),
            ("kernel", row.hashes, row.kernels),
        ):
            known = self._places(what, names)
            told = known >= 0
            values[known[told]] = times.median_s[told]
        return values

    def _places(self, what: str, names: Sequence[str]) -> np.ndarray:
        place, role = self._columns.place, self._settings.role
        return np.array([place.get(Column(role, what, n), -1) for n in names], np.intp)  # type: ignore[arg-type]

    def _fingerprint(self) -> int:
        """Of the agreed names and of the settings that decide which collectives are made."""
        settings = (self._settings.relative, self._settings.individual, self._settings.gather)
        mixed = blake2b(json.dumps(settings).encode(), digest_size=6).digest()
        return self._columns.fingerprint ^ int.from_bytes(mixed, "big")

    def _gathered(self, peers: Peers, row: _Row) -> GroupScores | None:
        names = self._columns.section_names
        at = {name: i for i, name in enumerate(names)}
        own = [at[name] for name in row.sections.names]
        packed = np.full((2, 1 + len(names)), np.nan)
        packed[0, 0], packed[1, 0] = row.gpu_relative, row.gpu_individual
        packed[0, 1:][own], packed[1, 1:][own] = row.section_relative, row.section_individual
        parts = peers.gather(packed)
        if parts is None:
            return None
        table = np.stack(parts)
        return GroupScores(
            ranks=peers.ranks,
            sections=tuple(Section(name, self._columns.kinds[name]) for name in names),
            section_relative=table[:, 0, 1:],
            section_individual=table[:, 1, 1:],
            gpu_relative=table[:, 0, 0],
            gpu_individual=table[:, 1, 0],
        )


class _Row:
    """One rank: what it measured, and its scores as they are found."""

    def __init__(self, kinds: Sequence[Section], sections: Times, kernels: Times) -> None:
        self.kinds = kinds
        self.sections = sections
        self.kernels = kernels
        self.hashes = [kernel_hash(name) for name in kernels.names]
        self.section_relative = np.full(len(sections.names), np.nan)
        self.section_individual = np.full(len(sections.names), np.nan)
        self.gpu_relative = float("nan")
        self.gpu_individual = float("nan")

    def alone(self, rank: int) -> GroupScores:
        return GroupScores(
            ranks=(rank,),
            sections=tuple(self.kinds),
            section_relative=self.section_relative[None],
            section_individual=self.section_individual[None],
            gpu_relative=np.array([self.gpu_relative]),
            gpu_individual=np.array([self.gpu_individual]),
        )


def _longest(kernels: Times) -> Times:
    if len(kernels.names) <= MOST_KERNELS:
        return kernels
    kept = np.sort(np.argsort(-kernels.total_s, kind="stable")[:MOST_KERNELS])
    return Times(
        tuple(kernels.names[k] for k in kept.tolist()),
        kernels.median_s[kept],
        kernels.total_s[kept],
        kernels.count[kept],
    )


def _disagreement(settings: ReportSettings) -> str:
    return describe(
        where="report over the process group",
        value=f"relative={settings.relative}, individual={settings.individual}, "
        f"gather_on_rank0={settings.gather} on this rank",
        expected="the same on all ranks",
        remedy="Call Detector.initialize() with the same arguments everywhere.",
    )
