"""``propagate_context``: while a section is open, it is OpenTelemetry's current span.

The methods of the section class are replaced while a session propagates, so a session that does
not pays nothing for it. Whatever user code does to its context inside a section stays; only what
was put there is taken out again. No token is kept: a token fails where a coroutine ends in another
context than it began in, and OpenTelemetry would log that. Only with the native recorder.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, TypeGuard

from opentelemetry.context import Context as OtelContext
from opentelemetry.context import attach, create_key, get_current
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NonRecordingSpan,
    SpanContext,
    get_current_span,
    set_span_in_context,
)

from otel_straggler.client.native_recorder import RECORDER, NativeTimer
from otel_straggler.client.recorder import Context, WorkSize
from otel_straggler.client.sdk_spans import FAILED, OVER_RATE, TraceSampling
from otel_straggler.client.sdk_traces import PropagatedRun, SdkTraces

_RUN_KEY = create_key("otel_straggler-run")
_SPAN_KEY = next(iter(set_span_in_context(INVALID_SPAN, OtelContext())))


class Propagation:
    """Puts sections into OpenTelemetry's context and takes them out again."""

    def __init__(self, traces: SdkTraces, on_error: Callable[[Exception], None]) -> None:
        self._traces = traces
        self._on_error = on_error

    def install(self) -> None:
        _active.append(self)
        for name, method in _PROPAGATING.items():
            setattr(NativeTimer, name, method)
        RECORDER.on_step = self.begin_step_trace

    def uninstall(self) -> None:
        """Open sections are still taken out at their end."""
        if self not in _active:
            return
        _active.remove(self)
        RECORDER.on_step = None
        if not any(map(_is_open, list(RECORDER.works.values()))):
            _restore_methods()

    def leave_to_parent(self) -> None:
        """In a forked child: the context is as if no section were open."""
        self.uninstall()
        _restore_methods()
        while isinstance(run := get_current().get(_RUN_KEY), PropagatedRun):
            _detach(run)

    def begin_step_trace(self, context: Context) -> None:
        """Decide over a step, and link it to the user's current span."""
        try:
            around = get_current_span().get_span_context()
            links = (Link(around),) if around.is_valid else ()
            context.sampling = self._traces.sample_step(context, perf_counter_ns(), links)
            self._spend_for(context.sampling)
        except Exception as error:  # noqa: BLE001  the step goes on
            context.sampling = FAILED
            self._on_error(error)

    def attach(self, run: PropagatedRun, number: int, timer: NativeTimer, context: Context) -> None:
        """Make the execution the current span, unless its trace is left out."""
        try:
            self._find_trace(run, timer, context)
            sampling = run.sampling
            if sampling is not None and sampling is not OVER_RATE and sampling is not FAILED:
                self._spend_for(sampling)
                is_root = context.step is None and not RECORDER.open_here()
                _attach(
                    run,
                    sampling,
                    is_root,
                    sampling.span_context(run.trace_id, self._traces.span_id(number)),
                )
        except Exception as error:  # noqa: BLE001  the section goes on
            self._on_error(error)

    def _find_trace(self, run: PropagatedRun, timer: NativeTimer, context: Context) -> None:
        """The step's; without a step, that of the enclosing execution or of the time."""
        traces = self._traces
        if context.step is not None:
            run.trace_id, run.sampling = traces.step_trace(context), context.sampling
            return
        stack = RECORDER.open_here()
        enclosing = stack[-1][4] if stack else None
        if isinstance(enclosing, PropagatedRun) and enclosing.sampling is not None:
            run.trace_id, run.sampling = enclosing.trace_id, enclosing.sampling
            return
        run.trace_id = traces.window_trace(time.time_ns())
        attributes = traces.section_attributes(context, timer.name, timer.kind)
        run.sampling = traces.sample_window(run.trace_id, timer.name, attributes, perf_counter_ns())

    def _spend_for(self, sampling: TraceSampling) -> None:
        if sampling.is_built:
            self._traces.throttle.spend(1)


_active: list[Propagation] = []


def _attach(run: PropagatedRun, sampling: TraceSampling, is_root: bool, own: SpanContext) -> None:
    result = run.surroundings = get_current()
    if _SPAN_KEY in result:
        around = get_current_span(result).get_span_context()
        if around.trace_id == own.trace_id:
            if around.trace_flags.sampled >= sampling.flags.sampled:
                run.parent = around
        elif is_root and around.is_valid:
            run.links = (Link(around),)
    run.span = NonRecordingSpan(own)
    run.context = OtelContext({**result, _SPAN_KEY: run.span, _RUN_KEY: run})
    run.is_open = True
    attach(run.context)


def _detach(run: PropagatedRun) -> None:
    run.is_open = False
    current = get_current()
    if current.get(_RUN_KEY) is run:
        attach(_without(current, run))
    run.context = None  # each would keep the other alive until the garbage is collected


def _without(context: OtelContext, run: PropagatedRun) -> OtelContext:
    """``context`` as it would be had ``run`` never been put into it."""
    before = run.surroundings
    outer = before.get(_RUN_KEY)
    if isinstance(outer, PropagatedRun) and not outer.is_open:
        before = _without(before, outer)  # it ended while this run was open
    if context is run.context:
        return before
    values = {k: v for k, v in context.items() if v is not run and v is not run.span}
    for key in (_RUN_KEY, _SPAN_KEY):
        if key not in values and key in before:
            values[key] = before[key]
    is_before = len(values) == len(before) and all(before.get(k) is v for k, v in values.items())
    return before if is_before else OtelContext(values)


def _enter(self: NativeTimer) -> NativeTimer:
    _begin(self, PropagatedRun())
    return self


def _begin_sized(self: NativeTimer, work: WorkSize | None) -> None:
    _begin(self, PropagatedRun(*(work or ())))


def _begin(timer: NativeTimer, run: PropagatedRun) -> None:
    context = RECORDER.context
    if context is not None:
        number = RECORDER.next_span_number()
        if _active:
            _active[-1].attach(run, number, timer, context)
        RECORDER.begin_numbered(timer, number, run)


def _exit(self: NativeTimer, exc_type: Any, exc: Any, traceback: Any) -> None:
    run = _newest_run_of(self)
    _PLAIN["__exit__"](self, exc_type, exc, traceback)
    if _is_open(run):
        _detach(run)


def _newest_run_of(timer: NativeTimer) -> WorkSize | None:
    for frame in reversed(RECORDER.open_here()):
        if frame[0].name == timer.name and frame[0].kind == timer.kind:
            return frame[4]
    return None


def _begin_detached(self: NativeTimer) -> bytes | None:
    context = RECORDER.context
    begun: bytes | None = _PLAIN["begin_detached"](self)
    if begun is not None and context is not None and _active:
        run = RECORDER.works[_number_of(begun)] = PropagatedRun()
        _active[-1].attach(run, _number_of(begun), self, context)
    return begun


def _end_detached(
    self: NativeTimer, begun: bytes | None, error: type[BaseException] | None
) -> None:
    run = None if begun is None else RECORDER.works.get(_number_of(begun))
    _PLAIN["end_detached"](self, begun, error)
    if _is_open(run):
        _detach(run)


def _number_of(begun: bytes) -> int:
    return int.from_bytes(begun[:8], "little")


_PROPAGATING: dict[str, Any] = {
    "__enter__": _enter,
    "__exit__": _exit,
    "begin": _begin_sized,
    "begin_detached": _begin_detached,
    "end_detached": _end_detached,
}
_PLAIN: dict[str, Any] = {name: getattr(NativeTimer, name) for name in _PROPAGATING}


def _restore_methods() -> None:
    for name in _PLAIN:
        if name in vars(NativeTimer):
            delattr(NativeTimer, name)


def _is_open(work: WorkSize | None) -> TypeGuard[PropagatedRun]:
    return isinstance(work, PropagatedRun) and work.is_open
