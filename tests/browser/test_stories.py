"""Four things that go wrong look different, on the rendered page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from stories import COLLECTOR, STORIES, Story, running

from .conftest import ask, eventually
from .live import expect

pytestmark = pytest.mark.browser

STEPS = 160


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
    eventually(lambda: is_told(collector, story), 120)
    page = look(collector, f"#run={story.name}")
    page.says("answer", story.says)
    page.has("matrix", "data-pattern", story.pattern)
    if story.hot is not None:
        assert hot_cells(page) == story.hot
    page.watched.keep(f"story-{story.name}")


def test_causes_and_patterns_differ_pairwise(collector: Any, look: Any) -> None:
    """Nobody who looks takes one for another."""
    seen = []
    for story in STORIES:
        eventually(lambda story=story: is_told(collector, story), 120)
        page = look(collector, f"#run={story.name}")
        page.has("matrix", "data-pattern", story.pattern)
        expect(page.field("headline")).not_to_be_empty()
        why = page.field("headline").inner_text(), page.field("sentence").inner_text()
        seen.append((page.attribute("matrix", "data-pattern"), *why))
    for column in zip(*seen, strict=True):
        assert len(set(column)) == len(STORIES), column


def is_told(collector: Any, story: Story) -> bool:
    runs = {run["run_id"] for run in ask(collector, "/v1/runs")["runs"]}
    if story.name not in runs:
        return False
    picture = ask(collector, f"/v1/run?run={story.name}")
    said = f"{picture['answer']['headline']} {picture['answer']['sentence']}"
    return story.says in said and picture["heat"]["pattern"] == story.pattern


def hot_cells(page: Any) -> frozenset[tuple[int, int]]:
    told = page.attribute("matrix", "data-hot") or ""
    cells = (cell.split(",") for cell in told.split(";") if cell)
    return frozenset((int(stage), int(data)) for stage, data in cells)
