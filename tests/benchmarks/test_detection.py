"""The quick set of the detection benchmark, the whole way once, and gates that always hold."""

from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import benchmarks.detection
from benchmarks.detection.cases import SEEDS, full_set, quick_set
from benchmarks.detection.memory import held_bytes
from benchmarks.detection.methods import METHODS, OURS
from benchmarks.detection.page import BEGIN, END, MEASURED, filled, render
from benchmarks.detection.report import TITLES

ROOT = Path(__file__).parents[2]
NVRX = "nvrx .75"


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """(JSON document, Markdown, standard error) of the quick set."""
    file = tmp_path_factory.mktemp("detection") / "quick.json"
    command = [sys.executable, "-m", "benchmarks.detection", "--quick", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(file.read_text()), done.stdout, done.stderr


def row(quick, table, method):
    return next(each for each in quick[0]["tables"][table] if each["method"] == method)


def test_every_table_has_a_row_for_every_method(quick):
    """Side by side: nobody is left out of a comparison."""
    document, markdown, _ = quick
    for name in TITLES.keys() - {"causes"}:
        assert {each["method"] for each in document["tables"][name]} == set(METHODS), name
    assert all(title in markdown for title in TITLES.values())
    assert all(f"| {each['target']} |" in markdown for each in document["targets"])


def test_the_document_holds_what_a_check_needs(quick):
    """Seeds, settings, versions and the counts of every run."""
    document, _, progress = quick
    assert document["set"] == "B"
    assert document["settings"]["verdicts"]["min_slowdown"] > 1
    assert {"otel-straggler", "python", "numpy", "scipy"} <= document["versions"].keys()
    assert {run["case"] for run in document["runs"]} == {case.name for case in quick_set()}
    for run in document["runs"]:
        assert run["seed"] >= SEEDS["B"]
        assert run["methods"].keys() == METHODS.keys()
    overall = row(quick, "overall", NVRX)
    counts = [r["methods"][NVRX].get("events", [0, 0, 0]) for r in document["runs"]]
    assert overall["found"] <= sum(measured for measured, _, _ in counts)
    assert f"{len(document['runs'])}/{len(document['runs'])} runs" in progress


def test_ours_finds_more_than_nvrx_and_makes_up_less(quick):
    """The gross gate: better F1 by event, rank and host; no alarm where nobody is slow."""
    ours, nvrx = row(quick, "overall", OURS), row(quick, "overall", NVRX)
    assert ours["f1"][0] > nvrx["f1"][0]
    assert ours["f1_by_rank"] > nvrx["f1_by_rank"]
    assert ours["f1_by_host"] > nvrx["f1_by_host"]
    assert row(quick, "false_alarms", OURS)["all"][0] == 0.0
    assert row(quick, "false_alarms", NVRX)["all"][0] > 0.0


def test_ours_names_nobody_where_times_cannot(quick):
    """Asynchronous launches: no wrong rank."""
    assert row(quick, "hidden", OURS)["asynchronous wrong"] == 0


def test_ours_names_the_culprit_where_waiting_in_collectives_is_reported(quick):
    """A rank slow in a backward that holds its collectives; and nobody else, in any twin."""
    values = {each["target"]: each for each in quick[0]["targets"]}
    first = values["culprit first, waiting in collectives reported, noise <= 2.4 %"]
    wrong = values["wrong ranks confirmed where waiting in collectives is reported (episodes)"]
    assert (first["value"], wrong["value"]) == (1.0, 0)
    assert row(quick, "culprits", OURS)["reported f1"] == 1.0


def test_the_seeds_for_tuning_and_for_reporting_share_no_run():
    """What is reported was never looked at while tuning."""
    maximum = max(case.n_seeds for case in full_set())
    assert SEEDS["A"] + maximum <= SEEDS["B"]
    for case in quick_set():
        assert case.plan(SEEDS["A"]).seed != case.plan(SEEDS["B"]).seed


def test_names_of_cases_are_unique_and_their_plans_are_valid():
    """A case is found again by its name, and every seed of it can be made."""
    cases = full_set()
    assert len({case.name for case in cases}) == len(cases)
    assert {case.plan(seed).layout.ranks == case.ranks for case in cases for seed in (0, 1)} == {
        True
    }


def test_an_unknown_case_is_refused():
    """A typo must not look like a clean result."""
    command = [sys.executable, "-m", "benchmarks.detection", "--cases", "nonesuch"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nonesuch" in done.stderr


def test_the_page_shows_the_committed_measurement():
    """docs/internals/detection-accuracy.md is written from the JSON beside it, never by hand."""
    assert render(check=True) == 0
    assert json.loads(MEASURED.read_text())["set"] == "B"


def test_a_page_without_its_marks_is_refused():
    """Tables are never written over a text."""
    assert filled(f"{BEGIN}{END}", "x") == f"{BEGIN}x{END}"
    with pytest.raises(ValueError, match="put them back"):
        filled("no marks", "x")


def test_memory_counts_an_array_once_and_whole():
    """Views keep the array alive; the second name of it costs nothing."""
    array = np.zeros(1000)
    alone = held_bytes([array])
    assert 8000 < alone < 8200
    assert held_bytes([array, array]) - alone < 100
    assert held_bytes([array[:1]]) >= 8000


@pytest.mark.parametrize(
    "name", [m.name for m in pkgutil.walk_packages(benchmarks.detection.__path__)]
)
def test_examples_in_docstrings_hold(name):
    """What the text promises is run."""
    if name != "__main__":
        path = name if "." in name else f"benchmarks.detection.{name}"
        assert doctest.testmod(importlib.import_module(path)).failed == 0
