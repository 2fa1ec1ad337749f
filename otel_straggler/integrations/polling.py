"""A thread that polls a collector for the newest scalars of one run."""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

from otel_straggler.client import process
from otel_straggler.otlp.clients.client import Response
from otel_straggler.otlp.clients.http import HttpClient
from otel_straggler.report.types import Report, Scores
from otel_straggler.semconv import LISTED_KINDS, TRACKER_PREFIX, TRACKER_SCALARS

_LOG = logging.getLogger("otel_straggler")
TIMEOUT_S: Final = 5.0
_OK: Final = 200
_NOT_FOUND: Final = 404


class Polling:
    """Polls every ``every_s`` until stopped, or until the session of its start has ended. The first
    failure in a row is logged; training never waits for it.

    Attributes:
        newest: (name of the snapshot, scalars) of the newest answer; None before the first.
    """

    def __init__(self, url: str, *, run_id: str, group: str, every_s: float) -> None:
        self._url, self._run_id, self._every_s = url, run_id, every_s
        query = urlencode({"run": run_id, "group": group})
        address = f"{url.rstrip('/')}/v1/scalars?{query}"
        self._client = HttpClient(address, timeout_s=TIMEOUT_S)
        self._has_logged = False
        self._stops = threading.Event()
        self._session = process.current()
        self._thread = threading.Thread(
            target=self._run, name="otel-straggler-scalars", daemon=True
        )
        self.newest: tuple[str, dict[str, float]] | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Return at once; a request under way is abandoned."""
        self._stops.set()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def tick(self) -> None:
        """Poll once."""
        response = self._client.get()
        self._client.close()  # every rank may ask: nobody keeps a connection meanwhile
        try:
            if response.status != _OK:
                raise ValueError(_why(response))
            self.newest = scalars_in(response.body)
            self._has_logged = False
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            self._log(error)

    def _run(self) -> None:
        while not self._stops.is_set():
            if self._session is not None and process.current() is None:
                return
            self.tick()
            self._stops.wait(self._every_s)

    def _log(self, error: Exception) -> None:
        if self._has_logged:
            return
        self._has_logged = True
        _LOG.warning(
            "no scalars of run %r from %s (%s); training goes on without",
            self._run_id,
            self._url,
            error if isinstance(error, ValueError) else "another answer than a collector's",
        )


def _why(response: Response) -> str:
    if response.status == _NOT_FOUND and b"no such path" in response.body:
        return "an older collector, which has no /v1/scalars"
    if response.status == _NOT_FOUND:
        return "it does not know the run yet"
    return response.error or f"status {response.status}"


def scalars_in(body: bytes) -> tuple[str, dict[str, float]]:
    """The answer of ``/v1/scalars``: name of the snapshot, and known scalars.

    Raises:
        ValueError, LookupError, TypeError, AttributeError: it is another answer.
    """
    answer = json.loads(body)
    return str(answer["snapshot"]), known(answer["scalars"])


def known(scalars: dict[str, Any]) -> dict[str, float]:
    """Full names; without unknown values and names.

    >>> known({"slowdown": 1.5, "step_s": None, "worst_score": float("nan"), "else": 1})
    {'straggler/slowdown': 1.5}
    """
    return {
        TRACKER_PREFIX + name: scalars[name]
        for name in TRACKER_SCALARS
        if _is_number(scalars.get(name))
    }


def scalars_of_report(report: Report) -> dict[str, float]:
    """From a report of ``Detector``: worst score and rank, how many are listed and report; scores
    against the fastest rank, in an own report those of this rank alone."""
    worst = min(_scores(report), default=(math.nan, None))
    listed = report.identify_stragglers()
    ranks = {each.rank for result in listed.values() for each in _ids(result)}
    return known(
        {
            "worst_score": worst[0],
            "worst_rank": worst[1],
            "ranks_called_slow": len(ranks),
            "ranks_reporting": len(report.rank_to_node) or None,
        }
    )


def _scores(report: Report) -> Iterator[tuple[float, int | None]]:
    """Scores with their ranks, without sections that wait for others."""
    tables: list[Scores] = [report.gpu_relative_perf_scores]
    tables += [
        scores
        for section, scores in report.section_relative_perf_scores.items()
        if report.section_kinds.get(section, "compute") in LISTED_KINDS
    ]
    for scores in tables:
        yield from ((score, rank) for rank, score in scores.items() if math.isfinite(score))


def _ids(result: Any) -> Iterator[Any]:
    parts = result.values() if isinstance(result, dict) else (result,)
    for part in parts:
        yield from part


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value)
