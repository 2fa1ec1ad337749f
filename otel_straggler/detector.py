"""``Detector``: the drop-in face for code written against NVRx's straggler package.

    from otel_straggler import detector as straggler   # was: from nvidia_resiliency_ext import ...

The same calls, with or without a GPU. What differs on purpose is in docs/recipes/from-nvrx.md.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from itertools import count
from typing import Any

from otel_straggler.client import process
from otel_straggler.client.callables import CallableId, Decorator, EveryNth, WrappedCallables
from otel_straggler.client.compiled import COMPILATION, Transparent, transparent
from otel_straggler.client.recording import FORM, RECORDER, RECORDING
from otel_straggler.client.sections import Section, section
from otel_straggler.client.settings import is_switched_off, resolve_settings
from otel_straggler.errors import ConfigError, UsageError
from otel_straggler.native import check_requested
from otel_straggler.report import types
from otel_straggler.report.peers import ReportInterval
from otel_straggler.report.reporter import ReportSettings
from otel_straggler.report.types import Report, Statistic, StragglerId
from otel_straggler.report.window import CollectedReports, ReportWindow

__all__ = ["CallableId", "Detector", "Report", "Statistic", "StragglerId"]

_DEFAULT_PAGES = "http://127.0.0.1:9464"
PULL_EVERY = 4096 if FORM == "native" else 1024
"""Runs that a report finds in the ring at most, so that it never waits for many."""
_MAX_KEPT = 10_000


class Detector:
    """Times sections and scores ranks against each other and against their own past.

    Only class methods: a process has one detector. All ranks call ``generate_report`` (or
    ``generate_report_if_interval_elapsed``, every iteration) at the same place in their loops.

    Attributes:
        initialized: between ``initialize()`` and ``shutdown()``.
        scores_to_compute, gather_on_rank0, profiling_interval, report_time_interval: as given.
    """

    initialized: bool = False
    scores_to_compute: Sequence[str] = ()
    gather_on_rank0: bool = True
    profiling_interval: int = 1
    report_time_interval: float = 60.0
    _state: _Running | None = None
    _wrapped = WrappedCallables()
    _is_child: bool = False

    def __new__(cls) -> Detector:
        message = "Detector is never instantiated: call Detector.initialize() and the like"
        raise UsageError(message)

    @classmethod
    def initialize(
        cls,
        scores_to_compute: Sequence[str] | str = "all",
        gather_on_rank0: bool = True,
        profiling_interval: int = 1,
        report_time_interval: float = 60.0,
        node_name: str | None = None,
        *,
        endpoint: str | None = None,
        tracer_provider: Any = None,
        process_group: Any = None,
        role: str | None = None,
        report_from: types.ReportFrom = "process_group",
        collector: str | None = None,
    ) -> None:
        """Begin. Without an endpoint nothing is sent and no thread is started.

        Args:
            scores_to_compute: "all", or a list of "relative_perf_scores" and
                "individual_perf_scores".
            gather_on_rank0: the first rank of the group gets the scores of all and the others None;
                else every rank gets its own.
            profiling_interval: time one of so many runs of each section.
            report_time_interval: seconds between reports of
                ``generate_report_if_interval_elapsed``.
            node_name: in reports; default: the host name.
            endpoint: of a collector, for spans and heartbeats, as in ``configure()``; default:
                ``OTEL_STRAGGLER_ENDPOINT``.
            tracer_provider: an SDK TracerProvider that gets a sample of the spans.
            process_group: ranks to compare, by collectives in this group only; default: the default
                group, if there is one at the time of a report.
            role: ranks are compared within a role; default: that of ``set_topology()`` at the time
                of a report.
            report_from: "collector" reads the report over HTTP instead: no collective, at most 0.2
                s, None if there is none.
            collector: its address; default: ``OTEL_STRAGGLER_COLLECTOR``, or port 9464 of this
                machine.

        Raises: UsageError: already initialized. ConfigError: an argument is wrong.
        """
        if cls.initialized:
            message = "Detector is initialized already; call Detector.shutdown() first"
            raise UsageError(message)
        check_requested()
        wanted = types.checked_scores(scores_to_compute)
        interval = types.checked_number("profiling_interval", profiling_interval, 1)
        time_interval = types.checked_number("report_time_interval", report_time_interval, 0)
        is_collected = types.is_from_collector(report_from)
        state = _Running(
            ReportSettings(
                relative=types.RELATIVE in wanted,
                individual=types.INDIVIDUAL in wanted,
                gather=bool(gather_on_rank0),
                node=node_name or socket.gethostname(),
                role=role or os.environ.get("OTEL_STRAGGLER_ROLE", "").strip(),
            ),
            process_group=process_group,
            interval=ReportInterval(time_interval, int(interval), time.monotonic),
        )
        state.begin(endpoint, tracer_provider, role)
        try:
            state.collected = _collected(collector, gather_on_rank0) if is_collected else None
        except ConfigError:
            state.end()
            raise
        cls.scores_to_compute = wanted
        cls.gather_on_rank0 = bool(gather_on_rank0)
        cls.profiling_interval = int(interval)
        cls.report_time_interval = time_interval
        _timed.clear()
        cls._state = state
        cls.initialized = True

    @staticmethod
    def detection_section(
        name: str | None = None,
        profile_cuda: bool = True,  # noqa: ARG004 (NVRx's signature)
    ) -> AbstractContextManager[Any]:
        """Time a ``with`` block or, as a decorator, every call.

        Args:
            name: default: the caller's file and line.
            profile_cuda: ignored; a GPU timing tier, if on, times all sections.

        Raises: UsageError: before ``initialize()``.
        """
        if COMPILATION.is_on():
            return transparent()
        try:
            return _timed[name]
        except (KeyError, TypeError):  # the first time, or not a name
            return _new_section(name)

    @classmethod
    def wrap_callables(
        cls,
        callable_ids: Sequence[CallableId],
        profile_cuda: bool = True,  # noqa: ARG003 (NVRx's signature)
    ) -> None:
        """Time every call of these callables, and coroutine functions until they return. Raises:
        UsageError: one of them cannot be timed; those before it are."""
        is_plain = cls.initialized and cls.profiling_interval == 1
        for callable_id in callable_ids:
            name = str(callable_id)
            decorate: Decorator = section(name) if is_plain else EveryNth(section(name), _is_turn)
            cls._wrapped.wrap(callable_id, decorate)

    @classmethod
    def restore_original_callables(cls) -> None:
        """Restore exactly what ``wrap_callables`` replaced."""
        cls._wrapped.restore()

    @classmethod
    def generate_report(cls) -> Report | None:
        """Score the time since the last report. All ranks of the group must call it. Returns: None
        on other ranks than the first if gathered. Raises: UsageError: before ``initialize()``, or
        the ranks were initialized differently. Cost: two small collectives; one more if a rank has
        a new section, one more to compare kernels; none for individual scores that are not
        gathered. No device is synchronized."""
        return cls._running().report()

    @classmethod
    def generate_report_if_interval_elapsed(cls) -> Report | None:
        """Count an iteration; ``generate_report()`` if the interval has passed, else None."""
        state = cls._running()
        state.count_iteration()
        return state.report() if state.interval.is_elapsed else None

    @classmethod
    def is_interval_elapsed(cls) -> bool:
        """Whether the last ``generate_report_if_interval_elapsed()`` made a report."""
        return cls._running().interval.is_elapsed

    @classmethod
    def shutdown(cls) -> None:
        """Restore callables, stop timing, and end the telemetry that ``initialize()`` began."""
        cls._wrapped.restore()
        state, cls._state = cls._state, None
        cls.initialized = False
        _timed.clear()
        if state is not None:
            state.end()

    @classmethod
    def _running(cls) -> _Running:
        if cls._state is None:
            message = "Detector is not initialized; call Detector.initialize() first"
            raise UsageError(message)
        return cls._state

    @classmethod
    def _reset_in_child(cls) -> None:
        cls.initialized = False
        _timed.clear()
        cls._is_child = cls._state is not None or cls._is_child
        cls._state = None


class _Running:
    """State between ``initialize()`` and ``shutdown()``."""

    def __init__(
        self, settings: ReportSettings, *, process_group: Any, interval: ReportInterval
    ) -> None:
        self.window = ReportWindow(settings, process_group)
        self.interval = interval
        self.collected: CollectedReports | None = None
        self.is_off = is_switched_off(os.environ)
        self._turns: dict[str, count[int]] = {}
        self._owns_session = False

    def begin(self, endpoint: str | None, tracer_provider: Any, role: str | None) -> None:
        if self.is_off:
            return
        self.window.check_group()
        is_first = process.current() is None
        named = os.environ.get("OTEL_STRAGGLER_ENDPOINT", "").strip() if is_first else ""
        if endpoint is not None or tracer_provider is not None or named:
            process.configure(endpoint=endpoint, role=role, tracer_provider=tracer_provider)
            self._owns_session = is_first
        self.window.begin()
        if process.current() is None:
            RECORDER.empty_here(RECORDING.pull, PULL_EVERY)

    def end(self) -> None:
        if self.is_off:
            return
        RECORDER.empty_here(None)
        if self._owns_session:
            process.shutdown()
        self.window.end()

    def is_turn(self, name: str, every: int) -> bool:
        turn = self._turns.get(name)
        if turn is None:
            turn = self._turns.setdefault(name, count())
        return next(turn) % every == 0

    def count_iteration(self) -> None:
        peers = self.window.alone if self.is_off or self.collected else self.window.peers
        self.interval.count(peers)

    def report(self) -> Report | None:
        if self.is_off:
            return self.window.empty()
        if self.collected is not None:
            return self.window.completed(self.collected)
        return self.window.report()


_timed: dict[str | None, Section] = {}
"""By name, while every run is timed."""


def _new_section(name: str | None) -> AbstractContextManager[Any]:
    """Called by ``detection_section`` on the user's line."""
    if Detector._state is None:  # noqa: SLF001
        return _not_running(Detector._is_child)  # noqa: SLF001
    is_named = name is not None
    if name is None:
        caller = sys._getframe(2)  # noqa: SLF001
        name = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    made = section(name)
    if Detector.profiling_interval != 1:
        return EveryNth(made, _is_turn)
    if is_named and len(_timed) < _MAX_KEPT:  # names that vary do not fill the memory
        _timed[made.name] = made
    return made


def _is_turn(name: str) -> bool:
    state = Detector._state  # noqa: SLF001
    return state is not None and state.is_turn(name, Detector.profiling_interval)


def _not_running(is_child: bool) -> Transparent:
    """A forked worker of an initialized process records nothing; anyone else forgot a call."""
    if is_child:
        return transparent()
    message = "Detector is not initialized; call Detector.initialize() first"
    raise UsageError(message)


def _collected(address: str | None, is_whole: bool) -> CollectedReports:
    settings = process.current() or resolve_settings({})
    named = address or os.environ.get("OTEL_STRAGGLER_COLLECTOR", "").strip() or _DEFAULT_PAGES
    return CollectedReports(
        url=types.checked_url("collector", named),
        run_id=settings.run_id,
        group=settings.group,
        own_rank=settings.rank,
        is_whole=bool(is_whole),
    )


os.register_at_fork(after_in_child=Detector._reset_in_child)  # noqa: SLF001
