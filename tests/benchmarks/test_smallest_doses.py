"""Benchmarks that no other test runs, with so little to do that their figures mean nothing.

They run within this process: starting an interpreter takes longer than most of them. What is
asserted is that they still run, and have the figures that the documentation tells. Those that
start real trainings (`collector_outage`, `soak`) or are compiled first (`kernels`,
`gpu_events`) are left to `make bench` and `make soak`.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from typing import Any

import pytest

Json = dict[str, Any]
WINDOW = {"ranks", "sections", "first_window", "window", "verdicts", "peak_gib"}
SMALL: dict[str, tuple[dict[str, Any], list[str], set[str]]] = {
    "collective_wait_cost": (
        {},
        ["--rounds", "1", "--calls", "20", "--collectives", "2", "--work-s", "0"],
        {"steps", "calls", "trace", "memory_bytes", "budgets"},
    ),
    "dense_window": ({}, ["16", "3", "20"], {"rows", "seconds", "peak_gib", "is_within_budget"}),
    "goodput": ({"EVENTS": 4_800}, [], {"event_log_s", "otlp_s", "account_alone_s"}),
    "history": (
        {"RANKS": 16, "SECTIONS": 3, "WINDOWS": 3, "SAVES": 2},
        [],
        {"bytes_per_1000_ranks_and_window", "state_until_written_ms"},
    ),
    "import_cost": ({"RUNS": 1}, [], {"own_ms", "sdk_ms", "own_over_sdk", "own_heavy_modules"}),
    "propagation_cost": ({"ROUNDS": 1, "RUNS": 20, "STEPS": 2}, [], {"call", "thread"}),
    "report_file": (
        {"WINDOWS": 8, "DISTINCT": 2},
        ["16"],
        {"file_bytes", "timelines", "left_out", "summary_bytes"},
    ),
    "score_csv": ({"ROWS": 4_000, "ROUNDS": 1}, [], {"score_s", "ratio_to_csv_reader_alone"}),
    "stage_verdicts": (
        {"LAYOUTS": ("pp2,dp4",), "FACTORS": (1.3,), "STEPS": 60, "ONSET": 30},
        ["--seeds", "1"],
        {"even", "even_runs", "false_runs", "uneven"},
    ),
    "verdict_window": ({}, ["--ranks", "64", "--sections", "3"], WINDOW),
    "work_share": (
        {"RANKS": (4,), "SHARES": (0.3,), "BLOCKS": 50, "STEPS": 250},
        ["--runs", "1"],
        {"blocks", "false", "false_runs", "power", "worst_false_per_10_000_blocks"},
    ),
}
"""Constants, arguments, and names of figures."""


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs ``benchmarks.NAME`` with other constants; its JSON."""

    def run(name: str, constants: dict[str, Any], *arguments: str) -> Json:
        module = importlib.import_module(f"benchmarks.{name}")
        for constant, value in constants.items():
            assert hasattr(module, constant)
            monkeypatch.setattr(module, constant, value)
        monkeypatch.setattr(sys, "argv", [f"benchmarks/{name}.py", *arguments])
        capsys.readouterr()
        if name == "dense_window":
            module.main(*map(int, arguments))
        else:
            module.main()
        measured: Json = json.loads(capsys.readouterr().out)
        return measured

    return run


@pytest.mark.parametrize("name", SMALL)
def test_it_runs_and_has_its_figures(run_here: Any, name: str) -> None:
    """One that imports what is no longer there fails here, and not on the day of a release."""
    constants, arguments, figures = SMALL[name]
    measured = run_here(name, constants, *arguments)
    assert figures <= measured.keys(), measured.keys()
    assert _numbers(measured)


def test_a_view_of_the_page_and_a_scrape_are_measured(run_here: Any) -> None:
    """The figures of docs/internals/costs.md and docs/reference/http-api.md."""
    measured = run_here("page_view", {}, "--ranks", "8", "--views", "1")
    of_size = measured["ranks"]["8"]
    assert of_size["view_ms"]["median"] > 0
    assert of_size["again_ms"] > 0
    assert of_size["scrape_ms"] > 0
    assert of_size["columns"] == 360
    assert of_size["sent_bytes"]["/v1/run"] > 0
    assert of_size["sent_bytes"]["/v1/timeline"] > 0
    assert measured["page"]["bytes"] > measured["page"]["gzip_bytes"] > 0


def test_what_a_fleet_needs_is_measured(run_here: Any) -> None:
    """The figures of docs/operate/scale-out.md."""
    (size,) = run_here("sizing", {"SAVED_S": 0.0}, "--ranks", "8", "--steps", "40")["sizes"]
    assert size["wire_bytes"]["plain"] > size["wire_bytes"]["gzip"] > 0
    assert min(size[name] for name in ("cpu_us_per_span", "series", "history_bytes")) > 0
    assert size["history_kib_per_rank_hour"] > 0
    assert size["retention_days"] > 7.0  # of 8 ranks


def test_heartbeats_beside_large_bodies_are_measured(run_here: Any) -> None:
    """With a collector of its own."""
    small = {"WARM_UP_S": 0.05, "REPEATS_BYTES": 3 << 20}
    measured = run_here(
        "heavy_bodies", small, "--clients", "1", "--seconds", "0.3", "--only", "rep"
    )
    repeats = measured["found"]["repeats"]
    assert repeats["wait_ms"]["most"] >= repeats["wait_ms"]["median"] > 0
    assert measured["wire_bytes"]["repeats"] > 0


def test_many_runs_are_measured_without_a_browser(run_here: Any) -> None:
    """The figures of docs/internals/costs.md."""
    small = ("--runs", "3", "--ranks", "4", "--seconds", "0.3", "--asks", "1")
    measured = run_here("many_runs", {}, *small, "--no-browser")["runs"]["3"]
    assert measured["phases"].keys() == {"silent", "alive"}
    for phase in measured["phases"].values():
        assert phase["cpu_percent"].keys() == {"scoring", "answering", "pages", "alerts"}
    for asked in measured["asked"].values():
        assert asked["bytes"] > 0
        assert asked["ms"]["most"] >= asked["ms"]["median"] > 0


@pytest.mark.browser
def test_many_runs_are_measured_in_a_browser(run_here: Any) -> None:
    """With the page open, and with its list of runs open."""
    small = ("--runs", "3", "--ranks", "4", "--seconds", "0.3", "--asks", "1")
    measured = run_here("many_runs", {"SETTLE_MS": 50}, *small)["runs"]["3"]
    for phase in ("watched", "picker"):
        assert measured["phases"][phase]["page_cpu_percent"] >= 0


@pytest.mark.browser
def test_frames_while_panning_are_measured(run_here: Any) -> None:
    """The figures of docs/internals/costs.md, of both charts."""
    small = {"RANKS": 400, "WINDOWS": 40, "SECTIONS": 5}
    measured = run_here("page_fluidity", small, "--seconds", "1.5")
    assert measured["charts"].keys() == {"rank_time", "sections"}
    for chart in measured["charts"].values():
        assert chart["frames"] > 0
        spent_ms = chart["script_and_paint"]
        assert spent_ms["cpu_ms"]["p95"] > 0
        assert spent_ms["wall_ms"]["p95"] > 0
    assert len(measured["budgets"]) == 2


def _numbers(value: Any) -> bool:
    """Whether there are figures, none of them NaN."""
    if isinstance(value, dict):
        return bool(value) and all(map(_numbers, value.values()))
    return not isinstance(value, float) or not math.isnan(value)
