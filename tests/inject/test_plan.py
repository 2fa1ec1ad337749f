"""Plans: named faults, drawn faults, files, and that all nodes have the same."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.errors import ConfigError
from otel_straggler.inject.faults import Place
from otel_straggler.inject.plan import InjectionPlan, RandomFaults, read_plan

seeds = st.integers(0, 2**31)


@given(
    seed=seeds,
    mtbf=st.floats(1.0, 1e5).map(lambda s: round(s, 1)),
    world_size=st.integers(1, 20),
    attempt=st.integers(0, 3),
)
def test_every_node_draws_the_same_plan_from_the_text_alone(seed, mtbf, world_size, attempt):
    """A rank takes its own part, with no random number that it would have to share."""
    text = f"seed={seed} mtbf={mtbf} until={10 * mtbf}"
    whole = InjectionPlan.parse(text).of_job(world_size, attempt)
    parts = [
        fault
        for rank in range(world_size)
        for fault in InjectionPlan.parse(text).of_rank(
            Place(rank=rank, world_size=world_size, attempt=attempt)
        )
    ]
    assert sorted(map(str, parts)) == sorted(map(str, whole))
    assert all(fault.onset_s <= 10 * mtbf for fault in whole)


@given(seed=seeds, rank=st.integers(0, 1000))
def test_the_faults_of_a_rank_do_not_depend_on_how_many_ranks_there_are(seed, rank):
    """A job that is scaled down keeps the plan of the ranks that are left."""
    drawn = RandomFaults(seed=seed, mtbf_s=10.0, until_s=100.0)
    assert drawn.of_rank(rank, rank + 1, 0) == drawn.of_rank(rank, 2000, 0)


def test_drawn_faults_are_a_poisson_process():
    """As many as the time / MTBF, and as spread as chance has them: over 400 ranks the mean of the
    distances is within 5 % of the MTBF and so is their standard deviation."""
    drawn = RandomFaults(seed=5, mtbf_s=100.0, until_s=5_000.0)
    distances: list[float] = []
    counts: list[int] = []
    for rank in range(400):
        times = [0.0, *(fault.onset_s for fault in drawn.of_rank(rank, 400, 0))]
        counts.append(len(times) - 1)
        distances += [b - a for a, b in pairwise(times)]
    assert math.isclose(statistics.mean(distances), 100.0, rel_tol=0.05)
    assert math.isclose(statistics.stdev(distances), 100.0, rel_tol=0.05)
    assert math.isclose(statistics.mean(counts), 50.0, rel_tol=0.05)
    assert math.isclose(statistics.variance(counts), 50.0, rel_tol=0.25)


def test_attempts_and_ranks_draw_numbers_of_their_own():
    """A restarted job does not meet the same faults at the same times."""
    drawn = RandomFaults(seed=5, mtbf_s=100.0, until_s=1_000.0)
    plans = {tuple(f.onset_s for f in drawn.of_rank(r, 4, a)) for r in range(4) for a in range(3)}
    assert len(plans) == 12


@given(seed=seeds, world_size=st.integers(1, 50))
def test_faults_at_intervals_hit_one_rank_each(seed, world_size):
    """Nobody and two at once is what a shared sequence of random numbers leads to."""
    drawn = RandomFaults(seed=seed, interval_s=10.0, until_s=100.0)
    times = [f.onset_s for rank in range(world_size) for f in drawn.of_rank(rank, world_size, 0)]
    assert sorted(times) == [10.0 * n for n in range(1, 11)]


def test_a_plan_is_written_as_it_is_read():
    """Also with blanks in a path."""
    text = "compute:1.5@rank1:step4 seed=3 mtbf=60 kinds=rank_hung+20s,data:0.1 folder='/a b'"
    plan = InjectionPlan.parse(text)
    assert InjectionPlan.parse(str(plan)) == plan
    assert plan.folder == "/a b"
    assert plan.drawn is not None
    assert plan.drawn.kinds == ("rank_hung+20s", "data:0.1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mtfb=60", "one of seed"),
        ("seed=3", "mtbf=SECONDS or interval=SECONDS"),
        ("mtbf=60 interval=60", "one of mtbf and interval"),
        ("mtbf=fast", "a number"),
        ("mtbf=1e-6", "at most 5000 faults"),
        ("mtbf=60 kinds=slow", "one of rank_killed"),
        ("mtbf=60 kinds=compute", "compute with a size"),
        ("'", "words"),
        ("plan=/none.yaml crash@rank1:3s", "nothing next to plan=FILE"),
        ("plan=/none.yaml", "a readable UTF-8 file"),
        ("plan=/none.csv", "a readable file"),
    ],
)
def test_what_is_no_plan_is_refused(text, expected):
    """The message says what was expected."""
    with pytest.raises(ConfigError) as refused:
        InjectionPlan.parse(text)
    assert expected in str(refused.value)


FAULTS = ["rank_killed@rank1:30s", "compute:1.5@rank3:step40-60:attempt1", "rank_hung@all:5s+20s"]


def test_a_plan_is_a_file_of_yaml_or_csv(tmp_path: Path):
    """Rows are texts, or their parts; options stand next to them."""
    yaml, csv = tmp_path / "plan.yaml", tmp_path / "plan.csv"
    yaml.write_text(
        "faults:\n"
        "- rank_killed@rank1:30s\n"
        "- {kind: compute, size: 1.5, who: rank3, step: 40, end_step: 60, attempt: 1}\n"
        "- {kind: rank_hung, at_s: 5, lasts_s: 20}\n"
        "mtbf: 60\nkinds: [rank_killed, 'data:0.1']\n"
    )
    csv.write_text(
        "kind,size,who,step,at_s,end_step,lasts_s,attempt\n"
        "rank_killed,,rank1,,30,,,\n"
        "compute,1.5,rank3,40,,60,,1\n"
        "rank_hung,,,,5,,20,\n"
    )
    by_yaml, by_csv = read_plan(yaml), InjectionPlan.parse(f"plan={csv}")
    assert [str(fault) for fault in by_yaml.faults] == FAULTS
    assert by_csv.faults == by_yaml.faults
    assert by_yaml.drawn == RandomFaults(mtbf_s=60.0, kinds=("rank_killed", "data:0.1"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- rank_killed", "row 1: fault: got 'rank_killed'"),
        (
            "- crash@rank1:3s\n- {kind: compute, rnk: 3, step: 4}",
            "row 2: plan of faults: got 'rnk'",
        ),
        ("- {kind: compute, size: 2}", "one of step and at_s"),
        ("- 7", "a fault as text"),
        ("faults: 7", "a list"),
        ("3", "a list of faults, or a mapping"),
        ("a: [", "YAML"),
        ("nodes: 4", "one of seed"),
    ],
)
def test_a_wrong_file_says_which_row_is_wrong(tmp_path: Path, text: str, expected: str):
    """Unknown names are errors."""
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_plan(path)
    assert expected in str(refused.value)
