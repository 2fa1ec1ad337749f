"""The thresholds of the alerts: one table for ``alerts render --set`` and the collector's file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.errors import ConfigError
from otel_straggler.setting import above, choice, number, option, read_section, text

_LONGEST_S: Final = 30 * 86_400.0
_NO_LINK: Final = " \"'<>{}\\\n\t"


def _is_link(url: str) -> bool:
    is_http = url.startswith(("http://", "https://"))
    return not url or (is_http and not any(letter in _NO_LINK for letter in url))


def _is_expression(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return bool(pattern) and not set(pattern) & {'"', "\\", "\n"}


_SHARE: Final = above(0, 1)
_LENGTH: Final = number(0, _LONGEST_S)
_WINDOW: Final = number(1, _LONGEST_S)
_LINK: Final = text("an http:// or https:// URL without blanks, quotes and braces", _is_link)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """When alerts fire, and where their links lead."""

    mode: str = option(
        "observe",
        choice("observe", "page"),
        "observe (everything is evaluated and labelled so, no one is notified) or page. The "
        "collector publishes it; rendered rules follow what it publishes",
    )
    relative_threshold: float = option(
        0.75, _SHARE, "alert on a section's score against the best rank below this"
    )
    individual_threshold: float = option(0.75, _SHARE, "the same against the rank's own best")
    gpu_threshold: float = option(
        0.75, _SHARE, "the same for the kernels of a rank against the best"
    )
    run_slowdown_threshold: float = option(
        1.15, number(1), "alert on a run that takes so many times what it would with equal ranks"
    )
    goodput_threshold: float = option(
        0.7, _SHARE, "alert on a run whose goodput of the last hour is below this"
    )
    score_for_seconds: float = option(300.0, _LENGTH, "how long a score must be low")
    straggling_for_seconds: float = option(
        60.0, _LENGTH, "how long a verdict must stand; it is confirmed over steps already"
    )
    hang_for_seconds: float = option(
        15.0, _LENGTH, "how long a state must last; timeouts have passed already"
    )
    failed_for_seconds: float = option(
        900.0,
        _WINDOW,
        "how long an alert on a failed run fires: long enough for receivers that are down for some "
        "minutes, short enough that it is over the next day. A new attempt ends it at "
        "once",
    )
    missing_for_seconds: float = option(
        900.0, _LENGTH, "how long ranks may take to report for the first time"
    )
    no_data_seconds: float = option(
        900.0,
        _WINDOW,
        "how long a run may train without scores. It must be longer than a window: at most 20 "
        "steps (`scoring.window_steps`), and five of long ones",
    )
    dropped_for_seconds: float = option(
        360.0,
        _LENGTH,
        "how long ranks must lose records. One loss counts for 5 minutes: with more than that a "
        "single burst, as when a collector was away, is no alert",
    )
    run_slow_for_seconds: float = option(600.0, _LENGTH, "how long a run must be slow")
    silent_seconds: float = option(
        120.0,
        _WINDOW,
        "a run that no collector knows is silent after this time without a heartbeat",
    )
    collector_down_for_seconds: float = option(120.0, _LENGTH, "how long a collector may be away")
    trouble_for_seconds: float = option(
        120.0,
        _LENGTH,
        "how long a collector may be overloaded, or unable to notify, keep or forward",
    )
    coverage_threshold: float = option(
        0.9, _SHARE, "alert on a run of whose ranks a smaller part is scored"
    )
    expiry_seconds: float = option(
        1_209_600.0,
        _LENGTH,
        "how long before its end a certificate or a grant of a collector alerts",
    )
    scrape_jobs: str = option(
        ".*straggler.*",
        text("a regular expression without quotes and backslashes", _is_expression),
        "names of the scrape jobs of collectors, a regular expression: their targets must answer",
    )
    keep_firing_seconds: float = option(
        600.0,
        _LENGTH,
        "what an alert on a score or a verdict outlasts: gaps between windows, a collector that "
        "restarts and does not know yet that a run still hangs",
    )
    give_up_seconds: float = option(
        259_200.0,
        number(60, _LONGEST_S),
        "how long a run that hung when it was last seen counts as hung",
    )
    evaluation_seconds: float = option(15.0, number(1, 300), "interval of the rule groups")
    dashboard_url: str = option(
        "",
        _LINK,
        "address of the run dashboard; `var-cluster=`, `var-run_id=` and so on are added. Empty = "
        "no link",
    )
    page_url: str = option(
        "",
        _LINK,
        "address of a collector's live page; the run is added. Empty = no link from Prometheus; "
        "the collector's own alerts link to its page",
    )
    runbook_url: str = option(
        "",
        _LINK,
        "where you keep `alerts/RUNBOOK.md`; `#` and the alert's name are added. Empty = the copy "
        "at `page_url`",
    )
    alertmanager_url: str = option("", _LINK, "where alerts are silenced. Empty = no link")

    @property
    def remembered_s(self) -> float:
        """How far back the rules look for the last report of a collector that is gone."""
        return self.give_up_seconds + 86_400.0


def parse_settings(texts: Iterable[str]) -> AlertSettings:
    """Settings from texts as on the command line.

    >>> parse_settings(["relative_threshold=0.7", "hang_for_seconds=30"]).relative_threshold
    0.7

    Raises:
        ConfigError: a text is no NAME=VALUE, a name is unknown, or a value is of the wrong type or
            out of range.
    """
    values: dict[str, Any] = {}
    for pair in texts:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError.of("--set", pair, "NAME=VALUE", "For example relative_threshold=0.7.")
        values[name.strip()] = _number_or_text(value.strip())
    return read_section(AlertSettings, values, "--set")


def _number_or_text(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
