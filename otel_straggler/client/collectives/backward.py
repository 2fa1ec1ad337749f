"""The wait at the end of ``backward()``, where DDP and FSDP finish averaging gradients.

DDP waits in C++, where no Python sees it. But it waits in a callback of the autograd engine, as
FSDP does, and the engine calls its callbacks in their order once all gradients are computed. So a
hook on the root queues one before any other: it runs first, and queues one that runs last. What
lies between is waiting, whatever the kind of model, communication hook or bucket. Where nobody
waits it is some microseconds, and is added all the same: a rank that all others wait for must not
look like one that does not measure.

Code that waits earlier, while gradients are still computed, is seen by ``calls``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Protocol, cast

from otel_straggler.client.collectives.backward_calls import BACKWARD_CALLS, Proceed
from otel_straggler.client.collectives.replacing import Restorable
from otel_straggler.client.collectives.waits import Wait, Waits, record_failure
from otel_straggler.client.compiled import never_compile

_COMPILED = "torch._dynamo.compiled_autograd"


class _Handle(Protocol):
    def remove(self) -> None: ...


_Register = Callable[[Callable[..., None]], _Handle]


def replace_backward(waits: Waits) -> Restorable:
    """Time the end of every ``torch.autograd.backward``, which ``Tensor.backward`` calls.

    Raises:
        AttributeError, TypeError: this torch has not what that needs.
    """
    torch = sys.modules["torch"]
    engine = torch.autograd.Variable._execution_engine  # noqa: SLF001  as DDP and FSDP do
    is_distributed = torch.distributed.is_initialized
    as_plain = torch._C.DisableTorchFunction  # noqa: SLF001  no subclass or mode sees our hook
    if not (callable(engine.queue_callback) and callable(as_plain) and callable(is_distributed)):
        msg = "the autograd engine takes no callbacks"
        raise TypeError(msg)

    @never_compile
    def measure(proceed: Proceed, roots: Any) -> Any:
        if not (waits.may_begin() and is_distributed()) or _is_autograd_compiled():
            return proceed()
        if waits.on_backward is not None:
            waits.on_backward()
        call = _Call(waits, engine.queue_callback)
        with as_plain():
            call.watch(roots)
        try:
            return proceed()
        finally:
            call.close()

    return BACKWARD_CALLS.add(measure)


@never_compile
def _is_autograd_compiled() -> bool:
    """Whether compiled autograd is on: a hook of ours would become a part of what it compiles."""
    return getattr(sys.modules.get(_COMPILED), "compiled_autograd_enabled", False) is True


class _Call(Wait):
    """One call of ``backward``. Callbacks may run in a thread of the engine's, the wait is that of
    the thread that has called."""

    __slots__ = ("_began_ns", "_ended_ns", "_handle", "_is_begun", "_queue", "_waits")

    @never_compile
    def __init__(self, waits: Waits, queue: Callable[[Callable[[], None]], None]) -> None:
        super().__init__()
        self._waits = waits
        self._queue = queue
        self._handle: _Handle | None = None
        self._is_begun = False
        self._began_ns = self._ended_ns = 0

    @never_compile
    def watch(self, roots: Any) -> None:
        """Hook on to the first root that takes hooks."""
        try:
            register = _hooks_of(roots)
            if register is not None:
                self._handle = register(self.begin)
        except Exception as error:  # noqa: BLE001  torch says itself what is wrong with the root
            record_failure("a root of backward that takes a hook", error)

    @never_compile
    def begin(self, *_: object) -> None:
        """Be the first in the queue, as the root is the first to have its gradient."""
        if self._is_begun or self.is_over:
            return
        self._is_begun = True
        try:
            self._queue(self.end_of_gradients)
        except Exception as error:  # noqa: BLE001  backward goes on
            record_failure("an autograd engine that takes callbacks", error)

    @never_compile
    def end_of_gradients(self) -> None:
        try:
            if self._waits.begin(self):
                self._began_ns = perf_counter_ns()
                self._queue(self.end)
        except Exception as error:  # noqa: BLE001  backward goes on
            record_failure("an autograd engine that takes callbacks in a callback", error)

    @never_compile
    def end(self) -> None:
        self._ended_ns = perf_counter_ns()
        self._waits.leave()

    @never_compile
    def close(self) -> None:
        """Backward has returned or raised: leave no hook behind, and add what was waited."""
        self.is_over = True
        try:
            if self._handle is not None:
                self._handle.remove()
        except Exception as error:  # noqa: BLE001  backward is over
            record_failure("a hook that can be removed", error)
        if self._ended_ns:
            self._waits.add(self._ended_ns - self._began_ns)


@never_compile
def _hooks_of(roots: Any) -> _Register | None:
    """What registers a hook on the first root that needs a gradient; None if none does. Of what is
    no list of roots nothing is taken: an iterator can be read only once."""
    for root in roots if type(roots) in {list, tuple} else (roots,):
        if getattr(root, "requires_grad", False):
            return cast("_Register", root.register_hook)
        if hasattr(root, "node"):  # a gradient edge
            return cast("_Register", root.node.register_prehook)
    return None
