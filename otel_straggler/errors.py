"""The errors that reach a user.

StragglerError            everything below; the CLI prints it without a traceback
├── ConfigError           an argument, flag, variable or configuration file is wrong
├── InputError            a file or stream that was to be read is wrong
├── UsageError            the API was called in a way that cannot work
└── UnavailableError      something outside (a port, a server, an optional package) is missing

A message says where, which value, what was expected, and what to do. URLs in it have no passwords
and keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_straggler.secret import without_secrets

if TYPE_CHECKING:
    from typing_extensions import Self


_MAX_SHOWN = 1_000


class StragglerError(Exception):
    """Base of all errors that this package raises on purpose."""

    exit_code = 2

    def __init__(self, message: str = "", *others: object) -> None:
        super().__init__(without_secrets(message), *others)

    @classmethod
    def of(cls, where: str, value: object, expected: str, remedy: str) -> Self:
        """The error with the message that :func:`describe` builds."""
        return cls(describe(where=where, value=value, expected=expected, remedy=remedy))


class ConfigError(StragglerError, ValueError):
    """Raised when an argument, a flag, a variable or a configuration file is wrong."""


class InputError(StragglerError, ValueError):
    """Raised when a file or stream that was to be read does not hold what was expected."""


class UsageError(StragglerError, RuntimeError):
    """Raised when the API is called in an order or a place that cannot work."""


class UnavailableError(StragglerError, RuntimeError):
    """Raised when a port, a server or an optional package is missing."""


def describe(*, where: str, value: object, expected: str, remedy: str) -> str:
    """Build the one sentence shape that every message follows.

    >>> describe(where="step(n)", value=-1, expected="an integer of at least 0",
    ...          remedy="Pass the optimizer step.")
    'step(n): got -1; expected an integer of at least 0. Pass the optimizer step.'
    """
    shown = repr(value)
    if len(shown) > _MAX_SHOWN:
        shown = f"{shown[:_MAX_SHOWN]}... ({len(shown):,} characters)"
    return without_secrets(f"{where}: got {shown}; expected {expected}. {remedy}")
