"""The reports of one process: collects what its sections take, and scores it when asked."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from otel_straggler.client.guard import GUARD
from otel_straggler.client.identity import detect_rank_numbers, initialised_process_group
from otel_straggler.client.recording import RECORDING
from otel_straggler.client.topology import TOPOLOGY
from otel_straggler.errors import StragglerError
from otel_straggler.model.observation import kernel_class_of
from otel_straggler.otlp.clients.client import NO_ANSWER, Response
from otel_straggler.otlp.clients.http import HttpClient
from otel_straggler.report.peers import Alone, Peers, TorchPeers
from otel_straggler.report.reporter import GroupScores, Reporter, ReportSettings
from otel_straggler.report.statistics import (
    SectionSamples,
    SectionStatistics,
    TimedKernels,
    times_of,
)
from otel_straggler.report.types import Report, SectionScores, Summary
from otel_straggler.semconv import DEFAULT_ROLE

_LOG = logging.getLogger("otel_straggler")
_US_S = 1e-6


class ReportWindow:
    """From one report to the next.

    Args:
        settings: what to score and how.
        process_group: a ``torch.distributed`` group, or None for the default group, looked for at
            every report; without one, the rank is alone.
        kernel_summaries: gives the kernels of the window, in microseconds; those that a timer
            counted if left out.
        wall_ns: the clock that references fade by.
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
        self._process_group = process_group
        self._timed_kernels = TimedKernels()
        self._kernel_summaries = kernel_summaries or self._timed_kernels.take
        self._wall_ns = wall_ns
        self._reporter = Reporter(settings)
        self._samples = SectionSamples()
        self._peers: Peers | None = None
        self._has_logged = False

    def begin(self) -> None:
        """Listen to what is recorded, and to what is timed on the GPU."""
        self._timed_kernels.begin()
        RECORDING.listen(self._samples.add)

    def end(self) -> None:
        self._timed_kernels.end()
        RECORDING.unlisten(self._samples.add)

    def peers(self) -> Peers:
        """The group as it is now."""
        result = self._process_group
        if result is None:
            distributed = initialised_process_group()
            if distributed is None:
                return self._met(self.alone())
            result = distributed.group.WORLD
        if isinstance(self._peers, TorchPeers) and self._peers.group is result:
            return self._peers
        return self._met(TorchPeers(result))

    def alone(self) -> Peers:
        """This rank by itself, whatever groups there are."""
        distributed = initialised_process_group()
        rank = (
            distributed.get_rank() if distributed else detect_rank_numbers(os.environ)["rank"].value
        )
        return Alone(rank or 0)

    def check_group(self) -> None:
        """UsageError if a group was given that this rank cannot report over."""
        if self._process_group is not None:
            self.peers()

    def empty(self) -> Report | None:
        """What a report is while everything is switched off."""
        rank = self.alone().rank
        if self._settings.gather and rank != 0:
            return None
        return Report(gather_on_rank0=self._settings.gather, rank=rank)

    def completed(self, collected: CollectedReports) -> Report | None:
        """The collector's report with this rank's own summaries; begins a new window."""
        began_ns = time.perf_counter_ns()
        sections = self._taken()
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
        """Score the window and begin a new one. A collective over the process group.

        Returns:
            None where the scores were gathered on another rank. If the ranks could not be
            compared, a report without scores, and one line in the log.

        Cost: see ``report/reporter.py``.
        """
        began_ns = time.perf_counter_ns()
        sections, kernels = self._taken(), self._kernels()
        rank: int | None = None
        try:
            peers = self.peers()
            rank = peers.rank
            self._reporter.role = self._settings.role or TOPOLOGY.current.role or DEFAULT_ROLE
            scores = self._reporter.score(
                peers,
                sections.times,
                sections.sections,
                times_of(kernels, _US_S),
                self._wall_ns(),
            )
        except StragglerError:
            raise
        except Exception as error:  # noqa: BLE001  a broken group must not end the training here
            self._survive(error)
            self._reporter.reset_group()
            scores = GroupScores.none()
        if scores is None:
            return None
        return _report_of(
            scores,
            self._settings,
            rank=rank,
            nodes={**self._reporter.nodes, **({} if rank is None else {rank: self._settings.node})},
            sections=sections,
            kernels=kernels,
            elapsed_ms=(time.perf_counter_ns() - began_ns) / 1e6,
        )

    def _taken(self) -> SectionStatistics:
        """A rank that fails here still takes part in the report: the others wait for it."""
        try:
            RECORDING.pull()
            return SectionStatistics(self._samples.take())
        except Exception as error:  # noqa: BLE001
            self._survive(error)
            return SectionStatistics([])

    def _kernels(self) -> dict[str, Summary]:
        """Kernels that compute; how long the others take says how long they waited or copied."""
        try:
            result = self._kernel_summaries()
        except Exception as error:  # noqa: BLE001
            self._survive(error)
            return {}
        return {name: each for name, each in result.items() if kernel_class_of(name) == "compute"}

    def _met(self, peers: Peers) -> Peers:
        """A group that was made again may hold processes that know nothing yet."""
        if isinstance(self._peers, Alone) and isinstance(peers, Alone):
            return self._peers
        self._reporter.reset_group()
        self._peers = peers
        return peers

    def _survive(self, error: Exception) -> None:
        """Telemetry never stops training: log the first error."""
        if GUARD.is_strict:
            raise error
        if not self._has_logged:
            self._has_logged = True
            _LOG.warning("ranks could not be compared; training goes on", exc_info=error)


def _report_of(
    scores: GroupScores,
    settings: ReportSettings,
    *,
    rank: int | None,
    nodes: dict[int, str],
    sections: Mapping[str, Summary],
    kernels: Mapping[str, Summary],
    elapsed_ms: float,
) -> Report:
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
        rank_to_node=nodes,
        local_section_summaries=sections,
        local_kernel_summaries=kernels,
        generate_report_elapsed_time=elapsed_ms,
        gather_on_rank0=settings.gather,
        rank=rank,
        section_kinds={section.name: section.kind for section in scores.sections},
    )


LONGEST_S = 0.2
"""What a training thread waits for a report at most."""
_MAX_BYTES = 256 * 1024 * 1024
_NAN = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which report.

    Attributes:
        url: of the collector's pages, for example ``http://127.0.0.1:9464``.
        run_id, group: which world.
        own_rank: of this process.
        is_whole: rank 0 gets the scores of all ranks and the others nothing; else each its own.
    """

    url: str
    run_id: str
    group: str
    own_rank: int
    is_whole: bool

    @property
    def rank(self) -> int | None:
        """Whose scores; None for all ranks."""
        return None if self.is_whole else self.own_rank

    @property
    def is_for_others(self) -> bool:
        return self.is_whole and self.own_rank != 0


class CollectedReports:
    """Reads the newest closed window; the first failure in a row is logged."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._asking: threading.Thread | None = None
        self._has_logged = False

    def newest(self, timeout_s: float = LONGEST_S) -> Report | None:
        """The newest window; None if there is none within ``timeout_s``, or it is for rank 0."""
        if self._wanted.is_for_others:
            return None
        response = self._get(timeout_s)
        window = _newest_window(response.body, self._wanted) if response.status == 200 else None
        if window is None:
            self._log(response)
            return None
        self._has_logged = False
        return report_of(window, self._wanted)

    def _get(self, timeout_s: float) -> Response:
        """Never takes longer. A name server that hangs cannot be timed out from inside, so a thread
        asks, which is left behind if it is late; meanwhile nothing is asked."""
        if self._asking is not None and self._asking.is_alive():
            return Response(NO_ANSWER, error="the request before is still not answered")
        answers: list[Response] = []

        def ask() -> None:
            client = HttpClient(_address(self._wanted), timeout_s=timeout_s, max_bytes=_MAX_BYTES)
            answers.append(client.get())
            client.close()

        self._asking = threading.Thread(target=ask, name="otel-straggler-fetch", daemon=True)
        self._asking.start()
        self._asking.join(timeout_s)
        late = Response(NO_ANSWER, error=f"no answer within {timeout_s:g} s")
        return answers[0] if answers else late

    def _log(self, response: Response) -> None:
        if self._has_logged:
            return
        self._has_logged = True
        why = "no closed window yet" if response.status == 200 else f"status {response.status}"
        _LOG.warning(
            "no report of run %r from %s (%s); training goes on without",
            self._wanted.run_id,
            self._wanted.url,
            response.error or why,
        )


def report_of(window: dict[str, Any], wanted: Wanted) -> Report:
    """A window of ``/v1/report`` in the shape of a report in process."""
    prefix = f"{wanted.group}/" if wanted.group else ""
    ranks = {
        key: int(key.removeprefix(prefix))
        for key in window["ranks"]
        if wanted.rank is None or key == f"{prefix}{wanted.rank}"
    }

    def column(scores: dict[str, float | None]) -> dict[int, float]:
        result = ((rank, scores.get(key)) for key, rank in ranks.items())
        return {rank: _NAN if score is None else score for rank, score in result}

    def table(scores: dict[str, dict[str, float | None]]) -> SectionScores:
        return {section: column(by_rank) for section, by_rank in scores.items()}

    return Report(
        gpu_relative_perf_scores=column(window["gpu_relative_scores"]),
        section_relative_perf_scores=table(window["section_relative_scores"]),
        gpu_individual_perf_scores=column(window["gpu_individual_scores"]),
        section_individual_perf_scores=table(window["section_individual_scores"]),
        rank_to_node={rank: window["ranks"][key]["node"] for key, rank in ranks.items()},
        gather_on_rank0=wanted.is_whole,
        rank=wanted.own_rank,
        section_kinds=window["sections"],
    )


def _address(wanted: Wanted) -> str:
    query = {"run": wanted.run_id, "group": wanted.group}
    if wanted.rank is not None:
        query["rank"] = str(wanted.rank)
    return f"{wanted.url.rstrip('/')}/v1/report?{urlencode(query)}"


def _newest_window(body: bytes, wanted: Wanted) -> dict[str, Any] | None:
    """Of this world, the newest attempt; None also for an answer that is no report."""
    try:
        windows = json.loads(body)["runs"][wanted.run_id]["windows"]
        own = [window for window in windows if window["group"] == wanted.group]
        return max(own, key=lambda w: (w["attempt"], w["end_ns"]), default=None)
    except (ValueError, LookupError, TypeError):
        return None
