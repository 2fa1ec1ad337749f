"""Reports of four ranks over gloo: what NVRx's own tests demand, and what they do not."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

RELATIVE, INDIVIDUAL = "relative_perf_scores", "individual_perf_scores"
Json = dict[str, Any]


def rows(make: Any) -> list[Json]:
    """Arguments by rank: one window, or several, that ``make(rank)`` gives."""
    made = [make(rank) for rank in range(4)]
    return [{"rows": row if isinstance(row, list) else [row]} for row in made]


def times(around_s: float, runs: int = 25, spread_s: float = 0.003, seed: int = 0) -> list[float]:
    rng = random.Random(seed)
    return [around_s + rng.uniform(-spread_s, spread_s) for _ in range(runs)]


def kernel(median_us: float, runs: int = 10) -> list[float]:
    return [median_us, median_us, runs]


# --- who is listed ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "slow",
    [set(), {(2, "b")}, {(1, "a"), (3, "a")}, {(0, "a"), (3, "b")}],
    ids=["none", "one", "two ranks in one section", "two ranks in two sections"],
)
def test_ranks_slower_than_their_peers_are_listed(ranks: Any, slow: set[tuple[int, str]]) -> None:
    """15 ms among 10 ms, both with noise of 3 ms, is found in the right sections only."""
    answers = ranks.do(
        "detector",
        *rows(
            lambda rank: {
                name: times(0.015 if (rank, name) in slow else 0.010, seed=rank + ord(name))
                for name in "ab"
            }
        ),
        options={},
    )
    [report] = answers[0]
    listed = report["stragglers"]["straggler_sections_relative"]
    assert {(rank, name) for name, ids in listed.items() for rank, _ in ids} == slow
    assert report["stragglers"]["straggler_sections_individual"] == {}
    assert answers[1:] == [[None]] * 3


@pytest.mark.parametrize(
    "slow",
    [set(), {(2, "b")}, {(1, "a"), (3, "a")}, {(0, "a"), (3, "b")}],
    ids=["none", "one", "two ranks in one section", "two ranks in two sections"],
)
def test_ranks_slower_than_their_own_past_are_listed(
    ranks: Any, slow: set[tuple[int, str]]
) -> None:
    """A rank that slows down is found, whatever the others do."""
    before = {name: times(0.010, seed=ord(name)) for name in "ab"}
    answers = ranks.do(
        "detector",
        *rows(
            lambda rank: [
                before,
                {
                    name: times(0.015 if (rank, name) in slow else 0.010, seed=9 + ord(name))
                    for name in "ab"
                },
            ]
        ),
        options={"scores_to_compute": [INDIVIDUAL]},
    )
    first, second = answers[0]
    assert first["stragglers"]["straggler_sections_individual"] == {}
    listed = second["stragglers"]["straggler_sections_individual"]
    assert {(rank, name) for name, ids in listed.items() for rank, _ in ids} == slow
    assert second["section_relative"] == {}


def test_real_sections_give_real_times(ranks: Any) -> None:
    """Sections that sleep: the rank that sleeps eight times as long is found. Others may oversleep
    on a busy machine; that nobody else is listed is shown with times that are given."""
    answers = ranks.do(
        "sleepers", *[{"lengths_s": {"load": 0.16 if r == 1 else 0.02}} for r in range(4)], runs=5
    )
    report = answers[0]
    assert 0.0 < report["section_relative"]["load"][1] < 0.6
    assert [1, "node-1"] in report["stragglers"]["straggler_sections_relative"]["load"]
    assert report["sections"]["load"]["NUM"] == 5
    assert 20 <= report["sections"]["load"]["MIN"] <= report["sections"]["load"]["MED"]


# --- GPU scores, from statistics of kernels ---------------------------------------------------


def test_kernels_that_take_n_times_as_long_score_one_nth(ranks: Any) -> None:
    """Gathered: the first rank knows all, the others get nothing."""
    answers = ranks.do(
        "windows",
        *rows(lambda rank: {"kernels": {"gemm": kernel(rank + 1), "relu": kernel(3 * (rank + 1))}}),
        settings={"node": "node"},
    )
    [report] = answers[0]["reports"]
    assert report["gpu_relative"] == pytest.approx({0: 1.0, 1: 1 / 2, 2: 1 / 3, 3: 1 / 4})
    assert report["gpu_individual"] == {0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0}
    assert [answer["reports"] for answer in answers[1:]] == [[None]] * 3


def test_not_gathered_every_rank_knows_its_own_score_and_node(ranks: Any) -> None:
    """And nothing of the others."""
    answers = ranks.do(
        "windows",
        *[
            {"settings": {"gather": False, "node": f"node-{rank}"}, **row}
            for rank, row in enumerate(rows(lambda rank: {"kernels": {"gemm": kernel(rank + 1)}}))
        ],
    )
    for rank, answer in enumerate(answers):
        [report] = answer["reports"]
        assert report["gpu_relative"] == pytest.approx({rank: 1 / (rank + 1)})
        assert report["nodes"][rank] == f"node-{rank}"
        assert report["rank"] == rank
        assert report["gather"] is False


def test_kernels_that_wait_for_others_are_not_scored(ranks: Any) -> None:
    """NCCL kernels of every generation are as long as the slowest rank makes them."""
    waits = ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclSymkDevKernel_AllReduce_RSxLD_AGxST")
    answers = ranks.do(
        "windows",
        *rows(
            lambda rank: {
                "kernels": {"gemm": kernel(2.0), **{name: kernel(9 - rank) for name in waits}}
            }
        ),
        settings={},
    )
    [report] = answers[0]["reports"]
    assert set(report["gpu_relative"].values()) == {1.0}
    assert set(report["kernels"]) == {"gemm"}


def test_only_kernels_that_all_ranks_ran_are_compared(ranks: Any) -> None:
    """Each rank's own kernels do not count; with none in common nobody has a score."""
    answers = ranks.do(
        "windows",
        *rows(
            lambda rank: [
                {"kernels": {"gemm": kernel(rank + 1), f"own {rank}": kernel(50)}},
                {"kernels": {f"own {rank}": kernel(50)} if rank == 2 else {"gemm": kernel(1)}},
                {"kernels": {}},
            ]
        ),
        settings={},
    )
    some, unlike, none = answers[0]["reports"]
    assert some["gpu_relative"] == pytest.approx({0: 1.0, 1: 1 / 2, 2: 1 / 3, 3: 1 / 4})
    assert all(math.isnan(score) for score in unlike["gpu_relative"].values())
    assert all(math.isnan(score) for score in none["gpu_relative"].values())
    assert all(math.isnan(score) for score in none["gpu_individual"].values())


def test_a_rank_without_kernels_does_not_silence_the_others(ranks: Any) -> None:
    """NVRx gives NaN to all; here those that ran kernels are compared."""
    answers = ranks.do(
        "windows",
        *rows(lambda rank: {"kernels": {} if rank == 3 else {"gemm": kernel(rank + 1)}}),
        settings={},
    )
    scores = answers[0]["reports"][0]["gpu_relative"]
    assert [scores[rank] for rank in range(3)] == pytest.approx([1, 1 / 2, 1 / 3])
    assert math.isnan(scores[3])


@pytest.mark.parametrize("gather", [True, False])
def test_individual_gpu_scores_follow_the_ranks_own_best(ranks: Any, gather: bool) -> None:
    """As times grow the score falls; a faster window is the new best; new kernels score 1."""
    medians = [4.0, 5.0, 8.0, 12.0, 2.0, 4.0]

    def by_rank(rank: int) -> list[Json]:
        made = [{"kernels": {"gemm": kernel((rank + 1) * median)}} for median in medians]
        made[-1]["kernels"]["new"] = kernel(4.0 * (rank + 1))
        return made

    answers = ranks.do("windows", *rows(by_rank), settings={"relative": False, "gather": gather})
    expected = [1.0, 4 / 5, 4 / 8, 4 / 12, 1.0, (2 / 4 + 1) / 2]
    for rank in range(4):
        reports = answers[0 if gather else rank]["reports"]
        assert [r["gpu_individual"][rank] for r in reports] == pytest.approx(expected)
        assert all(r["gpu_relative"] == {} for r in reports)


# --- what is computed, and with how many collectives --------------------------------------------


@pytest.mark.parametrize("gather", [True, False])
@pytest.mark.parametrize("wanted", ["all", [RELATIVE], [INDIVIDUAL]], ids=str)
def test_only_the_scores_that_are_wanted_are_computed(
    ranks: Any, wanted: Any, gather: bool
) -> None:
    """Three choices of scores, gathered or not."""
    answers = ranks.do(
        "detector",
        *rows(lambda rank: {"a": [0.01 * (rank + 1)] * 5}),
        options={"scores_to_compute": wanted, "gather_on_rank0": gather},
    )
    for rank, [report] in enumerate(answers):
        if gather and rank:
            assert report is None
            continue
        scored = set(range(4)) if gather else {rank}
        for kind, name in (("relative", RELATIVE), ("individual", INDIVIDUAL)):
            is_wanted = wanted == "all" or name in wanted
            assert set(report[f"gpu_{kind}"]) == (scored if is_wanted else set())
            by_section = report[f"section_{kind}"]
            assert {s: set(v) for s, v in by_section.items()} == (
                {"a": scored} if is_wanted else {}
            )


def test_collectives_are_few_and_counted(ranks: Any) -> None:
    """Two a report, one more when a rank has a new section, one more to compare kernels; none for
    individual scores alone."""
    many = {f"section {n}": [0.01] for n in range(900)}

    def by_rank(rank: int) -> list[Json]:
        some = {"a": [0.01], "b": [0.01]}
        only_here = {"late": [0.01]} if rank == 2 else {}
        wide = {**some, **many}
        return [{"sections": s} for s in (some, some, wide, wide, {**wide, **only_here}, some)]

    for settings, expected in (
        ({}, [3, 2, 3, 2, 3, 2]),
        ({"gather": False}, [3, 2, 3, 2, 3, 2]),
        ({"relative": False}, [3, 2, 3, 2, 3, 2]),
        ({"relative": False, "gather": False}, [0] * 6),
    ):
        answers = ranks.do("windows", *rows(by_rank), settings=settings)
        assert [answer["collectives"] for answer in answers] == [expected] * 4
    gpu = [{"kernels": {"gemm": kernel(1.0)}}, {"kernels": {"gemm": kernel(1.0)}}, {}]
    answers = ranks.do("windows", *rows(lambda _: gpu), settings={})
    assert [answer["collectives"] for answer in answers] == [[4, 3, 3]] * 4


def test_a_rank_whose_report_broke_off_finds_back_into_the_group(ranks: Any) -> None:
    """It has forgotten the agreed names; the others notice, and all agree anew."""
    answers = ranks.do("forgetful", *[{"forgets": rank == 2} for rank in range(4)])
    reports = answers[0]["reports"]
    assert [r["section_relative"]["a"] for r in reports] == [
        {0: 1.0, 1: 0.5, 2: 1 / 3, 3: 0.25}
    ] * 3
    assert [answer["collectives"] for answer in answers] == [[3, 5, 2]] * 4


def test_ranks_that_were_initialized_differently_are_told_so_together(ranks: Any) -> None:
    """All raise; none waits for a collective that another never makes."""
    answers = ranks.do(
        "disagreeing",
        *[{"individual": rank != 2} for rank in range(4)],
        message="the same settings on all ranks",
    )
    assert answers == [True] * 4


# --- defects of the peer that are tests here ----------------------------------------------------


def test_a_section_that_one_rank_did_not_run_is_scored_among_the_others(ranks: Any) -> None:
    """A rank 50 times slower is found although another rank never opened the section."""
    answers = ranks.do(
        "detector",
        *rows(lambda rank: {} if rank == 0 else {"save": [0.5 if rank == 2 else 0.01] * 5}),
        options={"node_name": "n"},
    )
    [report] = answers[0]
    assert math.isnan(report["section_relative"]["save"][0])
    assert report["section_relative"]["save"][2] == pytest.approx(0.02)
    assert report["stragglers"]["straggler_sections_relative"] == {"save": [[2, "n"]]}


def test_one_lucky_run_does_not_spoil_later_scores(ranks: Any) -> None:
    """A window of fewer than five executions is no reference; without one there is no score."""
    answers = ranks.do(
        "detector",
        *rows(lambda _: [{"a": [0.0001]}, {"a": [0.010] * 5}, {"a": [0.011] * 5}]),
        options={"scores_to_compute": [INDIVIDUAL]},
    )
    scores = [report["section_individual"]["a"][0] for report in answers[0]]
    assert scores == pytest.approx([math.nan, 1.0, 10 / 11], rel=1e-3, nan_ok=True)


def test_ranks_are_compared_within_their_role(ranks: Any) -> None:
    """A pipeline's last stage has more work; that makes it no straggler."""
    answers = ranks.do(
        "detector",
        *[
            {"options": {"role": "first" if rank < 2 else "last"}, **row}
            for rank, row in enumerate(
                rows(lambda rank: {"forward": [(0.01, 0.011, 0.05, 0.1)[rank]] * 5})
            )
        ],
    )
    [report] = answers[0]
    assert report["section_relative"]["forward"] == pytest.approx(
        {0: 1.0, 1: 10 / 11, 2: 1.0, 3: 0.5}
    )


def test_a_role_that_is_told_after_initialize_counts(ranks: Any) -> None:
    """As set_topology() does for a collector, so both say the same."""
    answers = ranks.do(
        "late_roles",
        *[
            {"role": "first" if rank < 2 else "last", "length_s": length_s}
            for rank, length_s in enumerate((0.01, 0.011, 0.05, 0.1))
        ],
    )
    assert answers[0]["section_relative"]["forward"] == pytest.approx(
        {0: 1.0, 1: 10 / 11, 2: 1.0, 3: 0.5}
    )


def test_a_section_that_waits_is_scored_but_never_listed(ranks: Any) -> None:
    """Who waits long in a collective is a victim."""
    answers = ranks.do(
        "windows",
        *rows(lambda rank: {"sections": {"all_reduce": [0.01 if rank == 1 else 0.09] * 5}}),
        settings={},
        kinds={"all_reduce": "wait"},
    )
    [report] = answers[0]["reports"]
    assert report["section_relative"]["all_reduce"][0] == pytest.approx(1 / 9)
    assert report["stragglers"]["straggler_sections_relative"] == {}


def test_a_group_reports_by_itself(ranks: Any) -> None:
    """Two ranks of four report, three times; the others are never waited for."""
    answers = ranks.do(
        "windows",
        *rows(lambda rank: [{"sections": {"a": [0.01 * (rank + 1)] * 5}}] * 3),
        settings={},
        group=[1, 3],
    )
    for report in answers[1]["reports"]:
        assert report["section_relative"]["a"] == pytest.approx({1: 1.0, 3: 0.5})
    assert answers[3]["reports"] == [None] * 3
    assert answers[0]["reports"] == answers[2]["reports"] == []


def test_two_groups_report_at_their_own_pace(ranks: Any) -> None:
    """One group makes one report, the other three: no rank of one can block the other."""
    answers = ranks.do(
        "detector",
        *rows(lambda rank: [{"a": [0.01 * (rank + 1)] * 5}] * (1 if rank % 2 else 3)),
        options={},
        groups=[[0, 2], [1, 3]],
    )
    assert [len(reports) for reports in answers] == [3, 1, 3, 1]
    assert answers[0][2]["section_relative"]["a"] == pytest.approx({0: 1.0, 2: 1 / 3})
    assert answers[1][0]["section_relative"]["a"] == pytest.approx({1: 1.0, 3: 0.5})


def test_a_broken_group_ends_no_training(ranks: Any) -> None:
    """The report has no scores, this rank's summaries, and the log one line."""
    report = ranks.do("broken_group")[0]
    assert report["section_relative"] == {}
    assert report["sections"]["a"]["NUM"] == 5


def test_a_rank_that_cannot_read_its_own_times_still_takes_part(ranks: Any) -> None:
    """The others wait for it in the collective; they are compared without it."""
    answers = ranks.do("unreadable", *[{"fails": rank == 1} for rank in range(4)])
    scores = answers[0]["section_relative"]["a"]
    assert math.isnan(scores.pop(1))
    assert scores == pytest.approx({0: 1.0, 2: 1 / 3, 3: 1 / 4})


# --- when a report is due ------------------------------------------------------------------------


def test_all_ranks_report_at_the_same_iterations(ranks: Any) -> None:
    """The slowest rank's pace does not matter to the others' count: the largest interval counts."""
    answers = ranks.do(
        "loop",
        *[{"step_s": 0.002 * (rank + 1)} for rank in range(4)],
        options={"report_time_interval": 0.05, "profiling_interval": 3},
        steps=80,
    )
    assert answers[0]
    assert answers[0] == answers[1] == answers[2] == answers[3]
    assert all(step >= 17 for step in answers[0])
