"""What happens to a job, an attempt and a rank: read from lines of JSON, and in words."""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from otel_straggler.client.failures import OWN_KEY
from otel_straggler.errors import InputError
from otel_straggler.model.decoding import read_as
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.model.rank_failure import (
    FAILURE_KINDS,
    RankFailure,
    exception_failure,
    signal_name,
)
from otel_straggler.strict_json import parse_object

MEMBERSHIP: Final = "membership"
"""Reason of a restart that follows another node: it came, or its ranks are restarted."""
FINISHED: Final = "finished"
"""Reason of the end of the last job: the training has left its marker."""


def parse_event(line: str | bytes) -> LaunchEvent:
    """Read a line that :meth:`LaunchEvent.to_json` wrote.

    Raises:
        InputError: it is no such line.
    """
    try:
        event: LaunchEvent = read_as(LaunchEvent, parse_object(line))
    except (ValueError, TypeError) as error:
        raise InputError.of(
            "event of the launcher",
            str(line)[:200],
            "a line that otel-straggler run has written",
            f"It is not used ({error}).",
        ) from error
    return event


class Exit(NamedTuple):
    """How a rank of a launcher ended.

    Attributes:
        code: negative for a signal, as in ``subprocess``.
        failure: the exception that it left in torchelastic's error file; None without one.
        at_unix_s: when it was raised, by the rank itself; infinite without one.
    """

    code: int
    failure: RankFailure | None = None
    at_unix_s: float = math.inf

    @property
    def has_raised(self) -> bool:
        return self.failure is not None and self.failure.kind == "raised"

    @property
    def reason(self) -> str:
        """For a label. A rank that has raised, and is ended by a signal before its interpreter is
        done, would have ended with 1.

        >>> Exit(-15, RankFailure(kind="raised", type="ValueError")).reason, Exit(-9).reason
        ('exit_1', 'SIGKILL')
        """
        return exit_reason(1 if self.has_raised and self.code < 0 else self.code)

    @property
    def text(self) -> str:
        """
        >>> Exit(-15, RankFailure(kind="raised", type="ValueError")).text, Exit(-9).text
        ('raised ValueError', 'ended by SIGKILL')
        """
        if self.failure is None:
            return exit_text(self.code)
        if self.has_raised:
            return f"raised {self.failure.text}"
        return f"{exit_text(self.code)}: {self.failure.text}"


def exit_reason(exit_code: int) -> str:
    """The reason of an exit, for a label; a negative code is a signal, as in ``subprocess``.

    >>> exit_reason(-9), exit_reason(1), exit_reason(-99)
    ('SIGKILL', 'exit_1', 'signal_99')
    """
    return signal_name(exit_code) or f"exit_{exit_code}"


def exit_text(exit_code: int) -> str:
    """The same for people.

    >>> exit_text(-9), exit_text(1)
    ('ended by SIGKILL', 'ended with exit code 1')
    """
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    return f"ended by {exit_reason(exit_code)}"


def in_order_of_blame(exits: Mapping[int, Exit]) -> list[int]:
    """Ranks of an attempt that failed together: the likely cause first. What a rank has raised goes
    before the signals that followed, and by its own time; peers of a rank that was killed fail in
    its collective a moment later, or their watchdog aborts them, and torchelastic ends the rest by
    SIGTERM.

    >>> in_order_of_blame({0: Exit(-15), 1: Exit(1), 2: Exit(-9)})
    [2, 1, 0]
    >>> raised = RankFailure(kind="raised", type="ValueError")
    >>> in_order_of_blame({0: Exit(-6), 1: Exit(-15, raised, 7.5), 2: Exit(-6)})
    [1, 0, 2]
    """

    def blame(rank: int) -> tuple[int, float, int]:
        its = exits[rank]
        return _suspicion(its), its.at_unix_s, rank

    return sorted(exits, key=blame)


def _suspicion(its: Exit) -> int:
    """Smaller for a likelier cause."""
    if its.has_raised:
        return 0
    if its.code == -signal.SIGTERM:
        return 5
    if its.failure is not None:
        return 4  # it has lost a peer
    if its.code == -signal.SIGABRT:
        return 3
    return 1 if its.code < 0 else 2


def failures_text(exits: Mapping[int, Exit]) -> str:
    """The failed ranks of an attempt, the likely cause first.

    >>> failures_text({1: Exit(-9), 0: Exit(1)})
    'rank 1 ended by SIGKILL, rank 0 ended with exit code 1'
    """
    return ", ".join(f"rank {rank} {exits[rank].text}" for rank in in_order_of_blame(exits))


def read_error_file(data: Any, *, with_message: bool = True) -> tuple[RankFailure | None, float]:
    """The exception in what torchelastic has read of a rank's error file, and when it was raised;
    None and infinity if there is none.

    >>> own = {"kind": "raised", "at_unix_s": 7.5}
    >>> more = {"timestamp": "7", "otel_straggler": own}
    >>> read_error_file({"message": {"message": "ValueError: bad", "extraInfo": more}})[1]
    7.5
    >>> read_error_file({"message": "<NONE>"})
    (None, inf)
    """
    message = data.get("message") if isinstance(data, dict) else None
    if not isinstance(message, dict):
        return None, math.inf
    type_, _, text = str(message.get("message", "")).partition(": ")
    more = message.get("extraInfo")
    more = more if isinstance(more, dict) else {}
    own = more.get(OWN_KEY)
    own = own if isinstance(own, dict) else {}
    failure = exception_failure(type_, text)
    kind = next((each for each in FAILURE_KINDS if each == own.get("kind")), failure.kind)
    failure = replace(failure, kind=kind, message=failure.message if with_message else "")
    try:
        return failure, float(own.get("at_unix_s") or more.get("timestamp") or math.inf)
    except (TypeError, ValueError, OverflowError):
        return failure, math.inf
