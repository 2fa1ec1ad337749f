"""A collector that dies and comes back on the same port, seen from a page that stays open."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from .conftest import ask, eventually
from .live import LivePage, expect

pytestmark = pytest.mark.browser
TRY_NOW = "() => document.querySelector('[data-part=notice] button')?.click()"
"""The page may have tried by itself, and the button is gone."""
NOT_AWAY = re.compile("^(live|ended)$")


def test_with_a_history_the_picture_comes_back_and_goes_on(
    world: Any, look: Any, tmp_path: Path
) -> None:
    """Reconnecting, then the windows from before, then live with those that follow."""
    history = {"path": str(tmp_path / "history.db")}
    collector = world.collector(history=history)
    feed = world.feed(collector, "lasting", "pp2,dp4", "compute:1.5@rank5:step20").advance(200)
    page = look(collector)
    page.is_connected()
    page.says("answer.headline", "Rank 5")
    before = eventually(lambda: columns(page) >= 9 and columns(page))
    page.watched.expects_trouble = True  # nobody answers for a while
    collector.close()
    page.has("connection", "data-state", "reconnecting")
    page.says("answer.headline", "Rank 5")
    again = world.collector(addresses=collector.addresses, history=history)
    page.has("connection", "data-state", NOT_AWAY)
    eventually(lambda: columns(page) >= before)
    page.says("answer.headline", "the collector was restarted")
    page.says("answer.sentence", "last known state is shown: rank 5")
    expect(page.page.locator(".notice")).to_contain_text("This is the run as of")
    feed.advance(40)
    page.is_connected()
    eventually(lambda: columns(page) > before)
    page.says("answer.headline", "Rank 5")
    assert ask(again, "/v1/runs")["runs"][0]["run_id"] == "lasting"


def test_one_that_was_killed_comes_back_too(world: Any, look: Any, tmp_path: Path) -> None:
    """As when memory runs out: nothing was put in order before."""
    history = {"path": str(tmp_path / "history.db")}
    collector = world.collector(history=history)
    feed = world.feed(collector, "lasting").advance(100)
    page = look(collector)
    page.is_connected()
    page.watched.expects_trouble = True
    collector.kill()
    page.has("connection", "data-state", "reconnecting")
    world.collector(addresses=collector.addresses, history=history)
    feed.advance(60)
    page.is_connected()
    page.says("picker", "lasting")
    eventually(lambda: columns(page) >= 2)


def test_without_a_history_the_run_is_new(world: Any, look: Any) -> None:
    """Nothing of the old windows is left on the page, and no reload is needed."""
    collector = world.collector()
    feed = world.feed(collector, "short").advance(200)
    page = look(collector)
    page.is_connected()
    before = eventually(lambda: columns(page) >= 9 and columns(page))
    page.watched.expects_trouble = True
    collector.kill()
    page.has("connection", "data-state", "reconnecting")
    world.collector(addresses=collector.addresses)
    expect(page.part("connection")).not_to_have_attribute("data-state", "reconnecting")
    feed.advance(60)
    page.is_connected()
    page.says("picker", "short")
    eventually(lambda: 1 <= columns(page) < before)


def test_while_nobody_answers_the_page_says_how_old_its_picture_is(world: Any, look: Any) -> None:
    """The picture stays, and somebody may try at once."""
    collector = world.collector()
    world.feed(collector, "gone").advance(100)
    page = look(collector)
    page.is_connected()
    expect(page.part("answer")).to_be_visible()
    page.watched.expects_trouble = True
    collector.kill()
    page.has("connection", "data-state", "reconnecting")
    expect(page.part("answer")).to_be_visible()
    page.page.get_by_role("button", name="Try now").click()
    page.has("connection", "data-state", "reconnecting")
    world.collector(addresses=collector.addresses)
    page.page.evaluate(TRY_NOW)
    expect(page.part("connection")).not_to_have_attribute("data-state", "reconnecting")


def columns(page: LivePage) -> int:
    return int(page.attribute("rank-time", "data-columns") or 0)
