"""What happens to a job, an attempt and a rank: read from lines of JSON, and in words."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from otel_straggler.errors import InputError
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.semconv import LAUNCH_EVENTS

MEMBERSHIP: Final = "membership"
"""Reason of a restart that follows another node: it came, or its ranks are restarted."""
FINISHED: Final = "finished"
"""Reason of the end of the last job: the training has left its marker."""
_FIELDS: Final = frozenset(field.name for field in fields(LaunchEvent))


def parse_event(line: str | bytes) -> LaunchEvent:
    """Read a line that :meth:`LaunchEvent.to_json` wrote.

    Raises:
        InputError: it is no such line.
    """
    try:
        values: dict[str, Any] = json.loads(line)
        known = {name: value for name, value in values.items() if name in _FIELDS}
        if known["name"] not in LAUNCH_EVENTS:
            raise ValueError(known["name"])
        return LaunchEvent(**{**known, "ranks": tuple(known.get("ranks", ()))})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError.of(
            "event of the launcher",
            str(line)[:200],
            "a line that otel-straggler run has written",
            f"It is not used ({error}).",
        ) from error


def exit_reason(exit_code: int) -> str:
    """The reason of an exit, for a label; a negative code is a signal, as in ``subprocess``.

    >>> exit_reason(-9), exit_reason(1), exit_reason(-99)
    ('SIGKILL', 'exit_1', 'signal_99')
    """
    if exit_code >= 0:
        return f"exit_{exit_code}"
    try:
        return signal.Signals(-exit_code).name
    except ValueError:
        return f"signal_{-exit_code}"


def exit_text(exit_code: int) -> str:
    """The same for people.

    >>> exit_text(-9), exit_text(1)
    ('ended by SIGKILL', 'ended with exit code 1')
    """
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    return f"ended by {exit_reason(exit_code)}"


def in_order_of_blame(exits: Mapping[int, int]) -> list[int]:
    """Ranks of an attempt that failed together, by exit code: the likely cause first. Peers of a
    rank that was killed fail in its collective a moment later, and torchelastic ends the rest by
    SIGTERM.

    >>> in_order_of_blame({0: -15, 1: 1, 2: -9})
    [2, 1, 0]
    """

    def blame(rank: int) -> tuple[bool, bool, int]:
        return exits[rank] == -signal.SIGTERM, exits[rank] >= 0, rank

    return sorted(exits, key=blame)


def failures_text(exits: Mapping[int, int]) -> str:
    """The failed ranks of an attempt, by exit code, the likely cause first.

    >>> failures_text({1: -9, 0: 1})
    'rank 1 ended by SIGKILL, rank 0 ended with exit code 1'
    """
    return ", ".join(f"rank {rank} {exit_text(exits[rank])}" for rank in in_order_of_blame(exits))
