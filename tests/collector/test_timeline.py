"""The newest windows of every run: how many, in how much memory, over restarts and resizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from otel_straggler.collector.runs.timeline import FIRST_SEQ, MAX_COLUMNS, Timeline, keep_within
from otel_straggler.collector.views.timeline import Column
from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.detect.scores.settings import ScoreSettings
from otel_straggler.model.observation import BatchBuilder, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores

PLENTY = 64 * 1024 * 1024


def window(ranks: int = 4, first_step: int | None = 0, **changes: Any) -> WindowScores:
    """A closed window of ``ranks`` ranks and two sections."""
    builder = BatchBuilder()
    for rank in range(ranks):
        source = Source(run_id="run", rank=rank, world_size=ranks)
        for name, seconds in (("forward", 0.1), ("backward", 0.2)):
            section = Section(name)
            builder.add(source, section, start_ns=1, duration_s=seconds * (1 + rank / 10), step=1)
    scorer = Scorer(ScoreSettings(window_steps=4))
    scorer.observe(builder.build(), 0)
    (result,) = scorer.close_all()
    last_step = None if first_step is None else first_step + 3
    return replace(result, first_step=first_step, last_step=last_step, **changes)


def numbers(columns: Sequence[Column]) -> list[int]:
    return [column.seq for column in columns]


def test_windows_are_numbered_as_they_close() -> None:
    timeline = Timeline()
    for step in range(3):
        timeline.observe(window(first_step=step * 4))
    result = timeline.columns
    assert numbers(result) == [FIRST_SEQ, FIRST_SEQ + 1, FIRST_SEQ + 2]
    assert result[0].sections == ("forward", "backward")
    assert result[0].values.shape == (3, 4)


def test_the_newest_360_are_kept() -> None:
    timeline = Timeline()
    one = window()
    for step in range(MAX_COLUMNS + 5):
        timeline.observe(replace(one, first_step=step))
    result = timeline.columns
    assert len(result) == MAX_COLUMNS
    assert result[0].first_step == 5


def test_names_and_ranks_are_shared_between_windows() -> None:
    """Only the bytes count, so ranks must not be kept once for each window."""
    timeline = Timeline()
    for step in range(3):
        timeline.observe(window(first_step=step))
    first, *others = timeline.columns
    assert all(each.ranks is first.ranks for each in others)
    assert timeline.size == sum(each.values.nbytes for each in (first, *others))


def test_all_runs_together_stay_within_the_budget() -> None:
    """The largest gives up its oldest; a small run beside it loses nothing."""
    small, large = window(2), window(50)
    budget = 10 * 150 + 5 * 6
    both = Timeline(), Timeline()
    for step in range(40):
        if step < 5:
            both[0].observe(replace(small, first_step=step))
        both[1].observe(replace(large, first_step=step))
        keep_within(budget, both)
    assert sum(timeline.size for timeline in both) <= budget
    assert len(both[0].columns) == 5
    result = both[1].columns
    assert len(result) == 10
    assert result[-1].first_step == 39


def test_one_window_is_kept_however_large_it_is() -> None:
    timeline = Timeline()
    timeline.observe(window(50, 0))
    timeline.observe(window(50, 4))
    keep_within(1, [timeline])
    assert [column.first_step for column in timeline.columns] == [4]


def test_a_world_may_change_its_size() -> None:
    timeline = Timeline()
    timeline.observe(window(4, 0))
    timeline.observe(window(2, 4, attempt=1))
    timeline.observe(window(6, 8, attempt=1))
    assert [len(column.ranks) for column in timeline.columns] == [4, 2, 6]


def test_a_late_window_of_an_attempt_that_is_over_is_left_out() -> None:
    """Steps go back with a restart, never to and fro."""
    timeline = Timeline()
    timeline.observe(window(4, 40))
    timeline.observe(window(4, 0, attempt=1))
    timeline.observe(window(4, 44))
    assert [column.first_step for column in timeline.columns] == [40, 0]


def test_windows_by_time_are_shown_only_where_there_are_no_others() -> None:
    """They overlap those by step."""
    timeline = Timeline()
    timeline.observe(window(4, None))
    assert len(timeline.columns) == 1
    timeline.observe(window(4, 0))
    timeline.observe(window(4, None))
    assert [column.first_step for column in timeline.columns] == [0]


def test_older_windows_get_numbers_before_the_first() -> None:
    """So it does not matter whether the history is read before or after a window closes."""
    source = Timeline()
    for step in range(5):
        source.observe(window(first_step=step))
    older = source.columns
    for is_first in (True, False):
        timeline = Timeline()
        if not is_first:
            timeline.observe(window(first_step=5))
        timeline.put_before(older)
        if is_first:
            timeline.observe(window(first_step=5))
        result = timeline.columns
        assert numbers(result) == list(range(FIRST_SEQ - 5, FIRST_SEQ + 1))
        assert [column.first_step for column in result] == [0, 1, 2, 3, 4, 5]


def test_a_full_ring_takes_no_older_windows() -> None:
    timeline = Timeline()
    one = window()
    for step in range(MAX_COLUMNS):
        timeline.observe(replace(one, first_step=step))
    timeline.put_before(timeline.columns[:3])
    assert numbers(timeline.columns)[0] == FIRST_SEQ


def test_ten_thousand_ranks_take_a_byte_for_each_section() -> None:
    """36 MB for 360 windows of ten sections: that is what the budget is for."""
    timeline = Timeline()
    timeline.observe(window(10_000))
    assert timeline.size == 3 * 10_000
    assert timeline.columns[0].values.dtype == np.uint8
