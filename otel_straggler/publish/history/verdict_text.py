"""A verdict as JSON text, and back; NaN is null. The report shows less, in its own order."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, Final, get_args

from otel_straggler.errors import InputError, describe
from otel_straggler.model.verdict import CAUSES, Evidence, Scope, State, Verdict

_DEFAULTS: Final = {f.name: f.default for f in dataclasses.fields(Verdict)}
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "scope": get_args(Scope),
    "state": get_args(State),
    "cause": tuple(CAUSES),
    "evidence": get_args(Evidence),
}
_WHOLE: Final = {"rank", "since_step", "confirmed_step", "at_step"}
"""Whole numbers, or None."""


def verdict_text(verdict: Verdict) -> str:
    """All fields by their names."""
    values = dataclasses.asdict(verdict)
    for name, value in values.items():
        if isinstance(value, float) and not math.isfinite(value):
            values[name] = None
    return json.dumps(values, separators=(",", ":"))


def read_verdict(text: str, *, where: str) -> Verdict:
    """The verdict of :func:`verdict_text`. Fields that a newer version added are left out.

    Raises:
        InputError: it is no verdict.
    """
    try:
        values = json.loads(text)
        known = {name: _typed(name, values[name]) for name in _DEFAULTS if name in values}
        return Verdict(**known)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(
            describe(
                where=where,
                value=text[:200],
                expected=f"a verdict as JSON ({error})",
                remedy="It is damaged; it is not shown.",
            )
        ) from None


def _typed(name: str, value: Any) -> Any:
    default = _DEFAULTS[name]
    if name in _CHOICES and value not in _CHOICES[name]:
        raise ValueError(f"{name} {value!r}")
    if name in _WHOLE:
        kinds: tuple[type, ...] = (int, type(None))
    elif isinstance(default, float):
        value = math.nan if value is None else float(value)
        kinds = (float,)
    else:
        kinds = (str,) if default is dataclasses.MISSING else (type(default),)
    if type(value) not in kinds:
        raise ValueError(f"{name} {value!r}")
    return value
