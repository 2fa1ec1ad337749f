"""Watches the training of a program that does not mention this package.

``opentelemetry-instrument python train.py`` finds :class:`StragglerInstrumentor` by its entry point;
``python -m otel_straggler.integrations.zero_code train.py`` does the same without that package.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from otel_straggler.client.watch.everywhere import WatchEverywhere
from otel_straggler.semconv import Outcome

if TYPE_CHECKING:
    _Base: Any = object
else:
    try:
        from opentelemetry.instrumentation.instrumentor import BaseInstrumentor as _Base
    except ImportError:

        class _Base:
            """What there is of ``opentelemetry-instrumentation`` without it: one instance."""

            _instance = None

            def __new__(cls, *args: Any, **kwargs: Any) -> Any:
                if cls._instance is None:
                    cls._instance = object.__new__(cls, *args, **kwargs)
                return cls._instance

            def instrument(self, **kwargs: Any) -> None:
                self._instrument(**kwargs)

            def uninstrument(self, **kwargs: Any) -> None:
                self._uninstrument(**kwargs)


_EVERYWHERE: list[WatchEverywhere] = []


class StragglerInstrumentor(_Base):  # type: ignore[misc]
    """Watches whatever trains in this process; telemetry begins with its first optimizer step.

    Settings come from ``OTEL_STRAGGLER_*`` and ``OTEL_*``, as those of ``configure()``.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """None: torch may be imported later, or never."""
        return ()

    def _instrument(self, **_: Any) -> None:
        if not _EVERYWHERE:
            _EVERYWHERE.append(WatchEverywhere())
            _EVERYWHERE[0].start()

    def _uninstrument(self, **_: Any) -> None:
        end("unknown")


def end(outcome: Outcome | None) -> None:
    """Leave torch as it was, and end the telemetry that began by itself; see ``WatchEverywhere``."""
    while _EVERYWHERE:
        _EVERYWHERE.pop().stop(outcome)
