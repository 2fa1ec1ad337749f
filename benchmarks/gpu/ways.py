"""Ways to time kernels, as arms use them: start, sections, turns, stop."""

from __future__ import annotations

import struct
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from benchmarks.gpu import native
from otel_straggler.native import NATIVE, REASON

_RECORD = struct.Struct("<8Q6IQ3q2I")
_NO_SECTION = 0xFFFF_FFFF
_NOT_REPORTED = 2**64 - 1
CUPTI_WAYS = ("m1", "m2")
"""Our own timer: by marks, and by a callback at each launch."""


class Off:
    """Nothing. Also the face that all ways have."""

    def __init__(self, cuda: Any) -> None:
        self.cuda = cuda

    def start(self) -> None:
        """Once, after the CUDA context was made and before the first step."""

    def begin(self, section: int) -> None:
        """A section begins in this thread."""

    def end(self) -> None:
        """The innermost section ends."""

    def begin_turn(self) -> None:
        """This process may work now."""

    def end_turn(self) -> None:
        """The GPU has ended all of this turn; nothing may be left running after it."""

    def stop(self) -> None:
        """At the end."""

    def facts(self) -> dict[str, Any]:
        """What it has seen, for the JSON."""
        return {}


class Timed(Off):
    """Our ``KernelTimer``, as the recorder and the exporter use it.

    Args:
        prefers_launches: M2 instead of M1.
        times_whole_graphs: one record a graph launch.
    """

    def __init__(
        self, cuda: Any, *, prefers_launches: bool = False, times_whole_graphs: bool = False
    ) -> None:
        super().__init__(cuda)
        if NATIVE is None:
            raise native.NoProbeError(f"our extension is missing: {REASON}")
        self.timer = NATIVE.KernelTimer(
            *cuda.timer_paths, prefers_launches, False, times_whole_graphs
        )
        self._span = 0
        self._open: list[tuple[int, int, int]] = []
        self._ended: list[bytes] = []
        self.states: Counter[int] = Counter()

    def start(self) -> None:
        if reason := self.timer.start():
            raise native.NoProbeError(reason)

    def begin(self, section: int) -> None:
        self._span += 1
        self._open.append((self._span, section, time.monotonic_ns()))
        self.timer.boundary(True, self._span, section)

    def end(self) -> None:
        span, section, start_ns = self._open.pop()
        outer, outer_section, _ = self._open[-1] if self._open else (0, 0, 0)
        end_ns = time.monotonic_ns()
        self.timer.boundary(True, outer, outer_section)
        self._ended.append(_record(span, outer, section, start_ns, end_ns))

    def begin_turn(self) -> None:
        self.timer.start_thread()

    def end_turn(self) -> None:
        self.hand_over()
        self.timer.stop_thread()

    def hand_over(self, *, is_complete: bool = False) -> None:
        """What the exporter does: give ended runs, take those whose numbers are there."""
        self.timer.add(b"".join(self._ended))
        self._ended.clear()
        if is_complete:
            self.timer.flush()
            self.timer.flush()
            ready = self.timer.take_all(True)
        else:
            self.timer.flush()
            ready = self.timer.take_ready(time.monotonic_ns())
        self.states.update(_states(ready))

    def take_ready(self) -> list[tuple[int, int]]:
        """The same, without asking CUPTI: state and end in ns of each run that waits no longer."""
        self.timer.add(b"".join(self._ended))
        self._ended.clear()
        ready = self.timer.take_ready(time.monotonic_ns())
        self.states.update(_states(ready))
        runs = (_RECORD.unpack_from(ready, at) for at in range(0, len(ready), _RECORD.size))
        return [(run[-1], run[5]) for run in runs]

    def stop(self) -> None:
        self.cuda.synchronize()
        self.hand_over(is_complete=True)
        self.timer.stop(time.monotonic_ns() + 1_000_000_000)

    def kernels(self) -> list[Any]:
        """(name, class, section, count, sum, min, max, scale, offset, buckets) since last time."""
        self.cuda.synchronize()
        self.timer.flush()
        self.timer.flush()
        result: list[Any] = self.timer.take_kernels()
        return result

    def facts(self) -> dict[str, Any]:
        return {"timed_runs": self.states[2], "missing": self.states[3], **self.timer.state()}


class Probed(Off):
    """CUPTI by the probe: kinds of records, and what is done at a section's boundary.

    Args:
        kinds: switched on for all the time.
        has_launch_calls: records of the driver calls that launch.
        pushes: an external correlation id at each section.
        switches: kernel records are switched on and off at each section.
        reading: see native.py.
    """

    def __init__(
        self,
        cuda: Any,
        kinds: tuple[int, ...] = (),
        *,
        has_launch_calls: bool = False,
        pushes: bool = False,
        switches: bool = False,
        reading: int = native.COUNT,
    ) -> None:
        super().__init__(cuda)
        self.probe = cuda.probe()
        self._kinds, self._has_launch_calls = kinds, has_launch_calls
        self._pushes, self._switches, self._reading = pushes, switches, reading

    def start(self) -> None:
        self.probe.reading(self._reading)
        checked("register", self.probe.register())
        for kind in self._kinds:
            checked(f"enable({kind})", self.probe.enable(kind))
        if self._has_launch_calls:
            checked("launch calls", self.probe.launch_calls(1))

    def begin(self, section: int) -> None:
        if self._switches:
            self.probe.enable(native.KERNEL)
        if self._pushes:
            self.probe.push(native.CUSTOM2, section)

    def end(self) -> None:
        if self._pushes:
            self.probe.pop(native.CUSTOM2)
        if self._switches:
            self.probe.disable(native.KERNEL)

    def begin_turn(self) -> None:
        self.probe.start_thread()

    def end_turn(self) -> None:
        self.probe.flush(0)
        self.probe.stop_thread()

    def stop(self) -> None:
        for kind in self._kinds:
            self.probe.disable(kind)
        self.probe.flush(0)

    def facts(self) -> dict[str, Any]:
        return dict(self.probe.counts())


class Nvrx(Off):
    """NVRx's own CUPTI module: on and off at each section, as its ``Detector`` does it."""

    def start(self) -> None:
        from nvrx_cupti_module import CuptiProfiler

        self._theirs = CuptiProfiler(
            bufferSize=1_000_000, numBuffers=8, statsMaxLenPerKernel=8 * 1024
        )
        self._theirs.initialize()

    def begin(self, section: int) -> None:
        del section
        self._theirs.start()

    def end(self) -> None:
        self._theirs.stop()

    def facts(self) -> dict[str, Any]:
        return {"whose": "nvrx_cupti_module"}


class NativeEvents(Off):
    """Our ``EventTimer``, as the recorder and the exporter use it."""

    def start(self) -> None:
        stream_of = getattr(self.cuda.torch._C, "_cuda_getCurrentRawStream", None)
        self.timer = NATIVE.EventTimer(self.cuda.events_driver, stream_of, -1)
        if reason := self.timer.start():
            raise native.NoProbeError(reason)
        self._span = 0
        self._open: list[tuple[int, int, int]] = []
        self._ended: list[bytes] = []
        self.states: Counter[int] = Counter()

    def begin(self, section: int) -> None:
        self._span += 1
        self._open.append((self._span, section, time.monotonic_ns()))
        self.timer.begun(self._span)

    def end(self) -> None:
        span, section, start_ns = self._open.pop()
        self.timer.ended(span)
        outer = self._open[-1][0] if self._open else 0
        self._ended.append(_record(span, outer, section, start_ns, time.monotonic_ns()))

    def end_turn(self) -> None:
        self.timer.add(b"".join(self._ended))
        self._ended.clear()
        self.states.update(_states(self.timer.take_ready(time.monotonic_ns())))

    def stop(self) -> None:
        self.cuda.synchronize()
        self.end_turn()
        self.states.update(_states(self.timer.take_all(True)))
        self.timer.stop(time.monotonic_ns() + 1_000_000_000)

    def facts(self) -> dict[str, Any]:
        return {"whose": "EventTimer", "states": dict(self.states), **self.timer.state()}


class Events(Off):
    """A CUDA event before and after each section, resolved later, without waiting; by PyTorch, for
    a package without ``EventTimer``."""

    def start(self) -> None:
        self._free: list[Any] = [self.cuda.event() for _ in range(512)]
        self._open: list[Any] = []
        self._ended: list[tuple[Any, Any]] = []
        self.resolved = 0

    def begin(self, section: int) -> None:
        del section
        self._resolve()
        self._open.append(self._mark())

    def end(self) -> None:
        self._ended.append((self._open.pop(), self._mark()))

    def end_turn(self) -> None:
        self._resolve()

    def facts(self) -> dict[str, Any]:
        return {"resolved": self.resolved}

    def _mark(self) -> Any:
        event = self._free.pop() if self._free else self.cuda.event()
        event.record()
        return event

    def _resolve(self) -> None:
        while self._ended and self._ended[0][1].query():
            begun, ended = self._ended.pop(0)
            begun.elapsed_time(ended)
            self.resolved += 1
            self._free += [begun, ended]


class Profiled(Off):
    """torch.profiler during the turn."""

    def __init__(self, cuda: Any, *, has_cpu: bool) -> None:
        super().__init__(cuda)
        self._has_cpu = has_cpu
        self._session: Any = None

    def begin_turn(self) -> None:
        self._session = self.cuda.session(has_cpu=self._has_cpu)
        self._session.start()

    def end_turn(self) -> None:
        self._session.stop()
        self._session = None


def checked(what: str, result: int) -> None:
    """
    Raises:
        NoProbeError: CUPTI's result is not 0.
    """
    if result:
        raise native.NoProbeError(f"CUPTI: {what} gave {result}")


def _states(records: bytes) -> Iterator[int]:
    """What became of each run: 2 timed, 3 missing, 4 timed by events."""
    return (_RECORD.unpack_from(records, at)[-1] for at in range(0, len(records), 128))


def _record(span: int, parent: int, section: int, start_ns: int, end_ns: int) -> bytes:
    """As in record.hpp; outside of a step."""
    no_step = 2**63
    return _RECORD.pack(
        *(span, parent, 0, no_step, start_ns, end_ns, _NOT_REPORTED, _NOT_REPORTED),
        *(section, _NO_SECTION, 0, 0, 0, 0, 0),
        *(0, 0, 0, 0, 0),
    )
