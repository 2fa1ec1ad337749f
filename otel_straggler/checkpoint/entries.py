"""The entries of a state by their key paths: which are tensors, and which one is not saved."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from otel_straggler.errors import StragglerError, describe

_REMEDY: Final = (
    "Leave it out of the state, or wrap it in an object whose state_dict() returns tensors, "
    "numbers and text."
)


def entries(value: Any, path: str = "state") -> Iterator[tuple[str, Any]]:
    """Path and value of each entry that is no dict, list or tuple.

    >>> list(entries({"model": {"bias": 1.5}, "steps": [3, None]}))
    [("state['model']['bias']", 1.5), ("state['steps'][0]", 3), ("state['steps'][1]", None)]
    """
    if isinstance(value, dict):
        for key, each in value.items():
            yield from entries(each, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            yield from entries(each, f"{path}[{index}]")
    else:
        yield path, value


def tensors_of(value: Any) -> Iterator[Any]:
    """The tensors that a save of ``value`` will copy, as far as they are found without calling
    anybody's ``state_dict()``: also those of modules, optimizers, and ``training_state()``; of a
    sharded one this rank's part."""
    import torch

    for _, each in entries(value):
        if isinstance(each, torch.Tensor):
            yield each.to_local() if hasattr(each, "to_local") else each
        elif isinstance(each, torch.nn.Module):
            yield from tensors_of([*each.parameters(), *each.buffers()])
        elif isinstance(each, torch.optim.Optimizer):
            yield from tensors_of(list(each.state.values()))
        elif hasattr(each, "parts_with_tensors"):
            yield from tensors_of(each.parts_with_tensors())


def refused_entry(state: Any, use: Callable[[Any], object]) -> str:
    """Which entry ``use`` raises for, and what to do, in a sentence; empty: for none alone."""
    for path, value in entries(state):
        try:
            use(value)
        except Exception as error:  # noqa: BLE001  that is what is asked
            expected = f"what can be copied and pickled ({reason_of(error)})"
            return describe(
                where=path, value=_Named(type(value)), expected=expected, remedy=_REMEDY
            )
    return ""


def reason_of(error: BaseException) -> str:
    """The error's kind and text, in which a class is its name: ``KeyError(type)`` alone would read
    ``<class 'type'>``.

    >>> reason_of(KeyError(type)), reason_of(OSError("no space left")), reason_of(ValueError())
    ('KeyError: type', 'OSError: no space left', 'ValueError')
    """
    text = re.sub(r"<class '([^']+)'>", r"\1", str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def root_cause(error: BaseException) -> str:
    """Of what DCP raises: the first rank's error without its traceback; and where torch found a
    file shorter than it should be, what the system had said. No class is shown by its ``repr``."""
    failures = getattr(error, "failures", None)
    if failures:
        error = next(iter(failures.values()))[0]
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, OSError):
        seen = seen.__context__
    if seen is not None and str(seen):
        return str(seen)
    return str(error) if isinstance(error, StragglerError) else reason_of(error)


class _Named:
    """Shows as the name of a class."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __repr__(self) -> str:
        module = self._kind.__module__
        prefix = "" if module == "builtins" else f"{module}."
        return f"a {prefix}{self._kind.__qualname__}"
