"""Reports of one process: collects section times and scores them on request."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from otel_straggler.client.gpu.reasons import NOT_CONFIGURED
from otel_straggler.client.gpu.surroundings import Surroundings
from otel_straggler.client.guard import GUARD
from otel_straggler.client.identity import detect_rank_numbers, initialised_process_group
from otel_straggler.client.kernels import KERNELS, KernelShare
from otel_straggler.client.process import gpu_timing
from otel_straggler.client.recording import RECORDING
from otel_straggler.client.topology import TOPOLOGY
from otel_straggler.errors import StragglerError
from otel_straggler.model.kernels import KernelCounts
from otel_straggler.model.observation import Ints, Section, kernel_class_of
from otel_straggler.report.collected import CollectedReports
from otel_straggler.report.peers import Peers, TorchPeers, destroyed_group, weakly
from otel_straggler.report.reporter import GroupScores, Reporter, ReportSettings
from otel_straggler.report.statistics import (
    SectionSamples,
    SectionStatistics,
    Times,
    kernel_summaries,
    times_of,
)
from otel_straggler.report.types import Report, SectionScores, Summary
from otel_straggler.semconv import DEFAULT_ROLE

_LOG = logging.getLogger("otel_straggler")
_US_S = 1e-6
_MS_S = 1e-3


class ReportWindow:
    """Time from one report to the next.

    Args:
        process_group: a ``torch.distributed`` group; None: the default group, looked up at every
            report, or this rank alone.
        kernel_summaries: kernels of the window, in microseconds; None: those a timer counted.
        wall_ns: clock by which references fade.

    Attributes:
        labels: what sections are called in reports, where that is not their text.
        unprofiled: gives the sections whose kernels do not count.
    """

    def __init__(
        self,
        settings: ReportSettings,
        process_group: Any = None,
        *,
        kernel_summaries: Callable[[], Mapping[str, Summary]] | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.settings = settings
        self.labels: dict[str, Any] = {}
        self.unprofiled: Callable[[], Set[str]] = frozenset
        self._process_group = None if process_group is None else weakly(process_group)
        self._share: KernelShare | None = None
        self._kernels_taken: list[KernelCounts] = []
        self._newest_kernels: tuple[dict[str, Summary], int] | None = None
        self._kernels_age_s = 0.0
        self._kernel_summaries = kernel_summaries or self._timed_kernels
        self._why_no_kernels = "no_kernels"
        self._lost = 0
        self._wall_ns = wall_ns
        self._reporter = Reporter(settings)
        self._samples = SectionSamples()
        self._peers: Peers | None = None
        self._has_logged = False

    def begin(self) -> None:
        """Listen to recorded sections and timed kernels."""
        self._share = KERNELS.share()
        RECORDING.listen(self._samples.add)

    def end(self) -> None:
        if self._share is not None:
            self._share.close()
            self._share = None
        RECORDING.unlisten(self._samples.add)

    def peers(self) -> Peers:
        """The current group."""
        distributed = initialised_process_group()
        if self._process_group is not None:
            group = self._process_group()
            if group is None:
                raise destroyed_group()
        elif distributed is None:
            return self._joined(self.alone())
        else:
            group = distributed.group.WORLD
        if isinstance(self._peers, TorchPeers) and self._peers.is_of(group):
            return self._peers
        return self._joined(TorchPeers(group))

    def alone(self) -> Peers:
        """This rank alone, whatever groups exist."""
        distributed = initialised_process_group()
        rank = (
            distributed.get_rank() if distributed else detect_rank_numbers(os.environ)["rank"].value
        )
        return Peers(rank or 0)

    def check_group(self) -> None:
        """Raises: UsageError if this rank cannot report over the given group."""
        if self._process_group is not None:
            self.peers()

    def empty(self) -> Report | None:
        """The report while everything is switched off."""
        rank = self.alone().rank
        if self.settings.gather and rank != 0:
            return None
        return Report(gather_on_rank0=self.settings.gather, rank=rank)

    def completed(self, collected: CollectedReports) -> Report | None:
        """The collector's report with this rank's own summaries; begins a new window."""
        began_ns = time.perf_counter_ns()
        sections = self._drained()
        report = collected.newest()
        if report is None:
            return None
        return self._labeled(
            report,
            local_section_summaries=sections.copy(),
            local_kernel_summaries=self._kernels(),
            kernels_age_s=self._kernels_age_s,
            generate_report_elapsed_time=(time.perf_counter_ns() - began_ns) / 1e6,
        )

    def report(self) -> Report | None:
        """Score the window and begin a new one. A collective over the process group. Returns: None
        if scores were gathered on another rank. A report without scores, and one log line, if the
        ranks could not be compared. Cost: see ``report/reporter.py``."""
        began_ns = time.perf_counter_ns()
        sections, kernels = self._drained(), self._kernels()
        measured = _Measured(
            sections.times, sections.sections, sections.copy(), kernels, self._why_no_kernels
        )
        return self._report(measured, began_ns)

    def report_of(
        self, sections: Mapping[str, Summary], kernels: Mapping[str, Summary]
    ) -> Report | None:
        """The same of given summaries: sections in milliseconds, kernels in microseconds."""
        began_ns = time.perf_counter_ns()
        times = times_of(sections, _MS_S)
        kinds = [Section(name) for name in times.names]
        measured = _Measured(times, kinds, dict(sections), _compute_kernels(kernels))
        return self._report(measured, began_ns)

    def lengths_ns(self, name: str) -> Ints:
        """Of the newest executions of a section in this window, oldest first."""
        RECORDING.pull()
        return self._samples.lengths_ns(name)

    def _report(self, measured: _Measured, began_ns: int) -> Report | None:
        rank: int | None = None
        try:
            peers = self.peers()
            rank = peers.rank
            self._reporter.role = self.settings.role or TOPOLOGY.current.role or DEFAULT_ROLE
            kernels = times_of(measured.kernels, _US_S)
            scores = self._reporter.score(
                peers,
                measured.times,
                measured.kinds,
                kernels,
                self._wall_ns(),
                measured.why_no_kernels,
            )
        except StragglerError:
            raise
        except Exception as error:  # noqa: BLE001  a broken group must not end the training here
            self._log_error(error)
            self._reporter.reset_group()
            scores = GroupScores.none()
        if scores is None:
            return None
        own_node = {} if rank is None else {rank: self.settings.node}
        others = self._reporter.nodes if self.settings.gather else {}
        return self._labeled(
            _report_of(scores, self.settings),
            rank_to_node={**others, **own_node},
            local_section_summaries=measured.sections,
            local_kernel_summaries=measured.kernels,
            kernels_age_s=self._kernels_age_s,
            generate_report_elapsed_time=(time.perf_counter_ns() - began_ns) / 1e6,
            rank=rank,
        )

    def _labeled(self, report: Report, **changes: Any) -> Report:
        """With sections as the caller named them."""
        result = replace(report, **changes)
        labels = self.labels
        if not labels:
            return result

        def labeled(table: Mapping[str, Any]) -> dict[Any, Any]:
            return {labels.get(name, name): value for name, value in table.items()}

        return replace(
            result,
            section_relative_perf_scores=labeled(result.section_relative_perf_scores),
            section_individual_perf_scores=labeled(result.section_individual_perf_scores),
            local_section_summaries=labeled(result.local_section_summaries),
            section_kinds=labeled(result.section_kinds),
        )

    def kernels_so_far(self) -> dict[str, Summary]:
        """Kernels of this window, in microseconds; the next report has them too. Those outside of
        sections do not count, as they do not in NVRx."""
        if self._share is not None:
            KERNELS.flush()
            self._kernels_taken += self._share.take()
        return kernel_summaries(self._in_sections())

    def _in_sections(self) -> list[KernelCounts]:
        """Kernels of this window that were launched in sections whose kernels count."""
        unprofiled = self.unprofiled()
        return [
            k for k in self._kernels_taken if k.cell.section and k.cell.section not in unprofiled
        ]

    def _timed_kernels(self) -> dict[str, Summary]:
        """Of this window; of a window without a sampled step the newest ones before, as long as a
        timer is on."""
        result = self.kernels_so_far()
        self._why_no_kernels = self._reason()
        self._kernels_taken = []
        now_ns, is_on = self._wall_ns(), KERNELS.timer() is not None
        if result or not is_on:
            self._newest_kernels = (result, now_ns) if result else None
            self._kernels_age_s = 0.0
        elif self._newest_kernels is not None:
            result, since_ns = self._newest_kernels
            self._kernels_age_s = max(0, now_ns - since_ns) / 1e9
        return result

    def _reason(self) -> str:
        """Code of why this window has no kernels, if it has none."""
        timing = gpu_timing()
        before, self._lost = self._lost, timing.counts.get("lost", 0)
        if self._in_sections():
            return "not_compute"
        if self._kernels_taken:
            return "outside_sections"
        if timing.uses_cupti:
            return "unattributed" if self._lost > before else timing.reason or "no_kernels"
        if timing.reason != NOT_CONFIGURED.reason:
            return timing.reason
        refusal = Surroundings().why_not_yet()
        return "not_profiled" if refusal is None else refusal.code

    def _drained(self) -> SectionStatistics:
        """A rank that fails here still takes part in the report: the others wait for it."""
        try:
            RECORDING.pull()
            return SectionStatistics(self._samples.take())
        except Exception as error:  # noqa: BLE001
            self._log_error(error)
            return SectionStatistics([])

    def _kernels(self) -> dict[str, Summary]:
        try:
            result = self._kernel_summaries()
        except Exception as error:  # noqa: BLE001
            self._log_error(error)
            return {}
        return _compute_kernels(result)

    def _joined(self, peers: Peers) -> Peers:
        """A new group may contain processes that know no names yet."""
        if type(self._peers) is type(peers) is Peers:
            return self._peers
        self._reporter.reset_group()
        self._peers = peers
        return peers

    def _log_error(self, error: Exception) -> None:
        """Log the first error; telemetry never stops training."""
        if GUARD.is_strict:
            raise error
        if not self._has_logged:
            self._has_logged = True
            _LOG.warning("ranks could not be compared; training goes on", exc_info=error)


@dataclass(frozen=True, slots=True)
class _Measured:
    """This rank's own part of a report.

    Attributes:
        times, kinds: of its sections.
        sections, kernels: their summaries, and those of its compute kernels.
        why_no_kernels: code of ``MISSING_GPU_SCORES``, for the case that there are none.
    """

    times: Times
    kinds: Sequence[Section]
    sections: dict[str, Summary]
    kernels: dict[str, Summary]
    why_no_kernels: str = "no_kernels"


def _compute_kernels(summaries: Mapping[str, Summary]) -> dict[str, Summary]:
    """The others' times depend on waiting and copying."""
    return {name: each for name, each in summaries.items() if kernel_class_of(name) == "compute"}


def _report_of(scores: GroupScores, settings: ReportSettings) -> Report:
    def column(values: list[float]) -> dict[int, float]:
        return dict(zip(scores.ranks, values, strict=True))

    def table(values: list[list[float]]) -> SectionScores:
        return {s.name: column(by_rank) for s, by_rank in zip(scores.sections, values, strict=True)}

    def missing(which: int) -> dict[int, str]:
        by_rank = zip(scores.ranks, scores.gpu_missing, strict=True)
        return {rank: codes[which] for rank, codes in by_rank if codes[which]}

    is_relative, is_individual = settings.relative, settings.individual
    return Report(
        gpu_relative_perf_scores=column(scores.gpu_relative.tolist()) if is_relative else {},
        section_relative_perf_scores=(
            table(scores.section_relative.T.tolist()) if is_relative else {}
        ),
        gpu_individual_perf_scores=column(scores.gpu_individual.tolist()) if is_individual else {},
        section_individual_perf_scores=(
            table(scores.section_individual.T.tolist()) if is_individual else {}
        ),
        gather_on_rank0=settings.gather,
        section_kinds={section.name: section.kind for section in scores.sections},
        gpu_relative_missing=missing(0) if is_relative else {},
        gpu_individual_missing=missing(1) if is_individual else {},
    )
