"""``make gpu-check`` without a GPU: how it runs, judges, decides and writes."""

from __future__ import annotations

import doctest
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.gpu import (
    ddp_pair,
    e4_attribution,
    e6_residue,
    e7_kineto,
    e9_soak,
    e15_ddp,
    endings,
    environment,
    figures,
    kernel_medians,
    native,
    page,
    presence,
    table,
)
from benchmarks.gpu.acceptance import decide, rules
from benchmarks.gpu.e2_order import inversions, marks_result
from benchmarks.gpu.e4_attribution import attributed, by_external
from benchmarks.gpu.e6_residue import residue
from benchmarks.gpu.e7_kineto import CLEAN, lost
from benchmarks.gpu.e9_soak import flaws, growth_mib
from benchmarks.gpu.e11_detection import percent_slower
from benchmarks.gpu.experiment import Expected, Notebook, read_notebook
from benchmarks.gpu.figures import more_than, percent_over, spread
from benchmarks.gpu.kernel_medians import kernels_of, median_of, score_beside
from benchmarks.gpu.native import CUSTOM2, DRIVER, EXTERNAL, KERNEL, SEEN

ROOT = Path(__file__).parents[2]
SCRIPTED = "tests.benchmarks.gpu_scripted"


def check(*arguments, **environment):
    command = [sys.executable, "-m", "benchmarks.gpu", *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


# --- running ------------------------------------------------------------------------------------


def test_without_a_gpu_it_says_so_and_is_neither_passed_nor_failed():
    """One sentence and exit code 3."""
    if not presence.why_no_gpu():
        pytest.skip("there is a GPU here: without one, a sentence and exit code 3 are shown")
    done = check()
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.count("\n") == 1
    assert "measured" in done.stderr


def test_a_crash_and_a_hang_end_themselves_only(tmp_path):
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
    assert "default tier that these results allow: undecided" in done.stdout


def test_a_second_run_adds_to_the_file(tmp_path):
    """What is measured again is replaced, the rest stays, with where it was measured."""
    path = tmp_path / "found.json"
    for only in ("E1,E2", "E1"):
        check("--experiments", SCRIPTED, "--only", only, "--json", path)
    measured = json.loads(path.read_text())["experiments"]
    assert list(measured) == ["E1", "E2"]
    assert {"commit", "machine", "torch", "gpu", "gpu_after"} <= measured["E1"][
        "measured_on"
    ].keys()


def test_an_experiment_for_which_no_time_is_left_is_not_begun(tmp_path):
    """All of them together end in time; the table says which did not run."""
    path = tmp_path / "found.json"
    done = check("--experiments", SCRIPTED, "--only", "E1", "--seconds", "2", "--json", path)
    assert done.returncode == 1
    assert json.loads(path.read_text())["experiments"]["E1"]["status"].startswith("not run")


def test_an_unknown_experiment_is_refused_with_those_there_are():
    """Before anything runs."""
    done = check("--experiments", SCRIPTED, "--only", "E7")
    assert "--only is E7; expected some of E1, E2, E3, E10" in done.stderr


def test_arms_take_turns_in_opposite_order_and_one_may_die(tmp_path):
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
    [e4_attribution, e6_residue, e9_soak, endings, figures, kernel_medians, table],
    ids=lambda module: module.__name__,
)
def test_the_examples_in_docstrings_hold(module):
    """Each is run."""
    measured = doctest.testmod(module)
    assert measured.failed == 0
    assert measured.attempted > 0


# --- figures ------------------------------------------------------------------------------------


def test_an_arm_is_compared_with_its_neighbour_in_time():
    """A machine that gets slower with time does not count against the arm."""
    rounds = [{"off": 10.0 * at, "on": 10.1 * at} for at in range(1, 11)]
    assert percent_over(rounds, "on", "off")["value"] == 1.0
    assert more_than([{"off": 5.0, "on": 7.0}, {"off": 5.0}], "on", "off")["value"] == 2.0
    assert percent_over([{"off": 1.0}], "on", "off") is None
    assert spread([4.0])["iqr"] == [4.0, 4.0]


@pytest.mark.parametrize(
    ("expected", "value", "verdict"),
    [
        (Expected(figure="a", maximum=0.5, is_requirement=True), 0.5, "met"),
        (Expected(figure="a", maximum=0.5, is_requirement=True), 0.51, "missed"),
        (Expected(figure="a", minimum=2, maximum=10), 1.9, "differs"),
        (Expected(figure="a", minimum=2, maximum=10), 2, "met"),
        (Expected(figure="a", maximum=0.5, is_requirement=True), float("nan"), "missed"),
        (Expected(figure="a", maximum=1), None, "not measured"),
        (Expected(figure="a"), 3, "noted"),
    ],
)
def test_a_figure_is_met_missed_or_differs(expected, value, verdict):
    """A broken requirement is missed; a wrong guess only differs."""
    assert expected.verdict(value) == verdict


def test_the_residue_is_what_an_arm_became_slower_beside_one_that_never_timed():
    """Neither its own speed nor the machine's counts."""
    before = [{"never": 10.0, "m1": 12.0}] * 3
    after = [{"never": 20.0, "m1": 24.24}] * 3
    assert residue(before, after, "m1")["value"] == 1.0
    assert residue([], after, "m1") is None


def records(*rows):
    table = np.zeros(len(rows), SEEN)
    for at, row in enumerate(rows):
        for name, value in row.items():
            table[at][name] = value
    return table


def mark(number, correlation):
    return {"kind": EXTERNAL, "call": CUSTOM2, "external": number, "correlation": correlation}


def test_kernels_between_their_marks_are_in_order():
    """Two rounds of two kernels, in three marks."""
    kernels = [{"kind": KERNEL, "correlation": n} for n in (12, 11, 22, 21)]
    measured = marks_result(records(mark(3, 30), mark(1, 10), mark(2, 20), *kernels), 2, 2)
    assert measured["marks seen"] == measured["kernels seen"] == 1
    assert measured["kernels between wrong marks"] == measured["marks out of order"] == 0


def test_a_kernel_before_the_mark_that_it_was_launched_after_is_seen():
    """What would make marks useless."""
    kernels = [{"kind": KERNEL, "correlation": n} for n in (11, 12, 13, 22)]
    measured = marks_result(records(mark(1, 10), mark(2, 20), mark(3, 30), *kernels), 2, 2)
    assert measured["kernels between wrong marks"] == 1
    late = records(mark(1, 10), mark(2, 9), mark(3, 30))
    assert marks_result(late, 2, 2)["marks out of order"] == 1


def test_calls_whose_ids_go_back_in_a_thread_are_counted():
    """Other threads' ids lie between."""
    calls = [(1, 100, 5), (1, 200, 7), (1, 300, 6), (2, 150, 9)]
    rows = [{"kind": DRIVER, "thread": t, "start": s, "correlation": c} for t, s, c in calls]
    assert inversions(records(*rows)) == 1


def test_a_kernel_in_a_wrong_section_costs_attribution_once():
    """Neither twice, nor not at all where only the sum is right."""
    truth = {"forward": 60.0, "backward": 40.0}
    assert attributed(truth, truth) == 100
    assert attributed({"forward": 100.0}, truth) == 60
    assert attributed({**truth, "optimizer": 10.0}, truth) == 90


def test_kernels_are_found_by_the_id_around_their_launch():
    """Those of another thread have none."""
    rows = [mark(5, 1), {"kind": KERNEL, "correlation": 1}, {"kind": KERNEL, "correlation": 2}]
    assert by_external(records(*rows)) == {5: 1, 0: 1}


def test_a_kernel_that_is_seen_twice_is_as_bad_as_one_that_is_not():
    """For us and for the profiler."""
    assert lost({"ours": [300, 299], "profiler": 301}) == 2


def test_memory_that_grows_is_a_flaw():
    """The first fifth fills buffers, and does not count."""
    flat, steep = [0.0] + [9e9] * 9, [n * 1e8 for n in range(10)]
    reported = {"invalid": 0, "dropped": 0, "host_bytes": flat, "device_bytes": flat}
    assert flaws(reported) == 0
    assert flaws({**reported, "device_bytes": steep}) == 1
    assert growth_mib([1.0]) == 0


def kernel(name, nanoseconds, count, kernel_class=0):
    """As ``take_kernels()`` gives one whose runs all took the same time."""
    index = int(np.ceil(np.log2(nanoseconds * 1e-9) * 128)) - 1
    counts = np.array([count], np.uint32).tobytes()
    total = nanoseconds * count
    return (name, kernel_class, 1, count, total, nanoseconds, nanoseconds, 7, index, counts)


def test_a_gpu_that_is_a_tenth_slower_scores_below_its_peers():
    """The score of the collector, from the kernels of the timer."""
    healthy = kernels_of([kernel("gemm", 10_000, 90), kernel("gelu", 2_000, 90)])
    slow = kernels_of(
        [
            kernel("gemm", 11_100, 90),
            kernel("gelu", 2_220, 90),
            kernel("ncclDevKernel", 10**9, 9, kernel_class=1),
            kernel("probe_spin", 10**7, 9),
        ],
        leave_out="probe_spin",
    )
    assert healthy["gemm"][0] == pytest.approx(1e-5, rel=0.006)
    assert score_beside(healthy, healthy) == 1
    assert score_beside(slow, healthy) == pytest.approx(1 / 1.11, rel=0.01)
    assert percent_slower(slow, healthy) == pytest.approx(11, abs=1.2)
    assert np.isnan(median_of({}))


# --- deciding -----------------------------------------------------------------------------------

GOOD = {
    "E3": {"large m1": 0.4, "small m1": 0.9, "large m2": 0.4, "small m2": 0.9},
    "E4": {"attributed m1": 100, "attributed m2": 99.95},
    "E6": {"residue m1": 0.1, "residue m2": 0.1},
    "E7": {"lost m1": 0, "lost m2": 0},
    "E9": {"flaws m1": 0, "flaws m2": 0},
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
    ("changes", "has_governor", "default", "way"),
    [
        ({}, False, "cupti", "m1"),
        ({"E9": None}, False, "cupti", "m1"),
        ({"E9": {"flaws m1": 2}}, False, "cupti", "m2"),
        ({"E4": {"attributed m1": 99.8}}, True, "cupti", "m2"),
        ({"E3": {"small m1": 3, "small m2": 3}}, True, "cupti, governed", "m1"),
        ({"E3": {"small m1": 3, "small m2": 3}}, False, "events", None),
        ({"E3": {"large m1": 0.6, "large m2": 0.6}}, True, "events", None),
        ({"E6": {"residue m1": 0.3, "residue m2": 0.3}}, True, "events", None),
        ({"E7": None}, True, "undecided", None),
        ({"E7": None, "E4": {"attributed m1": 1, "attributed m2": 1}}, True, "events", None),
    ],
)
def test_the_default_tier_follows_from_the_results(changes, has_governor, default, way):
    """Not from hope: what was not run decides nothing, except the soak, which is left out."""
    measured = decide(results(**changes), has_governor=has_governor)
    assert (measured["default"], measured["way"]) == (default, way)


def test_every_rule_looks_at_a_figure_that_an_experiment_measures():
    """A rule that is never kept nor broken would leave everything undecided."""
    from benchmarks.gpu.registry import experiments

    known = {key: {e.figure for e in x.expected} for key, x in experiments().items()}
    for way in ("m1", "m2"):
        for rule in rules(way):
            assert rule.figure in known[rule.experiment] or rule.experiment == "E9"


# --- the page -----------------------------------------------------------------------------------


def test_the_page_marks_experiments_that_were_not_run(tmp_path, monkeypatch):
    """Every experiment is listed with its expected figures."""
    monkeypatch.setattr(page, "RESULTS", tmp_path / "absent.json")
    text = page.page()
    assert text.count("Not run yet") == 16
    assert "| large m1 | ≤ 0.5 % |" in text


def test_the_page_shows_results_with_where_they_were_measured(tmp_path, monkeypatch):
    """GPU, versions, verdicts; what failed, with its last lines."""
    path = tmp_path / "found.json"
    check("--experiments", SCRIPTED, "--only", "E1,E2", "--json", path)
    monkeypatch.setattr(page, "RESULTS", path)
    text = page.page()
    assert "| cost | 0.3 % (0.2 to 0.4) | ≤ 0.5 % | met |" in text
    assert "It failed: ended by SIGSEGV." in text
    assert "the last thing it did" in text
    assert "unknown GPU, driver unknown" in text
    assert text.count("Not run yet") == 13


class Event:
    """One of a profiler's; a newer PyTorch's if it has a type."""

    def __init__(self, name, device, kind=None):
        self._name, self._device = name, device
        if kind is not None:
            self.activity_type = lambda: kind

    def name(self):
        return self._name

    def device_type(self):
        return f"DeviceType.{self._device}"


@pytest.mark.parametrize(
    ("event", "is_kernel"),
    [
        (Event("gemm", "CUDA"), True),
        (Event("Memcpy DtoH", "CUDA"), False),
        (Event("cudaLaunchKernel", "CPU"), False),
        (Event("gemm", "CUDA", "kernel"), True),
        (Event("range", "CUDA", "gpu_user_annotation"), False),
    ],
)
def test_a_profilers_kernels_are_told_from_what_else_it_shows(event, is_kernel):
    """Truth for attribution is a count of kernels, without copies, fills and ranges."""
    pytest.importorskip(
        "torch", reason="torch is not installed: it would show what counts as a kernel"
    )
    from benchmarks.gpu.cuda import _is_kernel

    assert _is_kernel(event) == is_kernel


def ddp_rank(own, communication, overlap, nccl=None):
    """What one of two ranks prints."""
    return dict(zip((*ddp_pair.KEYS, "nccl_ms"), (own, communication, overlap, nccl), strict=True))


@pytest.mark.parametrize("has_nccl", [True, False])
def test_of_two_ranks_with_ddp_the_planted_one_has_to_stand_out(tmp_path, has_nccl):
    """By its backward, by what it waits, and with a GPU each by NCCL's durations."""
    ranks = [ddp_rank(10.0, 8.0, 3.0, 6.0), ddp_rank(13.0, 5.0, 4.0, 2.0)]
    if not has_nccl:
        ranks = [{**rank, "nccl_ms": None} for rank in ranks]
    for name, named in (("right", ranks), ("wrong", ranks[::-1])):
        notebook = Notebook(tmp_path / name)
        e15_ddp._write_pair(notebook, named)
        figures = read_notebook(tmp_path / name)["figures"]
        named_by = [e for e in e15_ddp.EXPERIMENT.expected if e.figure.startswith("slow rank")]
        verdicts = [e.verdict(figures[e.figure]["value"]) for e in named_by if e.figure in figures]
        assert len(verdicts) == (3 if has_nccl else 2)
        assert {verdict == "met" for verdict in verdicts} == {name == "right"}
