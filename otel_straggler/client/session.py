"""Telemetry of one process: recorder, exporter, GPU timing and diagnostics are wired here."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from otel_straggler.client.guard import GUARD
from otel_straggler.client.identity import initialised_process_group
from otel_straggler.client.recording import FORM, RECORDER, RECORDING, WHY_PYTHON
from otel_straggler.client.sections import Section
from otel_straggler.client.steps import STEP_LISTENERS
from otel_straggler.client.termination import uncaught_exception
from otel_straggler.client.topology import TOPOLOGY, RankContext, Topology
from otel_straggler.client.worker import Clock
from otel_straggler.config import ClientSettings
from otel_straggler.profiles.nsys import NVTX_VARIABLE
from otel_straggler.semconv import GpuTier, Outcome

if TYPE_CHECKING:
    from otel_straggler.client.checkpoint_reports import CheckpointReports
    from otel_straggler.client.collectives.session import CollectiveWaits
    from otel_straggler.client.diagnostics.commands import Diagnostics
    from otel_straggler.client.gpu.owner import GpuTiming
    from otel_straggler.client.gpu.reasons import GpuTimingState
    from otel_straggler.client.hardware import HardwareReports
    from otel_straggler.client.injection import FaultInjection
    from otel_straggler.client.native_export import NativeExport
    from otel_straggler.client.python_export import PythonExport
    from otel_straggler.client.sdk_feed import SdkSink
    from otel_straggler.client.startup import StartUp
    from otel_straggler.client.termination import Termination
    from otel_straggler.inject.injector import Injection
    from otel_straggler.inject.plan import InjectionPlan
    from otel_straggler.model.rank_failure import RankFailure
    from otel_straggler.otlp.encode_events import EventRecord
    from otel_straggler.otlp.ids import SpanIds
    from otel_straggler.profiles.nvtx import NvtxRanges

_LOG = logging.getLogger("otel_straggler")
_STOP_S = 0.5
_GPU_SHARE = 0.5
"""Of the time in which a process has to end, for a GPU that still works."""
_IDENTITY = ("run_id", "rank", "world_size", "local_rank")
_ADDRESS = ("traces", "metrics", "is_trusted")


class Session:
    """Telemetry of this process, from ``configure()`` to ``shutdown()``.

    Args:
        resolve_again: the settings as of now, for a rank or a collector that is not known yet;
            None if both are.
        may_send: meanwhile, too; else records wait.
    """

    def __init__(
        self,
        settings: ClientSettings,
        resolve_again: Callable[[], ClientSettings] | None = None,
        *,
        may_send: bool = False,
    ) -> None:
        self.settings = settings
        self._resolve_again = resolve_again
        self._may_send = may_send
        self._start_up: StartUp | None = None
        self._is_open = False
        self._beginning = threading.RLock()  # a signal handler may flush meanwhile
        self._sdk: SdkSink | None = None
        self._export: NativeExport | PythonExport | None = None
        self._termination: Termination | None = None
        self._gpu: GpuTiming | None = None
        self._collectives: CollectiveWaits | None = None
        self._diagnostics: Diagnostics | None = None
        self._hardware: HardwareReports | None = None
        self._checkpoint_reports: CheckpointReports | None = None
        self._faults: InjectionPlan | None = None
        self._injection: FaultInjection | None = None
        self._is_closing = False
        self._failure: RankFailure | None = None
        self._span_ids: SpanIds | None = None
        self._nvtx: NvtxRanges | None = None
        from otel_straggler.client.checkpoints import CheckpointWatch

        self._checkpoints = CheckpointWatch()

    @property
    def session_id(self) -> str:
        """16 hex characters; new after a step counter went back."""
        return RECORDER.session.session_id

    @property
    def is_scorer(self) -> bool:
        """Whether all spans are sent: the other side is known to score."""
        return self._export is not None and self._export.is_scorer

    @property
    def is_sending(self) -> bool:
        """Whether it has begun to send; before, records wait for the rank to be known."""
        return self._export is not None

    @property
    def queued_requests(self) -> int:
        """Encoded requests that the other side has not taken yet."""
        return 0 if self._export is None else self._export.queued_requests

    @property
    def is_ending(self) -> bool:
        """Whether SIGTERM has come, so that the end of the process is no surprise."""
        return self._termination is not None and self._termination.is_ending

    def start(self) -> None:
        """Record and send from now on, unless telemetry is switched off.

        Raises:
            ConfigError: the plan of faults is none.
        """
        if self.settings.is_disabled:
            return
        if self.settings.inject:
            from otel_straggler.inject.plan import InjectionPlan

            self._faults = InjectionPlan.parse(self.settings.inject)
        from otel_straggler.client.gpu.owner import GpuTiming, why_never
        from otel_straggler.client.startup import StartUp, may_be_initialised_later

        GUARD.begin(is_strict=self.settings.strict)
        if self.settings.role:
            TOPOLOGY.add(Topology(role=self.settings.role))
        self._gpu = GpuTiming(self.settings, why_never(self.settings))
        self._is_open = True
        self._watch_sigterm()
        is_open = self._resolve_again is not None and may_be_initialised_later()
        if is_open and not self._may_send:
            RECORDING.reserve()
        else:
            self.begin()
        self._gpu.start()
        self._measure_waits()
        self._checkpoints.start()
        self._mirror_sections()
        if self._resolve_again is not None or self.settings.rank == 0:
            self._start_up = StartUp(self, self._resolve_again)
            self._start_up.start()

    def begin(self, settings: ClientSettings | None = None) -> bool:
        """Send from now on, under the rank and run of ``settings`` and to its collector if given:
        what was sent otherwise has ended. Returns whether that changes nothing that was sent."""
        with self._beginning:
            is_same = settings is None or self._is_known_as(settings)
            if settings is not None and self._is_open:
                self._resolve_again = None
                if self.is_sending and not is_same:
                    self.flush(self.settings.exit_deadline_s, "ok")
                    self._stop_threads(_STOP_S)
                known = {name: getattr(settings, name) for name in (*_IDENTITY, *_ADDRESS)}
                self.settings = replace(self.settings, **known)
            if self._is_open and not self.is_sending:
                self._send()
            return is_same

    def _identify(self) -> None:
        if self._start_up is not None:
            self._start_up.identify(_STOP_S)

    def may_be(self, settings: ClientSettings) -> bool:
        """Whether these differ in a rank or run alone that torch.distributed knows since then, or
        in a collector that is found there."""
        names = _IDENTITY if self.settings.is_trusted else (*_IDENTITY, *_ADDRESS)
        identity = {name: getattr(self.settings, name) for name in names}
        is_late = self._resolve_again is not None and initialised_process_group() is not None
        return is_late and replace(settings, **identity) == self.settings

    def _is_known_as(self, settings: ClientSettings) -> bool:
        names = (*_IDENTITY, *_ADDRESS)
        return all(getattr(settings, name) == getattr(self.settings, name) for name in names)

    def _send(self) -> None:
        # numpy and protobuf are loaded here: two threads must not import them at once.
        from otel_straggler.client.diagnostics.commands import Diagnostics
        from otel_straggler.client.diagnostics.processes import write_ring_identity
        from otel_straggler.otlp.ids import SpanIds

        span_ids = self._span_ids = SpanIds()
        self._sdk = self._sdk_sink(span_ids)
        self._export = self._exporter(span_ids)
        self._export.start()
        if self._sdk is not None:
            self._sdk.start(RECORDER.session.generation)
        self._read_hardware()
        self._report_checkpoints()
        write_ring_identity(self.settings)
        if self.settings.evidence_dir or self.settings.commands:
            self._diagnostics = Diagnostics(self.settings, lambda: self.is_scorer)
            self._diagnostics.start()
        self._inject_faults(span_ids)

    def gpu_timing(self) -> GpuTimingState:
        from otel_straggler.client.gpu.reasons import NOT_CONFIGURED

        return NOT_CONFIGURED if self._gpu is None else self._gpu.state()

    def set_gpu_timing(self, tier: GpuTier | None) -> GpuTimingState:
        """Use this tier; None: that of ``auto``."""
        if self._gpu is not None:
            self._gpu.set(tier)
        return self.gpu_timing()

    def sample_kernels(self, every: int | None) -> None:
        """See ``GpuTiming.sample_runs``."""
        if self._gpu is not None:
            self._gpu.sample_runs(every)

    def flush(self, timeout_s: float, outcome: Outcome | None = None) -> bool:
        """Send what is recorded; whether the other side has taken it within ``timeout_s``."""
        if self._is_open and not self.is_sending:
            self._identify()
            self.begin()
        export = self._export
        if export is None:
            return True
        deadline_s = time.monotonic() + timeout_s
        if outcome is not None and self._gpu is not None:
            is_well = outcome in {"ok", "unknown"} and self._is_closing
            self._gpu.settle(timeout_s * _GPU_SHARE, is_well=is_well)
        was_in_time = export.flush(max(0.0, deadline_s - time.monotonic()), outcome)
        was_sent = was_in_time and export.queued_requests == 0
        return (self._sdk is None or self._sdk.wait_for_flush(deadline_s)) and was_sent

    def close(
        self, outcome: Outcome, deadline_s: float, failure: RankFailure | None = None
    ) -> None:
        """Stop recording, send what is left and the outcome, all within ``deadline_s``."""
        if not self._is_open:
            return
        self._failure = self._reportable(failure)
        self._identify()
        if self._start_up is not None:
            self._start_up.stop()
        self.begin()
        if self._sdk is not None:
            self._sdk.stop_propagating()
        if self._collectives is not None:
            self._collectives.close()
        self._checkpoints.close()
        if self._nvtx is not None:
            STEP_LISTENERS.remove(self._nvtx.begin_step)
            self._nvtx.close()
        RECORDER.disable()
        self._is_closing = pending_exception() is None
        if self._checkpoint_reports is not None:
            self._checkpoint_reports.stop(min(_STOP_S, deadline_s))
        was_in_time = self.flush(deadline_s, outcome)
        self._is_open = False
        export = self._export
        if self._gpu is not None:
            self._gpu.close(_STOP_S if was_in_time else 0.0)
        TOPOLOGY.reset()
        self._stop_threads(_STOP_S if was_in_time else 0.0)
        if export is not None and outcome == "unknown":
            export.correct_at_exit("failed", deadline_s)
        if self._termination is not None:
            self._termination.uninstall()

    def _sdk_sink(self, span_ids: SpanIds) -> SdkSink | None:
        if self.settings.tracer_provider is None:
            return None
        from otel_straggler.client.sdk_feed import SdkSink

        return SdkSink(self.settings, span_ids, self._topology)

    def _exporter(self, span_ids: SpanIds) -> NativeExport | PythonExport:
        reason = WHY_PYTHON or why_python(self.settings)
        _LOG.info(
            "sections are recorded by the %s recorder and sent by the %s exporter%s",
            FORM,
            "python" if reason else "native",
            reason and f": {reason}",
        )
        if reason:
            from otel_straggler.client.python_export import PythonExport

            return PythonExport(
                self.settings, self._topology, self._losses, span_ids, sdk=self._sdk
            )
        from otel_straggler.client.native_export import NativeExport

        return NativeExport(self.settings, self._topology, self._losses, span_ids)

    def _stop_threads(self, timeout_s: float) -> None:
        export, self._export = self._export, None
        if export is not None:
            export.stop(timeout_s)
        if self._sdk is not None:
            self._sdk.stop(timeout_s)
        of_checkpoints, self._checkpoint_reports = self._checkpoint_reports, None
        for part in (self._injection, self._diagnostics, self._hardware, of_checkpoints):
            if part is not None:
                part.stop(timeout_s)

    def leave_to_parent(self) -> None:
        """In a forked child: this session is the parent's; only our signal handler must go."""
        if self._nvtx is not None:
            self._nvtx.close()
        parts = (self._termination, self._sdk, self._gpu, self._diagnostics)
        reports = (self._hardware, self._checkpoint_reports)
        for part in (*parts, self._collectives, *reports, self._injection):
            if part is not None:
                part.leave_to_parent()

    def _topology(self) -> Topology:
        tier, reason = ("", "") if self._gpu is None else self._gpu.described()
        return replace(
            TOPOLOGY.current,
            gpu_tier=tier,
            gpu_reason=reason,
            is_ending=self.is_ending,
            failure=self._failure,
            restarts_left=self.settings.restarts_left,
        )

    def _losses(self) -> dict[str, int]:
        losses = GUARD.counts()
        return losses if self._sdk is None else {**losses, **self._sdk.losses()}

    def _measure_waits(self) -> None:
        if not self.settings.collectives:
            return
        from otel_straggler.client.collectives.session import SOURCES, TIMERS, CollectiveWaits

        has_sdk = self.settings.tracer_provider is not None
        self._collectives = CollectiveWaits(SOURCES if has_sdk else (*SOURCES, *TIMERS))
        self._collectives.start()

    def _read_hardware(self) -> None:
        if not self.settings.hardware or not self.settings.metrics.is_enabled:
            return
        from otel_straggler.client.hardware import HardwareReports

        self._hardware = HardwareReports(
            RankContext(self.settings, RECORDER, Clock(), self._topology)
        )
        self._hardware.start()

    def _report_checkpoints(self) -> None:
        if not self.settings.metrics.is_enabled:
            return
        from otel_straggler.client.checkpoint_reports import CheckpointReports

        context = RankContext(self.settings, RECORDER, Clock(), self._topology)
        reports = CheckpointReports(context, self._checkpoints.totals)
        self._checkpoint_reports = reports
        self._checkpoints.on_change = reports.wake

    def _mirror_sections(self) -> None:
        if os.environ.get(NVTX_VARIABLE, "").strip().lower() == "on":
            from otel_straggler.profiles.nvtx import NvtxRanges

            self._nvtx = NvtxRanges(Section)
            STEP_LISTENERS.add(self._nvtx.begin_step)

    def _inject_faults(self, span_ids: SpanIds) -> None:
        if self._faults is not None:
            self._injection = self._fault_injection(self._faults, span_ids)
            self._injection.start()

    def _fault_injection(self, plan: InjectionPlan, span_ids: SpanIds) -> FaultInjection:
        from otel_straggler.client.injection import FaultInjection

        context = RankContext(self.settings, RECORDER, Clock(), self._topology)
        return FaultInjection(plan, context, span_ids)

    def report_injection(self, injection: Injection) -> None:
        """Send the span of a fault that something else injects, within 2 s."""
        from otel_straggler.inject.plan import InjectionPlan
        from otel_straggler.otlp.ids import SpanIds

        self._fault_injection(InjectionPlan(), SpanIds()).report(injection)

    def send_event(self, event: EventRecord, step: int | None, step_span: int) -> None:
        """Send an event as a log record, within 2 s.

        Args:
            step, step_span: number and span number of the step that it belongs to, if any.
        """
        from otel_straggler.client.events import send_event

        context = RankContext(self.settings, RECORDER, Clock(), self._topology)
        send_event(event, context, self._span_ids, step, step_span)

    def _flush_at_sigterm(self, timeout_s: float, outcome: Outcome | None) -> bool:
        """A program that an exception had ended before has failed: its launcher ends it because it
        takes long to end."""
        error = uncaught_exception()
        if outcome == "preempted" and error is not None and not self.is_ending:
            from otel_straggler.client.failures import failure_of

            outcome, failure = outcome_of(error, outcome), failure_of(error)
            self._failure = self._reportable(failure if outcome == "failed" else None)
        return self.flush(timeout_s, outcome)

    def _reportable(self, failure: RankFailure | None) -> RankFailure | None:
        if failure is None or self.settings.failure_messages:
            return failure
        return replace(failure, message="")

    def _watch_sigterm(self) -> None:
        if not self.settings.handle_sigterm:
            return
        from otel_straggler.client.termination import Termination

        termination = Termination(self._flush_at_sigterm, self.settings.exit_deadline_s)
        if termination.install():
            self._termination = termination


def pending_exception() -> BaseException | None:
    """The exception that is on its way, or has ended the program."""
    return sys.exc_info()[1] or uncaught_exception()


def outcome_of(error: BaseException | None, otherwise: Outcome) -> Outcome:
    """The outcome that an exception means; leaving by ``sys.exit()`` is no failure."""
    if error is None or (isinstance(error, SystemExit) and error.code in {None, 0}):
        return otherwise
    return "cancelled" if isinstance(error, KeyboardInterrupt) else "failed"


def why_python(settings: ClientSettings) -> str:
    """Why these settings need the exporter in Python; empty if they do not."""
    if settings.tracer_provider is not None:
        return "an SDK's provider gets spans too"
    from otel_straggler.otlp.clients.addresses import why_not_native

    return why_not_native(settings.traces) or why_not_native(settings.metrics)
