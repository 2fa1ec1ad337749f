"""Four things that go wrong look different, on the rendered page."""

from __future__ import annotations

import contextlib
import re
import statistics
from collections.abc import Iterator
from typing import Any

import pytest
from stories import COLLECTOR, STORIES, Story, running

from .conftest import ask, eventually
from .live import LivePage, expect

pytestmark = pytest.mark.browser

STEPS = 160
WARM = 15.0
"""Of 255; a cell of no slowdown has 3, one that is 6 % slow 20."""


@pytest.fixture(scope="module")
def collector(lasting: Any) -> Iterator[Any]:
    """All four train, or hang, under one collector."""
    started = lasting.collector(**COLLECTOR)
    with contextlib.ExitStack() as stack:
        for story in STORIES:
            stack.enter_context(running(story.arguments(STEPS), started.endpoint))
        yield started


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_the_page_says_why_and_shows_the_pattern(collector: Any, look: Any, story: Story) -> None:
    """The cause in words, and the workers that are hot or silent in the matrix."""
    eventually(lambda: is_reported(collector, story), 120)
    page = look(collector, f"#run={story.name}")
    page.says("answer", story.says)
    page.has("matrix", "data-pattern", story.pattern)
    if story.hot is not None:
        assert cells(page, "data-hot") == story.hot
    assert cells(page, "data-silent") == story.silent
    everybody = frozenset((stage, data) for stage in range(4) for data in range(8))
    assert warm_workers(page) == (everybody if story.hot is None else story.hot | story.silent)
    page.watched.keep(f"story-{story.name}")


def test_causes_and_patterns_differ_pairwise(collector: Any, look: Any) -> None:
    """Nobody who looks takes one for another."""
    seen = []
    for story in STORIES:
        eventually(lambda story=story: is_reported(collector, story), 120)
        page = look(collector, f"#run={story.name}")
        page.has("matrix", "data-pattern", story.pattern)
        expect(page.field("headline")).not_to_be_empty()
        why = page.field("headline").inner_text(), page.field("sentence").inner_text()
        seen.append((page.attribute("matrix", "data-pattern"), *why))
    for column in zip(*seen, strict=True):
        assert len(set(column)) == len(STORIES), column


def is_reported(collector: Any, story: Story) -> bool:
    runs = {run["run_id"] for run in ask(collector, "/v1/runs")["runs"]}
    if story.name not in runs:
        return False
    run_view = ask(collector, f"/v1/run?run={story.name}")
    printed = f"{run_view['answer']['headline']} {run_view['answer']['sentence']}"
    return story.says in printed and run_view["heat"]["pattern"] == story.pattern


def cells(page: LivePage, attribute: str) -> frozenset[tuple[int, int]]:
    """(stage, data rank) of the workers that the matrix marks so."""
    reported = page.attribute("matrix", attribute) or ""
    indexes = (index.split(",") for index in reported.split(";") if index)
    return frozenset((int(stage), int(data)) for stage, data in indexes)


def warm_workers(page: LivePage) -> frozenset[tuple[int, int]]:
    """Workers whose cells are drawn with clearly more red than blue."""
    at: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for text, x, y in page.indexes_in_chart("matrix"):
        if result := re.search(r"stage (\d+), data rank (\d+)", text):
            at.setdefault((int(result[1]), int(result[2])), []).append((x, y))
    middles = [tuple(map(statistics.fmean, zip(*indexes, strict=True))) for indexes in at.values()]
    colours = page.colours("matrix", middles)
    return frozenset(
        worker for worker, (red, _, blue) in zip(at, colours, strict=True) if red - blue > WARM
    )
