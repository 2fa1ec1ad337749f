"""Which episodes count as right: hand-made ones, each with its answer."""

from __future__ import annotations

import pytest

from benchmarks.detection.episodes import Episode
from benchmarks.detection.matching import GRACE_STEPS, match

from .made import host_episode, host_label, label, rank_episode


def matched(labels, episodes, *, has_host_scope=True):
    return match(labels, episodes, has_host_scope=has_host_scope)


def test_a_slow_rank_is_found_by_its_own_episode():
    """The delay is counted from the onset to the step at which it was said."""
    result = matched([label(3)], [rank_episode(3, 112)])
    assert [(f.is_result, f.delay_steps) for f in result.findings] == [(True, 12)]
    assert result.false == []


def test_an_episode_before_the_onset_is_false_even_if_it_lasts():
    """Who is accused without reason is not right when trouble comes later."""
    result = matched([label(3)], [rank_episode(3, 99)])
    assert not result.findings[0].is_result
    assert len(result.false) == 1


@pytest.mark.parametrize(("begin", "is_right"), [(150 + GRACE_STEPS, True), (171, False)])
def test_an_episode_may_begin_up_to_twenty_steps_after_the_end(begin, is_right):
    """A window still holds the fault for a while; later it does not."""
    result = matched([label(3, end=150)], [rank_episode(3, begin)])
    assert result.findings[0].is_result == is_right
    assert bool(result.false) != is_right


def test_a_victim_is_a_false_alarm():
    """The rank that waits for the slow one must not be named."""
    result = matched([label(3)], [rank_episode(4, 120)])
    assert not result.findings[0].is_result
    assert [episode.ranks for episode in result.false] == [{4}]


def test_a_second_episode_of_a_slow_rank_is_neither_found_twice_nor_false():
    """Flapping verdicts on the right rank are counted apart."""
    result = matched([label(3)], [rank_episode(3, 120, 140), rank_episode(3, 160)])
    assert (len(result.findings), len(result.false), result.repeated) == (1, 0, 1)
    assert result.findings[0].delay_steps == 20


@pytest.mark.parametrize(("named", "delay"), [((3,), None), ((3, 11), 15), ((3, 11, 19), 15)])
def test_a_fault_of_many_ranks_is_one_and_found_when_half_are_named(named, delay):
    """A rail of slow GPUs must not weigh more than a single slow one."""
    episodes = [rank_episode(rank, 110 + 5 * at) for at, rank in enumerate(named)]
    (finding,) = matched([label(3, 11, 19, 27)], episodes).findings
    assert finding.delay_steps == delay


def test_a_slow_host_is_found_by_a_verdict_on_the_host():
    """One fault, one finding, whatever its number of ranks."""
    result = matched([host_label(1)], [host_episode(1, 110)])
    assert [(f.scope, f.is_result, f.delay_steps) for f in result.findings] == [("host", True, 10)]


def test_a_method_with_host_verdicts_must_use_them():
    """Naming the ranks of a slow host one by one is not false, but does not find the host."""
    episodes = [rank_episode(rank, 110) for rank in range(8)]
    result = matched([host_label(0)], episodes)
    assert (result.findings[0].is_result, result.false) == (False, [])


@pytest.mark.parametrize(("n_ranks", "delay"), [(3, None), (4, 13), (8, 13)])
def test_without_host_verdicts_half_of_the_ranks_find_a_host(n_ranks, delay):
    """It is found when the episode begins that makes half of its ranks."""
    episodes = [rank_episode(rank, 110 + rank) for rank in range(n_ranks)]
    result = matched([host_label(0)], episodes, has_host_scope=False)
    assert result.findings[0].delay_steps == delay
    assert result.false == []


def test_a_host_with_one_slow_rank_is_a_false_alarm():
    """Seven healthy GPUs would be taken out of service."""
    result = matched([label(3)], [host_episode(0, 120)])
    assert (result.findings[0].is_result, len(result.false)) == (False, 1)


def test_a_host_of_which_half_is_slow_may_be_named():
    """Four slow ranks on a host of eight are found by a verdict on the host."""
    result = matched([label(0, 1, 2, 3)], [host_episode(0, 120)])
    assert [finding.is_result for finding in result.findings] == [True]
    assert result.false == []


def test_a_rank_that_is_accused_of_an_imbalance_is_a_false_alarm():
    """The last stage has more work; none of its ranks is slow."""
    stage = label(8, 9, 10, 11, scope="role", cause="stage_imbalance")
    result = matched([stage], [rank_episode(9, 120)])
    assert (result.findings, len(result.false)) == ([], 1)


def test_an_imbalance_is_found_by_a_verdict_on_role_or_run_that_names_the_cause():
    """Right scope and right cause; the wrong cause is a miss, but explained."""
    stage = label(8, 9, scope="role", cause="stage_imbalance", onset=0)
    right = Episode(scope="run", ranks=frozenset(), begin_step=40, cause="stage_imbalance")
    wrong = Episode(scope="run", ranks=frozenset(), begin_step=40, cause="link")
    assert matched([stage], [right]).structures[0].is_result
    assert not matched([stage], [wrong]).structures[0].is_result
    assert matched([stage], [wrong]).false_structures == []
    assert len(matched([], [wrong]).false_structures) == 1
    assert matched([], [wrong]).false == []
