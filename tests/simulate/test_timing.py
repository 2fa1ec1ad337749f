"""What the times hold: work alone, waiting too, or launches."""

from __future__ import annotations

import numpy as np
import pytest

from .generated import QUIET, label_of, make, seconds

ONSET = 30
PASSES = ("forward", "backward")


def excess(run, *sections: str) -> np.ndarray:
    """(ranks,) slowdown in the sections after the onset, against before."""
    times = seconds(run, *sections)
    return np.median(times[ONSET + 1 :], axis=0) / np.median(times[1:ONSET], axis=0)


def test_local_times_name_the_culprit_also_in_a_tensor_group():
    """Device times of kernels hold no waiting."""
    run = make("tp4,dp8", f"compute:1.3@rank5:step{ONSET}", **QUIET)
    slow = excess(run, *PASSES)
    assert slow[5] == pytest.approx(1.3)
    assert np.allclose(np.delete(slow, 5), 1.0)
    assert label_of(run).is_localisable


def test_collectives_inside_backward_make_victims_look_slower_than_the_culprit():
    """The culprit comes last to backward and leaves it with the others: its own is shortest."""
    run = make("dp8", f"forward:1.5@rank5:step{ONSET}", **QUIET, timing="synchronised")
    forward, backward = excess(run, "forward"), excess(run, "backward")
    assert forward[5] == pytest.approx(1.5)
    assert backward[5] == pytest.approx(1.0)
    assert np.delete(backward, 5).min() > 1.2
    assert label_of(run).is_localisable


def test_a_fault_inside_the_synchronising_section_is_everybodys():
    """All come together and leave together: nobody can tell whose it is."""
    run = make("dp8", f"backward:1.5@rank5:step{ONSET}", **QUIET, timing="synchronised")
    assert np.ptp(excess(run, "backward")) < 1e-9
    assert not label_of(run).is_localisable


def test_with_collectives_inside_a_tensor_group_is_as_slow_as_its_slowest_rank():
    """Ranks of the group meet in every layer, so the group can be named, and not the rank."""
    run = make("tp4,dp8", f"compute:1.3@rank5:step{ONSET}", **QUIET, timing="synchronised")
    slow = excess(run, "forward")
    assert np.allclose(slow[4:8], 1.3)
    assert np.allclose(np.delete(slow, range(4, 8)), 1.0)
    assert not label_of(run).is_localisable
    host = f"compute:1.3@host1:step{ONSET}"
    whole = make("tp4,dp8", host, **QUIET, timing="synchronised", ranks_per_node=4)
    assert label_of(whole).is_localisable


def test_asynchronous_launches_are_short_and_the_culprit_is_not_to_be_told():
    """The section that waits for the device carries all, equally for everybody."""
    run = make("dp8", f"compute:1.3@rank5:step{ONSET}", **QUIET, timing="asynchronous")
    assert seconds(run, *PASSES).max() < 0.15 * 1.75 * 1.3
    assert excess(run, *PASSES).max() < 1.1
    ends = seconds(run, "optimizer")[ONSET + 1 :]
    assert np.median(ends) > 1.25 * np.median(seconds(run, "optimizer")[1:ONSET])
    assert np.ptp(np.median(ends, axis=0)) / np.median(ends) < 0.02
    assert not label_of(run).is_localisable


def test_launches_do_not_know_how_long_a_sequence_is():
    """So single microbatches of an asynchronous run vary no more than without sequences."""
    spreads = [
        float(np.median(next(make("dp8", sequence_cv=0.3, timing=timing).tables()).run_cv[:, 1]))
        for timing in ("local", "asynchronous")
    ]
    assert spreads[0] > 0.2
    assert spreads[1] < 0.05


def test_asynchronous_host_work_hides_behind_a_busy_device():
    """A late launch costs nothing while the device has enough to do; then it costs the rest."""
    steps = {}
    for late_s in (0.5, 2.5):
        run = make("dp8", f"late:{late_s}@rank5:step{ONSET}", **QUIET, timing="asynchronous")
        start = np.concatenate([table.start_ns for table in run.tables()])[:, 0]
        steps[late_s] = float(np.median(np.diff(start)[ONSET:]) / np.median(np.diff(start)[:ONSET]))
    assert steps[0.5] == pytest.approx(1.0, abs=1e-3)
    assert steps[2.5] > 1.2


def test_asynchronous_a_slow_host_is_seen_in_its_own_section_and_waits_least():
    """Loading data is the host's own work."""
    run = make("dp8", f"data:0.5@rank5:step{ONSET}", **QUIET, timing="asynchronous")
    assert excess(run, "data_loading")[5] > 10
    assert np.median(seconds(run, "optimizer")[ONSET + 1 :], axis=0).argmin() == 5
    assert label_of(run).is_localisable


@pytest.mark.parametrize("layout", ["dp8", "tp2,pp2,dp4"])
def test_the_job_is_equally_fast_however_it_is_measured_with_synchronous_launches(layout):
    """Only what is seen differs; so a rank apart from the slow group ends its steps as before."""
    ends = [
        next(make(layout, "compute:1.3@rank2:step3", **QUIET, timing=how).tables(60)).end_ns[:, 0]
        for how in ("local", "synchronised")
    ]
    assert np.abs(ends[0] - ends[1]).max() <= 200
