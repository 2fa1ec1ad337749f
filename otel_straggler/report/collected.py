"""The report of a collector, read over HTTP: no collective, so nobody waits for anybody."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from otel_straggler.report.types import Report, SectionScores
from otel_straggler.transport.client import NO_ANSWER, Response
from otel_straggler.transport.http import HttpClient

LONGEST_S = 0.2
"""What a training thread waits for a report at most."""
_MAX_BYTES = 256 * 1024 * 1024
_LOG = logging.getLogger("otel_straggler")
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
        found = ((rank, scores.get(key)) for key, rank in ranks.items())
        return {rank: _NAN if score is None else score for rank, score in found}

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
