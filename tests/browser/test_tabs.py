"""Many tabs of one browser: it has six connections to a collector, for all of them together."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import eventually
from .live import LivePage

pytestmark = pytest.mark.browser

TABS = 7
STREAMS = 3
"""So many tabs have a stream of events at a time; the others ask."""
HELD_STREAMS = """async () =>
    (await navigator.locks.query()).held.filter(lock => /stream/.test(lock.name)).length"""
HIDE = """() => {
    Object.defineProperty(document, "hidden", {get: () => true});
    document.dispatchEvent(new Event("visibilitychange"));
}"""
"""As when a person turns to another tab; all tabs of a headless browser are in sight."""


def test_one_tab_more_than_connections(world: Any, look: Any) -> None:
    """All load and follow the run, also when those with a stream are closed or hidden."""
    collector = world.collector()
    feed = world.feed(collector, "run", "dp4").advance(60)
    first = look(collector)
    tabs = [first, *(look(collector, beside=first.watched) for _ in range(TABS - 1))]
    assert first.page.evaluate(HELD_STREAMS) == STREAMS
    all_follow(tabs, feed)
    for tab in tabs[:2]:
        tab.page.close()
    tabs[2].page.evaluate(HIDE)
    eventually(lambda: tabs[-1].page.evaluate(HELD_STREAMS) == STREAMS)
    all_follow(tabs[3:], feed)


def all_follow(tabs: list[LivePage], feed: Any) -> None:
    """Each shows windows that come now."""
    before = [columns(tab) for tab in tabs]
    feed.advance(40)
    for tab, seen in zip(tabs, before, strict=True):
        eventually(lambda tab=tab, seen=seen: columns(tab) > seen)


def columns(tab: LivePage) -> int:
    return int(tab.attribute("rank-time", "data-columns") or 0)
