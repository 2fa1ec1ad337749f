"""The report, in the shape of NVRx's straggler package."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from otel_straggler.errors import ConfigError
from otel_straggler.model.missing_gpu_scores import missing_text
from otel_straggler.semconv import LISTED_KINDS, SectionKind

Scores = Mapping[int, float]
"""Rank -> score in (0, 1]; NaN = no data, or nothing to compare with."""
SectionScores = Mapping[str, Scores]


class Statistic(enum.Enum):
    """Statistics of a section (milliseconds) or kernel (microseconds), as in NVRx. ``MED`` is the
    true median (mean of the middle two), ``STD`` that of a sample (NaN for one run), ``NUM`` the
    number of runs."""

    MIN = enum.auto()
    MAX = enum.auto()
    MED = enum.auto()
    AVG = enum.auto()
    STD = enum.auto()
    NUM = enum.auto()

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Statistic.{self.name}"


Summary = Mapping[Statistic, float]


@dataclass(frozen=True)
class StragglerId:
    """A rank below a threshold, and its node."""

    rank: int
    node: str


@dataclass(frozen=True)
class Report:
    """Scores of one window: 1.0 is the best, 0.5 is twice as slow.

    If gathered, the first rank's report has the scores of all global ranks; else every rank has its
    own.

    Attributes:
        gpu_relative_perf_scores: against the fastest rank, over kernels that all compared ranks
            ran.
        section_relative_perf_scores: against the fastest rank, by section.
        gpu_individual_perf_scores, section_individual_perf_scores: against the rank's own best.
        rank_to_node: of all known ranks.
        local_section_summaries: statistics of this rank's sections, milliseconds.
        local_kernel_summaries: statistics of this rank's kernels, microseconds.
        kernels_age_s: time since the report that had these kernels first: 0 for those of this
            window, more where kernels are timed in a few steps and none of them was in it.
        generate_report_elapsed_time: cost of the report, milliseconds.
        gather_on_rank0: whether it was gathered.
        rank: whose report it is.
        section_kinds: sections that wait are scored but never listed.
        gpu_relative_missing, gpu_individual_missing: why a rank's GPU score is NaN, one of
            ``MISSING_GPU_SCORES``; ranks with a score are absent.
    """

    gpu_relative_perf_scores: Scores = field(default_factory=dict)
    section_relative_perf_scores: SectionScores = field(default_factory=dict)
    gpu_individual_perf_scores: Scores = field(default_factory=dict)
    section_individual_perf_scores: SectionScores = field(default_factory=dict)
    rank_to_node: Mapping[int, str] = field(default_factory=dict)
    local_section_summaries: Mapping[str, Summary] = field(default_factory=dict)
    local_kernel_summaries: Mapping[str, Summary] = field(default_factory=dict)
    generate_report_elapsed_time: float = 0.0
    gather_on_rank0: bool = True
    rank: int | None = None
    section_kinds: Mapping[str, SectionKind] = field(default_factory=dict)
    kernels_age_s: float = 0.0
    gpu_relative_missing: Mapping[int, str] = field(default_factory=dict)
    gpu_individual_missing: Mapping[int, str] = field(default_factory=dict)

    def why_no_gpu_scores(self) -> str:
        """One line on the GPU scores that are NaN: of which ranks, why, and what to do. Empty if
        there is none."""
        relative, individual = self.gpu_relative_missing, self.gpu_individual_missing
        ranks: dict[tuple[str, str], list[int]] = {}
        for rank in sorted({*relative, *individual}):
            codes = relative.get(rank, ""), individual.get(rank, "")
            ranks.setdefault(codes, []).append(rank)
        return missing_text(ranks)

    def identify_stragglers(
        self,
        gpu_rel_threshold: float = 0.75,
        section_rel_threshold: float = 0.75,
        gpu_indiv_threshold: float = 0.75,
        section_indiv_threshold: float = 0.75,
    ) -> dict[str, set[StragglerId] | dict[str, set[StragglerId]]]:
        """Ranks with a score strictly below its threshold; NaN is never below. Returns:
        ``straggler_gpus_relative``, ``straggler_gpus_individual``: sets;
        ``straggler_sections_relative``, ``straggler_sections_individual``: a set for every section
        that has any."""
        return {
            "straggler_gpus_relative": self._below(
                self.gpu_relative_perf_scores, gpu_rel_threshold
            ),
            "straggler_gpus_individual": self._below(
                self.gpu_individual_perf_scores, gpu_indiv_threshold
            ),
            "straggler_sections_relative": self._sections_below(
                self.section_relative_perf_scores, section_rel_threshold
            ),
            "straggler_sections_individual": self._sections_below(
                self.section_individual_perf_scores, section_indiv_threshold
            ),
        }

    def _below(self, scores: Scores, threshold: float) -> set[StragglerId]:
        return {
            StragglerId(rank, self.rank_to_node.get(rank, ""))
            for rank, score in scores.items()
            if score < threshold
        }

    def _sections_below(
        self, tables: SectionScores, threshold: float
    ) -> dict[str, set[StragglerId]]:
        listed = {
            section: self._below(scores, threshold)
            for section, scores in tables.items()
            if self.section_kinds.get(section, "compute") in LISTED_KINDS
        }
        return {section: ranks for section, ranks in listed.items() if ranks}


RELATIVE, INDIVIDUAL = "relative_perf_scores", "individual_perf_scores"
ReportFrom = Literal["process_group", "collector"]


def checked_scores(given: object) -> tuple[str, ...]:
    """Requested scores: all, one by name, or several in any collection.

    >>> checked_scores({"individual_perf_scores"})
    ('individual_perf_scores',)
    """
    known = (RELATIVE, INDIVIDUAL)
    if given == "all":
        return known
    names = (given,) if isinstance(given, str) else given
    if isinstance(names, Iterable):
        wanted = set(names)
        if wanted <= set(known):
            return tuple(name for name in known if name in wanted)
    raise _wrong("scores_to_compute", given, f'"all", or some of {RELATIVE} and {INDIVIDUAL}')


def checked_number(name: str, value: float, minimum: float) -> float:
    """A finite number of at least ``minimum``."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and value >= minimum:
        return value
    raise _wrong(name, value, f"a number of at least {minimum:g}")


def checked_url(name: str, value: object) -> str:
    if isinstance(value, str) and value.startswith(("http://", "https://")):
        return value
    raise _wrong(name, value, "a URL such as http://127.0.0.1:9464")


def is_from_collector(report_from: object) -> bool:
    if report_from in ("process_group", "collector"):
        return report_from == "collector"
    raise _wrong("report_from", report_from, '"process_group" or "collector"')


def _wrong(name: str, value: object, expected: str) -> ConfigError:
    return ConfigError.of(
        f"Detector.initialize({name}=...)", value, expected, "Leave it out for the default."
    )
