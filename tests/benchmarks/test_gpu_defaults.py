"""What the results of ``make gpu-check`` allow as a default, and the page that shows them."""

from __future__ import annotations

import json

import pytest

from benchmarks.gpu import (
    page,
    table,
)
from benchmarks.gpu.acceptance import EVENTS, SAMPLING, decide

SCRIPTED = "tests.benchmarks.gpu_scripted"


GOOD = {
    "E3": {"large m1": 0.4, "large events": -0.2, "small events": 0.1},
    "E4": {"attributed m1": 100},
    "E6": {"residue m1": 0.1},
    "E7": {"lost m1": 0},
    "E9": {"flaws m1": 0},
    "E14": {"events spans with GPU times": 1_596},
    "E16": {
        "kernels between wrong marks c": 0,
        "idle c": 0.1,
        "residue of launches c": 0.05,
        "residue c": 0.1,
        "residue also_never": 0.1,
    },
    "E17": {"small 1 in 50": 0.4},
}


def results(**changes):
    """Good results with changes: ``E3={"small m1": 3}``, ``E9=None``."""
    merged = {key: {**figures, **(changes.get(key) or {})} for key, figures in GOOD.items()}
    return {
        key: {"figures": {name: {"value": value} for name, value in figures.items()}}
        for key, figures in merged.items()
        if key not in changes or changes[key] is not None
    }


@pytest.mark.parametrize(
    ("changes", "tier", "sampling"),
    [
        ({}, "events", "on"),
        ({"E9": None}, "events", "on"),
        ({"E9": {"flaws m1": 2}}, "events", "off"),
        ({"E4": {"attributed m1": 99.8}}, "events", "off"),
        ({"E3": {"large m1": 0.6}}, "events", "off"),
        ({"E3": {"large events": 0.6}}, "off", "off"),
        ({"E14": {"events spans with GPU times": 0}}, "off", "off"),
        ({"E14": None}, "undecided", "on"),
        ({"E16": {"residue of launches c": 0.3}}, "events", "off"),
        ({"E16": {"residue c": 0.3}}, "events", "off"),
        # What two processes that never timed differ by as well is no residue.
        ({"E16": {"residue c": 0.9, "residue also_never": -1.0}}, "events", "on"),
        ({"E6": None}, "events", "on"),
        ({"E7": None}, "events", "undecided"),
        ({"E7": None, "E4": {"attributed m1": 1}}, "events", "off"),
        ({"E17": {"small 1 in 50": 0.7}}, "events", "off"),
    ],
)
def test_the_defaults_follow_from_the_results(changes, tier, sampling):
    """Not from hope: what was not run decides nothing, except the soak, which is left out."""
    measured = decide(results(**changes))
    assert (measured["auto_tier"], measured["kernel_sampling"]) == (tier, sampling)


def test_the_last_line_says_what_to_set_and_why():
    """With the figure that a rule was broken by, or what is missing."""

    def last(**changes):
        return table.decision(decide(results(**changes))).splitlines()[-1]

    assert last() == (
        'What to set: set AUTO_TIER to "events" (every rule that was measured is kept); '
        "kernel sampling in auto: on (every rule that was measured is kept)."
    )
    text = last(E16={"residue of launches c": 0.314}, E14=None)
    assert "leave AUTO_TIER as it is (not measured: E14: sections get their GPU times)" in text
    assert "auto: off (not kept: E16: launches cost at most 0.2 % of a step more after" in text
    assert text.endswith("(measured 0.314)).")
    assert "auto: off (there is nothing to sample over; every" in last(E3={"large events": 9.0})


def test_every_rule_looks_at_a_figure_that_an_experiment_measures():
    """A rule that is never kept nor broken would leave everything undecided."""
    from benchmarks.gpu.registry import experiments

    known = {key: {e.figure for e in x.expected} for key, x in experiments().items()}
    for rule in (*EVENTS, *SAMPLING):
        assert rule.figure in known[rule.experiment] or rule.experiment == "E9"
        assert not rule.noise or rule.noise in known[rule.experiment]


# --- the page -----------------------------------------------------------------------------------


def test_the_page_marks_experiments_that_were_not_run(tmp_path, monkeypatch):
    """Every experiment is listed with its expected figures."""
    for name in ("RESULTS", "FIRST_VISIT"):
        monkeypatch.setattr(page, name, tmp_path / "absent.json")
    text = page.page()
    assert text.count("Not run yet") == 21
    assert "| large m1 | ≤ 0.5 % |" in text


def test_the_page_shows_results_with_where_they_were_measured(check, tmp_path, monkeypatch):
    """GPU, versions, verdicts; what failed, with its last lines."""
    path = tmp_path / "found.json"
    check("--experiments", SCRIPTED, "--only", "E1,E2", "--json", path)
    monkeypatch.setattr(page, "RESULTS", path)
    monkeypatch.setattr(page, "FIRST_VISIT", tmp_path / "absent.json")
    text = page.page()
    assert "| cost | 0.3 % (0.2 to 0.4) | ≤ 0.5 % | met |" in text
    assert "It failed: ended by SIGSEGV." in text
    assert "the last thing it did" in text
    assert "unknown GPU, driver unknown" in text
    assert text.count("Not run yet") == 18


def test_the_first_visit_is_on_the_page_with_what_was_missed():
    """As it was measured, with its command, next to what has not been repeated since; and no path
    of the machine."""
    published = page.FIRST_VISIT.read_text()
    assert "/" not in published
    text = page.page()
    assert "| attributed m1 | 0 % | ≥ 99.9 % | missed |" in text
    assert "NVIDIA H200, driver 580.159.04" in text
    commands = {
        one["measured_on"]["command"] for one in json.loads(published)["experiments"].values()
    }
    assert len(commands) == 4
    assert all(command.startswith("python -m benchmarks.gpu ") for command in commands)
