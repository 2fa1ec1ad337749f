"""Reports of this process's run that a collector has made, read over HTTP."""

from __future__ import annotations

import logging
import math
import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from otel_straggler.model.missing_gpu_scores import why_missing_in_window
from otel_straggler.otlp.clients.client import NO_ANSWER, Response
from otel_straggler.otlp.clients.http import HttpClient
from otel_straggler.otlp.clients.token import token_headers_or_none
from otel_straggler.report.types import Report, SectionScores
from otel_straggler.strict_json import parse_json

_LOG = logging.getLogger("otel_straggler")
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

        relative = column(window["gpu_relative_scores"])
        individual = column(window["gpu_individual_scores"])
        missing = {
            rank: why_missing_in_window(relative[rank], individual[rank]) for rank in relative
        }
        return Report(
            gpu_relative_perf_scores=relative,
            section_relative_perf_scores=table(window["section_relative_scores"]),
            gpu_individual_perf_scores=individual,
            section_individual_perf_scores=table(window["section_individual_scores"]),
            rank_to_node={rank: window["ranks"][key]["node"] for key, rank in ranks.items()},
            gather_on_rank0=self.is_whole,
            rank=self.own_rank,
            section_kinds=window["sections"],
            gpu_relative_missing={rank: codes[0] for rank, codes in missing.items() if codes[0]},
            gpu_individual_missing={rank: codes[1] for rank, codes in missing.items() if codes[1]},
        )

    def _address(self) -> str:
        query = {"run": self.run_id, "group": self.group}
        if not self.is_whole:
            query["rank"] = str(self.own_rank)
        return f"{self.url.rstrip('/')}/v1/report?{urlencode(query)}"

    def _newest_window(self, body: bytes) -> dict[str, Any] | None:
        """The newest attempt's; None also for an answer that is no report."""
        try:
            windows = parse_json(body, None)["runs"][self.run_id]["windows"]
            own = [window for window in windows if window["group"] == self.group]
            return max(own, key=lambda w: (w["attempt"], w["end_ns"]), default=None)
        except (ValueError, LookupError, TypeError):
            return None
