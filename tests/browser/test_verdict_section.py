"""What a verdict in one section looks like on the page: charts, ratios, and commands agree."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .conftest import ask, eventually
from .live import LivePage, expect

pytestmark = pytest.mark.browser

SLOW = 2
CLIPPED = """() => [...document.querySelectorAll(".command code")]
    .filter(e => e.checkVisibility() && e.scrollWidth > e.clientWidth).map(e => e.textContent)"""


@pytest.fixture(scope="module")
def collector(lasting: Any) -> Any:
    """One run, in which rank 2 is slow in forward alone."""
    started = lasting.collector()
    lasting.feed(started, "run", "dp6", f"forward:1.5@rank{SLOW}:step20").advance(240)
    eventually(lambda: ask(started, "/v1/runs")["runs"])
    eventually(lambda: ask(started, "/v1/run?run=run")["answer"]["section"] == "forward")
    return started


def section_of(page: LivePage) -> Any:
    return page.part("rank-time").get_by_role("combobox", name="section")


def test_charts_open_in_the_section_of_the_verdict(collector: Any, look: Any) -> None:
    """And show all sections to who asks for them, also in an address that is shared."""
    page = look(collector)
    expect(section_of(page)).to_have_value("forward")
    section_of(page).select_option("")
    expect(section_of(page)).to_have_value("")
    expect(page.page).to_have_url(re.compile(r"section=(&|$)"))
    page.reload()
    expect(section_of(page)).to_have_value("")


def test_the_matrix_says_what_the_headline_says(collector: Any, look: Any) -> None:
    """The same ratio, of the same base: its peers, in forward."""
    heat = ask(collector, "/v1/run?run=run")["heat"]
    answer = ask(collector, "/v1/run?run=run")["answer"]
    assert (heat["base"], heat["section"]) == ("peers", "forward")
    hottest = max(slowdown for _, _, slowdown in heat["cells"])
    assert hottest == pytest.approx(answer["peers"]["slowdown"], rel=0.05)
    page = look(collector)
    page.says("answer.peers", "as long as its 5 peers in forward")
    expect(page.page.locator(".card:has([data-part=matrix]) .card-head p")).to_have_text(
        "Own time of every worker / its peers, in forward"
    )


@pytest.mark.parametrize("width", [400, 1400])
def test_commands_are_whole_and_dismissing_is_folded(collector: Any, look: Any, width: int) -> None:
    """What explains is seen with all its arguments; what silences takes a click more."""
    page = look(collector, viewport={"width": width, "height": 900})
    assert page.page.evaluate(CLIPPED) == []
    advice = page.part("answer").locator(".advice")
    expect(advice.get_by_text("verdict explain")).to_be_visible()
    expect(advice.get_by_text("verdict dismiss")).not_to_be_visible()
    advice.get_by_text("Known, or not a problem?").click()
    expect(advice.get_by_text("verdict dismiss")).to_be_visible()
    assert page.page.evaluate(CLIPPED) == []


def test_a_small_matrix_has_no_larger_legend(collector: Any, look: Any) -> None:
    """What the patterns mean is folded until somebody asks."""
    page = look(collector)
    expect(page.part("matrix").get_by_text("a hot row")).not_to_be_visible()
    page.part("matrix").get_by_text("What the patterns mean").click()
    expect(page.part("matrix").get_by_text("a hot row")).to_be_visible()


def test_cards_next_to_each_other_are_about_as_high_as_what_is_in_them(
    collector: Any, look: Any
) -> None:
    """No card of charts is half empty."""
    page = look(collector, viewport={"width": 1400, "height": 900})
    empty = page.page.evaluate(
        """() => ["matrix", "rank-time", "sections", "ledger"].map(name => {
            const part = document.querySelector(`[data-part=${name}]`);
            const card = part.closest(".card").getBoundingClientRect();
            return (card.bottom - part.getBoundingClientRect().bottom) / card.height;
        })"""
    )
    assert max(empty) < 0.3, empty


def test_legends_of_a_narrow_page_are_one_line(collector: Any, look: Any) -> None:
    page = look(collector, viewport={"width": 400, "height": 900})
    heights = page.page.evaluate(
        "() => [...document.querySelectorAll('.chart-legend')].map(e => e.offsetHeight)"
    )
    assert len(heights) == 3
    assert max(heights) <= 48, heights  # one line of names, one of figures


def test_a_chart_of_a_narrow_page_leaves_room_for_the_next(collector: Any, look: Any) -> None:
    page = look(collector, viewport={"width": 400, "height": 900})
    heights = page.page.evaluate(
        "() => [...document.querySelectorAll('.chart-body')].map(e => e.offsetHeight)"
    )
    assert len(heights) == 3
    assert max(heights) <= 250, heights
