"""NVRx's module of this name: reports of summaries that the caller has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from otel_straggler.report import types
from otel_straggler.report.reporter import ReportSettings
from otel_straggler.report.types import Report, StragglerId, Summary
from otel_straggler.report.window import ReportWindow

__all__ = ["Report", "ReportGenerator", "StragglerId"]


class ReportGenerator:
    """Scores summaries by NVRx's definitions, without the detector's own safeguards: a section or
    kernel that one rank lacks is compared on none, and the smallest median ever is the reference.

    Args:
        scores_to_compute: as in ``Detector.initialize()``.
        gather_on_rank0: the first rank gets the scores of all and the others None; else every rank
            gets its own.
        pg: process group; default: the default group at the time of a report.
        node_name: in reports.

    Attributes:
        gather_on_rank0, node_name: as given.
    """

    def __init__(
        self,
        scores_to_compute: Iterable[str] | str,
        gather_on_rank0: bool = True,
        pg: Any = None,
        node_name: str = "<notset>",
    ) -> None:
        wanted = types.checked_scores(scores_to_compute)
        settings = ReportSettings(
            relative=types.RELATIVE in wanted,
            individual=types.INDIVIDUAL in wanted,
            gather=bool(gather_on_rank0),
            node=node_name,
            on_all_ranks=True,
            min_reference_samples=1,
            half_life_s=math.inf,
        )
        self._use(ReportWindow(settings, pg))

    @classmethod
    def of(cls, window: ReportWindow) -> ReportGenerator:
        """The detector's own, with its definitions and references."""
        result = cls.__new__(cls)
        result._use(window)  # noqa: SLF001 (its own)
        return result

    def _use(self, window: ReportWindow) -> None:
        self._window = window
        self.gather_on_rank0 = window.settings.gather
        self.node_name = window.settings.node

    def generate_report(
        self, section_summaries: Mapping[str, Summary], kernel_summaries: Mapping[str, Summary]
    ) -> Report | None:
        """Score summaries of this rank: sections in milliseconds, kernels in microseconds. All
        ranks of the group must call it. Returns: None on other ranks than the first if gathered."""
        return self._window.report_of(section_summaries, kernel_summaries)
