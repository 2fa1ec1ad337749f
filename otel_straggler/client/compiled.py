"""Transparency under ``torch.compile``: in a traced region a section is nothing at all.

Dynamo refuses context managers that exist before the traced function runs, and breaks no graph
inside one that it does not know. So once it is loaded, it is made to take every section it meets
for a null context; and the functions of the public face give :func:`transparent` when they are
traced themselves. Neither torch nor Dynamo is ever imported from here.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar, cast

from otel_straggler.client.imports import ImportWatch

_Function = TypeVar("_Function", bound=Callable[..., Any])
_DYNAMO = "torch._dynamo"
_LOG = logging.getLogger("otel_straggler")


class _Compilation:
    """Whether ``torch.compile`` (or export) is tracing whoever asks. Once torch is loaded,
    ``is_on`` is torch's own function: every section calls it. ``set_callback`` is Dynamo's, once
    that is loaded: it replaces what looks at the frames of this thread, and gives what did."""

    def __init__(self) -> None:
        self.set_callback: Callable[[Any], Any] | None = None
        self.is_on: Callable[[], bool] = _is_compiling


def _is_compiling() -> bool:
    torch = sys.modules.get("torch")
    compiler = getattr(torch, "compiler", None)  # None also while torch is being imported
    if compiler is None:
        return False
    if compiler.is_compiling():
        return True
    COMPILATION.is_on = compiler.is_compiling
    return False


COMPILATION = _Compilation()


class Transparent:
    """A section, step or phase that does nothing. Dynamo can trace every method of it."""

    def __enter__(self) -> Transparent:
        return self

    def __exit__(self, exc_type: Any, exc: Any, traceback: Any) -> None:
        return None

    def __call__(self, function: _Function) -> _Function:
        return function

    def run(self, microbatch: int | None = None, tokens: int | None = None) -> Transparent:  # noqa: ARG002
        return self


_TRANSPARENT = Transparent()


def transparent() -> Transparent:
    """A null section, step or phase."""
    return _TRANSPARENT


def make_transparent(*types: type) -> None:
    """Have Dynamo see a :class:`Transparent` wherever it meets an instance of ``types``."""
    _transparent_types.update(types)
    _WATCH.start()


def never_compile(function: _Function) -> _Function:
    """Have Dynamo run ``function`` as it is where it is called between two graphs, by compiled code
    or by torch: it would compile it, and then it would be what it is in a graph. A graph that
    calls it is still traced through it."""
    _uncompiled_codes.add(function.__code__)
    _WATCH.start()
    return function


def substitute(
    function: Callable[..., Any], traced: Callable[..., Any], otherwise: Callable[[], None]
) -> None:
    """Have Dynamo trace ``traced`` where it meets ``function``, which is compiled C; ``otherwise``
    is called where it cannot be made to."""
    _substitutes.append((function, traced, otherwise))
    _WATCH.start()


_substitutes: list[tuple[Callable[..., Any], Callable[..., Any], Callable[[], None]]] = []


def never_compiled_inside(function: _Function) -> _Function:
    """``function``, which is not compiled, and nothing that it calls either. For hooks: those of a
    module that is compiled are called while Dynamo looks at every frame."""

    @never_compile
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        set_callback = COMPILATION.set_callback
        if set_callback is None or COMPILATION.is_on():
            return function(*args, **kwargs)
        before = set_callback(None)
        try:
            return function(*args, **kwargs)
        finally:
            set_callback(before)

    never_compile(function)
    return cast("_Function", call)


_transparent_types: set[type] = {Transparent}
_uncompiled_codes: set[CodeType] = set()


def _teach_dynamo() -> None:
    """Tell Dynamo what is ours. It is private, so any failure is survived."""
    _is_compiling()  # asks torch itself from now on; after a trace, that would trace once more
    _teach_types()
    _teach_substitutes()
    try:
        from torch._C._dynamo.eval_frame import (
            set_eval_frame,  # that of Python lacks it in 2.5, 2.6
        )
        from torch._dynamo.eval_frame import skip_code

        COMPILATION.set_callback = set_eval_frame
        for code in _uncompiled_codes:
            skip_code(code)
    except Exception as error:  # noqa: BLE001  an unknown version of torch
        _LOG.debug("compiled code may not show where it waits (%s)", error)


def _teach_substitutes() -> None:
    while _substitutes:
        function, traced, otherwise = _substitutes.pop()
        try:
            from torch._dynamo import substitute_in_graph

            substitute_in_graph(function, skip_signature_check=True)(traced)
        except Exception as error:  # noqa: BLE001  a version of torch before 2.6
            _LOG.debug("%s is not traced (%s)", function, error)
            otherwise()


def _teach_types() -> None:
    """Add our types to Dynamo's table of types."""
    try:
        from torch._dynamo.variables.builder import VariableBuilder

        handlers = VariableBuilder._type_dispatch()  # noqa: SLF001
        build = _builder_of(_variable_class())
        for transparent_type in _transparent_types:
            handlers[transparent_type] = build
    except Exception as error:  # noqa: BLE001  an unknown version of torch
        _warn_once(error)


def _variable_class() -> Any:
    """Track a section as ``contextlib.nullcontext``, so that graphs may break inside."""
    from torch._dynamo.variables.ctx_manager import NullContextVariable

    class TransparentVariable(NullContextVariable):  # type: ignore[misc,unused-ignore]
        def enter(self, tx: Any) -> Any:  # noqa: ARG002 (Dynamo's signature)
            return self

        def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
            if name in {"run", "__enter__"}:
                return self
            if name == "__exit__":
                return self.exit(tx)
            return super().call_method(tx, name, args, kwargs)

        def call_function(self, tx: Any, args: Any, kwargs: Any) -> Any:  # noqa: ARG002
            return args[0]  # as a decorator

        def python_type(self) -> type:
            return Transparent

        def module_name(self) -> str:  # with fn_name: what opens it again after a graph break
            return __name__

        def fn_name(self) -> str:
            return transparent.__name__

    return TransparentVariable


def _builder_of(variable_class: Any) -> Callable[[Any, object], Any]:
    def build(builder: Any, value: object) -> Any:
        try:
            from torch._dynamo.guards import GuardBuilder

            builder.install_guards(GuardBuilder.TYPE_MATCH)
            return variable_class(source=builder.source)
        except Exception as error:  # noqa: BLE001  an unknown version of torch
            _warn_once(error)
            _unteach(builder, build)
            return builder(value)  # as an object of which nothing is known

    return build


def _unteach(builder: Any, build: Callable[[Any, object], Any]) -> None:
    handlers = builder._type_dispatch()  # noqa: SLF001
    for known in [t for t, handler in handlers.items() if handler is build]:
        del handlers[known]


def _warn_once(error: Exception) -> None:
    global _has_warned  # noqa: PLW0603  one line a process
    if not _has_warned:
        _has_warned = True
        _LOG.warning(
            "sections inside torch.compile break graphs with this torch, of which we do not know "
            "the inside (%s: %s); leave them outside of what is compiled, or upgrade",
            type(error).__name__,
            error,
        )


_has_warned = False


_WATCH = ImportWatch(_DYNAMO, _teach_dynamo)
"""``torch.compile`` imports Dynamo late."""
