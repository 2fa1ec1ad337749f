"""``TrackerScalars``: cost of stragglers next to the loss in TensorBoard, MLflow or W&B."""

from __future__ import annotations

import atexit
import logging
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

from otel_straggler.client import process
from otel_straggler.client.guard import GUARD
from otel_straggler.client.settings import is_switched_off, resolve_settings
from otel_straggler.errors import ConfigError
from otel_straggler.otlp.clients.client import Response
from otel_straggler.otlp.clients.http import HttpClient
from otel_straggler.otlp.clients.token import token_headers_or_none
from otel_straggler.report.types import Report, Scores, checked_url
from otel_straggler.semconv import LISTED_KINDS, TRACKER_PREFIX, TRACKER_SCALARS
from otel_straggler.strict_json import parse_json

_LOG = logging.getLogger("otel_straggler")
TIMEOUT_S: Final = 5.0
_OK: Final = 200
_NOT_FOUND: Final = 404
DEFAULT_PAGES: Final = "http://127.0.0.1:9464"
MIN_EVERY_S: Final = 1.0
_ERROR_NAME: Final = "tracker_scalars"


class TrackerScalars:
    """Logs at most nine scalars of this run to the tracker of the script.

        scalars = TrackerScalars(SummaryWriter())
        for step in range(steps):
            ...
            scalars.log(step)

    On rank 0 a thread polls the collector; ``log`` passes new values to the tracker in the thread
    that calls it, because not every tracker is thread-safe. On other ranks it does nothing. Nothing
    here raises into training or waits for the collector.

    Args:
        tracker: a ``SummaryWriter`` of TensorBoard or tensorboardX, the module ``mlflow``, a run of
            W&B, anything with ``log_metrics(metrics, step=)``, or a function of
            (name, value, step). None, as on ranks without a writer: do nothing.
        collector: address of the collector's pages; ``OTEL_STRAGGLER_COLLECTOR``, or port 9464 of
            this machine, if left out.
        every_s: seconds between polls; at least 1.
        run_id, group, rank: of this process; by default those of ``configure()``.

    Raises:
        ConfigError: an argument is wrong.
    """

    def __init__(
        self,
        tracker: Any,
        *,
        collector: str | None = None,
        every_s: float = 10.0,
        run_id: str | None = None,
        group: str | None = None,
        rank: int | None = None,
    ) -> None:
        self._log_to = logging_to(_no_tracker if tracker is None else tracker)
        named = collector or os.environ.get("OTEL_STRAGGLER_COLLECTOR", "").strip()
        self._url = checked_url("collector", named or DEFAULT_PAGES)
        self._every_s = _checked_interval(every_s)
        self._given: dict[str, Any] = {"run_id": run_id, "group": group, "rank": rank}
        self._is_on = tracker is not None and not is_switched_off(os.environ)
        self._polling: Polling | None = None
        self._logged: str | None = None
        _ALIVE.add(self)

    def log(self, step: int | None = None) -> None:
        """Pass what is new to the tracker; the first call starts polling. Cost: 0.2 us if nothing
        is new, else what the tracker takes.

        Args:
            step: of the training, as the tracker counts it.
        """
        polling = self._polling
        if polling is None:
            if not self._is_on:
                return
            polling = self._polling = self._begun()
            if polling is None:
                self._is_on = False
                return
        newest = polling.newest
        if newest is None or newest[0] == self._logged:
            return
        self._logged = newest[0]
        self._send(newest[1], step)

    def log_report(self, report: Report | None, step: int | None = None) -> None:
        """Log a report of ``Detector``, without a collector; None is ignored."""
        if report is not None and self._is_on and not report.rank:
            self._send(scalars_of_report(report), step)

    def close(self) -> None:
        """Stop polling. The tracker is neither flushed nor closed."""
        self._is_on = False
        if self._polling is not None:
            self._polling.stop()
            self._polling.newest = None

    def leave_to_parent(self) -> None:
        """In a forked child: the thread is the parent's, and so are its locks."""
        self._is_on = False
        self._polling = None

    def _begun(self) -> Polling | None:
        """None on ranks other than 0, which ``configure()`` may decide after this object is
        created."""
        try:
            settings = process.current() or resolve_settings(self._given)
        except ConfigError as error:
            GUARD.record(_ERROR_NAME, error)
            return None
        given = {name: value for name, value in self._given.items() if value is not None}
        if given.get("rank", settings.rank) != 0:
            return None
        polling = Polling(
            self._url,
            run_id=given.get("run_id") or settings.run_id,
            group=given.get("group", settings.group),
            every_s=self._every_s,
        )
        polling.start()
        return polling

    def _send(self, scalars: Scalars, step: int | None) -> None:
        if not scalars:
            return
        try:
            self._log_to(scalars, step)
        except Exception as error:  # noqa: BLE001 - another's package, in the training loop
            GUARD.record_misuse(
                _ERROR_NAME,
                "TrackerScalars.log()",
                f"{type(error).__name__}: {error}",
                "a tracker that takes scalars",
                "Is its run still open? Training goes on without them.",
            )


def _no_tracker(*_: object) -> None: ...


def _checked_interval(every_s: float) -> float:
    if MIN_EVERY_S <= every_s < float("inf"):
        return float(every_s)
    raise ConfigError.of(
        "TrackerScalars(every_s)", every_s, f"at least {MIN_EVERY_S:g} s", "Leave it out for 10 s."
    )


_ALIVE: weakref.WeakSet[TrackerScalars] = weakref.WeakSet()


def _close_all() -> None:
    for each in list(_ALIVE):
        each.close()


def _leave_all() -> None:
    for each in list(_ALIVE):
        each.leave_to_parent()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_leave_all)

Scalars = Mapping[str, float]
LogScalars = Callable[[Scalars, int | None], None]
"""Takes full names and values, and the training step."""


def logging_to(tracker: Any) -> LogScalars:
    """A function that logs scalars to a tracker, as of :class:`TrackerScalars`.

    Raises:
        ConfigError: it is no tracker.
    """
    for method, adapt in (
        ("add_scalar", _to_summary_writer),
        ("log_metrics", _to_metrics_logger),
        ("log", _to_wandb_run),
    ):
        if callable(getattr(tracker, method, None)):
            return adapt(tracker)
    if callable(tracker):
        return _to_function(tracker)
    raise ConfigError.of(
        "TrackerScalars(tracker)",
        type(tracker).__name__,
        "a SummaryWriter, the module mlflow, a W&B run, or a function of (name, value, step)",
        "Give what your script logs its loss with.",
    )


def _to_summary_writer(writer: Any) -> LogScalars:
    def log(scalars: Scalars, step: int | None) -> None:
        for name, value in scalars.items():
            writer.add_scalar(name, value, step)

    return log


def _to_metrics_logger(logger: Any) -> LogScalars:
    def log(scalars: Scalars, step: int | None) -> None:
        logger.log_metrics(dict(scalars), step=step)

    return log


def _to_wandb_run(run: Any) -> LogScalars:
    """Without a step they wait for the next log call of the script."""

    def log(scalars: Scalars, step: int | None) -> None:
        if step is None:
            run.log(dict(scalars), commit=False)
        else:
            run.log(dict(scalars), step=step)

    return log


def _to_function(function: Callable[[str, float, int | None], object]) -> LogScalars:
    def log(scalars: Scalars, step: int | None) -> None:
        for name, value in scalars.items():
            function(name, value, step)

    return log


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
        response = self._client.get(headers=token_headers_or_none())
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
    answer = parse_json(body)
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
