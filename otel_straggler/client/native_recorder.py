"""The recorder in C++ (``cuda_ext/``). Here is what happens once a step or once a drain: numbers
for names, contexts for the stages that read tuples, and where the ring lies."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import struct
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from types import ModuleType
from typing import Any, TypeVar

from otel_straggler.client.native_records import (
    NO_SECTION,
    PHASES,
    SECTIONS,
    TIMED_BY_EVENTS,
    TIMED_RECORD,
    Names,
    NativeBatch,
    Place,
)
from otel_straggler.client.recorder import (
    NO_SPAN,
    RING_CAPACITY,
    Context,
    Frame,
    OpenSection,
    Progress,
    RecordingSession,
    SectionTimer,
    WorkSize,
    is_failure,
    new_session,
)
from otel_straggler.native import NATIVE
from otel_straggler.regular_files import create_folder
from otel_straggler.semconv import STEP_SPAN

_Base: Any = object if NATIVE is None else NATIVE.SectionTimer

RING_DIR = "OTEL_STRAGGLER_RING_DIR"
"""Names a folder: the ring is then a file in it, which other processes can read."""
NO_STEP = -(2**63)
_STEP = 0
_MAX_CONTEXTS = 4096
_LOG = logging.getLogger("otel_straggler")
_Self = TypeVar("_Self", bound="NativeTimer")


class NativeTimer(_Base):  # type: ignore[misc]
    """Base of sections, implemented in the extension. Re-entrant, shareable between threads."""

    __slots__ = ()

    def __new__(cls: type[_Self], name: str, kind: str) -> _Self:
        number = RECORDER.names.number_of((name, kind))
        made: _Self = super().__new__(cls, name, kind, number)
        return made


class NativeRecorder:
    """Keeps executions in a ring until they are drained; ``drain`` runs in the exporter thread.

    Attributes:
        names: numbers of sections, by (name, kind).
        sections, phases, sessions: by the numbers in records; section 0 is the step itself, phase 0
            is none. They only grow.
        on_new_number: called once for each new section, phase or session, before any record has it.
        works: work sizes that are more than numbers, by span number; see ``begin_numbered``.
        path: of the ring's file; None while it is memory of this process alone.
        phase_changes: how often a phase has begun or ended.
        add_wait: adds ns to what this thread has waited in collectives; executions that are open in
            it report their part. False, and nothing changes, if that cannot be.
    """

    def __init__(self, native: ModuleType) -> None:
        self._native: Any = native
        self._is_open = False
        self.context: Context | None = None
        self.session = RecordingSession("", 0)
        self.on_step: Callable[[Context], None] | None = None
        self.on_new_number: Callable[[], None] | None = None
        self._is_shared = False
        self.names: Names[tuple[str, str]] = Names(SECTIONS, ("<other>", "other"), self._publish)
        self.names.add((STEP_SPAN, "other"))
        self._phases: Names[str] = Names(PHASES, "<other>", self._publish)
        self._phases.number_of("")
        self.sections, self.phases = self.names.all, self._phases.all
        self.sessions: list[RecordingSession] = []
        self._timers: dict[int, SectionTimer] = {}
        self.works: dict[int, WorkSize] = {}
        self._errors: dict[int, type[BaseException]] = {}
        self._contexts: dict[tuple[int, int, int, int], Context] = {}
        self._last_step: int | None = None
        self._capacity = RING_CAPACITY
        self.path: Path | None = None
        self.phase_changes = 0
        self.add_wait: Callable[[int], bool] = native.add_wait
        native.set_is_failure(self._record_failure)

    def enable(self) -> None:
        """Start recording into an empty ring, under a new session id."""
        self._open_block()
        self._errors.clear()
        # Executions of an earlier session may still be in the user's context.
        self.works = {s: work for s, work in self.works.items() if getattr(work, "is_open", False)}
        self._contexts.clear()
        self._last_step = None
        self.session = new_session(self.session.generation + 1)
        number = self._number_of_session()
        self._native.enable(number, self.session.session_id)
        self.context = self._remember(number, Context(self.session, None, NO_SPAN, ""))

    def disable(self) -> None:
        """Stop recording; what is in the ring stays until drained."""
        self.end_step()
        self.context = None
        self._native.disable()

    def reset_after_fork(self) -> None:
        """In a forked child record nothing: the ring and its file are the parent's."""
        self.context = None
        self._native.reset_after_fork()
        self._is_open = False
        self.path = None
        self.empty_here(None)
        self.on_step = None
        self.on_new_number = None
        self._is_shared = False
        self._last_step = None
        self._errors.clear()
        self.works.clear()
        self._contexts.clear()
        self.names.reset_lock()
        self._phases.reset_lock()

    def begin_step(self, step: int) -> bool:
        """End the open step and begin ``step``; True if the counter went back."""
        context = self.context
        if context is None or context.step == step:
            return False
        now_ns = perf_counter_ns()
        self._native.end_step(now_ns, None)
        went_back = self._last_step is not None and step < self._last_step
        if went_back:
            self.session = new_session(self.session.generation)
        number = self._number_of_session()
        new = Context(self.session, step, self._native.next_span(), context.phase)
        if self.on_step is not None:
            self.on_step(new)
        self.context = self._remember(number, new)
        session_id = self.session.session_id
        self._native.begin_step(step, new.step_span, number, session_id, now_ns)
        self._last_step = step
        return went_back

    def end_step(self, error: type[BaseException] | None = None) -> None:
        now_ns = perf_counter_ns()
        context = self.context
        if context is None or context.step is None:
            return
        self._native.end_step(now_ns, error)
        self.context = self._around(Context(context.session, None, NO_SPAN, context.phase))

    def set_phase(self, phase: str) -> str:
        """Declare a phase and give the one before."""
        context = self.context
        if context is None:
            return ""
        self.phase_changes += 1
        new = Context(context.session, context.step, context.step_span, phase)
        new.sampling = context.sampling
        self.context = self._around(new)
        self._native.set_phase(self._phases.number_of(phase))
        return context.phase

    def drain(self) -> NativeBatch:
        """All ended executions, in order of their ends. Cost: some ns each."""
        block: bytes = self._native.drain()
        errors, works = self._errors, self.works
        if errors or works:
            errors, works = self._drain_details(block)
        return NativeBatch(block, self, errors, works)

    def share(self, is_wanted: bool) -> None:
        """Whether ``drain`` also gets what an exporter in C++ drains."""
        self._is_shared = is_wanted
        if self._is_open:
            self._native.share(is_wanted)

    def open_section(self) -> OpenSection | None:
        """Of the training thread."""
        result = self._native.open_section()
        if result is None:
            return None
        section, start_ns, phase = result
        return OpenSection(self.sections[section][0], start_ns, self.phases[phase])

    def progress(self) -> Progress:
        """The last step begun, or the last execution ended."""
        if not self._is_open:
            return Progress(None, perf_counter_ns())
        return Progress(self._last_step, self._native.progress_ns())

    @property
    def dropped(self) -> int:
        """Executions lost to a full ring."""
        return int(self._native.dropped())

    @property
    def threads(self) -> int:
        return int(self._native.threads())

    @property
    def capacity(self) -> int:
        """Executions that are kept until they are drained."""
        return self._capacity

    @capacity.setter
    def capacity(self, runs: int) -> None:
        self._capacity = runs
        if self._is_open:
            self._native.set_limit(runs)

    def empty_here(self, pull: Callable[[], None] | None, every: int = RING_CAPACITY) -> None:
        """Where no thread drains: call ``pull`` after ``every`` executions, in the thread that ends
        the last of them. None: executions that find the ring full are lost."""
        self._native.set_when_full(pull)
        self.capacity = every

    def next_span_number(self) -> int:
        return int(self._native.next_span())

    def open_here(self) -> list[Frame]:
        """Of this thread, innermost last."""
        return [
            (
                self.timer(section),
                span,
                start_ns,
                self.context_of(session, step, step_span, phase),
                self.works.get(span),
            )
            for span, section, phase, session, step, step_span, start_ns in self._native.open_here()
        ]

    def place_here(self) -> Place | None:
        """The outermost open section of this thread in the open step; None if there is none."""
        context = self.context
        if context is None or context.step is None:
            return None
        for span, section, phase, session, step, step_span, _ in self._native.open_here():
            if step_span == context.step_span:
                return Place(self.sections[section], span, section, phase, session, step, step_span)
        return None

    def add_timed(self, place: Place, timer: NativeTimer, start_ns: int, duration_ns: int) -> None:
        """Add an execution inside of a section that may have ended, timed by CUDA events; nothing
        if that was in another session. Times are those of ``perf_counter_ns``."""
        if self.context is None or place.session != len(self.sessions) - 1:
            return
        span = self._native.next_span()
        numbers = span, place.span, place.step_span, place.step, start_ns, start_ns + duration_ns
        names = timer.section, place.section, place.phase, place.session
        gpu = -1, duration_ns, -1, 0, TIMED_BY_EVENTS
        self._native.keep(TIMED_RECORD.pack(*numbers, -1, -1, *names, 0, 0, 0, *gpu))

    def add_past(self, timer: NativeTimer, start_ns: int, end_ns: int) -> None:
        """Add an execution outside of all steps, such as one of another process for this rank.
        Times are those of ``perf_counter_ns``."""
        if self.context is None:
            return
        numbers = self._native.next_span(), NO_SPAN, NO_SPAN, NO_STEP, start_ns, end_ns
        names = timer.section, NO_SECTION, 0, self._number_of_session()
        self._native.keep(TIMED_RECORD.pack(*numbers, -1, -1, *names, 0, 0, 0, 0, 0, 0, 0, 0))

    def begin_numbered(self, timer: NativeTimer, number: int, work: Any) -> None:
        self.works[number] = work
        self._native.begin_numbered(timer.section, number, work)

    def timer(self, number: int) -> SectionTimer:
        if number == _STEP:
            return STEP_TIMER
        result = self._timers.get(number)
        if result is None:
            name, kind = self.sections[number]
            result = self._timers[number] = NativeTimer(name, kind)
        return result

    def context_of(self, session: int, step: int, step_span: int, phase: int) -> Context:
        """The context of the step while it is known, else one like it."""
        result = self._contexts.get((session, step, step_span, phase))
        if result is None:
            known = None if step == NO_STEP else step
            result = Context(self.sessions[session], known, step_span, self.phases[phase])
            self._remember(session, result)
        return result

    def _around(self, context: Context) -> Context:
        """The one context for what happens twice in a step."""
        number = self._number_of_session()
        return self._contexts.get(self._key(number, context)) or self._remember(number, context)

    def _key(self, session: int, context: Context) -> tuple[int, int, int, int]:
        step = NO_STEP if context.step is None else context.step
        return session, step, context.step_span, self._phases.number_of(context.phase)

    def _remember(self, session: int, context: Context) -> Context:
        while len(self._contexts) >= _MAX_CONTEXTS:
            with contextlib.suppress(KeyError, RuntimeError, StopIteration):  # two threads do it
                del self._contexts[next(iter(self._contexts))]
        self._contexts[self._key(session, context)] = context
        return context

    def _number_of_session(self) -> int:
        if not self.sessions or self.sessions[-1] is not self.session:
            self.sessions.append(self.session)
            if self.on_new_number is not None:
                self.on_new_number()
        return len(self.sessions) - 1

    def _record_failure(self, span: int, error: type[BaseException]) -> bool:
        """Called by the extension when an exception has ended an execution."""
        if not is_failure(error):
            return False
        is_read_here = self._is_shared or self.on_new_number is None  # not in C++ alone
        if is_read_here and len(self._errors) < 2 * RING_CAPACITY:
            self._errors[span] = error
        return True

    def _drain_details(
        self, block: bytes
    ) -> tuple[dict[int, type[BaseException]], dict[int, WorkSize]]:
        """Drain what is known of ``block`` besides its records."""
        spans = [span for (span,) in struct.iter_unpack("<Q120x", block)]
        errors = {s: self._errors.pop(s) for s in spans if s in self._errors}
        works = {s: self.works.pop(s) for s in spans if s in self.works}
        while len(self.works) > 2 * RING_CAPACITY:  # of runs that a full ring has lost
            del self.works[next(iter(self.works))]
        return errors, works

    def _open_block(self) -> None:
        if self._is_open:
            return
        folder = os.environ.get(RING_DIR, "").strip()
        if not folder or not self._open_file(Path(folder)):
            self._native.open_block(None)
        self._is_open = True
        self._native.set_limit(self._capacity)
        self.names.publish_all()
        self._phases.publish_all()

    def _open_file(self, folder: Path) -> bool:
        path = folder / f"{os.getpid()}-{os.urandom(4).hex()}.ring"
        try:
            create_folder(folder)
            self._native.open_block(str(path))
        except OSError as error:
            _LOG.warning("no ring file in %s (%s): the ring is private memory", folder, error)
            return False
        self.path = path
        atexit.register(_remove, path, os.getpid())
        return True

    def _publish(self, table: int, number: int, text: bytes) -> None:
        if self._is_open:
            self._native.publish_name(table, number, text)
        if self.on_new_number is not None:
            self.on_new_number()


def _remove(path: Path, pid: int) -> None:
    """A process that ends in order has no open section to show."""
    if os.getpid() == pid:
        path.unlink(missing_ok=True)


if NATIVE is not None:
    RECORDER: NativeRecorder = NativeRecorder(NATIVE)
    STEP_TIMER = NativeTimer(STEP_SPAN, "other")
