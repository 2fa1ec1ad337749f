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
EACH_PUSH = ("bad-gpu", "hung-rank")
"""A slow rank, and one that hangs; the patterns of the others are drawn from made pictures, too
(tests/page/test_charts.py)."""
Seen = dict[str, tuple[str | None, str, str]]
by_night = pytest.mark.nightly


@pytest.fixture(scope="module")
def collector(lasting: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """All four train, or hang, under one collector; by day those that a test is about."""
    started = lasting.collector(**COLLECTOR)
    mine = [item for item in request.session.items if item.path == request.path]
    is_night = any(item.get_closest_marker("nightly") for item in mine)
    with contextlib.ExitStack() as stack:
        for story in STORIES:
            if is_night or story.name in EACH_PUSH:
                stack.enter_context(running(story.arguments(STEPS), started.endpoint))
        yield started


@pytest.fixture(scope="module")
def seen() -> Seen:
    """Pattern, headline and sentence of the stories whose pages were open."""
    return {}


def opened(collector: Any, look: Any, story: Story, seen: Seen) -> LivePage:
    """The page of a story, once it is told."""
    eventually(lambda: is_reported(collector, story), 120)
    page: LivePage = look(collector, f"#run={story.name}")
    page.says("answer", story.says)
    page.has("matrix", "data-pattern", story.pattern)
    expect(page.field("headline")).not_to_be_empty()
    why = page.field("headline").inner_text(), page.field("sentence").inner_text()
    seen[story.name] = (page.attribute("matrix", "data-pattern"), *why)
    return page


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(story, id=story.name, marks=[by_night] * (story.name not in EACH_PUSH))
        for story in STORIES
    ],
)
def test_the_page_says_why_and_shows_the_pattern(
    collector: Any, look: Any, story: Story, seen: Seen
) -> None:
    """The cause in words, and the workers that are hot or silent in the matrix."""
    page = opened(collector, look, story, seen)
    if story.hot is not None:
        assert cells(page, "data-hot") == story.hot
    assert cells(page, "data-silent") == story.silent
    everybody = frozenset((stage, data) for stage in range(4) for data in range(8))
    assert warm_workers(page) == (everybody if story.hot is None else story.hot | story.silent)
    page.watched.keep(f"story-{story.name}")


@by_night
def test_causes_and_patterns_differ_pairwise(collector: Any, look: Any, seen: Seen) -> None:
    """Nobody who looks takes one for another."""
    for story in STORIES:
        if story.name not in seen:
            opened(collector, look, story, seen)
    for column in zip(*seen.values(), strict=True):
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
