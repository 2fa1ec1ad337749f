"""The thresholds of the alerts: one class for ``alerts render --set`` and the collector's file."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """When alerts fire, and where their links lead.

    Attributes:
        mode: observe (everything is evaluated and labelled so, nobody is notified) or page. The
            collector publishes it; rendered rules follow what it publishes.
        relative_threshold: a section's score against the best rank below this is an alert.
        individual_threshold: the same against the rank's own best.
        gpu_threshold: the same for the kernels of a rank against the best.
        run_slowdown_threshold: a run that takes so many times what it would take with equal ranks.
        score_for_seconds: how long a score must be low.
        straggling_for_seconds: how long a verdict must stand; it is confirmed over steps already.
        hang_for_seconds: how long a state must last; timeouts have passed already.
        missing_for_seconds: how long ranks may take to report for the first time.
        no_data_seconds: how long a run may train without scores. It must be longer than a window:
            at most 20 steps (``scoring.window_steps``), and five of long ones.
        run_slow_for_seconds: how long a run must be slow.
        silent_seconds: without a heartbeat for so long a run that no collector knows is silent.
        collector_down_for_seconds: how long a collector may be away.
        keep_firing_seconds: what an alert on a score or a verdict outlasts: gaps between windows,
            a collector that restarts and does not know yet that a run still hangs.
        give_up_seconds: how long a run that hung when it was last seen counts as hung.
        evaluation_seconds: interval of the rule groups.
        dashboard_url: address of the run dashboard; ``var-cluster=``, ``var-run_id=`` and so on are
            added. Empty = no link.
        runbook_url: where you keep ``alerts/RUNBOOK.md``; ``#`` and the alert's name are added.
            Empty = no link.
        alertmanager_url: where alerts are silenced. Empty = no link.
    """

    mode: str = "observe"
    relative_threshold: float = 0.75
    individual_threshold: float = 0.75
    gpu_threshold: float = 0.75
    run_slowdown_threshold: float = 1.15
    score_for_seconds: float = 300.0
    straggling_for_seconds: float = 60.0
    hang_for_seconds: float = 15.0
    missing_for_seconds: float = 900.0
    no_data_seconds: float = 900.0
    run_slow_for_seconds: float = 600.0
    silent_seconds: float = 120.0
    collector_down_for_seconds: float = 120.0
    keep_firing_seconds: float = 600.0
    give_up_seconds: float = 259_200.0
    evaluation_seconds: float = 15.0
    dashboard_url: str = ""
    runbook_url: str = ""
    alertmanager_url: str = ""

    @property
    def remembered_s(self) -> float:
        """How far back the rules look for the last report of a collector that is gone."""
        return self.give_up_seconds + 86_400.0


def _is_link(value: str) -> bool:
    is_url = value.startswith(("http://", "https://")) and not any(c in _NO_LINK for c in value)
    return is_url or not value


_LONGEST_S = 30 * 86_400.0
_NO_LINK = " \"'<>{}\\\n\t"
_SHARE: Final = ("a number above 0 and at most 1", lambda value: 0 < value <= 1)
_LENGTH: Final = ("a number of 0 to 2592000", lambda value: 0 <= value <= _LONGEST_S)
_WINDOW: Final = ("a number of 1 to 2592000", lambda value: 1 <= value <= _LONGEST_S)
_LINK: Final = ("an http:// or https:// URL without blanks, quotes and braces", _is_link)
RULES: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "mode": ('"observe" or "page"', lambda value: value in ("observe", "page")),
    "relative_threshold": _SHARE,
    "individual_threshold": _SHARE,
    "gpu_threshold": _SHARE,
    "run_slowdown_threshold": ("a number of at least 1", lambda value: value >= 1),
    "score_for_seconds": _LENGTH,
    "straggling_for_seconds": _LENGTH,
    "hang_for_seconds": _LENGTH,
    "missing_for_seconds": _LENGTH,
    "no_data_seconds": _WINDOW,
    "run_slow_for_seconds": _LENGTH,
    "silent_seconds": _WINDOW,
    "collector_down_for_seconds": _LENGTH,
    "keep_firing_seconds": _LENGTH,
    "give_up_seconds": ("a number of 60 to 2592000", lambda value: 60 <= value <= _LONGEST_S),
    "evaluation_seconds": ("a number of 1 to 300", lambda value: 1 <= value <= 300),
    "dashboard_url": _LINK,
    "runbook_url": _LINK,
    "alertmanager_url": _LINK,
}
"""By name: what is accepted, as text and as a predicate."""


def read_settings(values: Mapping[str, Any], *, where: str = "alerts") -> AlertSettings:
    """Settings from a mapping, such as the section of a file.

    Raises:
        ConfigError: a name is unknown, a value has the wrong type or is out of range.
    """
    defaults = AlertSettings()
    checked: dict[str, Any] = {}
    for name, value in values.items():
        if name not in RULES:
            known = [field.name for field in dataclasses.fields(AlertSettings)]
            close = difflib.get_close_matches(str(name), known, n=3)
            meant = f"Did you mean {' or '.join(close)}?" if close else "Correct the spelling."
            raise ConfigError.of(where, name, "one of " + ", ".join(known), meant)
        checked[name] = _checked(f"{where}.{name}", name, value, getattr(defaults, name))
    return AlertSettings(**checked)


def parse_settings(texts: Iterable[str], *, where: str = "--set") -> AlertSettings:
    """Settings from texts as on the command line.

    >>> parse_settings(["relative_threshold=0.7", "hang_for_seconds=30"]).relative_threshold
    0.7

    Raises:
        ConfigError: as :func:`read_settings`; or a text is no NAME=VALUE.
    """
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError.of(where, text, "NAME=VALUE", "For example relative_threshold=0.7.")
        values[name.strip()] = _number_or_text(value.strip())
    return read_settings(values, where=where)


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _checked(where: str, name: str, value: Any, default: float | str) -> float | str:
    expected, holds = RULES[name]
    if isinstance(default, str):
        fits = isinstance(value, str)
    else:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        fits = is_number and math.isfinite(value)
    if not fits or not holds(value):
        raise ConfigError.of(where, value, expected, "Correct it, or leave it out for the default.")
    return str(value) if isinstance(default, str) else float(value)
