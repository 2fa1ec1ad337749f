"""Reports of one process: collects section times and scores them on request."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from otel_straggler.client.guard import GUARD
from otel_straggler.client.identity import detect_rank_numbers, initialised_process_group
from otel_straggler.client.kernels import KERNELS, KernelShare
from otel_straggler.client.recording import RECORDING
from otel_straggler.client.topology import TOPOLOGY
from otel_straggler.errors import StragglerError
from otel_straggler.model.observation import kernel_class_of
from otel_straggler.otlp.clients.client import NO_ANSWER, Response
from otel_straggler.otlp.clients.http import HttpClient
from otel_straggler.otlp.clients.token import token_headers_or_none
from otel_straggler.report.peers import Peers, TorchPeers, destroyed_group, weakly
from otel_straggler.report.reporter import GroupScores, Reporter, ReportSettings
from otel_straggler.report.statistics import (
    SectionSamples,
    SectionStatistics,
    kernel_summaries,
    times_of,
)
from otel_straggler.report.types import Report, SectionScores, Summary
from otel_straggler.semconv import DEFAULT_ROLE

_LOG = logging.getLogger("otel_straggler")
_US_S = 1e-6


class ReportWindow:
    """Time from one report to the next.

    Args:
        process_group: a ``torch.distributed`` group; None: the default group, looked up at every
            report, or this rank alone.
        kernel_summaries: kernels of the window, in microseconds; None: those a timer counted.
        wall_ns: clock by which references fade.
    """

    def __init__(
        self,
        settings: ReportSettings,
        process_group: Any = None,
        *,
        kernel_summaries: Callable[[], Mapping[str, Summary]] | None = None,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._settings = settings
        self._process_group = None if process_group is None else weakly(process_group)
        self._share: KernelShare | None = None
        self._kernel_summaries = kernel_summaries or self._timed_kernels
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
        if self._settings.gather and rank != 0:
            return None
        return Report(gather_on_rank0=self._settings.gather, rank=rank)

    def completed(self, collected: CollectedReports) -> Report | None:
        """The collector's report with this rank's own summaries; begins a new window."""
        began_ns = time.perf_counter_ns()
        sections = self._drained()
        report = collected.newest()
        if report is None:
            return None
        return replace(
            report,
            local_section_summaries=sections,
            local_kernel_summaries=self._kernels(),
            generate_report_elapsed_time=(time.perf_counter_ns() - began_ns) / 1e6,
        )

    def report(self) -> Report | None:
        """Score the window and begin a new one. A collective over the process group. Returns: None
        if scores were gathered on another rank. A report without scores, and one log line, if the
        ranks could not be compared. Cost: see ``report/reporter.py``."""
        began_ns = time.perf_counter_ns()
        sections, kernels = self._drained(), self._kernels()
        rank: int | None = None
        try:
            peers = self.peers()
            rank = peers.rank
            self._reporter.role = self._settings.role or TOPOLOGY.current.role or DEFAULT_ROLE
            scores = self._reporter.score(
                peers, sections.times, sections.sections, times_of(kernels, _US_S), self._wall_ns()
            )
        except StragglerError:
            raise
        except Exception as error:  # noqa: BLE001  a broken group must not end the training here
            self._log_error(error)
            self._reporter.reset_group()
            scores = GroupScores.none()
        if scores is None:
            return None
        own_node = {} if rank is None else {rank: self._settings.node}
        return replace(
            _report_of(scores, self._settings),
            rank_to_node={**self._reporter.nodes, **own_node},
            local_section_summaries=sections,
            local_kernel_summaries=kernels,
            generate_report_elapsed_time=(time.perf_counter_ns() - began_ns) / 1e6,
            rank=rank,
        )

    def _timed_kernels(self) -> dict[str, Summary]:
        return kernel_summaries([] if self._share is None else self._share.take())

    def _drained(self) -> SectionStatistics:
        """A rank that fails here still takes part in the report: the others wait for it."""
        try:
            RECORDING.pull()
            return SectionStatistics(self._samples.take())
        except Exception as error:  # noqa: BLE001
            self._log_error(error)
            return SectionStatistics([])

    def _kernels(self) -> dict[str, Summary]:
        """Compute kernels only: the others' times depend on waiting and copying."""
        try:
            result = self._kernel_summaries()
        except Exception as error:  # noqa: BLE001
            self._log_error(error)
            return {}
        return {name: each for name, each in result.items() if kernel_class_of(name) == "compute"}

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


def _report_of(scores: GroupScores, settings: ReportSettings) -> Report:
    def column(values: list[float]) -> dict[int, float]:
        return dict(zip(scores.ranks, values, strict=True))

    def table(values: list[list[float]]) -> SectionScores:
        return {s.name: column(by_rank) for s, by_rank in zip(scores.sections, values, strict=True)}

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
    )


LONGEST_S = 0.2
"""Longest time that a report blocks the training thread."""
_MAX_BYTES = 256 * 1024 * 1024


@dataclass(slots=True, kw_only=True)
class CollectedReports:
    """Reports read from a collector; the first failure in a row is logged.

    Attributes:
        url: of the collector's pages, such as ``http://127.0.0.1:9464``.
        run_id, group: of the world.
        own_rank: of this process.
        is_whole: rank 0 gets the scores of all ranks and the others None; else each its own.
    """

    url: str
    run_id: str
    group: str
    own_rank: int
    is_whole: bool
    _request: threading.Thread | None = None
    _has_logged: bool = False

    def newest(self, timeout_s: float = LONGEST_S) -> Report | None:
        """The newest window; None if there is none within ``timeout_s``, or it is for rank 0."""
        if self.is_whole and self.own_rank != 0:
            return None
        response = self._get(timeout_s)
        window = self._newest_window(response.body) if response.status == 200 else None
        if window is None:
            self._log(response)
            return None
        self._has_logged = False
        return self.report_of(window)

    def _get(self, timeout_s: float) -> Response:
        """Never exceeds ``timeout_s``: a hanging name server cannot be timed out from inside, so a
        thread asks; if late it is abandoned, and nothing is requested until it ends."""
        if self._request is not None and self._request.is_alive():
            return Response(NO_ANSWER, error="the previous request is still open")
        answers: list[Response] = []

        def ask() -> None:
            client = HttpClient(self._address(), timeout_s=timeout_s, max_bytes=_MAX_BYTES)
            answers.append(client.get(headers=token_headers_or_none()))
            client.close()

        self._request = threading.Thread(target=ask, name="otel-straggler-fetch", daemon=True)
        self._request.start()
        self._request.join(timeout_s)
        late = Response(NO_ANSWER, error=f"no answer within {timeout_s:g} s")
        return answers[0] if answers else late

    def _log(self, response: Response) -> None:
        if self._has_logged:
            return
        self._has_logged = True
        why = "no closed window yet" if response.status == 200 else f"status {response.status}"
        _LOG.warning(
            "no report of run %r from %s (%s); training goes on without",
            self.run_id,
            self.url,
            response.error or why,
        )

    def report_of(self, window: dict[str, Any]) -> Report:
        """A window of ``/v1/report`` in the shape of an in-process report."""
        prefix = f"{self.group}/" if self.group else ""
        ranks = {
            key: int(key.removeprefix(prefix))
            for key in window["ranks"]
            if self.is_whole or key == f"{prefix}{self.own_rank}"
        }

        def column(scores: dict[str, float | None]) -> dict[int, float]:
            values = ((rank, scores.get(key)) for key, rank in ranks.items())
            return {rank: math.nan if score is None else score for rank, score in values}

        def table(scores: dict[str, dict[str, float | None]]) -> SectionScores:
            return {section: column(by_rank) for section, by_rank in scores.items()}

        return Report(
            gpu_relative_perf_scores=column(window["gpu_relative_scores"]),
            section_relative_perf_scores=table(window["section_relative_scores"]),
            gpu_individual_perf_scores=column(window["gpu_individual_scores"]),
            section_individual_perf_scores=table(window["section_individual_scores"]),
            rank_to_node={rank: window["ranks"][key]["node"] for key, rank in ranks.items()},
            gather_on_rank0=self.is_whole,
            rank=self.own_rank,
            section_kinds=window["sections"],
        )

    def _address(self) -> str:
        query = {"run": self.run_id, "group": self.group}
        if not self.is_whole:
            query["rank"] = str(self.own_rank)
        return f"{self.url.rstrip('/')}/v1/report?{urlencode(query)}"

    def _newest_window(self, body: bytes) -> dict[str, Any] | None:
        """The newest attempt's; None also for an answer that is no report."""
        try:
            windows = json.loads(body)["runs"][self.run_id]["windows"]
            own = [window for window in windows if window["group"] == self.group]
            return max(own, key=lambda w: (w["attempt"], w["end_ns"]), default=None)
        except (ValueError, LookupError, TypeError):
            return None
