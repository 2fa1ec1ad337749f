"""What the ranks of a group agree on before they compare: names, and where tensors lie."""

from __future__ import annotations

import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from otel_straggler.errors import UsageError
from otel_straggler.model.observation import Section
from otel_straggler.report.columns import Columns, Member
from otel_straggler.report.peers import _device
from otel_straggler.report.reporter import ReportSettings
from otel_straggler.report.window import ReportWindow

RANKS = 3
Names = list[str]


def member(rank: int) -> Member:
    return Member(rank=rank, node=f"node-{rank}", role="r", settings="s")


class World:
    """The tables of all ranks, which tell each other what is new."""

    def __init__(self) -> None:
        self.tables = [Columns() for _ in range(RANKS)]

    def agree(self, sections: list[Names], kernels: list[Names] | None = None) -> int:
        """How many ranks had news."""
        news = [
            table.news(member(rank), [Section(name) for name in sections[rank]], kernels_of)
            for rank, (table, kernels_of) in enumerate(
                zip(self.tables, kernels or [[]] * RANKS, strict=True)
            )
        ]
        reported = [
            new or table.no_news(member(rank))
            for rank, (new, table) in enumerate(zip(news, self.tables, strict=True))
        ]
        assert all(table.learn(reported) for table in self.tables)
        return sum(map(bool, news))


def test_names_get_consecutive_places_that_are_alike_on_all_ranks() -> None:
    """Whoever ran what; and they stay where they are when others are added."""
    world = World()
    assert world.agree([["a", "b"], ["b", "c"], []], [["k1"], ["k2", "k1"], []]) == RANKS
    first = dict(world.tables[0].index)
    assert sorted(first.values()) == list(range(5))
    assert all(table.index == first for table in world.tables)
    assert world.agree([["a"], ["d"], ["a"]], [["k1"], [], ["k3"]]) == 2
    indexes = world.tables[0].index
    assert all(table.index == indexes for table in world.tables)
    assert {column: indexes[column] for column in first} == first
    assert sorted(indexes.values()) == list(range(7))


def test_a_rank_that_has_nothing_new_says_nothing() -> None:
    """So a report in the steady state exchanges no names."""
    world = World()
    world.agree([["a"]] * RANKS)
    assert world.agree([["a"], [], ["a"]]) == 0


def test_tables_that_differ_are_not_mixed() -> None:
    """A rank that forgot: nobody learns anything until all have forgotten."""
    world = World()
    world.agree([["a"], ["b"], ["c"]])
    world.tables[1].reset()
    reported = [
        world.tables[rank].news(member(rank), [Section("a")], [])
        or world.tables[rank].no_news(member(rank))
        for rank in range(RANKS)
    ]
    assert [table.learn(reported) for table in world.tables] == [False] * RANKS
    assert len(world.tables[0].index) == 3
    for table in world.tables:
        table.reset()
    assert world.agree([["a"]] * RANKS) == RANKS


def test_who_has_no_news_is_briefer_than_who_has_some() -> None:
    """The longest news is known to all, and everything else fits into it."""
    table = Columns()
    assert len(table.no_news(member(0))) < len(table.news(member(0), [], []))


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ("cpu:gloo,cuda:nccl", "cpu"),
        ("cuda:nccl", "cuda:1"),
        ("cpu:gloo,cuda:gloo", "cpu"),
        ("cpu:mpi", "cpu"),
    ],
)
def test_tensors_lie_where_the_backend_of_the_group_can_reach_them(
    served: str, expected: str
) -> None:
    """Mixed backends report over the CPU: no device is touched."""
    fake_torch: Any = SimpleNamespace(
        device=torch.device, cuda=SimpleNamespace(current_device=lambda: 1)
    )
    fake_dist: Any = SimpleNamespace(get_backend_config=lambda _: served)
    assert _device(fake_torch, fake_dist, object()) == torch.device(expected)


def test_a_real_group_of_gloo_reports_over_the_cpu(tmp_path: Any) -> None:
    """By what torch says of it."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/s", rank=0, world_size=1)
    try:
        assert _device(torch, dist, dist.group.WORLD) == torch.device("cpu")
    finally:
        dist.destroy_process_group()


def test_no_thread_of_a_destroyed_group_lives_on(tmp_path: Any) -> None:
    """Such a thread may abort the process at its exit; a later report says what is wrong."""
    before = gloo_threads()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/s", rank=0, world_size=1)
    group = dist.new_group([0])
    window = ReportWindow(ReportSettings(), group)
    for_all, for_some = ReportWindow(ReportSettings()), window.peers()
    for_all.peers()
    groups = [weakref.ref(each) for each in (group, dist.group.WORLD)]
    del group
    dist.destroy_process_group()
    assert [each() for each in groups] == [None, None]
    assert gloo_threads() <= before
    for call in (window.peers, lambda: for_some.minimum(np.zeros(1))):
        with pytest.raises(UsageError, match="destroyed"):
            call()


def gloo_threads() -> set[str]:
    """Ids; other tests of this process may have left some."""
    tasks = Path("/proc/self/task").glob("*/comm")
    return {task.parent.name for task in tasks if "gloo" in task.read_text()}
