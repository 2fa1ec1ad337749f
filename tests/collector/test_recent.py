"""The newest windows of every run: how many, in how much memory, over restarts and resizes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from otel_straggler.collector.recent import FIRST_SEQ, MOST_COLUMNS, Recent
from otel_straggler.model.observation import BatchBuilder, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores
from otel_straggler.publish.picture import Column
from otel_straggler.score.scorer import Scorer
from otel_straggler.score.settings import ScoreSettings

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
    (found,) = scorer.close_all()
    last_step = None if first_step is None else first_step + 3
    return replace(found, first_step=first_step, last_step=last_step, **changes)


def numbers(columns: list[Column]) -> list[int]:
    return [column.seq for column in columns]


def test_windows_are_numbered_as_they_close() -> None:
    recent = Recent(PLENTY)
    for step in range(3):
        recent.take(window(first_step=step * 4))
    found = recent.columns("run", "")
    assert numbers(found) == [FIRST_SEQ, FIRST_SEQ + 1, FIRST_SEQ + 2]
    assert numbers(recent.columns("run", "", after=FIRST_SEQ)) == [FIRST_SEQ + 1, FIRST_SEQ + 2]
    assert found[0].sections == ("forward", "backward")
    assert found[0].values.shape == (3, 4)
    ends = recent.ends("run", "")
    assert (ends.first, ends.last, ends.n_columns) == (FIRST_SEQ, FIRST_SEQ + 2, 3)
    assert recent.newest_seq("run") == FIRST_SEQ + 2


def test_the_newest_360_are_kept() -> None:
    recent = Recent(PLENTY)
    one = window()
    for step in range(MOST_COLUMNS + 5):
        recent.take(replace(one, first_step=step))
    found = recent.columns("run", "")
    assert len(found) == MOST_COLUMNS
    assert found[0].first_step == 5


def test_names_and_ranks_are_shared_between_windows() -> None:
    """Only the bytes count, so ranks must not be kept once for each window."""
    recent = Recent(PLENTY)
    for step in range(3):
        recent.take(window(first_step=step))
    first, *others = recent.columns("run", "")
    assert all(each.ranks is first.ranks for each in others)
    assert recent.size == sum(each.values.nbytes for each in (first, *others))


def test_all_runs_together_stay_within_the_budget() -> None:
    """The largest gives up its oldest; a small run beside it loses nothing."""
    small, large = window(2), window(50)
    budget = 10 * 150 + 5 * 6
    recent = Recent(budget)
    for step in range(5):
        recent.take(replace(small, run_id="small", first_step=step))
    for step in range(40):
        recent.take(replace(large, run_id="large", first_step=step))
    assert recent.size <= budget
    assert len(recent.columns("small", "")) == 5
    found = recent.columns("large", "")
    assert len(found) == 10
    assert found[-1].first_step == 39


def test_one_window_is_kept_however_large_it_is() -> None:
    recent = Recent(1)
    recent.take(window(50, 0))
    recent.take(window(50, 4))
    assert [column.first_step for column in recent.columns("run", "")] == [4]


def test_a_world_may_change_its_size() -> None:
    recent = Recent(PLENTY)
    recent.take(window(4, 0))
    recent.take(window(2, 4, attempt=1))
    recent.take(window(6, 8, attempt=1))
    assert [len(column.ranks) for column in recent.columns("run", "")] == [4, 2, 6]


def test_a_late_window_of_an_attempt_that_is_over_is_left_out() -> None:
    """Steps go back with a restart, never to and fro."""
    recent = Recent(PLENTY)
    recent.take(window(4, 40))
    recent.take(window(4, 0, attempt=1))
    recent.take(window(4, 44))
    assert [column.first_step for column in recent.columns("run", "")] == [40, 0]


def test_windows_by_time_are_shown_only_where_there_are_no_others() -> None:
    """They overlap those by step."""
    recent = Recent(PLENTY)
    recent.take(window(4, None))
    assert len(recent.columns("run", "")) == 1
    recent.take(window(4, 0))
    recent.take(window(4, None))
    assert [column.first_step for column in recent.columns("run", "")] == [0]


def test_older_windows_get_numbers_before_the_first() -> None:
    """So it does not matter whether the history is read before or after a window closes."""
    source = Recent(PLENTY)
    for step in range(5):
        source.take(window(first_step=step))
    older = source.columns("run", "")
    for is_first in (True, False):
        recent = Recent(PLENTY)
        if not is_first:
            recent.take(window(first_step=5))
        recent.put_before("run", "", older)
        if is_first:
            recent.take(window(first_step=5))
        found = recent.columns("run", "")
        assert numbers(found) == list(range(FIRST_SEQ - 5, FIRST_SEQ + 1))
        assert [column.first_step for column in found] == [0, 1, 2, 3, 4, 5]


def test_a_full_ring_takes_no_older_windows() -> None:
    recent = Recent(PLENTY)
    one = window()
    for step in range(MOST_COLUMNS):
        recent.take(replace(one, first_step=step))
    recent.put_before("run", "", recent.columns("run", "")[:3])
    assert numbers(recent.columns("run", ""))[0] == FIRST_SEQ


def test_a_run_that_is_forgotten_is_gone() -> None:
    recent = Recent(PLENTY)
    recent.take(window())
    recent.forget(["run"])
    assert recent.columns("run", "") == []
    assert (recent.size, recent.newest_seq("run")) == (0, None)


def test_groups_are_apart() -> None:
    recent = Recent(PLENTY)
    recent.take(window(group="actor"))
    recent.take(window(first_step=4, group="critic"))
    assert [column.first_step for column in recent.columns("run", "actor")] == [0]
    assert recent.ends("run", "nobody").n_columns == 0


def test_ten_thousand_ranks_take_a_byte_for_each_section() -> None:
    """36 MB for 360 windows of ten sections: that is what the budget is for."""
    recent = Recent(PLENTY)
    recent.take(window(10_000))
    assert recent.size == 3 * 10_000
    assert recent.columns("run", "")[0].values.dtype == np.uint8
