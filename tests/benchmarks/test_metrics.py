"""The numbers of the benchmark on small inputs with known answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from benchmarks.detection.levels import by_event, by_host, by_rank
from benchmarks.detection.matching import match
from benchmarks.detection.metrics import (
    Events,
    average_precision,
    interval,
    is_among_top,
    percentile,
)

from .made import host_episode, host_label, label, rank_episode

NODE_OF = {rank: f"node-{rank // 8}" for rank in range(32)}


def test_f1_of_nothing_said_about_nothing_is_no_number():
    """A healthy run without alarms is no evidence for recall or precision."""
    assert math.isnan(Events().f1)
    assert Events(missed=3).f1 == 0.0
    assert math.isnan(Events(missed=3).precision)


def test_events_ranks_and_hosts_count_the_same_episodes_differently():
    """A slow host and a victim: one event of one is found, eight ranks, one host of one."""
    labels = [host_label(0)]
    episodes = [host_episode(0, 110), rank_episode(9, 120), rank_episode(10, 125)]
    result = match(labels, episodes, has_host_scope=True)
    assert by_event(result.findings, result.false) == Events(detected=1, false=2)
    assert by_rank(labels, episodes) == Events(detected=8, false=2)
    assert by_host(labels, episodes, NODE_OF) == Events(detected=1, false=1)


def test_a_false_host_counts_its_ranks_by_rank_and_once_by_host():
    """Eight GPUs accused at once weigh eight times as much by rank."""
    assert by_rank([], [host_episode(1, 50)]) == Events(false=8)
    assert by_host([], [host_episode(1, 50)], NODE_OF) == Events(false=1)


def test_by_host_the_neighbour_of_a_slow_rank_finds_the_right_host():
    """Somebody who looks at the host finds the slow GPU there."""
    assert by_host([label(3)], [rank_episode(4, 120)], NODE_OF) == Events(detected=1)
    assert by_rank([label(3)], [rank_episode(4, 120)]) == Events(false=1, missed=1)


def test_episodes_apart_in_time_on_a_host_are_apart():
    """Flickering is counted as often as somebody would be called."""
    episodes = [rank_episode(9, 10, 20), rank_episode(10, 15, 30), rank_episode(9, 40, 50)]
    assert by_host([], episodes, NODE_OF) == Events(false=2)


def test_average_precision_agrees_with_scikit_learn():
    """Where every fault has an episode, it is the textbook number."""
    rng = np.random.default_rng(0)
    right, false = rng.normal(1, 1, 40), rng.normal(0, 1, 60)
    expected = average_precision_score(np.repeat([1, 0], (40, 60)), np.concatenate((right, false)))
    measured = average_precision(right.tolist(), false.tolist(), n_faults=40)
    assert measured == pytest.approx(expected)


def test_faults_without_an_episode_lower_average_precision():
    """Half found, none false: one half."""
    assert average_precision([1.0, 2.0], [], n_faults=4) == 0.5
    assert average_precision([1.0], [1.0], n_faults=1) == 0.5, "of equals the false one comes first"
    assert math.isnan(average_precision([], [], n_faults=0))


def test_equals_count_against_the_method():
    """A method that suspects everybody equally has not named the culprit."""
    assert is_among_top(np.array([1.0, 3.0, 2.0]), [1], 1)
    assert not is_among_top(np.array([3.0, 3.0, 2.0]), [1], 1)
    assert is_among_top(np.array([3.0, 3.0, 2.0]), [1], 3)
    assert not is_among_top(np.zeros(3), [1], 3)
    assert is_among_top(np.array([0.0, 2.0, 2.0]), [1, 2], 1)


def test_an_interval_holds_the_value_and_narrows_with_runs():
    """Whole runs are drawn again, so their number decides."""
    rng = np.random.default_rng(1)
    many = rng.integers(0, 5, (400, 2)).astype(float) + np.array([0, 5])
    whole = interval(many, lambda sums: sums[0] / sums[1])
    few = interval(many[:20], lambda sums: sums[0] / sums[1])
    truth = many[:, 0].sum() / many[:, 1].sum()
    assert whole[0] < truth < whole[1]
    assert whole[1] - whole[0] < few[1] - few[0]
    assert all(math.isnan(end) for end in interval(many[:1], lambda sums: sums[0]))


def test_percentiles_of_nothing_are_no_number():
    """Nobody found, no delay."""
    assert math.isnan(percentile([], 95))
    assert percentile([5, 10], 50) == 7.5
