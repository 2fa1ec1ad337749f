"""The rule by which waits of a thread add up: of several inside one another, the outermost counts.

FSDP waits for a collective inside the wait at the end of backward, and DTensor's waits call others:
each thread has one wait open at a time, and who finds one open measures nothing.

On accelerators the host does not wait: a call puts work on a stream and returns, in some tens of
microseconds. With one in use, what is shorter than a millisecond is such a call; a CPU group next
to it, or NCCL's blocking waits, still count.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

from otel_straggler.client.compiled import never_compile
from otel_straggler.client.guard import GUARD
from otel_straggler.client.recording import RECORDER
from otel_straggler.errors import UnavailableError

FAILURE = "collective_wait"
"""What failures of our own code in here are counted as."""
SHORTEST_WITH_ACCELERATOR_NS = 1_000_000
_ACCELERATORS = ("cuda", "xpu")


class Wait:
    """A wait that is open, or was; over once its thread, or who began it, has left it."""

    __slots__ = ("is_over",)

    @never_compile
    def __init__(self) -> None:
        self.is_over = False


class _Thread(threading.local):
    wait: Wait | None = None


_CALL = Wait()
"""Any call that ends in the thread in which it began."""


class Waits:
    """Waits of all threads, for one session.

    Attributes:
        on_backward: called before each measured backward, in its thread; None: by nobody.
    """

    def __init__(self) -> None:
        self.is_on = True
        self.on_backward: Callable[[], None] | None = None
        self._thread = _Thread()
        self._are_initialized: list[Callable[[], bool]] | None = None

    @never_compile
    def may_begin(self) -> bool:
        """Whether a wait that began now would count."""
        if not self.is_on or RECORDER.context is None:
            return False
        wait = self._thread.wait
        return wait is None or wait.is_over

    @never_compile
    def begin(self, wait: Wait = _CALL) -> bool:
        """Begin a wait of this thread, unless it would not count."""
        if not self.may_begin():
            return False
        self._thread.wait = wait
        return True

    @never_compile
    def leave(self) -> None:
        """End what ``begin`` has begun in this thread."""
        self._thread.wait = None

    @never_compile
    def end(self, waited_ns: int) -> None:
        """Leave, and add how long it was."""
        self._thread.wait = None
        self.add(waited_ns)

    @never_compile
    def add(self, waited_ns: int) -> None:
        """Add to what this thread has waited. Never raises, unless telemetry is strict."""
        if waited_ns < SHORTEST_WITH_ACCELERATOR_NS and self._has_accelerator():
            return
        if not RECORDER.add_wait(waited_ns):
            record_failure("a time from 0 s to a day", f"{waited_ns} ns")

    @never_compile
    def _has_accelerator(self) -> bool:
        if self._are_initialized is None:
            torch = sys.modules.get("torch")
            found = (getattr(torch, name, None) for name in _ACCELERATORS)
            asked = (getattr(one, "is_initialized", None) for one in found)
            self._are_initialized = [ask for ask in asked if ask is not None]
        for is_initialized in self._are_initialized:  # noqa: SIM110  any() takes twice as long
            if is_initialized():
                return True
        return False


@never_compile
def record_failure(expected: str, value: object) -> None:
    """Count a failure of our own; the training goes on, and this wait counts as work."""
    GUARD.record(
        FAILURE,
        UnavailableError.of(
            "time waited in collectives",
            value,
            expected,
            "Set OTEL_STRAGGLER_COLLECTIVES=off to measure none.",
        ),
    )
