"""Waits that are one call: ``Work.wait``, DDP's broadcast of buffers, ``wait_tensor``.

Whatever Python waits for ends in the first (``all_reduce``, ``barrier``, FSDP on gloo), except for
functional collectives (DTensor, tensor parallelism), which end in the last. Code that
``torch.compile`` has generated waits without either, and so does C++; see ``backward``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, TypeVar, cast

from otel_straggler.client.collectives.replacing import Replaced, replace
from otel_straggler.client.collectives.waits import Waits
from otel_straggler.client.compiled import COMPILATION, never_compile

_Function = TypeVar("_Function", bound=Callable[..., Any])
FUNCTIONAL = "torch.distributed._functional_collectives"


def replace_work_wait(waits: Waits) -> Replaced:
    """Time what all handles of collectives wait."""
    work = sys.modules["torch"]._C._distributed_c10d.Work  # noqa: SLF001  Python's handle
    return replace(work, "wait", lambda wait: timed_method(wait, waits))


def replace_broadcast(waits: Waits) -> Replaced:
    """Time DDP's broadcast of buffers, inside forward, which waits in C++."""
    distributed = sys.modules["torch"].distributed
    return replace(distributed, "_broadcast_coalesced", lambda wait: timed(wait, waits))


def replace_wait_tensor(waits: Waits) -> Replaced:
    """Time what functional collectives wait. On CPU they block there, on GPUs they do not."""
    return replace(sys.modules[FUNCTIONAL], "wait_tensor", lambda wait: timed(wait, waits))


def timed(function: _Function, waits: Waits) -> _Function:
    """``function``, timed as a wait. Cost: about a microsecond."""

    @never_compile
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if COMPILATION.is_on() or not waits.begin():
            return function(*args, **kwargs)
        began_ns = perf_counter_ns()
        try:
            return function(*args, **kwargs)
        finally:
            waits.end(perf_counter_ns() - began_ns)

    return cast("_Function", call)


def timed_method(method: _Function, waits: Waits) -> _Function:
    """The same of ``Work.wait``. For handles that are classes of Python, C++ calls it and would be
    called back by it without end, if it did not know this frame by the names of the function and of
    its first argument."""

    @never_compile
    @functools.wraps(method)
    def wait(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        if COMPILATION.is_on() or not waits.begin():
            return method(self, *args, **kwargs)
        began_ns = perf_counter_ns()
        try:
            return method(self, *args, **kwargs)
        finally:
            waits.end(perf_counter_ns() - began_ns)

    return cast("_Function", wait)
