"""Time on the GPU of forward and backward, by the timers that DistributedDataParallel has itself.

On GPUs the host launches work and goes on: its clock shows neither a slow GPU nor what that waits
for. DDP records CUDA events where forward begins and ends, where the last gradient is there, and
where communication begins and ends; see ``torch/csrc/distributed/c10d/logger.cpp``. Its numbers of
an iteration are complete when the next forward begins, and are read there, in the training's own
thread: they would change under any other. They are sent as sections inside of those in which
forward and backward ran, whose spans have left long ago. How often: see ``ddp_sampling``.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Mapping
from time import perf_counter_ns
from typing import Any, Final, NamedTuple

from otel_straggler.client.collectives.ddp_sampling import LADDER, Sampling
from otel_straggler.client.collectives.replacing import Replaced, replace
from otel_straggler.client.collectives.waits import Waits, record_failure
from otel_straggler.client.compiled import COMPILATION, never_compile
from otel_straggler.client.gpu import times_all_kernels
from otel_straggler.client.recorder import LONGEST_WAIT_NS
from otel_straggler.client.recording import FORM, RECORDER, SectionTimer
from otel_straggler.semconv import DDP_BACKWARD, DDP_COMMUNICATION, DDP_FORWARD

KEYS: Final = (
    "forward_compute_time",
    "backward_compute_time",
    "backward_comm_time",
    "backward_compute_comm_overlap_time",
)
NEEDED: Final = ("_pre_forward", "_set_ddp_runtime_logging_sample_rate")
"""Of the class; each module has a ``logger``, a ``device_type`` and says whether it averages."""
MAX_UNKNOWN = 2 * LADDER[-1]
"""Forwards in which DDP's count of iterations must have become known."""
_DEVICES = ("cuda", "xpu")


class Times(NamedTuple):
    """Of one iteration, ns: own work, and communication after the last gradient."""

    forward_ns: int
    backward_ns: int
    exposed_ns: int


def times_of(numbers: Mapping[str, Any]) -> Times | None:
    """From DDP's numbers; None where one was not measured (0) or cannot be, which is counted.

    >>> times_of(dict(zip(KEYS, (30, 50, 20, 15))))
    Times(forward_ns=30, backward_ns=50, exposed_ns=5)

    Raises:
        KeyError: one is missing.
    """
    values = [numbers[key] for key in KEYS]
    for value in values:
        if type(value) is not int or not 0 <= value <= LONGEST_WAIT_NS:
            record_failure("times of DDP from 0 s to a day", value)
            return None
    forward_ns, backward_ns, communication_ns, overlap_ns = values
    if not (forward_ns and backward_ns):
        return None
    return Times(forward_ns, backward_ns, max(0, communication_ns - overlap_ns))


def replace_pre_forward(waits: Waits) -> DdpTimers:
    """Read DDP's timers of all its modules on GPUs, also of those that were made before.

    Raises:
        AttributeError, TypeError: this torch has not what that needs.
    """
    torch = sys.modules["torch"]
    ddp = torch.nn.parallel.DistributedDataParallel
    return DdpTimers(ddp, waits, torch.is_grad_enabled, torch.cuda.is_current_stream_capturing)


def is_on_gpu(module: Any) -> bool:
    """Whether DDP times it on a GPU; on CPU the host's own waiting says more."""
    return getattr(module, "device_type", "cpu") in _DEVICES


class DdpTimers:
    """Timers of all modules of DDP, from its making to ``restore()``.

    Args:
        ddp: the class.
        is_grad_enabled: without gradients a forward is no iteration of DDP's.
        is_capturing: whether a CUDA graph is captured, in which DDP must not wait for the GPU.
        is_timed: whether to read the timers of a module.
    """

    def __init__(
        self,
        ddp: Any,
        waits: Waits,
        is_grad_enabled: Callable[[], bool],
        is_capturing: Callable[[], bool],
        is_timed: Callable[[Any], bool] = is_on_gpu,
    ) -> None:
        needed = {name: getattr(ddp, name) for name in NEEDED}
        needed |= {
            "is_grad_enabled": is_grad_enabled,
            "is_current_stream_capturing": is_capturing,
        }
        for name, function in needed.items():
            if not callable(function):
                msg = f"{name} cannot be called"
                raise TypeError(msg)
        self._waits = waits
        self._is_grad_enabled = is_grad_enabled
        self._is_capturing = is_capturing
        self._is_timed = is_timed
        self._modules: weakref.WeakKeyDictionary[Any, ModuleTimers | None] = (
            weakref.WeakKeyDictionary()
        )
        self._awaiting: list[ModuleTimers] = []
        self._replaced: Replaced = replace(ddp, "_pre_forward", self._wrap)
        waits.on_backward = self.begin_backward

    def restore(self) -> None:
        """Leave DDP as it was."""
        self._replaced.restore()
        self._waits.on_backward = None
        for module, timers in list(self._modules.items()):
            if timers is not None:
                timers.stop(module)

    @never_compile
    def begin_backward(self) -> None:
        """Backward begins in this section. DDP has it end where all gradients of the call are
        there and the modules before have averaged theirs; of several it is the last that goes
        first, and whose time holds no waiting. The others report forward alone."""
        if not self._awaiting:
            return
        last, self._awaiting = self._awaiting[-1], []
        try:
            last.backward = Begin.here()
        except Exception as error:  # noqa: BLE001  backward goes on
            record_failure("a section in which backward begins", error)

    def _wrap(self, original: Any) -> Any:
        @never_compile
        @functools.wraps(original)
        def pre_forward(module: Any, /, *args: Any, **kwargs: Any) -> Any:
            if COMPILATION.is_on() or not self._waits.is_on or RECORDER.context is None:
                return original(module, *args, **kwargs)
            self._leave_to_capture(module)
            began_ns = perf_counter_ns()
            result = original(module, *args, **kwargs)
            self._begin_forward(module, began_ns)
            return result

        return pre_forward

    @never_compile
    def _leave_to_capture(self, module: Any) -> None:
        """In a forward that becomes a part of a CUDA graph DDP must find its own rate."""
        try:
            timers = self._modules.get(module)
            if timers is not None and timers.has_changed_rate and self._is_capturing():
                timers.stop(module)
        except Exception as error:  # noqa: BLE001  forward goes on
            record_failure("timers of DDP that can be stopped", error)

    @never_compile
    def _begin_forward(self, module: Any, began_ns: int) -> None:
        try:
            timers = self._timers_of(module)
            is_iteration = timers is not None and self._is_grad_enabled()
            if timers is None or not is_iteration or not module.require_backward_grad_sync:
                return
            is_timed = timers.begin_forward(module, began_ns)
            if timers.holds_other_waits:
                self._leave(module)
            elif is_timed and timers not in self._awaiting:
                self._awaiting.append(timers)
        except Exception as error:  # noqa: BLE001  forward goes on
            self._leave(module)
            record_failure("timers of DDP that can be read", error)

    @never_compile
    def _leave(self, module: Any) -> None:
        """For good, as it was."""
        timers, self._modules[module] = self._modules.get(module), None
        if timers is not None:
            timers.stop(module)

    @never_compile
    def _timers_of(self, module: Any) -> ModuleTimers | None:
        try:
            return self._modules[module]
        except KeyError:
            timers = ModuleTimers() if FORM == "native" and self._is_timed(module) else None
            self._modules[module] = timers
            return timers


class Begin(NamedTuple):
    """The outermost section in which forward or backward begins, and when."""

    place: Any
    at_ns: int

    @classmethod
    def here(cls) -> Begin | None:
        """None outside of all sections of a step: there is nothing to be a part of."""
        place = RECORDER.place_here()
        return None if place is None else cls(place, perf_counter_ns())


class ModuleTimers:
    """Timers of one module.

    Attributes:
        backward: where that of the iteration has begun; None: nowhere yet.
        holds_other_waits: ranks meet inside forward and backward, in SyncBatchNorm: their times
            are those of the slowest, and say nothing.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self.backward: Begin | None = None
        self.holds_other_waits = False
        self._forward: Begin | None = None
        self._sampling = Sampling()
        self._iteration: int | None = None  # of DDP, begun last; None: not known yet
        self._newest_read = -1
        self._n_unknown = 0
        self._began_ns = 0

    @property
    def has_changed_rate(self) -> bool:
        return self._sampling.rate != LADDER[-1]

    @never_compile
    def begin_forward(self, module: Any, began_ns: int) -> bool:
        """An iteration begins: report the one before if it was timed. Whether this one is, inside
        of a section."""
        if times_all_kernels():  # which says more
            self.stop(module)
            return False
        ended = self._report(module)
        has_changed = ended is not None and self._observe(ended, began_ns)
        self._began_ns = began_ns
        self._iteration = None if ended is None else ended + 1
        self.backward = self._forward = None
        if has_changed:  # a half of this one is timed at the old rate
            module._set_ddp_runtime_logging_sample_rate(self._sampling.rate)  # noqa: SLF001
            return False
        if self._iteration is None or self._sampling.covers(self._iteration):
            self._forward = Begin.here()
        return self._forward is not None

    def stop(self, module: Any) -> None:
        """DDP samples as it does by itself, and nothing is reported before it is counted again."""
        if self.has_changed_rate:
            try:
                module._set_ddp_runtime_logging_sample_rate(LADDER[-1])  # noqa: SLF001
            except Exception as error:  # noqa: BLE001  it samples more often
                record_failure("a sampling rate of DDP that can be set", error)
        self._forget()

    def _report(self, module: Any) -> int | None:
        """The number of the iteration that has ended; None if it is not known."""
        ended = self._iteration
        if ended is not None and not self._sampling.covers(ended):
            return ended
        numbers = module.logger._get_ddp_logging_data().ints_map  # noqa: SLF001  texts take longer
        self.holds_other_waits = bool(numbers.get("has_sync_bn"))
        published, before = numbers["iteration"], self._newest_read
        self._newest_read = published
        is_new = published != before and before >= 0
        if ended is None and not is_new:
            self._count_unknown()
            return None
        if ended is not None and published != ended:  # somebody else has set another rate
            return None
        self._n_unknown = 0
        times = times_of(numbers)
        if times is not None and not self.holds_other_waits:
            report(times, self._forward, self.backward)
        return int(published)

    def _count_unknown(self) -> None:
        self._n_unknown += 1
        if self._n_unknown > MAX_UNKNOWN:
            msg = f"no iteration was timed in {MAX_UNKNOWN}"
            raise LookupError(msg)

    def _observe(self, ended: int, began_ns: int) -> bool:
        iteration_ns = began_ns - self._began_ns if self._began_ns else 0
        return self._sampling.observe(ended, iteration_ns, perf_counter_ns() - began_ns)


@never_compile
def report(times: Times, forward: Begin | None, backward: Begin | None) -> None:
    """Add to what is recorded what began in a section. A rank that all others wait for has waited
    1 ns: it must not look like one of which nothing is known."""
    if forward is not None:
        _add(forward, DDP_FORWARD, "compute", 0, times.forward_ns)
    if backward is not None:
        _add(backward, DDP_BACKWARD, "compute", 0, times.backward_ns)
        _add(backward, DDP_COMMUNICATION, "wait", times.backward_ns, max(1, times.exposed_ns))


@never_compile
def _add(begin: Begin, name: str, kind: str, after_ns: int, duration_ns: int) -> None:
    timer = _timer(f"{begin.place.name[0]}/{name}", kind)
    RECORDER.add_timed(begin.place, timer, begin.at_ns + after_ns, duration_ns)


@functools.lru_cache(maxsize=1024)
def _timer(name: str, kind: str) -> SectionTimer:
    return SectionTimer(name, kind)
