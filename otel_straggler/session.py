"""``configure()`` and ``shutdown()``: from instrument through record to export, in one process.

Here are also the rules for the ends of a process: normal exit, SIGTERM, fork.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from otel_straggler.config import ClientSettings
from otel_straggler.errors import ConfigError, describe
from otel_straggler.instrument.guard import GUARD
from otel_straggler.instrument.topology import TOPOLOGY
from otel_straggler.native import check_wish
from otel_straggler.record.active import RECORDER
from otel_straggler.record.description import Topology
from otel_straggler.record.recording import RECORDING
from otel_straggler.semconv import GPU_TIERS, OUTCOMES, GpuTier, Outcome

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from otel_straggler.record.exporting import Export
    from otel_straggler.record.gpu.owner import GpuTiming
    from otel_straggler.record.gpu.state import GpuTimingState
    from otel_straggler.record.sdk_sink import SdkSink
    from otel_straggler.record.termination import Termination
    from otel_straggler.wire.ids import SpanIds

_STOP_S = 0.5
_GPU_SHARE = 0.5
"""Of the time in which a process has to end, for a GPU that still works."""
_LOG = logging.getLogger("otel_straggler")


class Session:
    """Telemetry of this process, from ``configure()`` to ``shutdown()``.

    Attributes:
        settings: what was decided.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self._sdk: SdkSink | None = None
        self._export: Export | None = None
        self._termination: Termination | None = None
        self._gpu: GpuTiming | None = None
        self._is_closing = False

    @property
    def session_id(self) -> str:
        """16 hex characters; new after a step counter went back."""
        return RECORDER.epoch.session_id

    @property
    def is_scorer(self) -> bool:
        """Whether all spans are sent: the other side is known to score."""
        return self._export is not None and self._export.is_scorer

    @property
    def queued_requests(self) -> int:
        """Encoded requests that have not been taken by the other side yet."""
        return 0 if self._export is None else self._export.queued_requests

    @property
    def is_ending(self) -> bool:
        """Whether SIGTERM has come, so that the end of the process is no surprise."""
        return self._termination is not None and self._termination.is_ending

    def start(self) -> None:
        """Record and send from now on, unless telemetry is switched off."""
        if self.settings.is_disabled:
            return
        # numpy, requests and protobuf are loaded here: two threads must not import them at once.
        from otel_straggler.record.exporting import export_for
        from otel_straggler.record.gpu.owner import GpuTiming, why_never
        from otel_straggler.wire.ids import SpanIds

        span_ids = SpanIds()
        self._sdk = self._sdk_sink(span_ids)
        GUARD.begin(is_strict=self.settings.strict)
        if self.settings.role:
            TOPOLOGY.add(Topology(role=self.settings.role))
        self._gpu = GpuTiming(self.settings, why_never(self.settings))
        self._export = export_for(
            self.settings,
            topology=self._topology,
            other_losses=self._losses,
            bystander=self._sdk,
            span_ids=span_ids,
        )
        self._watch_sigterm()
        self._export.start()
        if self._sdk is not None:
            self._sdk.start(RECORDER.epoch.generation)
        self._gpu.start()

    def gpu_timing(self) -> GpuTimingState:
        """What times sections on the GPU now, and why nothing better does."""
        from otel_straggler.record.gpu.state import NOT_CONFIGURED

        return NOT_CONFIGURED if self._gpu is None else self._gpu.state()

    def set_gpu_timing(self, tier: GpuTier) -> GpuTimingState:
        """Have this tier from now on, if it can be had."""
        if self._gpu is not None:
            self._gpu.set(tier)
        return self.gpu_timing()

    def flush(self, timeout_s: float, outcome: Outcome | None = None) -> bool:
        """Send what is recorded; whether the other side has taken it within ``timeout_s``."""
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

    def close(self, outcome: Outcome, deadline_s: float) -> None:
        """Stop recording, send what is left and the outcome, all within ``deadline_s``."""
        if self._export is None:
            return
        if self._sdk is not None:
            self._sdk.stop_propagating()
        RECORDER.disable()
        self._is_closing = _pending_exception() is None
        was_in_time = self.flush(deadline_s, outcome)
        if self._gpu is not None:
            self._gpu.close(_STOP_S if was_in_time else 0.0)
        TOPOLOGY.forget()
        self._stop_threads(_STOP_S if was_in_time else 0.0)
        if self._termination is not None:
            self._termination.uninstall()

    def _sdk_sink(self, span_ids: SpanIds) -> SdkSink | None:
        if self.settings.tracer_provider is None:
            return None
        from otel_straggler.record.sdk_sink import SdkSink

        return SdkSink(self.settings, span_ids, self._topology)

    def _stop_threads(self, timeout_s: float) -> None:
        export, self._export = self._export, None
        if export is not None:
            export.stop(timeout_s)
        if self._sdk is not None:
            self._sdk.stop(timeout_s)

    def leave_to_parent(self) -> None:
        """In a forked child: this session is the parent's; only our signal handler must go."""
        if self._termination is not None:
            self._termination.leave_to_parent()
        if self._sdk is not None:
            self._sdk.leave_to_parent()
        if self._gpu is not None:
            self._gpu.leave_to_parent()

    def _topology(self) -> Topology:
        """What is known of the rank, with what times it now, and whether it was told to end."""
        tier, reason = ("", "") if self._gpu is None else self._gpu.described()
        return replace(TOPOLOGY.current, gpu_tier=tier, gpu_reason=reason, is_ending=self.is_ending)

    def _losses(self) -> dict[str, int]:
        losses = GUARD.counts()
        return losses if self._sdk is None else {**losses, **self._sdk.losses()}

    def _watch_sigterm(self) -> None:
        if not self.settings.handle_sigterm:
            return
        from otel_straggler.record.termination import Termination

        termination = Termination(self.flush, self.settings.exit_deadline_s)
        if termination.install():
            self._termination = termination


class _Process:
    """What belongs to the process as a whole."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.lock = threading.Lock()
        self.abandoned: list[Session] = []
        self.has_exit_hook = False


_PROCESS = _Process()


def configure(
    *,
    endpoint: str | None = None,
    run_id: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    local_rank: int | None = None,
    group: str | None = None,
    service_name: str | None = None,
    role: str | None = None,
    page: bool | None = None,
    team: str | None = None,
    headers: Mapping[str, str] | None = None,
    protocol: str | None = None,
    heartbeat_s: float | None = None,
    flush_s: float | None = None,
    queue_bytes: int | None = None,
    sample_steps: int | None = None,
    span_budget: int | None = None,
    exit_deadline_s: float | None = None,
    strict: bool = False,
    handle_sigterm: bool = True,
    tracer_provider: TracerProvider | str | None = None,
    propagate_context: bool = False,
    sdk_spans_per_s: float | None = None,
    gpu_timing: str | None = None,
    gpu_overhead: float | None = None,
) -> Session:
    """Begin to record this process and to send it to a collector.

    What is left out comes from ``OTEL_STRAGGLER_*``, then ``OTEL_*`` and the launcher's variables.
    Called again with the same settings it changes nothing.

    Args:
        endpoint: base URL of a collector that scores.
        run_id: names the run, alike on all its ranks.
        rank, world_size, local_rank: place in the world.
        group: which world, where a job has several.
        service_name: name of the job.
        role: ranks are compared within a role.
        page: False: nobody is called for this run.
        team: whose run it is, for who routes alerts.
        headers: sent with every request.
        protocol: "http/protobuf", or "grpc" (needs the extra ``grpc``); http/protobuf if left out.
        heartbeat_s: seconds between signs of life; 5 if left out.
        flush_s: seconds between sendings; 1 if left out.
        queue_bytes: what is kept while the collector is away; 64 MiB if left out.
        sample_steps: a backend not known to score gets one step in so many; 100 if left out.
        span_budget: spans per second above which the runs of hot sections are sent as one span for
            each step; 0: never; 200 if left out.
        exit_deadline_s: the most that the end of the process waits; 2 s if left out.
        strict: raise where telemetry would otherwise log and go on; for tests.
        handle_sigterm: send what is left when SIGTERM arrives.
        tracer_provider: the application's own provider of ``opentelemetry-sdk``, or "global" for
            the one that is set globally now. Its processors get a sample of the spans, with its
            resource and by its sampler. Unless a collector is named as well (``endpoint`` or
            ``OTEL_STRAGGLER_ENDPOINT``), this package then opens no connection of its own: no
            heartbeats, no scores. The provider is flushed with ours, never shut down.
        propagate_context: spans that user code starts inside a section become its children; the
            provider's sampler decides once per step. Costs some microseconds per section.
        sdk_spans_per_s: the most spans for the provider; whole steps are left out above it; 100
            if left out.
        gpu_timing: the highest tier of GPU timing: "off", "events" (time between two events around
            each section) or "cupti" (kernels); "auto" if left out, which is "off" until tiers have
            been measured on GPUs.
        gpu_overhead: the part of a step that GPU timing may cost; above it the tier steps down. 0:
            no limit; 0.01 if left out.

    Raises:
        ConfigError: an argument is wrong, or differs from those of an earlier call; or
            ``OTEL_STRAGGLER_NATIVE`` asks for a form that is not there.
    """
    check_wish()
    # Half of what `import otel_straggler` would cost; only who configures needs it.
    from otel_straggler.instrument.configuration import Arguments, resolve_settings

    settings = resolve_settings(
        Arguments(
            endpoint=endpoint,
            run_id=run_id,
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            group=group,
            service_name=service_name,
            role=role,
            page=page,
            team=team,
            headers=headers,
            protocol=protocol,
            heartbeat_s=heartbeat_s,
            flush_s=flush_s,
            queue_bytes=queue_bytes,
            sample_steps=sample_steps,
            span_budget=span_budget,
            exit_deadline_s=exit_deadline_s,
            strict=strict,
            handle_sigterm=handle_sigterm,
            tracer_provider=tracer_provider,
            propagate_context=propagate_context,
            sdk_spans_per_s=sdk_spans_per_s,
            gpu_timing=gpu_timing,
            gpu_overhead=gpu_overhead,
        )
    )
    with _PROCESS.lock:
        if _PROCESS.session is None:
            _PROCESS.session = _started(settings)
        elif _PROCESS.session.settings != settings:
            raise ConfigError(_already_configured(_PROCESS.session.settings, settings))
        return _PROCESS.session


def current() -> ClientSettings | None:
    """The settings of the session that ``configure()`` began; None if there is none."""
    session = _PROCESS.session
    return None if session is None or session.settings.is_disabled else session.settings


def shutdown(outcome: Outcome | None = None) -> None:
    """Send what is left and say how the run ended. Safe to call twice, and without configure().

    Args:
        outcome: "ok", "failed", "cancelled", "preempted" or "unknown". If left out: "preempted"
            where SIGTERM has come within the last half hour; else "failed" or "cancelled" where an
            exception or Ctrl-C is on its way or has ended the program; else "ok".

    Raises:
        ConfigError: the outcome is none of these.
    """
    if outcome is not None and outcome not in OUTCOMES:
        message = describe(
            where="shutdown(outcome=...)",
            value=outcome,
            expected="one of " + ", ".join(OUTCOMES),
            remedy="Leave it out to have it found from the exception, if any.",
        )
        raise ConfigError(message)
    _close(outcome, otherwise="ok")


def flush(timeout_s: float = 5.0) -> bool:
    """Send what is recorded so far and wait for it, for ``timeout_s`` at most.

    Returns:
        Whether nothing waits any more. If False, what is left is sent later.
    """
    session = _PROCESS.session
    return session is None or session.flush(timeout_s)


def gpu_timing() -> GpuTimingState:
    """What times sections on the GPU in this process now, why nothing better does, since when,
    and what was counted. Cost: some microseconds.

    >>> from otel_straggler import gpu_timing
    >>> gpu_timing().tier, gpu_timing().reason
    ('off', 'not_configured')
    """
    from otel_straggler.record.gpu.state import FORKED, NOT_CONFIGURED

    session = _PROCESS.session
    if session is None:
        return FORKED if _PROCESS.abandoned else NOT_CONFIGURED
    return session.gpu_timing()


def set_gpu_timing(tier: GpuTier) -> GpuTimingState:
    """Switch GPU timing while the program runs; what was refused before is tried again.

    Waits until that is done, for 5 s at most. Without ``configure()`` it changes nothing.

    Args:
        tier: the highest that is wanted: "off", "events" or "cupti".

    Returns:
        What came of it, as :func:`gpu_timing` tells it. What has to wait until CUDA is in use
        happens later, by itself.

    Raises:
        ConfigError: the tier is none of these.
    """
    if tier not in GPU_TIERS:
        message = describe(
            where="set_gpu_timing(tier)",
            value=tier,
            expected="one of " + ", ".join(GPU_TIERS),
            remedy="Take 'off' for host times only.",
        )
        raise ConfigError(message)
    session = _PROCESS.session
    return gpu_timing() if session is None else session.set_gpu_timing(tier)


def _started(settings: ClientSettings) -> Session:
    session = Session(settings)
    session.start()
    if not _PROCESS.has_exit_hook:
        _PROCESS.has_exit_hook = True
        atexit.register(_close, None, otherwise="unknown")
    return session


def _close(outcome: Outcome | None, *, otherwise: Outcome) -> None:
    """End the session; ``otherwise`` is its outcome where nothing tells of another."""
    with _PROCESS.lock:
        session, _PROCESS.session = _PROCESS.session, None
    if session is not None:
        found = "preempted" if session.is_ending else _outcome_of(_pending_exception(), otherwise)
        session.close(outcome or found, session.settings.exit_deadline_s)


def _pending_exception() -> BaseException | None:
    return sys.exc_info()[1] or getattr(sys, "last_exc", getattr(sys, "last_value", None))


def _outcome_of(error: BaseException | None, otherwise: Outcome) -> Outcome:
    """What an exception says of the run; leaving by ``sys.exit()`` is no failure."""
    if error is None or (isinstance(error, SystemExit) and error.code in {None, 0}):
        return otherwise
    return "cancelled" if isinstance(error, KeyboardInterrupt) else "failed"


def _already_configured(now: ClientSettings, wanted: ClientSettings) -> str:
    names = [n for n in ClientSettings.__slots__ if getattr(now, n) != getattr(wanted, n)]
    return describe(
        where="configure()",
        value=", ".join(n if n in _SECRET else f"{n}={getattr(wanted, n)!r}" for n in names),
        expected="the settings of the first call",
        remedy="Call shutdown() before configuring anew.",
    )


_SECRET = frozenset({"traces", "metrics"})  # their headers may hold tokens


def _forget_in_child() -> None:
    """A forked child (a DataLoader's worker) records nothing and sends nothing, unless asked."""
    _PROCESS.lock = threading.Lock()
    RECORDER.reset_after_fork()
    RECORDING.reset_after_fork()
    session, _PROCESS.session = _PROCESS.session, None
    if session is not None:
        _PROCESS.abandoned.append(session)  # kept, so that nothing of the parent's is closed
        session.leave_to_parent()


os.register_at_fork(after_in_child=_forget_in_child)
