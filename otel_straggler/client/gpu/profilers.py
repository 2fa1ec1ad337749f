"""torch.profiler goes first: CUPTI serves one of us at a time.

Kineto takes CUPTI when a profiler prepares, which is before it starts, and in libraries up to
CUDA 13.2 whoever registers last gets everything. So we are called before it prepares and after
it has stopped, by wrapping the methods that do that. Nothing is wrapped before torch is imported
and kernels are to be timed; all of it is put back in the end.
"""

from __future__ import annotations

import functools
import logging
import sys
import weakref
from collections.abc import Callable
from typing import Any

_LOG = logging.getLogger("otel_straggler")
_PREPARE = (
    ("torch.profiler.profiler", "_KinetoProfile", "prepare_trace"),
    ("torch.profiler.profiler", "_KinetoProfile", "start_trace"),
    ("torch.autograd.profiler", "profile", "_prepare_trace"),
    ("torch.autograd.profiler", "profile", "__enter__"),
    ("torch.autograd.profiler", "profile", "_start_trace"),
)
"""Before these a profiler begins; where one fails, it has stopped."""
_STOP = (
    ("torch.profiler.profiler", "_KinetoProfile", "stop_trace"),
    ("torch.autograd.profiler", "profile", "__exit__"),
)
"""After these it has stopped."""


class Profilers:
    """The profilers of torch that are at work in this process."""

    def __init__(self) -> None:
        self._yielding: Any = None
        self._active: weakref.WeakSet[Any] = weakref.WeakSet()  # one that is given up is forgotten
        self._wrapped: list[tuple[type, str, Any, Any]] = []

    @property
    def are_active(self) -> bool:
        return len(self._active) > 0

    def install(self, yielding: Any) -> None:
        """Call ``yielding`` (a ``GpuTiming``) from now on. Cost: once some µs."""
        if self._yielding is yielding:
            return
        self._yielding = yielding
        if self._wrapped:
            return
        for target in _PREPARE:
            self._wrap(target, self._before)
        for target in _STOP:
            self._wrap(target, self._after)

    def uninstall(self, yielding: Any) -> None:
        """Restore what was wrapped, unless others wrapped it again."""
        if self._yielding is not yielding:
            return
        self._yielding = None
        for owner, name, original, ours in self._wrapped:
            if owner.__dict__.get(name) is ours:
                setattr(owner, name, original)
        self._wrapped.clear()
        self._active.clear()

    def _wrap(self, target: tuple[str, str, str], around: Callable[..., Any]) -> None:
        module, class_name, name = target
        owner = getattr(sys.modules.get(module), class_name, None)
        original = getattr(owner, "__dict__", {}).get(name)
        if owner is None or not callable(original):
            return  # of another version of torch

        @functools.wraps(original)
        def ours(profiler: Any, *args: Any, **kwargs: Any) -> Any:
            return around(original, profiler, *args, **kwargs)

        setattr(owner, name, ours)
        self._wrapped.append((owner, name, original, ours))

    def _before(self, original: Callable[..., Any], profiler: Any, *args: Any, **kw: Any) -> Any:
        if getattr(profiler, "enabled", True):
            self._begin(profiler)
        try:
            return original(profiler, *args, **kw)
        except BaseException:
            self._end(profiler)
            raise

    def _after(self, original: Callable[..., Any], profiler: Any, *args: Any, **kw: Any) -> Any:
        try:
            return original(profiler, *args, **kw)
        finally:
            self._end(profiler)

    def _begin(self, profiler: Any) -> None:
        was_active = self.are_active
        self._active.add(profiler)
        if not was_active:
            self._report("yield_to_profiler")

    def _end(self, profiler: Any) -> None:
        was_active = self.are_active
        self._active.discard(profiler)
        if was_active and not self.are_active:
            self._report("profiler_has_stopped")

    def _report(self, what: str) -> None:
        """The user's profiler must not fail by us."""
        try:
            if self._yielding is not None:
                getattr(self._yielding, what)()
        except Exception:  # noqa: BLE001
            _LOG.warning("GPU timing could not follow torch.profiler", exc_info=True)


PROFILERS = Profilers()
