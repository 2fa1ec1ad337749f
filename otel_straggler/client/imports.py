"""Calls back once a module has been imported, and never imports it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class ImportWatch:
    """Waits for the import of one module, and then goes away.

    Args:
        name: of the module, with dots.
        on_import: called in the thread that imports, after the module has run; must not raise.
    """

    def __init__(self, name: str, on_import: Callable[[], None]) -> None:
        self._name = name
        self._on_import = on_import

    def start(self) -> None:
        """Call back now if the module is there, else when it is imported. Once is enough."""
        if _is_imported(self._name):
            self._on_import()
        elif self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = self._found_by_others(fullname, path, target)
        loader = None if spec is None else spec.loader
        if loader is None or not hasattr(loader, "exec_module"):
            return spec
        load = loader.exec_module

        def load_and_call(module: ModuleType) -> None:
            load(module)
            self.stop()
            self._on_import()

        loader.exec_module = load_and_call  # type: ignore[method-assign]
        return spec

    def _found_by_others(
        self, fullname: str, path: Any, target: ModuleType | None
    ) -> ModuleSpec | None:
        """By who would have been asked after this watch; that may be another watch."""
        finders = list(sys.meta_path)
        first = finders.index(self) + 1 if self in finders else 0
        for finder in finders[first:]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = None if find is None else find(fullname, path, target)
            if spec is not None:
                return spec
        return None


def _is_imported(name: str) -> bool:
    """Whether a module is there and has run to its end: others may be importing it now."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return module is not None and not getattr(spec, "_initializing", False)
