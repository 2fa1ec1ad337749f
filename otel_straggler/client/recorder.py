"""Records: executions of sections, which a recorder keeps until an exporter drains them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from otel_straggler.semconv import STEP_SPAN

if TYPE_CHECKING:
    from otel_straggler.client.native_recorder import NativeRecorder
    from otel_straggler.client.sdk_spans import TraceSampling

RING_CAPACITY = 65_536
NO_SPAN = 0


class RecordingSession(NamedTuple):
    """A stretch of telemetry under one session id (16 hex characters), of one ``enable()`` (its
    generation). A step counter that goes back begins a new one."""

    session_id: str
    generation: int


def new_session(generation: int) -> RecordingSession:
    return RecordingSession(os.urandom(8).hex(), generation)


class Context:
    """The surroundings of an execution; replaced as a whole, so no lock is needed.

    Attributes:
        step: the open step, None outside of one.
        step_span: its span number, ``NO_SPAN`` outside of one.
        trace_id: kept here by the exporter once computed.
        sampling: of the step in the application's own tracing, where that is decided at its start.
    """

    __slots__ = ("phase", "sampling", "session", "step", "step_span", "trace_id")

    def __init__(
        self, session: RecordingSession, step: int | None, step_span: int, phase: str
    ) -> None:
        self.session = session
        self.step = step
        self.step_span = step_span
        self.phase = phase
        self.trace_id: bytes | None = None
        self.sampling: TraceSampling | None = None


class WorkSize(NamedTuple):
    """The work of one execution; -1 = not given."""

    microbatch: int = -1
    tokens: int = -1


Frame = tuple["SectionTimer", int, int, Context, WorkSize | None]
"""A run that has begun: section, span number from 1, start (``perf_counter_ns``), context at the
start, work size. Frames and records are plain tuples: a named one costs three times as much."""

Record = tuple[Frame, Frame | None, int, type[BaseException] | None, int]
"""A run that has ended: its frame, that of the enclosing run (of the same step) or None, end, class
of the exception that ended it, and how long its thread waited in collectives meanwhile, ns."""

LONGEST_WAIT_NS = 86_400_000_000_000
"""A day: what claims to have waited longer in one collective has not."""


_NO_FAILURES = frozenset({("torch.utils.checkpoint", "_StopRecomputationError")})


def is_failure(error: type[BaseException] | None) -> bool:
    """Whether an exception that ended an execution is a failure. Activation checkpointing leaves a
    forward pass that it recomputes by an exception."""
    return error is not None and (error.__module__, error.__name__) not in _NO_FAILURES


class OpenSection(NamedTuple):
    """The innermost open section of the thread that matters."""

    name: str
    start_ns: int
    phase: str


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the rank. Times are ``perf_counter_ns``."""

    step: int | None
    at_ns: int


_Timer = TypeVar("_Timer", bound="SectionTimer")


class SectionTimer(Protocol):
    """Base of sections: the two calls around the user's code."""

    name: str
    kind: str

    def __enter__(self: _Timer) -> _Timer: ...

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None: ...


def open_work(recorder: NativeRecorder) -> OpenSection | None:
    """The open section; between two sections of a step, the step. None if nothing is open."""
    section, context = recorder.open_section(), recorder.context
    if section is not None or context is None or context.step is None:
        return section
    return OpenSection(STEP_SPAN, recorder.progress().at_ns, context.phase)
