"""``make gpu-check`` without a GPU: how it runs, judges, decides and writes."""

from __future__ import annotations

import doctest
import json
import os
from pathlib import Path

import pytest

from benchmarks.gpu import (
    e3_steps,
    e4_attribution,
    e7_kineto,
    e9_soak,
    e17_sampling,
    endings,
    environment,
    figures,
    kernel_medians,
    native,
    presence,
    residues,
    table,
    workloads,
)
from benchmarks.gpu.acceptance import EVENTS, SAMPLING
from benchmarks.gpu.e7_kineto import CLEAN
from benchmarks.gpu.experiment import Experiment, Notebook, read_notebook
from benchmarks.gpu.visit import limit_s, shares_s

ROOT = Path(__file__).parents[2]
SCRIPTED = "tests.benchmarks.gpu_scripted"


def test_without_a_gpu_it_says_so_and_is_neither_passed_nor_failed(check):
    """One sentence and exit code 3."""
    if not presence.why_no_gpu():
        pytest.skip("there is a GPU here: without one, a sentence and exit code 3 are shown")
    done = check()
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert "measured" in done.stderr


def test_a_crash_and_a_hang_end_themselves_only(check, tmp_path):
    """Signal, last lines and what was measured before are kept; the others run."""
    path = tmp_path / "found.json"
    done = check("--experiments", SCRIPTED, "--only", "E3,E2,E1", "--json", path)
    assert done.returncode == 1, done.stderr
    measured = json.loads(path.read_text())["experiments"]
    assert list(measured) == ["E1", "E2", "E3"]
    assert measured["E1"]["status"] == "done"
    assert measured["E1"]["facts"] == {"seen": {"also nothing": [None, 1.0]}}
    assert [line["verdict"] for line in measured["E1"]["table"]] == [
        "met",
        "differs",
        "not measured",
    ]
    assert measured["E2"]["status"] == "failed: ended by SIGSEGV"
    assert "the last thing it did" in measured["E2"]["last_lines"]
    assert measured["E3"]["status"] == "failed: not done in 6 s"
    for key in ("E2", "E3"):
        assert [line["verdict"] for line in measured[key]["table"]] == ["met", "not measured"]
        assert measured[key]["figures"] == {"before": {"value": 1}}
    assert "0.3 % (0.2 to 0.4)" in done.stdout
    assert "E2 said last: the last thing it did" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("What to set: leave AUTO_TIER as it is (not mea")


def test_a_second_run_adds_to_the_file(check, tmp_path):
    """What is measured again is replaced, the rest stays, with where it was measured."""
    path = tmp_path / "found.json"
    for only in ("E1,E2", "E1"):
        check("--experiments", SCRIPTED, "--only", only, "--json", path)
    measured = json.loads(path.read_text())["experiments"]
    assert list(measured) == ["E1", "E2"]
    assert {"commit", "machine", "torch", "gpu", "gpu_after"} <= measured["E1"][
        "measured_on"
    ].keys()


def test_an_experiment_for_which_no_time_is_left_is_not_begun(check, tmp_path):
    """All of them together end in time; the table says which did not run."""
    path = tmp_path / "found.json"
    done = check("--experiments", SCRIPTED, "--only", "E1", "--seconds", "2", "--json", path)
    assert done.returncode == 1
    assert json.loads(path.read_text())["experiments"]["E1"]["status"].startswith("not run")
    assert "No time was left for E1; --missing runs what the JSON lacks." in done.stdout


def test_what_the_file_lacks_can_be_run_alone(check, tmp_path):
    """Neither what is done, nor the soak; what failed is tried again."""
    path = tmp_path / "found.json"
    check("--experiments", SCRIPTED, "--only", "E1,E2", "--json", path)
    measured = json.loads(path.read_text())
    for key in ("E3", "E10"):
        measured["experiments"][key] = {**measured["experiments"]["E1"], "status": "done"}
    path.write_text(json.dumps(measured))
    done = check("--experiments", SCRIPTED, "--missing", "--json", path)
    assert [line for line in done.stderr.splitlines() if line.startswith("E")] == ["E2: a crash"]


def experiment(key, budget_s, limit_s=100):
    return Experiment(
        key=key, question="", expected=(), limit_s=limit_s, measure=print, budget_s=budget_s
    )


def test_the_time_of_a_visit_goes_to_what_is_worth_most():
    """Each gets its budget while there is time, and what nobody after it is sure of; more in a
    longer visit, up to its limit."""
    first, second, third = experiment("E1", 60), experiment("E2", 40, 45), experiment("E3", 0)
    plan = [first, second, third]
    assert shares_s(plan, 80) == [60, 40, 0]
    assert limit_s(first, [60, 40, 0], 80) == 60
    assert limit_s(second, [40, 0], 20) == 20  # the first took all of its budget
    assert limit_s(second, [40, 0], 70) == 45  # the first took little
    assert limit_s(third, [0], 20) == 20
    assert shares_s(plan, 150) == [90, 45, 0]
    assert shares_s([third], 50) == [0]


def test_a_visit_of_330_s_has_all_that_the_rules_look_at():
    """Budgets down to the last experiment of a rule fit."""
    from benchmarks.gpu.registry import experiments

    order = [e for e in experiments().values() if e.key != "E9"]
    keys = [e.key for e in order]
    last = max(keys.index(rule.experiment) for rule in (*EVENTS, *SAMPLING) if rule.is_needed)
    assert sum(e.budget_s for e in order[: last + 1]) <= 330
    assert all(0 < e.budget_s <= e.limit_s for e in order)


def test_an_unknown_experiment_is_refused_with_those_there_are(check):
    """Before anything runs."""
    done = check("--experiments", SCRIPTED, "--only", "E7")
    assert "--only is E7; expected some of E1, E2, E3, E10" in done.stderr


def test_arms_take_turns_in_opposite_order_and_one_may_die(check, tmp_path):
    """ABBA in processes that live on; who dies, or is never ready, is dropped with its signal."""
    path, log = tmp_path / "found.json", tmp_path / "log"
    done = check(
        *("--experiments", SCRIPTED, "--only", "E10", "--json", path), SCRIPTED_LOG=str(log)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert log.read_text().split() == ["good", "dies", "dies", "good", "good", "dies", "good"]
    measured = json.loads(path.read_text())["experiments"]["E10"]
    assert [sorted(answers) for answers in measured["facts"]["rounds"]] == [
        ["dies", "good"],
        ["dies", "good"],
        ["good"],
        ["good"],
    ]
    assert len({answers["good"]["pid"] for answers in measured["facts"]["rounds"]}) == 1
    unborn, dies = sorted(measured["notes"], key=lambda note: "dies" in note)
    assert "no such device" in unborn
    assert "ended by SIGABRT" in dies
    assert "E10: arm dies has ended" in done.stdout


def test_a_gpu_that_was_held_back_meanwhile_is_said():
    """Figures of a throttled GPU are no figures."""

    def state(seconds, thermal_s):
        return {"nvml": {"at_ns": seconds * 10**9, "throttled_ns": {"thermal": thermal_s * 10**9}}}

    sentence = environment.throttled(state(100, 7), state(110, 9))
    assert sentence == "The GPU was throttled for 20 % of the window, by its temperature."
    assert environment.throttled(state(100, 7), state(110, 7)) == ""
    assert environment.throttled({}, state(110, 9)) == ""


def test_a_driver_without_a_compiler_gets_kernels_that_ptxas_has_made(tmp_path, monkeypatch):
    """For the GPU's architecture; without a ptxas, or where it refuses, the reason is said."""
    ptxas = tmp_path / "ptxas"
    ptxas.write_text(
        '#!/bin/sh\n[ "$1" = -arch=sm_90 ] && cp "$2" "$4" || { echo no >&2; exit 1; }'
    )
    ptxas.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert native.assembled("sm_90") == native.KERNELS.read_bytes()
    with pytest.raises(native.NoProbeError, match="refused our kernels: no"):
        native.assembled("sm_10")
    monkeypatch.setattr(native.shutil, "which", lambda _: None)
    monkeypatch.setattr(native, "find_spec", lambda _: None)
    if not Path("/usr/local/cuda/bin/ptxas").exists():
        with pytest.raises(native.NoProbeError, match="there is no ptxas"):
            native.assembled("sm_90")


def test_a_sensor_that_breaks_costs_no_result(monkeypatch):
    """Whatever NVML throws stands where its readings would."""

    def broken(_uuid):
        raise KeyError("no such field")

    monkeypatch.setattr(environment, "_from_nvidia_smi", lambda: {"uuid": "GPU-1"})
    monkeypatch.setattr(environment, "_from_nvml", broken)
    assert environment.gpu_now() == {
        "uuid": "GPU-1",
        "nvml": {"failed": "KeyError: 'no such field'"},
    }


def test_where_time_is_short_there_are_fewer_rounds_and_it_is_said(tmp_path):
    """What was measured so far is better than an experiment that is ended in its last round."""
    short = Notebook(tmp_path / "short", limit_s=1)
    assert list(short.rounds(5)) == [0]
    assert read_notebook(tmp_path / "short")["notes"] == ["Time was left for 1 of 5 rounds."]
    assert list(Notebook(tmp_path / "part", limit_s=1e6).rounds(5, within_s=0)) == [0]
    assert list(Notebook(tmp_path / "long", limit_s=1e6).rounds(5)) == [0, 1, 2, 3, 4]
    assert read_notebook(tmp_path / "long")["notes"] == []


def test_an_arm_that_failed_is_noted_once(tmp_path):
    """However often its experiment writes down what it has."""
    notebook = Notebook(tmp_path / "notebook")
    for _ in range(3):
        notebook.failures({"m1": "arm m1 has ended"})
    assert read_notebook(tmp_path / "notebook")["notes"] == ["arm m1 has ended"]


def test_what_the_profiler_scenarios_lost_is_said_once_all_were_asked(tmp_path):
    """One that failed counts as all lost; one that was not begun makes no figure."""
    notebook = Notebook(tmp_path / "notebook")
    sound = {"ours": [e7_kineto.LAUNCHES], "profiler": e7_kineto.LAUNCHES}
    measured = {f"{CLEAN[0]} m1": sound, f"{CLEAN[1]} m1": sound}
    e7_kineto._write(notebook, measured, set(measured))
    assert read_notebook(tmp_path / "notebook")["figures"] == {}
    e7_kineto._write(notebook, measured, {f"{scenario} m1" for scenario in CLEAN})
    figures = read_notebook(tmp_path / "notebook")["figures"]
    assert figures["lost m1"]["value"] == e7_kineto.LAUNCHES


@pytest.mark.parametrize(
    "module",
    [
        *(e3_steps, e4_attribution, e9_soak, e17_sampling),
        *(endings, figures, kernel_medians, residues, table, workloads),
    ],
    ids=lambda module: module.__name__,
)
def test_the_examples_in_docstrings_hold(module):
    """Each is run."""
    measured = doctest.testmod(module)
    assert measured.failed == 0
    assert measured.attempted > 0
