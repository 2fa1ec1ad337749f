"""Transparency under ``torch.compile``: in a traced region a section is nothing at all.

Dynamo refuses context managers that exist before the traced function runs. So it is told, once it
is loaded, to put a fresh :class:`Transparent` in the place of every section it meets; and the
functions of the public face give one when they are traced themselves. Neither torch nor Dynamo is
ever imported from here.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType, TracebackType
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_DYNAMO = "torch._dynamo"
_LOG = logging.getLogger("otel_straggler")


def is_compiling() -> bool:
    """Whether ``torch.compile`` (or export) is tracing the caller."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.compiler.is_compiling())


class Transparent:
    """A section, step or phase that does nothing. Dynamo can trace every method of it."""

    def __enter__(self) -> Transparent:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def __call__(self, function: _Function) -> _Function:
        return function

    def run(self, microbatch: int | None = None, tokens: int | None = None) -> Transparent:  # noqa: ARG002
        return self


_EXAMPLE = Transparent()


def make_transparent(*types: type) -> None:
    """Have Dynamo see a :class:`Transparent` wherever it meets an instance of ``types``."""
    _transparent_types.update(types)
    if _DYNAMO in sys.modules:
        _teach_dynamo()
    elif not any(isinstance(finder, _DynamoWatch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _DynamoWatch())


_transparent_types: set[type] = set()


def _teach_dynamo() -> None:
    """Add our types to Dynamo's table of types. It is private, so any failure is survived."""
    try:
        from torch._dynamo.variables.builder import VariableBuilder

        handlers = VariableBuilder._type_dispatch()  # noqa: SLF001
        for transparent_type in _transparent_types:
            handlers[transparent_type] = _build_transparent
    except Exception as error:  # noqa: BLE001  an unknown version of torch
        _LOG.info("sections inside torch.compile may break graphs here: %s", error)


def _build_transparent(builder: Any, value: object) -> Any:
    from torch._dynamo.guards import GuardBuilder
    from torch._dynamo.source import AttrSource
    from torch._dynamo.variables.base import VariableTracker

    del value  # whichever section it is, it does nothing here
    builder.install_guards(GuardBuilder.TYPE_MATCH)
    module = builder.tx.import_source(__name__)
    of_class = AttrSource(module, Transparent.__name__)
    made = VariableTracker.build(builder.tx, Transparent, of_class).call_function(
        builder.tx, [], {}
    )
    made.source = AttrSource(module, "_EXAMPLE")  # what guards on its methods look at
    return made


class _DynamoWatch(MetaPathFinder):
    """Waits for the import of Dynamo, which ``torch.compile`` does late, and then goes away."""

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _DYNAMO:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _TeachingLoader(spec.loader)
        return spec


class _TeachingLoader(Loader):
    """Loads as the loader it wraps, then teaches."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _teach_dynamo()
