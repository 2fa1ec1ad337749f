"""Faults as they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.errors import ConfigError
from otel_straggler.simulate.faults import HANG_KINDS, KINDS, Fault
from otel_straggler.simulate.plan import Layout, RunPlan

who = st.one_of(
    st.lists(st.integers(0, 99), min_size=1, max_size=3).map(lambda r: {"ranks": tuple(r)}),
    st.sampled_from(["host", "rail", "stage"]).flatmap(
        lambda name: st.integers(0, 99).map(lambda number: {name: number})
    ),
)


@given(
    kind=st.sampled_from(sorted(KINDS)),
    size=st.integers(101, 999).map(lambda n: n / 100),
    who=who,
    onset=st.integers(0, 1000),
    length=st.none() | st.integers(1, 100),
)
def test_what_a_fault_is_written_as_is_read_as_the_same(kind, size, who, onset, length):
    """Labels and messages show a fault as the command line takes it."""
    fault = Fault(
        kind=kind,
        size=1.0 if kind in HANG_KINDS else size,
        onset_step=onset,
        end_step=None if length is None else onset + length,
        **({} if kind == "uniform" else who),
    )
    assert Fault.parse(str(fault)) == fault


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("compute", "a fault"),
        ("compute:1.1@rank1", "a fault"),
        ("slow:1.1@rank1:step0", "one of compute"),
        ("compute@rank1:step0", "compute with a size"),
        ("crash:2@rank1:step0", "crash without a size"),
        ("compute:x@rank1:step0", "a number in place of 'x'"),
        ("compute:nan@rank1:step0", "a finite size"),
        ("compute:1@rank1:step0", "a factor above 1"),
        ("compute:0.9@rank1:step0", "a factor above 1"),
        ("data:0@rank1:step0", "seconds above 0"),
        ("compute:1.1@gpu1:step0", "rankN"),
        ("compute:1.1@rank:step0", "rankN"),
        ("compute:1.1@host1,2:step0", "one host"),
        ("compute:1.1@all:step0", "one WHO"),
        ("uniform:1.1@rank1:step0", "nobody"),
        ("compute:1.1@rank1:step9-9", "an end after the onset"),
    ],
)
def test_a_fault_that_cannot_be_says_why_and_shows_one_that_can(text, expected):
    """Whoever mistypes learns the form."""
    with pytest.raises(ConfigError) as raised:
        Fault.parse(text)
    assert expected in str(raised.value)
    assert "for example compute:1.10@rank37:step500" in str(raised.value)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("compute:1.1@rank16:step0", "a rank from 0 to 15"),
        ("compute:1.1@host4:step0", "a host from 0 to 3"),
        ("compute:1.1@rail4:step0", "a rail from 0 to 3"),
        ("compute:1.1@stage2:step0", "a stage from 0 to 1"),
        ("compute:1.1@rank0:step50", "an onset from step 0 to 49"),
    ],
)
def test_a_fault_outside_the_run_is_refused(fault, expected):
    """Not silently left out, or nobody would notice that the run is healthy."""
    with pytest.raises(ConfigError, match=expected):
        RunPlan(layout=Layout(pp=2, dp=8), ranks_per_node=4, steps=50, faults=(Fault.parse(fault),))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"steps": 0}, "--steps"),
        ({"noise": "XX"}, "--noise"),
        ({"noise": float("nan")}, "--noise"),
        ({"timing": "late"}, "--timing"),
        ({"stage_factor": 1.2}, "--stage-factor"),
        ({"expert_cv": 0.2}, "--expert-cv"),
        ({"restart_at_step": 0}, "--restart-at-step"),
        ({"spikes": 2.0}, "--spikes"),
        ({"step_s": float("inf")}, "--step-s"),
    ],
)
def test_a_wrong_parameter_of_a_run_is_named_with_its_flag(wrong, named):
    """The message says which flag to change."""
    with pytest.raises(ConfigError, match=named):
        RunPlan(layout=Layout(dp=8), **wrong)


def test_two_hangs_in_one_run_are_refused():
    """After the first one nothing happens."""
    faults = tuple(map(Fault.parse, ("crash@rank1:step3", "hang_joined@rank2:step5")))
    with pytest.raises(ConfigError, match="one hang or crash"):
        RunPlan(layout=Layout(dp=8), faults=faults)
