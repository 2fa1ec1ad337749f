"""Figures of ``make gpu-check``: how they come from turns, records and kernels."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gpu import ddp_pair, e15_ddp, variants
from benchmarks.gpu.e2_order import inversions, marks_result
from benchmarks.gpu.e4_attribution import attributed, by_external
from benchmarks.gpu.e7_kineto import lost
from benchmarks.gpu.e9_soak import flaws, growth_mib
from benchmarks.gpu.e18_slow_rank import kernels_by_name, slowest
from benchmarks.gpu.experiment import Expected, Notebook, read_notebook
from benchmarks.gpu.figures import more_than, percent_over, spread
from benchmarks.gpu.kernel_medians import kernels_of, median_of, score_beside
from benchmarks.gpu.native import CUSTOM2, DRIVER, EXTERNAL, KERNEL, SEEN
from benchmarks.gpu.neighbour import percent_slower
from benchmarks.gpu.residues import Phases, residue, run_phases


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


def test_where_time_is_short_rounds_after_timing_are_not_what_is_left_out(tmp_path):
    """All three phases shrink together."""
    asked, written = [], []

    def work(at, state):
        asked.append((at, state))
        return {"never": {"wall_ms": 10.0}, "m1": {"wall_ms": 11.0 if state == "on" else 10.0}}

    notebook = Notebook(tmp_path / "notebook", limit_s=1)  # five are spared: no round fits
    phases = run_phases(notebook, (8, 3, 12), work, written.append)
    assert [state for _, state in asked] == ["off", "off", "on", "off", "off"]
    assert [at for at, _ in asked] == [0, 1, 2, 3, 4]
    assert isinstance(phases, Phases)
    assert written == [phases, phases]
    assert phases.residue("m1", "wall_ms")["value"] == 0
    assert phases.cost("m1", "wall_ms")["value"] == 10
    assert "Time was left for 2, 1, 2" in read_notebook(tmp_path / "notebook")["notes"][0]


class CallsOf:
    """A CUPTI that knows so many numbers of calls."""

    def __init__(self, known):
        self.known, self.off = known, []

    def driver_call(self, call, on):
        if call > self.known:
            return 1
        assert not on
        self.off.append(call)
        return 0


def test_records_of_all_calls_are_switched_off_but_of_the_marks():
    """However many this libcupti knows: 758 were accepted on an H200, of numbers below 760."""
    calls = CallsOf(759)
    assert variants.switch_off_calls(calls) == 758
    assert variants.GET_VERSION not in calls.off


def test_of_a_sampled_step_the_kernels_are_counted_by_name():
    """Without the neighbour's and NCCL's; the one that costs most more is named first."""
    rows = [
        {"kind": KERNEL, "name": name, "start": 100, "end": 100 + length}
        for name, length in ((0, 10), (0, 30), (0, 20), (1, 5), (2, 7))
    ]
    names = ["gemm", "ncclDevKernel", "probe_spin"]
    own = kernels_by_name(records(*rows), names.__getitem__)
    assert own == {"gemm": pytest.approx((20e-9, 60e-9))}
    peer = {"gemm": (16e-9, 60e-9), "gelu": (1e-9, 1e-9)}
    assert slowest(own, peer) == [("gemm", pytest.approx(25))]


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
