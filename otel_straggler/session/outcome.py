"""How a run ended, as far as the interpreter knows."""

from __future__ import annotations

import sys

from otel_straggler.semconv import Outcome


def pending_exception() -> BaseException | None:
    """The exception that is on its way, or has ended the program."""
    return sys.exc_info()[1] or getattr(sys, "last_exc", getattr(sys, "last_value", None))


def outcome_of(error: BaseException | None, otherwise: Outcome) -> Outcome:
    """What an exception says of the run; leaving by ``sys.exit()`` is no failure."""
    if error is None or (isinstance(error, SystemExit) and error.code in {None, 0}):
        return otherwise
    return "cancelled" if isinstance(error, KeyboardInterrupt) else "failed"
