"""``torch.autograd.backward``, replaced once for all who measure its calls.

Whoever measures a section must be outermost, in whatever order the parts were started: what a
thread waits is added to the sections that are open in it when backward returns.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from otel_straggler.client.collectives.replacing import Replaced, Restorable, replace
from otel_straggler.client.compiled import COMPILATION, never_compile

Proceed = Callable[[], Any]
Around = Callable[[Proceed, Any], Any]
"""Is called with what goes on with backward, which it must call once, and with the roots."""


class BackwardCalls:
    """Who measures backward; torch's own function is back once nobody does."""

    def __init__(self) -> None:
        self._installed: _Installed | None = None

    def add(self, around: Around, *, is_outermost: bool = False) -> Restorable:
        """Have ``around`` called around every backward, until it is restored.

        Raises:
            AttributeError, TypeError: this torch has not what that needs.
        """
        if self._installed is None:
            self._installed = _Installed()
        self._installed.add(around, is_outermost=is_outermost)
        return _Added(self, self._installed, around)

    def remove(self, installed: _Installed, around: Around) -> None:
        if installed.remove(around) and installed is self._installed:
            self._installed = None


class _Added:
    def __init__(self, calls: BackwardCalls, installed: _Installed, around: Around) -> None:
        self._calls = calls
        self._installed = installed
        self._around = around

    def restore(self) -> None:
        """Safe to call twice."""
        self._calls.remove(self._installed, self._around)


class _Installed:
    """One replacement. If others wrap ours, it stays below theirs for good and measures nothing."""

    def __init__(self) -> None:
        self._arounds: tuple[Around, ...] = ()
        torch = sys.modules["torch"]
        self._replaced: Replaced = replace(torch.autograd, "backward", self._wrap)

    def add(self, around: Around, *, is_outermost: bool) -> None:
        self._arounds = (around, *self._arounds) if is_outermost else (*self._arounds, around)

    def remove(self, around: Around) -> bool:
        """Whether nobody is left, so that torch's own function is back."""
        self._arounds = tuple(other for other in self._arounds if other is not around)
        if not self._arounds:
            self._replaced.restore()
        return not self._arounds

    def _wrap(self, original: Any) -> Any:
        @never_compile
        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            arounds = self._arounds
            if not arounds or COMPILATION.is_on():
                return original(*args, **kwargs)
            roots = args[0] if args else kwargs.get("tensors")
            return _proceed(arounds, roots, functools.partial(original, *args, **kwargs))

        _be_builtin(sys.modules["torch"], original, backward)
        return backward


@never_compile
def _proceed(arounds: tuple[Around, ...], roots: Any, original: Proceed) -> Any:
    if not arounds:
        return original()
    return arounds[0](functools.partial(_proceed, arounds[1:], roots, original), roots)


def _be_builtin(torch: Any, original: Any, ours: Any) -> None:
    """Have TorchScript take ``ours`` for the operator that it knows ``original`` as: it would try
    to compile it. Its table goes by the ids of functions, so the list keeps ``ours`` for good."""
    builtins = getattr(torch.jit, "_builtins", None)
    operators = getattr(builtins, "_builtin_ops", None)
    table = getattr(builtins, "_builtin_table", None)
    if not isinstance(operators, list):
        return
    for operator in [pair[1] for pair in operators if pair[0] is original]:
        operators.append((ours, operator))
        if isinstance(table, dict):  # else it is made of the list, when it is first needed
            table[id(ours)] = operator


BACKWARD_CALLS = BackwardCalls()
