"""What a recorder is: where section runs are kept until the exporter thread takes them.

There is one in a process. :mod:`otel_straggler.client.recording` says which; another form (native)
takes its place there, and nothing else changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from otel_straggler.semconv import STEP_SPAN

if TYPE_CHECKING:
    from otel_straggler.client.sdk_spans import TraceSampling

RING_CAPACITY = 65_536
NO_SPAN = 0


class RecordingSession(NamedTuple):
    """A stretch of telemetry under one session id. A step counter that goes back begins a new one.

    Attributes:
        session_id: 16 hex characters.
        generation: which ``enable()`` it belongs to.
    """

    session_id: str
    generation: int


def new_session(generation: int) -> RecordingSession:
    return RecordingSession(os.urandom(8).hex(), generation)


class Context:
    """What surrounds a section run; replaced as a whole, never changed, so no lock is needed.

    Attributes:
        session: whose telemetry it is.
        step: the open step, None outside of one.
        step_span: its span number, ``NO_SPAN`` outside of one.
        phase: the declared phase, empty outside of one.
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
    """What one run of a section worked on; -1 = not given."""

    microbatch: int = -1
    tokens: int = -1


Frame = tuple["SectionTimer", int, int, Context, WorkSize | None]
"""A run that has begun: section, span number from 1, start (``perf_counter_ns``), context at the
start, work size. Frames and records are plain tuples: a named one costs three times as much."""

Record = tuple[Frame, Frame | None, int, type[BaseException] | None]
"""A run that has ended: its frame, that of the enclosing run (of the same step) or None, end, class
of the exception that ended it."""


_NO_FAILURES = frozenset({("torch.utils.checkpoint", "_StopRecomputationError")})


def is_failure(error: type[BaseException] | None) -> bool:
    """Whether an exception that ended a run is a failure of it.

    Activation checkpointing leaves a forward pass that it recomputes by an exception, once it has
    all it needs; that run is as good as any.
    """
    return error is not None and (error.__module__, error.__name__) not in _NO_FAILURES


class OpenSection(NamedTuple):
    """The innermost open section of the thread that matters."""

    name: str
    start_ns: int
    phase: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the rank is. Times are ``perf_counter_ns``."""

    step: int | None
    at_ns: int


class Recorder(Protocol):
    """What the other stages ask of a recorder. Only ``drain`` runs in the exporter thread."""

    context: Context | None
    session: RecordingSession

    def enable(self) -> None:
        """Start recording into an empty ring, under a new session id."""

    def disable(self) -> None:
        """Stop recording; what is in the ring stays until drained."""

    def reset_after_fork(self) -> None:
        """Forget everything: this process is a child that was not asked to record."""

    def begin_step(self, step: int) -> bool:
        """End the open step and begin ``step``; True if the counter went back."""

    def end_step(self, error: type[BaseException] | None = None) -> None:
        """End the open step, if any."""

    def empty_here(self, pull: Callable[[], None] | None, every: int = RING_CAPACITY) -> None:
        """Where no thread drains: have ``pull`` do it after ``every`` runs, in the thread that ends
        the last of them. None: runs that find the ring full are lost."""

    def set_phase(self, phase: str) -> str:
        """Declare a phase and give the one before."""

    def drain(self) -> Sequence[Record]:
        """Take all ended section runs, in order of their ends."""

    def share(self, is_wanted: bool) -> None:
        """Whether ``drain`` is to get also what an exporter in C++ takes from the ring."""

    def open_section(self) -> OpenSection | None:
        """What the training thread is in, if in anything."""

    def progress(self) -> Progress:
        """The last step begun, or the last section run ended."""

    @property
    def dropped(self) -> int:
        """Section runs lost to a full ring."""


_Timer = TypeVar("_Timer", bound="SectionTimer")


class SectionTimer(Protocol):
    """Base of sections: the two calls around the user's code."""

    name: str
    kind: str

    def __enter__(self: _Timer) -> _Timer: ...

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def open_work(recorder: Recorder) -> OpenSection | None:
    """The open section; between two sections of a step, the step. None if nothing is open."""
    section, context = recorder.open_section(), recorder.context
    if section is not None or context is None or context.step is None:
        return section
    return OpenSection(STEP_SPAN, recorder.progress().at_ns, context.phase)
