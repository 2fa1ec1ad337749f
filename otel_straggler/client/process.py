"""The one session of a process: ``configure()``, ``shutdown()`` and what stands between.

Here are also the rules for the ends of a process: normal exit and fork. SIGTERM is the session's.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from otel_straggler.client.recording import RECORDER, RECORDING
from otel_straggler.client.session import Session, outcome_of, pending_exception
from otel_straggler.client.steps import STEP_LISTENERS
from otel_straggler.config import ClientSettings, Endpoint
from otel_straggler.errors import ConfigError
from otel_straggler.native import check_requested, warn_if_missing
from otel_straggler.secret import without_secrets
from otel_straggler.semconv import GPU_TIERS, OUTCOMES, GpuTier, Outcome

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from otel_straggler.client.gpu.owner import GpuTiming
    from otel_straggler.client.gpu.reasons import GpuTimingState
    from otel_straggler.client.termination import ExitCode
    from otel_straggler.inject.injector import Injection
    from otel_straggler.model.rank_failure import RankFailure
    from otel_straggler.otlp.encode_events import EventRecord


class _Process:
    """State of the whole process."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.lock = threading.Lock()
        self.abandoned: list[Session] = []
        self.has_exit_hook = False
        self.kernel_timing: GpuTiming | None = None  # of reports, without a session
        self.kernels_every = 0
        self.exit_code: ExitCode | None = None


_PROCESS = _Process()
_GPU_STOP_S = 0.5


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
    hardware: str | None = None,
    collectives: str | None = None,
    evidence_dir: str | None = None,
    evidence_after_s: float | None = None,
    commands: str | None = None,
    commands_token: str | None = None,
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
        page: False: no one is notified of this run.
        team: whose run it is, for who routes alerts.
        headers: sent with every request.
        protocol: "http/protobuf", or "grpc" (needs the extra ``grpc``); http/protobuf if left out.
        heartbeat_s: seconds between heartbeats; 5 if left out.
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
            each section) or "cupti" (in one step of N, kernels); "auto" if left out, which is
            "events".
        gpu_overhead: the part of a step that kernel records may cost on average: N follows from it.
            0: no limit, every step has them; 0.005 if left out.
        hardware: "off": no sensors of the GPU and its host are read. "on" if left out; what needs
            the extra ``gpu`` is read only with it, and a GPU that DCGM reads is left to it.
        collectives: "off": time that a section waits in collectives counts as its work. "on" if
            left out: it is measured inside torch and reported, so that the rank that all others
            wait for stands out.
        evidence_dir: folder for the stacks of all threads of a rank that is stuck; nothing is
            written if left out.
        evidence_after_s: stacks are written, without being asked for, when a section has been open
            for so long; 0, which it is if left out: only when asked.
        commands: "on": ask the collector, with every heartbeat, whether it wants the flight record,
            stacks or a profile of this rank; "off" if left out.
        commands_token: the collector's ``commands.token``; without it nothing is asked.

    Raises:
        ConfigError: an argument is wrong, or differs from those of an earlier call; or
            ``OTEL_STRAGGLER_NATIVE`` asks for a form that is not there.
    """
    given = locals()  # all arguments, by name
    check_requested()
    # Half of what `import otel_straggler` would cost; only who configures needs it.
    from otel_straggler.client.settings import (
        is_address_known,
        is_identity_known,
        resolve_settings,
    )

    settings = resolve_settings(given)
    if settings.rank == 0 and not settings.is_disabled:
        warn_if_missing()
    with _PROCESS.lock:
        if _PROCESS.session is None:
            is_known = is_identity_known(given, settings)
            is_final = is_known and is_address_known(given, settings)
            resolve_again = None if is_final else lambda: resolve_settings(given)
            may_send = is_known and (is_final or settings.is_trusted)
            _PROCESS.session = _started(Session(settings, resolve_again, may_send=may_send))
        elif _PROCESS.session.settings == settings:
            pass
        elif _PROCESS.session.may_be(settings):
            _PROCESS.session.begin(settings)
        else:
            raise ConfigError.of(
                "configure()",
                ", ".join(_differences(_PROCESS.session.settings, settings)),
                "the settings of the first call",
                "Leave the second call out, or call shutdown() before it.",
            )
        return _PROCESS.session


def current() -> ClientSettings | None:
    """The settings of the session that ``configure()`` began; None if there is none."""
    session = _PROCESS.session
    return None if session is None or session.settings.is_disabled else session.settings


def was_configured() -> bool:
    """Whether ``configure()`` was ever called, here or in the process that forked this one."""
    return _PROCESS.has_exit_hook


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
        raise ConfigError.of(
            "shutdown(outcome=...)",
            outcome,
            "one of " + ", ".join(OUTCOMES),
            "Leave it out to have it found from the exception, if any.",
        )
    _close(outcome, otherwise="ok")


def flush(timeout_s: float = 5.0) -> bool:
    """Send what is recorded so far and wait for it, for ``timeout_s`` at most.

    Returns:
        Whether nothing waits any more. If False, what is left is sent later.
    """
    session = _PROCESS.session
    return session is None or session.flush(timeout_s)


def report_injection(injection: Injection) -> None:
    """Send the span of a fault that an integration injects; nothing without a session."""
    session = _PROCESS.session
    if session is not None and not session.settings.is_disabled:
        session.report_injection(injection)


def send_event(event: EventRecord, step: int | None, step_span: int) -> None:
    """See :meth:`Session.send_event`; nothing without a session."""
    session = _PROCESS.session
    if session is not None and not session.settings.is_disabled:
        session.send_event(event, step, step_span)


def gpu_timing() -> GpuTimingState:
    """The tier that times sections on the GPU now, why it is no better one, since when,
    and what was counted. Cost: some microseconds.

    >>> from otel_straggler import gpu_timing
    >>> gpu_timing().tier, gpu_timing().reason
    ('off', 'not_configured')
    """
    from otel_straggler.client.gpu.reasons import FORKED, NOT_CONFIGURED, SWITCHED_OFF

    session = _PROCESS.session
    if session is not None:
        return session.gpu_timing()
    if _PROCESS.kernel_timing is not None:
        return _PROCESS.kernel_timing.state()
    if _PROCESS.kernels_every:  # by a detector, against a setting
        return SWITCHED_OFF
    return FORKED if _PROCESS.abandoned else NOT_CONFIGURED


def set_gpu_timing(tier: GpuTier) -> GpuTimingState:
    """Switch GPU timing while the program runs; what was refused before is tried again.

    Waits until that is done, for 5 s at most. Without ``configure()`` it changes nothing.

    Args:
        tier: the highest that is wanted: "off", "events" or "cupti".

    Returns:
        What came of it, as :func:`gpu_timing` returns it. What has to wait until CUDA is in use
        happens later, by itself.

    Raises:
        ConfigError: the tier is none of these.
    """
    if tier not in GPU_TIERS:
        raise ConfigError.of(
            "set_gpu_timing(tier)",
            tier,
            "one of " + ", ".join(GPU_TIERS),
            "Take 'off' for host times only.",
        )
    session, alone = _PROCESS.session, _PROCESS.kernel_timing
    if session is not None:
        return session.set_gpu_timing(tier)
    if alone is not None:
        alone.set(tier)
    return gpu_timing()


def begin_kernel_timing(every: int) -> bool:
    """Time kernels for reports of this process, unless ``gpu_timing`` names another tier; with or
    without a session. False without a torch for CUDA: then there is nothing to time yet, and no
    thread is started.

    Args:
        every: of the runs of each section one in so many is recorded, and has its kernels timed.
    """
    torch = sys.modules.get("torch")
    if not getattr(getattr(torch, "version", None), "cuda", None):
        return False
    with _PROCESS.lock:
        _PROCESS.kernels_every = every
        if _PROCESS.session is not None:
            _time_kernels(_PROCESS.session)
        elif _PROCESS.kernel_timing is None:
            _PROCESS.kernel_timing = _kernel_timing(every)
    return True


def sample_kernels(every: int) -> None:
    """Another number for ``begin_kernel_timing()``, if that was called."""
    with _PROCESS.lock:
        if not _PROCESS.kernels_every:
            return
        _PROCESS.kernels_every = every
        session, alone = _PROCESS.session, _PROCESS.kernel_timing
    if session is not None:
        session.sample_kernels(every)
    elif alone is not None:
        alone.sample_runs(every)


def end_kernel_timing() -> None:
    """Undo ``begin_kernel_timing()``."""
    with _PROCESS.lock:
        was_asked, _PROCESS.kernels_every = _PROCESS.kernels_every, 0
        alone, _PROCESS.kernel_timing = _PROCESS.kernel_timing, None
        session = _PROCESS.session
    if alone is not None:
        alone.close(_GPU_STOP_S)
    elif was_asked and session is not None:
        session.sample_kernels(None)
        if session.settings.gpu_timing == "auto":
            session.set_gpu_timing(None)


def _kernel_timing(every: int) -> GpuTiming | None:
    from otel_straggler.client.gpu.owner import GpuTiming, why_no_kernels
    from otel_straggler.client.settings import resolve_settings

    settings = resolve_settings({})
    wanted: GpuTier = "cupti" if settings.gpu_timing == "auto" else settings.gpu_timing
    if wanted == "off":
        return None
    timing = GpuTiming(settings, why_no_kernels())
    timing.sample_runs(every)
    timing.set(wanted)
    return timing


def _time_kernels(session: Session) -> None:
    session.sample_kernels(_PROCESS.kernels_every)
    if session.settings.gpu_timing == "auto":
        session.set_gpu_timing("cupti")


def _started(session: Session) -> Session:
    alone, _PROCESS.kernel_timing = _PROCESS.kernel_timing, None
    if alone is not None:  # a process has one timer of kernels
        alone.close(_GPU_STOP_S)
    session.start()
    if _PROCESS.kernels_every:
        _time_kernels(session)
    if not _PROCESS.has_exit_hook:
        _PROCESS.has_exit_hook = True
        atexit.register(_close, None, otherwise="unknown")
    _close_with_child()
    if _PROCESS.exit_code is None:
        from otel_straggler.client.termination import ExitCode

        _PROCESS.exit_code = ExitCode(lambda: RECORDER.progress().step)
    _PROCESS.exit_code.install()
    return session


def _close_with_child() -> None:
    """Of ``multiprocessing`` the children, which torch's launchers start too, end without
    ``atexit`` if they are forked, and keep an exception to themselves."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _close, (None,), {"otherwise": "unknown"}, exitpriority=0)


def _close(outcome: Outcome | None, *, otherwise: Outcome) -> None:
    with _PROCESS.lock:
        session, _PROCESS.session = _PROCESS.session, None
    if session is not None:
        exit_code = _PROCESS.exit_code
        left: RankFailure | None = None
        if exit_code is not None:
            exit_code.uninstall()
            if otherwise == "unknown" and exit_code.is_failure:
                otherwise, left = "failed", exit_code.failure
        error = pending_exception()
        result = "preempted" if session.is_ending else outcome_of(error, otherwise)
        result = outcome or result
        failure = None
        if result == "failed":
            from otel_straggler.client.failures import failure_of, write_error_file

            failure = failure_of(error) or left
            if error is not None:
                write_error_file(error)
        session.close(result, session.settings.exit_deadline_s, failure)


def _differences(now: ClientSettings, wanted: ClientSettings) -> Iterator[str]:
    """By names of arguments; no headers, no tokens."""
    for name in ClientSettings.__slots__:
        before, after = getattr(now, name), getattr(wanted, name)
        if before == after:
            continue
        if isinstance(after, Endpoint):
            is_elsewhere = before.url != after.url and "@" not in after.url
            yield (
                f"{name} to {without_secrets(after.url)}"
                if is_elsewhere
                else f"{name} sent otherwise"
            )
        elif name == "is_trusted":
            yield "an endpoint" if after else "no endpoint"
        else:
            yield name if name == "commands_token" else f"{name}={after!r}"


def _reset_in_child() -> None:
    """A forked child (a DataLoader's worker) records nothing and sends nothing."""
    _PROCESS.lock = threading.Lock()
    RECORDER.reset_after_fork()
    RECORDING.reset_after_fork()
    STEP_LISTENERS.clear()
    alone, _PROCESS.kernel_timing = _PROCESS.kernel_timing, None
    _PROCESS.kernels_every = 0
    if alone is not None:
        alone.leave_to_parent()
    session, _PROCESS.session = _PROCESS.session, None
    if session is not None:
        _PROCESS.abandoned.append(session)  # kept, so that nothing of the parent's is closed
        session.leave_to_parent()


os.register_at_fork(after_in_child=_reset_in_child)
