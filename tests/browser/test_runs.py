"""No run, a first one, many, one that has ended, and two tabs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .conftest import QUICK, ask, eventually
from .live import expect
from .test_reconnect import columns
from .test_using import choose_run

pytestmark = pytest.mark.browser

MANY = 120


def test_without_any_run_the_page_says_what_to_do_and_the_first_one_appears(
    world: Any, look: Any
) -> None:
    """Nobody has to reload."""
    collector = world.collector()
    page = look(collector)
    expect(page.page.locator("main")).to_contain_text(re.compile("doctor|configure", re.IGNORECASE))
    expect(page.part("answer")).not_to_be_visible()
    world.feed(collector, "first").advance(100)
    page.says("picker", "first")
    expect(page.part("answer")).to_be_visible()
    page.is_connected()


def test_a_link_that_is_opened_before_the_first_data_waits_for_them(world: Any, look: Any) -> None:
    """Rank 0 prints it at the start; nobody has to reload, nor is told to start a training."""
    collector = world.collector()
    page = look(collector, "#run=later")
    page.watched.expects_trouble = True  # 404 for what is not there yet
    page.says("notice", "Waiting for the first data of run later")
    expect(page.part("first-steps")).not_to_be_visible()
    world.feed(collector, "other").advance(20)
    expect(page.part("picker")).to_be_visible()
    page.says("notice", "Waiting for the first data of run later")
    world.feed(collector, "later").advance(100)
    page.says("picker", "later")
    expect(page.part("answer")).to_be_visible()
    expect(page.part("notice")).not_to_be_visible()
    page.is_connected()


def test_a_run_that_ends_is_said_to_have_ended(world: Any, look: Any) -> None:
    """While the page is open; its picture stays."""
    collector = world.collector()
    feed = world.feed(collector, "ends", "pp2,dp4").advance(160)
    page = look(collector)
    page.is_connected()
    feed.finish()
    page.has("connection", "data-state", "ended")
    expect(page.part("matrix")).to_be_visible()
    assert ask(collector, "/v1/runs")["runs"][0]["tone"] == "ended"


def test_many_runs_are_found_by_typing(world: Any, look: Any) -> None:
    """The slow one of 120 comes first, the last of the others is found by its name."""
    collector = world.collector(scoring={**QUICK["scoring"], "max_runs": 200})
    for number in range(MANY):
        fault = ("compute:1.6@rank1:step20",) if number == 77 else ()
        feed = world.feed(collector, f"job-{number:03d}", "dp4", *fault, seed=number)
        feed.advance(140 if fault else 20)
        feed.close()
    eventually(lambda: len(ask(collector, "/v1/runs")["runs"]) == MANY)
    eventually(lambda: ask(collector, "/v1/runs")["runs"][0]["run_id"] == "job-077")
    page = look(collector)
    page.says("picker", "job-077")
    page.part("picker").get_by_role("button").first.click()
    page.page.keyboard.type("119")
    page.part("picker").get_by_role("option", name=re.compile("job-119")).click()
    page.says("picker", "job-119")
    expect(page.page).to_have_url(re.compile("job-119"))


def test_two_tabs_show_two_runs_and_both_go_on(world: Any, look: Any) -> None:
    """Each is told of its own run, also after the other was closed."""
    collector = world.collector()
    feeds = {name: world.feed(collector, name, seed=n) for n, name in enumerate(("one", "two"))}
    for feed in feeds.values():
        feed.advance(100)
    eventually(lambda: len(ask(collector, "/v1/runs")["runs"]) == 2)
    first = look(collector, "#run=one")
    second = look(collector, "#run=two", beside=first.watched)
    tabs = {"one": first, "two": second}
    for name, tab in tabs.items():
        tab.says("picker", name)
        before = columns(tab)
        feeds[name].advance(60)
        eventually(lambda tab=tab, before=before: columns(tab) > before)
    first.page.close()
    before = columns(second)
    feeds["two"].advance(60)
    eventually(lambda: columns(second) > before)
    choose_run(second, "one")
    second.says("picker", "one")
