"""Who is called: every part of the rule counts by itself."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.notifications import decided_anew, would_page
from otel_straggler.model.verdict import Verdict

PAGES = Verdict(
    run_id="r",
    subject_id="rank/3",
    scope="rank",
    rank=3,
    state="confirmed",
    slowdown=1.10,
    loss_share=0.05,
    pages=True,
)
SETTINGS = VerdictSettings()


@pytest.mark.parametrize(
    ("change", "pages"),
    [
        ({}, True),
        ({"scope": "host"}, True),
        ({"scope": "role"}, False),
        ({"scope": "run"}, False),
        ({"is_localised": False}, False),
        ({"is_inferred": True}, False),
        ({"slowdown": 1.0999}, False),
        ({"slowdown": math.nan}, False),
        ({"loss_share": 0.0499}, False),
        ({"loss_share": 0.004, "gpu_seconds_lost_per_hour": 57_600.0}, True),
        ({"loss_share": 0.004, "gpu_seconds_lost_per_hour": 57_599.0}, False),
        ({"loss_share": math.nan}, False),
    ],
)
def test_somebody_is_called_only_if_everything_speaks_for_it(
    change: dict[str, Any], pages: bool
) -> None:
    """What is not known does not."""
    assert would_page(replace(PAGES, **change), SETTINGS) is pages


@pytest.mark.parametrize(
    ("change", "pages"),
    [
        ({"slowdown": 1.06}, True),
        ({"slowdown": 1.049}, False),
        ({"loss_share": 0.026}, True),
        ({"loss_share": 0.024}, False),
        ({"loss_share": 0.024, "gpu_seconds_lost_per_hour": 28_801.0}, True),
        ({"is_localised": False}, False),
    ],
)
def test_what_pages_goes_on_until_it_is_half_as_bad(change: dict[str, Any], pages: bool) -> None:
    """The newest numbers scatter around any limit."""
    assert would_page(replace(PAGES, **change), SETTINGS, is_paging=True) is pages


@pytest.mark.parametrize(
    ("change", "pages"),
    [
        ({}, True),
        ({"pages": False}, True),
        ({"state": "flapping"}, True),
        ({"state": "suspect"}, False),
        ({"state": "recovered"}, False),
        ({"loss_share": 0.001}, False),
        ({"loss_share": math.nan}, True),
        ({"loss_share": math.nan, "pages": False}, False),
        ({"loss_share": math.nan, "slowdown": 1.05}, False),
    ],
)
def test_what_was_recorded_is_decided_anew_by_other_settings(
    change: dict[str, Any], pages: bool
) -> None:
    """Where the lost share was not recorded yet, what it did then counts, and the slowdown."""
    assert decided_anew(replace(PAGES, **change), SETTINGS).pages is pages
