"""``Detector`` and what it wraps; the same names as in NVRx's module."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from otel_straggler.client import process
from otel_straggler.client.callables import CallableId, WrappedCallables
from otel_straggler.client.compiled import COMPILATION, Transparent, substitute, transparent
from otel_straggler.client.recording import FORM, RECORDER, RECORDING
from otel_straggler.client.settings import is_switched_off, resolve_settings
from otel_straggler.detector.cupti import CuptiManager
from otel_straggler.detector.reporting import ReportGenerator
from otel_straggler.detector.sections import (
    SECTIONS,
    CustomSection,
    CustomSections,
    caller_of,
    traced_section,
)
from otel_straggler.errors import ConfigError, UsageError
from otel_straggler.native import NATIVE, check_requested
from otel_straggler.report import types
from otel_straggler.report.collected import CollectedReports
from otel_straggler.report.interval import ReportIntervalTracker
from otel_straggler.report.peers import Peers
from otel_straggler.report.reporter import ReportSettings
from otel_straggler.report.types import Report
from otel_straggler.report.window import ReportWindow

__all__ = ["CallableId", "CustomSection", "Detector"]

_DEFAULT_PAGES = "http://127.0.0.1:9464"
PULL_EVERY = 4096 if FORM == "native" else 1024
"""Runs that a report finds in the ring at most, so that it never waits for many."""


class _DetectorType(type):
    """Attributes of ``Detector`` that are more than values."""

    @property
    def custom_sections(cls) -> Mapping[Any, CustomSection]:
        """Sections by name; times of this window are copies."""
        state = Detector._state  # noqa: SLF001
        return {} if state is None else CustomSections(SECTIONS, state.window.lengths_ns)

    @property
    def original_callables(cls) -> dict[CallableId, Any]:
        """What ``wrap_callables`` replaced, and has not restored yet."""
        return Detector._wrapped.originals  # noqa: SLF001

    def __setattr__(cls, name: str, value: Any) -> None:
        if name == "profiling_interval":
            value = int(types.checked_number(name, value, 1))
            SECTIONS.sample(value)
            process.sample_kernels(value)
            tracker = Detector.report_interval_tracker
            if tracker is not None:
                tracker.profiling_interval = value
        super().__setattr__(name, value)


class Detector(metaclass=_DetectorType):
    """Times sections and scores ranks against each other and against their own past.

    Only class methods: a process has one detector. All ranks call ``generate_report`` (or
    ``generate_report_if_interval_elapsed``, every iteration) at the same place in their loops.

    Attributes:
        initialized: between ``initialize()`` and ``shutdown()``.
        scores_to_compute, gather_on_rank0, report_time_interval: as given.
        profiling_interval: may be changed at any time.
        custom_sections: by name, with the times of this window, milliseconds.
        reporter: scores summaries with the settings of this detector.
        report_interval_tracker: of ``generate_report_if_interval_elapsed``.
        cupti_manager: the kernels of this window.
        original_callables: what ``wrap_callables`` has replaced.
    """

    initialized: bool = False
    scores_to_compute: Sequence[str] = ()
    gather_on_rank0: bool = True
    profiling_interval: int = 1
    report_time_interval: float = 60.0
    reporter: ReportGenerator | None = None
    report_interval_tracker: ReportIntervalTracker | None = None
    cupti_manager: CuptiManager | None = None
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
        """Begin. Without an endpoint nothing is sent, and no thread is started but for a GPU.

        Args:
            scores_to_compute: "all", or one or a collection of "relative_perf_scores" and
                "individual_perf_scores".
            gather_on_rank0: the first rank of the group gets the scores of all and the others None;
                else every rank gets its own.
            profiling_interval: time one of so many runs of each section, and its kernels with it.
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
            intervals=(time_interval, int(interval)),
        )
        state.begin(endpoint, tracer_provider, role)
        try:
            state.collected = _collected(collector, gather_on_rank0) if is_collected else None
        except ConfigError:
            state.end()
            raise
        cls.scores_to_compute = list(wanted)
        cls.gather_on_rank0 = bool(gather_on_rank0)
        cls.report_time_interval = time_interval
        cls.reporter = ReportGenerator.of(state.window)
        cls.report_interval_tracker = state.interval
        cls.cupti_manager = CuptiManager(state.window)
        cls.profiling_interval = int(interval)
        cls._state = state
        cls.initialized = True
        state.time_kernels()

    @staticmethod
    def detection_section(
        name: str | None = None, profile_cuda: bool = True
    ) -> AbstractContextManager[Any]:
        """Time a ``with`` block or, as a decorator, every call.

        Args:
            name: default: the caller's file and line.
            profile_cuda: whether its kernels count towards the GPU scores.

        Raises: UsageError: before ``initialize()``.
        """
        if COMPILATION.is_on():
            return transparent()
        return SECTIONS.find(name, profile_cuda) or _opened(name, profile_cuda)

    @classmethod
    def wrap_callables(cls, callable_ids: Sequence[CallableId], profile_cuda: bool = True) -> None:
        """Time every call of these callables, and coroutine functions until they return;
        ``profile_cuda`` as for :meth:`detection_section`. Raises: UsageError: one of them cannot be
        timed; those before it are."""
        for callable_id in callable_ids:
            name = str(callable_id)
            cls._wrapped.wrap(callable_id, SECTIONS.decorator(name, profile_cuda))
        if cls._state is not None:
            cls._state.time_kernels()

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
        state.interval.iter_increase()
        return state.report() if state.interval.is_interval_elapsed() else None

    @classmethod
    def is_interval_elapsed(cls) -> bool:
        """Whether the last ``generate_report_if_interval_elapsed()`` made a report."""
        return cls._running().interval.is_interval_elapsed()

    @classmethod
    def shutdown(cls) -> None:
        """Restore callables, stop timing, and end the telemetry that ``initialize()`` began."""
        cls._wrapped.restore()
        state, cls._state = cls._state, None
        cls.initialized = False
        cls.reporter = cls.report_interval_tracker = cls.cupti_manager = None
        SECTIONS.clear(_opened_from_c)
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
        SECTIONS.clear(_opened_from_c)
        cls._is_child = cls._state is not None or cls._is_child
        cls._state = None


class _Running:
    """State between ``initialize()`` and ``shutdown()``."""

    def __init__(
        self, settings: ReportSettings, *, process_group: Any, intervals: tuple[float, int]
    ) -> None:
        self.window = ReportWindow(settings, process_group)
        self.window.labels = SECTIONS.labels
        self.window.unprofiled = lambda: SECTIONS.unprofiled
        self.interval = ReportIntervalTracker(
            *intervals, peers=self._peers, monotonic_s=time.monotonic
        )
        self.collected: CollectedReports | None = None
        self.is_off = is_switched_off(os.environ)
        self._owns_session = False
        self._times_kernels = False

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
        process.end_kernel_timing()
        if self._owns_session:
            process.shutdown()
        self.window.end()

    def time_kernels(self) -> None:
        """Begin once a section wants it and torch for CUDA is there."""
        if self._times_kernels or self.is_off or not SECTIONS.profiles_kernels:
            return
        self._times_kernels = process.begin_kernel_timing(SECTIONS.sample_every)

    def _peers(self) -> Peers:
        return self.window.alone() if self.is_off or self.collected else self.window.peers()

    def report(self) -> Report | None:
        if self.is_off:
            return self.window.empty()
        self.time_kernels()
        if self.collected is not None:
            return self.window.completed(self.collected)
        return self.window.report()


def _opened(name: Any, profile_cuda: bool) -> AbstractContextManager[Any]:
    """Of whom called what called this."""
    state = Detector._state  # noqa: SLF001
    if state is None:
        return _not_running(Detector._is_child)  # noqa: SLF001
    location = caller_of(2)
    result = SECTIONS.opened(location if name is None else name, profile_cuda, location)
    state.time_kernels()
    return result


def _opened_from_c(name: Any, profile_cuda: bool) -> AbstractContextManager[Any]:
    """Called by the extension for a section that it does not know; on the user's line."""
    return _opened(name, profile_cuda)


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


SECTIONS.clear(_opened_from_c)
if NATIVE is not None:
    _in_python = vars(Detector)["detection_section"]
    Detector.detection_section = staticmethod(NATIVE.detection_section)  # type: ignore[method-assign]

    def _use_python() -> None:
        Detector.detection_section = _in_python  # type: ignore[method-assign]

    substitute(NATIVE.detection_section, traced_section, _use_python)
os.register_at_fork(after_in_child=Detector._reset_in_child)  # noqa: SLF001
