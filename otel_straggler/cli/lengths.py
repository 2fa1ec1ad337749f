"""How long something is to last, as people write it: 90m, 8h, 2d."""

from __future__ import annotations

import math
import re

from otel_straggler.errors import ConfigError, describe

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def seconds_of(length: str, where: str) -> float:
    """Seconds, more than 0.

    Raises:
        ConfigError: it is no length of time; ``where`` names the option.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", length.strip(), re.ASCII)
    seconds = 0.0 if match is None else float(match[1]) * _SECONDS[match[2]]
    if not 0 < seconds < math.inf:
        expected = "a number and s, m, h or d"
        raise ConfigError(
            describe(where=where, value=length, expected=expected, remedy="For example 8h.")
        )
    return seconds
