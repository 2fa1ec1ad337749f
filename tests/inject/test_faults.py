"""Faults of real runs as they are written, and whose they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.errors import ConfigError
from otel_straggler.inject.faults import KINDS, MAX_S, Fault, Place
from otel_straggler.simulate import faults as simulated

who = st.one_of(
    st.just({}),
    st.lists(st.integers(0, 99), min_size=1, max_size=3).map(lambda r: {"ranks": tuple(r)}),
    st.sampled_from(["host", "rail"]).flatmap(
        lambda name: st.integers(0, 99).map(lambda number: {name: number})
    ),
)
begins = st.one_of(
    st.integers(0, 1000).map(lambda step: {"onset_step": step}),
    st.integers(0, 10**6).map(lambda ms: {"onset_s": ms / 1e3}),
)


@given(
    kind=st.sampled_from(sorted(KINDS)),
    size=st.integers(101, 999).map(lambda n: n / 100),
    who=who,
    begin=begins,
    lasts_s=st.just(MAX_S) | st.integers(1, 10**6).map(lambda ms: ms / 1e3),
    attempt=st.integers(0, 3),
)
def test_what_a_fault_is_written_as_is_read_as_the_same(kind, size, who, begin, lasts_s, attempt):
    """The plan travels to the ranks as text."""
    size = 1.0 if KINDS[kind].min_size is None else size
    fault = Fault(kind=kind, size=size, lasts_s=lasts_s, attempt=attempt, **who, **begin)
    assert Fault.parse(str(fault)) == fault


@pytest.mark.parametrize(
    "text", ["compute:1.5@rank3:step40-60", "data:0.1@host2:step5", "late:0.2@rail1:step0-9"]
)
def test_a_simulated_fault_is_written_as_a_real_one(text):
    """One grammar for both."""
    assert str(Fault.parse(text)) == str(simulated.Fault.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("crash@rank1:step5", "rank_killed@rank1:step5"),
        ("hang_never_joined@rank1:step5", "rank_stuck@rank1:step5"),
        ("rank_hung@rank1:30s-50s", "rank_hung@rank1:30s+20s"),
        ("xid:79:3s", "xid:79@all:3s"),
    ],
)
def test_other_ways_to_write_a_fault(text, same):
    """Names of simulated runs, an end as a time, all ranks."""
    assert str(Fault.parse(text)) == same


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("compute", "a fault"),
        ("compute:1.5@rank1", "a fault"),
        ("slow:1.5@rank1:step0", "one of rank_killed"),
        ("compute@rank1:step0", "compute with a size"),
        ("rank_killed:2@rank1:step0", "rank_killed without a size"),
        ("compute:x@rank1:step0", "a number in place of 'x'"),
        ("compute:nan@rank1:step0", "a size above 1"),
        ("compute:1@rank1:step0", "a size above 1"),
        ("data:0@rank1:step0", "a size above 0"),
        ("compute:2@gpu1:step0", "rankN"),
        ("compute:2@stage1:step0", "rankN"),
        ("compute:2@host1,2:step0", "one host"),
        ("compute:2@rank1:step9-9", "an end after the onset"),
        ("compute:2@rank1:step9-20s", "an end as a step"),
        ("compute:2@rank1:9s-8s", "an end after the onset"),
        ("compute:2@rank1:9s+4000s", "at most 3600 s later"),
        ("rank_hung@rank1:step9-20", "an end in seconds"),
    ],
)
def test_what_is_no_fault_is_refused_with_what_was_expected(text, expected):
    """The message has the text, and what would be right."""
    with pytest.raises(ConfigError, match="fault: got") as refused:
        Fault.parse(text)
    assert expected in str(refused.value)


def test_a_fault_is_of_its_ranks_in_its_attempt():
    """A restarted rank does not have the fault again that ended the one before."""
    place = Place(rank=5, world_size=8, local_rank=1, host=1)
    texts = ["compute:2@rank5,6:1s", "compute:2@host1:1s", "compute:2@rail1:1s", "compute:2@all:1s"]
    assert all(Fault.parse(text).is_of(place) for text in texts)
    others = ["compute:2@rank4:1s", "compute:2@host0:1s", "compute:2@rail0:1s"]
    assert not any(Fault.parse(text).is_of(place) for text in others)
    assert not Fault.parse("compute:2@rank5:1s:attempt1").is_of(place)


@pytest.mark.parametrize(
    ("environment", "host"),
    [
        ({"GROUP_RANK": "3", "LOCAL_WORLD_SIZE": "4"}, 3),
        ({"SLURM_NODEID": "2"}, 2),
        ({"LOCAL_WORLD_SIZE": "4"}, 1),
        ({}, None),
    ],
)
def test_the_number_of_a_node_comes_from_the_launcher(environment, host):
    """torchrun's, Slurm's, else by the ranks of a node."""
    assert Place.of(5, 8, 1, 0, environment).host == host
