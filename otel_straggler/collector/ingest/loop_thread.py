"""An event loop in a thread of its own, and listening with its servers from another thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from importlib import import_module
from typing import Any, Final, TypeAlias, TypeVar

from otel_straggler.collector.access.settings import parse_address
from otel_straggler.errors import UnavailableError

_Result = TypeVar("_Result")
Start: TypeAlias = Callable[[str, int], tuple[str, int]]
"""Listens at host and port; gives both as they are."""
START_S: Final = 30.0
_END_S: Final = 1.0


class LoopThread:
    """An event loop, uvloop's where it is installed, that runs from :meth:`start` to :meth:`stop`.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._loop is not None

    def start(self) -> None:
        self._loop = loop = _new_loop()
        self._thread = threading.Thread(target=_run, args=(loop,), name=self._name, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, _Result], wait_s: float | None = START_S) -> _Result:
        """Run on the loop; returns the result, which takes at most ``wait_s``."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(wait_s)

    def stop(self, wait_s: float = _END_S) -> None:
        """End the loop, and wait for its thread. May be called in any state."""
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join(wait_s)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    with contextlib.suppress(ImportError):
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop
    return asyncio.new_event_loop()


def listen(start: Start, address: str, where: str) -> str:
    """Listen at an address; returns it with its real port.

    Args:
        where: it was set, for errors.

    Raises:
        ConfigError: it is none.
        UnavailableError: it is taken, or not of this machine.
    """
    host, port = parse_address(address, where=where)
    try:
        bound_host, bound_port = start(host, port)
    except OSError as error:
        raise UnavailableError.of(
            where,
            address,
            "an address of this machine whose port is free",
            f"Choose another port, or 0 for a free one ({error}).",
        ) from None
    return f"[{bound_host}]:{bound_port}" if ":" in bound_host else f"{bound_host}:{bound_port}"


def require_packages(what: str, *names: str) -> None:
    """UnavailableError if a package that ``what`` needs, of the extra ``collector``, is not
    installed."""
    for name in names:
        try:
            import_module(name)
        except ImportError as error:
            msg = (
                f"the {what} needs the package {name}, which is not installed. "
                "Install it with: pip install 'otel-straggler[collector]'"
            )
            raise UnavailableError(msg) from error
