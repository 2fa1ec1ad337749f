"""The arguments of ``Detector.initialize()``, checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from otel_straggler.errors import ConfigError, describe

RELATIVE, INDIVIDUAL = "relative_perf_scores", "individual_perf_scores"
ReportFrom = Literal["process_group", "collector"]


def checked_scores(given: object) -> tuple[str, ...]:
    """Which scores are wanted.

    >>> checked_scores("all")
    ('relative_perf_scores', 'individual_perf_scores')
    """
    known = (RELATIVE, INDIVIDUAL)
    if given == "all":
        return known
    if (
        isinstance(given, Sequence)
        and not isinstance(given, str)
        and all(n in known for n in given)
    ):
        return tuple(given)
    raise _wrong("scores_to_compute", given, f'"all", or a list of {RELATIVE} and {INDIVIDUAL}')


def checked_number(name: str, value: float, least: float) -> float:
    """A finite number of at least ``least``."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and value >= least:
        return value
    raise _wrong(name, value, f"a number of at least {least:g}")


def checked_url(name: str, value: object) -> str:
    """An address over HTTP."""
    if isinstance(value, str) and value.startswith(("http://", "https://")):
        return value
    raise _wrong(name, value, "a URL such as http://127.0.0.1:9464")


def is_from_collector(report_from: object) -> bool:
    """Whether reports are read from a collector."""
    if report_from in ("process_group", "collector"):
        return report_from == "collector"
    raise _wrong("report_from", report_from, '"process_group" or "collector"')


def _wrong(name: str, value: object, expected: str) -> ConfigError:
    message = describe(
        where=f"Detector.initialize({name}=...)",
        value=value,
        expected=expected,
        remedy="Leave it out for the default.",
    )
    return ConfigError(message)
