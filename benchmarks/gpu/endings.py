"""How a process ended, in words, and what it said last."""

from __future__ import annotations

import signal
from typing import IO, Any

_LINES = 6
_BYTES = 8_192
_LONGEST = 300


def text_of(code: int | None) -> str:
    """Of an exit status as ``subprocess`` gives it.

    >>> text_of(-11), text_of(1)
    ('ended by SIGSEGV', 'exit code 1')
    """
    if code is None:
        return "still there"
    if code < 0:
        try:
            return f"ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"ended by signal {-code}"
    return f"exit code {code}"


def last_lines(output: IO[Any]) -> list[str]:
    """Of a binary file that a process wrote to."""
    size = output.seek(0, 2)
    output.seek(max(0, size - _BYTES))
    lines = output.read().decode("utf-8", "replace").splitlines()
    return [line[:_LONGEST] for line in lines if line.strip()][-_LINES:]
