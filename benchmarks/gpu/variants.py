"""Ways to tell which kernel belongs to which section, by the bare CUPTI, as measured on an H200.

docs/internals/gpu-measurements.md has what was seen. What our timer does, in C++, is one of them.
"""

from __future__ import annotations

from typing import Any

from benchmarks.gpu import native
from benchmarks.gpu.ways import Events, NativeEvents, Off, Probed, checked
from otel_straggler.native import NATIVE

GET_VERSION = 2
"""cuDriverGetVersion, the call that a mark is made of."""
_MAX_CALLS, _REFUSED_IN_A_ROW = 4_096, 16
LAUNCH_CALLS, MARK_CALL = 1, 2
"""What a subscriber is called back for."""


def switch_off_calls(probe: Any) -> int:
    """Records of every driver call but a mark's, while those of the kind are on. How many there
    were: this libcupti knows no number beyond."""
    count = refused = 0
    for call in range(1, _MAX_CALLS):
        if call == GET_VERSION:
            continue
        refused = refused + 1 if probe.driver_call(call, 0) else 0
        count += not refused
        if refused == _REFUSED_IN_A_ROW:
            break
    return count


class Variant(Probed):
    """Kernel records that can be switched on and off, and something at a section's boundary.

    Attributes:
        has_kernels: whether kernel records are on from the start.
        marks: how many were made.
    """

    has_kernels = True

    def __init__(self, cuda: Any, *, reading: int = native.COUNT) -> None:
        super().__init__(cuda, reading=reading)
        self.marks = 0

    def start(self) -> None:
        super().start()
        self.set_up()
        if self.has_kernels:
            self.switch(is_on=True)

    def set_up(self) -> None:
        """What is done once."""

    def switch(self, *, is_on: bool) -> None:
        """Kernel records."""
        switched = self.probe.enable if is_on else self.probe.disable
        checked("kernel records", switched(native.KERNEL))

    def begin(self, section: int) -> None:
        del section
        self.mark()

    def end(self) -> None:
        self.mark()

    def mark(self) -> None:
        """A boundary."""
        self.marks += 1
        self.probe.mark(self.marks)

    def stop(self) -> None:
        self.probe.disable(native.KERNEL)
        self.take_down()
        self.probe.flush(0)

    def take_down(self) -> None:
        """What ``set_up`` did."""


class ByRecord(Variant):
    """Variant C: records of driver calls are on, but of all calls except the mark's off again."""

    calls_off = 0

    def set_up(self) -> None:
        checked("records of driver calls", self.probe.enable(native.DRIVER))
        self.calls_off = switch_off_calls(self.probe)
        checked("external ids", self.probe.enable(native.EXTERNAL))

    def take_down(self) -> None:
        self.probe.disable(native.EXTERNAL)
        self.probe.disable(native.DRIVER)

    def facts(self) -> dict[str, Any]:
        return {"calls_off": self.calls_off, **super().facts()}


class ByCallback(Variant):
    """Variant G: the one subscriber, called back for the mark's call alone."""

    def set_up(self) -> None:
        checked("subscribe", self.probe.subscribe(MARK_CALL))

    def take_down(self) -> None:
        self.probe.unsubscribe()


class ByLaunches(Variant):
    """The one subscriber, called back for every launch; boundaries cost nothing of CUPTI's."""

    def set_up(self) -> None:
        checked("subscribe", self.probe.subscribe(LAUNCH_CALLS))

    def mark(self) -> None:
        """Which section a launch belongs to is known where it is called back."""

    def take_down(self) -> None:
        self.probe.unsubscribe()


class Sampled(ByRecord):
    """CUDA events in every step, and kernels with their marks in one step of ``every``."""

    has_kernels = False

    def __init__(self, cuda: Any, every: int) -> None:
        super().__init__(cuda, reading=native.KEEP)
        self._events = events_way(cuda)
        self._every = every
        self.is_sampled = False

    def begin_step(self, number: int) -> None:
        """Before the first section of step ``number``."""
        self.is_sampled = number % self._every == self._every // 2
        if self.is_sampled:
            self.switch(is_on=True)

    def end_step(self) -> None:
        """After the last section."""
        if self.is_sampled:
            self.switch(is_on=False)
        self.is_sampled = False

    def start(self) -> None:
        super().start()
        self._events.start()

    def begin(self, section: int) -> None:
        if self.is_sampled:
            self.mark()
        self._events.begin(section)

    def end(self) -> None:
        self._events.end()
        if self.is_sampled:
            self.mark()

    def begin_turn(self) -> None:
        super().begin_turn()
        self._events.begin_turn()

    def end_turn(self) -> None:
        self._events.end_turn()
        super().end_turn()

    def stop(self) -> None:
        self._events.stop()
        super().stop()

    def facts(self) -> dict[str, Any]:
        return {"events": self._events.facts(), **super().facts()}


def events_way(cuda: Any) -> Off:
    """CUDA events by our own timer, or by PyTorch where there is none."""
    is_ours = hasattr(NATIVE, "EventTimer") and cuda.events_driver is not None
    return NativeEvents(cuda) if is_ours else Events(cuda)
