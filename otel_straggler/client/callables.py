"""Time every call of a function that lives in a module, a class or an object."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from otel_straggler.client.sections import Section
from otel_straggler.errors import UsageError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_MISSING = object()


@dataclass(frozen=True)
class CallableId:
    """Names a callable by where it lives.

    Attributes:
        obj: module, class or object.
        name: of its attribute.
        arg_filter_fn, extra_args_fn, ignored_args: accepted for code written against NVRx, which
            does not use them either.
    """

    obj: Any
    name: str
    arg_filter_fn: Callable[..., bool] | None = None
    extra_args_fn: Callable[..., dict[str, Any]] | None = None
    ignored_args: tuple[str, ...] | None = None

    def __str__(self) -> str:
        """``module.function``, ``module.Class.method`` or ``Class.method`` of an object."""
        if inspect.ismodule(self.obj):
            owner = self.obj.__name__
        elif inspect.isclass(self.obj):
            owner = f"{self.obj.__module__}.{self.obj.__name__}"
        else:
            owner = type(self.obj).__name__
        return f"{owner}.{self.name}"


class WrappedCallables:
    """Wraps callables, and restores them exactly."""

    def __init__(self) -> None:
        self._originals: list[tuple[Any, str, object]] = []
        self._named: list[tuple[CallableId, Any]] = []

    def wrap(self, callable_id: CallableId, decorate: Decorator) -> None:
        """Replace the named callable by a decorated one, once. Static and class methods stay what
        they are.

        Raises:
            UsageError: there is no such attribute, or it is no function that can be timed.
        """
        obj, name = callable_id.obj, callable_id.name
        if any(obj is seen and name == wrapped for seen, wrapped, _ in self._originals):
            return
        own = vars(obj).get(name, _MISSING) if hasattr(obj, "__dict__") else _MISSING
        original, wrapper = getattr(obj, name, None), _decorated(callable_id, decorate)
        try:
            setattr(obj, name, wrapper)
        except (AttributeError, TypeError) as error:  # slots; a submodule of a torch module
            raise UsageError.of(
                f"wrap_callables({callable_id})",
                str(error),
                "an attribute that can be replaced",
                "Name the method on the class instead, or 'forward' of a torch module.",
            ) from error
        self._originals.append((obj, name, own))
        self._named.append((callable_id, original))

    @property
    def originals(self) -> dict[CallableId, Any]:
        """What is wrapped now, as it was before."""
        return dict(self._named)

    def restore(self) -> None:
        """Put everything back, the last first. Safe to call twice."""
        self._named.clear()
        while self._originals:
            obj, name, own = self._originals.pop()
            if own is _MISSING:
                delattr(obj, name)  # it was inherited, or came from the class of the object
            else:
                setattr(obj, name, own)


def _decorated(callable_id: CallableId, decorate: Decorator) -> object:
    obj, name = callable_id.obj, callable_id.name
    raw = inspect.getattr_static(obj, name, _MISSING)
    if inspect.isclass(obj) and isinstance(raw, staticmethod | classmethod):
        return type(raw)(decorate(raw.__func__))
    result = getattr(obj, name, _MISSING)
    if callable(result):
        return decorate(result)
    raise UsageError.of(
        f"wrap_callables({callable_id})",
        "no such attribute" if result is _MISSING else type(result).__name__,
        "something that can be called",
        "Check the name; attributes that are set later can be wrapped later.",
    )


class EveryNth:
    """A section of which some executions are timed, for the recorder in Python; also a decorator.
    ``is_turn`` is asked each time, by the name of the section."""

    def __init__(self, section: Section, is_turn: Callable[[str], bool]) -> None:
        self._section = section
        self._is_turn = is_turn
        self._local = threading.local()  # whether each open execution of a thread is timed

    def __enter__(self) -> EveryNth:
        is_turn = self._is_turn(self._section.name)
        self._local.__dict__.setdefault("timed", []).append(is_turn)
        if is_turn:
            self._section.__enter__()
        return self

    def __exit__(self, *exc_info: Any) -> None:
        timed = self._local.__dict__.get("timed")
        if timed and timed.pop():
            self._section.__exit__(*exc_info)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        timed, name = self._section(function), self._section.name
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                return await (timed if self._is_turn(name) else function)(*args, **kwargs)

            return awaited

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            return (timed if self._is_turn(name) else function)(*args, **kwargs)

        return called
