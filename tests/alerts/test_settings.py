"""Thresholds: what is accepted, and what is said of what is not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from otel_straggler.alerts.settings import AlertSettings, parse_settings, read_settings
from otel_straggler.errors import ConfigError
from otel_straggler.setting import rows_of


def test_what_is_not_named_keeps_its_default() -> None:
    """Names and values are those of the command line and of the collector's file."""
    settings = parse_settings(["relative_threshold=0.7", "hang_for_seconds = 30"])
    expected = dataclasses.replace(AlertSettings(), relative_threshold=0.7, hang_for_seconds=30.0)
    assert (
        settings == expected == read_settings({"relative_threshold": 0.7, "hang_for_seconds": 30})
    )


def test_an_unknown_name_is_refused_with_the_close_ones() -> None:
    """So that a slip of the pen is put right at once."""
    with pytest.raises(ConfigError, match=r"Did you mean relative_threshold"):
        parse_settings(["relativ_threshold=0.7"])
    with pytest.raises(ConfigError, match=r"alerts\.yaml: alerts: got 'xyzzy'.*Correct"):
        read_settings({"xyzzy": 1}, where="alerts.yaml: alerts")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("relative_threshold", 0),
        ("relative_threshold", 1.01),
        ("gpu_threshold", "0,7"),
        ("individual_threshold", float("nan")),
        ("run_slowdown_threshold", 0.99),
        ("hang_for_seconds", -1),
        ("hang_for_seconds", True),
        ("score_for_seconds", float("inf")),
        ("evaluation_seconds", 0.5),
        ("give_up_seconds", 59),
        ("mode", "loud"),
        ("mode", 1),
        ("dashboard_url", "grafana.example"),
        ("runbook_url", 'https://x/"y'),
        ("alertmanager_url", "https://x/{{ y }}"),
    ],
)
def test_a_value_out_of_range_is_refused(name: str, value: Any) -> None:
    """With place, value, what was expected and what to do."""
    with pytest.raises(ConfigError) as refused:
        read_settings({name: value})
    printed = str(refused.value)
    kind = rows_of(AlertSettings)[name].kind
    assert kind is not None
    assert printed.startswith(f"alerts.{name}: got {value!r}; expected {kind.expected}. ")


def test_no_value_is_an_error_with_an_example() -> None:
    """NAME=VALUE is expected."""
    with pytest.raises(ConfigError, match=r"--set: got 'mode'; expected NAME=VALUE"):
        parse_settings(["mode"])


def test_every_setting_has_a_rule() -> None:
    """And every rule a setting, whose default it accepts."""
    defaults = dataclasses.asdict(AlertSettings())
    assert set(defaults) == set(rows_of(AlertSettings))
    assert read_settings(defaults) == AlertSettings()
