"""The fallback recorder where the native part is missing: a stack per thread, one bounded queue.

It records the same sections, steps and phases, several times as slowly, and nothing else: no GPU
times, no ring file, no context propagation. It takes no lock: ``deque.append`` and ``next(count)``
are atomic, and what surrounds a run is one object that is replaced as a whole.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable
from itertools import count
from time import perf_counter_ns
from typing import Any, TypeVar

from otel_straggler.client.recorder import (
    LONGEST_WAIT_NS,
    NO_SPAN,
    RING_CAPACITY,
    Context,
    Frame,
    OpenSection,
    Progress,
    Record,
    RecordingSession,
    WorkSize,
    new_session,
)
from otel_straggler.semconv import STEP_SPAN

_MAX_STACKS = 256
_MAX_OPEN = 1_000
_Self = TypeVar("_Self", bound="PythonTimer")


class PythonTimer:
    """Times what runs inside ``with timer:``. Re-entrant and safe to share between threads."""

    __slots__ = ("__weakref__", "kind", "name")

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind

    def __enter__(self: _Self) -> _Self:
        context = RECORDER.context
        if context is not None:
            _local.stack.append((self, next(_span_numbers), perf_counter_ns(), context, None))
        return self

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None:
        """End the innermost execution of this section, if one began in this thread."""
        end_ns = perf_counter_ns()
        stack = _local.stack
        try:
            frame = stack.pop()
        except IndexError:  # it began while nothing was recorded, or in another thread
            return
        if frame[0] is not self:
            stack.append(frame)
            _end_deeper(self, stack, end_ns, exc_type)
            return
        around: Frame | None = None
        if stack:
            around = stack[-1]
            if around[3] is not frame[3]:
                around = _parent_of(frame, around)
        stack.last_end_ns = end_ns
        waited_ns = stack.waits.pop(frame[1], 0) if stack.waits else 0
        ring = RECORDER.ring
        if len(ring) < RECORDER.capacity:
            ring.append((frame, around, end_ns, exc_type, waited_ns))
        else:
            RECORDER.overflow((frame, around, end_ns, exc_type, waited_ns))

    def begin(self, work: WorkSize | None) -> None:
        context = RECORDER.context
        if context is not None:
            _local.stack.append((self, next(_span_numbers), perf_counter_ns(), context, work))

    def begin_detached(self) -> Record | None:
        """Begin a run that is on no stack: a coroutine shares its thread with others."""
        context = RECORDER.context
        if context is None:
            return None
        stack = _local.stack
        frame: Frame = (self, next(_span_numbers), perf_counter_ns(), context, None)
        return (frame, _parent_of(frame, stack[-1]) if stack else None, 0, None, 0)

    def end_detached(self, begun: Record | None, error: type[BaseException] | None) -> None:
        if begun is not None and not RECORDER.is_left_to_parent:
            RECORDER.keep((*begun[:2], perf_counter_ns(), error, 0))


def _parent_of(frame: Frame, around: Frame) -> Frame | None:
    """The run around ``frame``, unless it is of another step, and so of another trace."""
    return around if around[3].step_span == frame[3].step_span else None


def _end_deeper(
    timer: PythonTimer, stack: _Stack, end_ns: int, error: type[BaseException] | None
) -> None:
    """End an execution below others: sections of two coroutines interleave."""
    for at in range(len(stack) - 1, -1, -1):
        if stack[at][0] is timer:
            frame = stack.pop(at)
            around = _parent_of(frame, stack[at - 1]) if at else None
            RECORDER.keep((frame, around, end_ns, error, stack.waits.pop(frame[1], 0)))
            return


class _Stack(list[Frame]):
    """The open executions of one thread, innermost last, and when its last one ended; ``waits``:
    how long those that waited in collectives did so, ns by span number."""

    __slots__ = ("last_end_ns", "waits")

    def __init__(self) -> None:
        self.last_end_ns = 0
        self.waits: dict[int, int] = {}


class PythonRecorder:
    """Keeps ended runs in memory; see ``NativeRecorder``."""

    on_step = None
    """Unused: GPU timing and context propagation need the native part."""

    def __init__(self) -> None:
        self.context: Context | None = None
        self.session = RecordingSession("", 0)
        self.ring: deque[Record] = deque()
        self.stacks: dict[int, _Stack] = {}
        self.capacity = RING_CAPACITY
        self.is_left_to_parent = False  # a child that was not asked to record
        self._when_full: Callable[[], None] | None = None
        self.dropped = 0
        self._drop_lock = threading.Lock()
        self._open_step: Frame | None = None
        self._last_step: int | None = None
        self._step_began_ns = 0
        self._stepping: _Stack | None = None

    def enable(self) -> None:
        self.is_left_to_parent = False
        self.ring.clear()
        self.dropped = 0
        self._reset_steps()
        self.session = new_session(self.session.generation + 1)
        self.context = Context(self.session, None, NO_SPAN, "")

    def disable(self) -> None:
        self.end_step()
        self.context = None

    def reset_after_fork(self) -> None:
        self.context = None
        self.is_left_to_parent = True
        self.empty_here(None)
        self.ring = deque()
        self.stacks.clear()
        self._drop_lock = threading.Lock()
        self._reset_steps()
        _local.restart()  # this thread's stack is a copy of the parent's

    def begin_step(self, step: int) -> bool:
        context = self.context
        if context is None or context.step == step:
            return False
        now_ns = perf_counter_ns()
        self._end_step(now_ns, None)
        went_back = self._last_step is not None and step < self._last_step
        if went_back:
            self.session = new_session(self.session.generation)
        span = next(_span_numbers)
        new = self.context = Context(self.session, step, span, context.phase)
        self._open_step = (STEP_TIMER, span, now_ns, new, None)
        self._last_step = step
        self._step_began_ns = now_ns
        self._stepping = _local.stack
        return went_back

    def end_step(self, error: type[BaseException] | None = None) -> None:
        self._end_step(perf_counter_ns(), error)

    def add_wait(self, waited_ns: int) -> bool:
        """This thread has waited so long in collectives: add it to what is open. False, and nothing
        changes, if that cannot be."""
        if type(waited_ns) is not int or not 0 <= waited_ns <= LONGEST_WAIT_NS:
            return False
        stack = _local.stack
        spans = [frame[1] for frame in stack]
        step = self._open_step
        if step is not None and self._stepping is stack:
            spans.append(step[1])
        if len(stack.waits) > _MAX_OPEN:  # of executions that ended in another thread
            stack.waits.clear()
        for span in spans if waited_ns else ():
            stack.waits[span] = stack.waits.get(span, 0) + waited_ns
        return True

    def set_phase(self, phase: str) -> str:
        context = self.context
        if context is None:
            return ""
        self.context = Context(context.session, context.step, context.step_span, phase)
        return context.phase

    def drain(self) -> list[Record]:
        take = self.ring.popleft
        records = [take() for _ in range(len(self.ring))]
        if len(self.stacks) > _MAX_STACKS:
            self._evict_ended_threads()
        for stack in list(self.stacks.values()):
            if len(stack) > _MAX_OPEN:  # runs that ended in another thread stay open forever
                del stack[: -_MAX_OPEN // 2]
        return records

    def share(self, is_wanted: bool) -> None:
        """Nothing else drains this ring."""

    def open_section(self) -> OpenSection | None:
        """Of the stepping thread; without one of the main thread, else the one open for longest."""
        main = self._stepping
        if main is None:
            main = self.stacks.get(threading.main_thread().ident or 0)
        top = _top(main)
        if top is None and self._stepping is None:
            tops = filter(None, map(_top, list(self.stacks.values())))
            top = min(tops, key=lambda frame: frame[2], default=None)
        return None if top is None else OpenSection(top[0].name, top[2], top[3].phase)

    def progress(self) -> Progress:
        """Executions in a helper thread are no progress of a rank whose training thread counts
        steps."""
        stacks = list(self.stacks.values()) if self._stepping is None else [self._stepping]
        ends_ns = [stack.last_end_ns for stack in stacks]
        return Progress(self._last_step, max([self._step_began_ns, *ends_ns]))

    @property
    def threads(self) -> int:
        return len(self.stacks)

    def open_here(self) -> list[Frame]:
        return _local.stack

    def empty_here(self, pull: Callable[[], None] | None, every: int = RING_CAPACITY) -> None:
        self._when_full = pull
        self.capacity = every

    def keep(self, record: Record) -> None:
        """Add an ended execution of this thread."""
        _local.stack.last_end_ns = record[2]
        if len(self.ring) < self.capacity:
            self.ring.append(record)
        else:
            self.overflow(record)

    def add_past(self, timer: PythonTimer, start_ns: int, end_ns: int) -> None:
        """Add an execution outside of all steps, such as one of another process for this rank.
        Times are those of ``perf_counter_ns``."""
        context = self.context
        if context is not None:
            outside = Context(context.session, None, NO_SPAN, "")
            frame: Frame = (timer, next(_span_numbers), start_ns, outside, None)
            self.keep((frame, None, end_ns, None, 0))

    def overflow(self, record: Record) -> None:
        """The ring is full: it is emptied on the spot if ``empty_here`` asked for it, else the
        execution is lost."""
        if self._when_full is None:
            with self._drop_lock:
                self.dropped += 1
            return
        self._when_full()
        self.ring.append(record)

    def _end_step(self, now_ns: int, error: type[BaseException] | None) -> None:
        frame, self._open_step = self._open_step, None
        context = self.context
        if frame is None or context is None:
            return
        self.context = Context(context.session, None, NO_SPAN, context.phase)
        waits = {} if self._stepping is None else self._stepping.waits
        waited_ns = waits.pop(frame[1], 0)
        self.keep((frame, None, now_ns, error, waited_ns if self._stepping is _local.stack else 0))

    def _reset_steps(self) -> None:
        self._open_step = None
        self._last_step = None
        self._step_began_ns = perf_counter_ns()
        self._stepping = None
        for stack in list(self.stacks.values()):
            stack.last_end_ns = 0

    def _evict_ended_threads(self) -> None:
        """A thread that lives keeps its stack, also while that is empty: it is made only once."""
        alive = sys._current_frames().keys()  # noqa: SLF001  also threads that torch started
        for ident in [ident for ident in list(self.stacks) if ident not in alive]:
            self.stacks.pop(ident, None)


def _top(stack: _Stack | None) -> Frame | None:
    try:
        return stack[-1] if stack else None
    except IndexError:  # its thread was faster
        return None


class _Local(threading.local):
    """The open runs of each thread. The stack holds plain tuples of the shape of ``Frame``."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.stack = _Stack()
        RECORDER.stacks[threading.get_ident()] = self.stack


_span_numbers = count(1)
STEP_TIMER = PythonTimer(STEP_SPAN, "other")
RECORDER: PythonRecorder = PythonRecorder()
_local = _Local()
