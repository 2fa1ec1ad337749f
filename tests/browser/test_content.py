"""What the live page shows of a run with one slow rank; the collector and the browser are real."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .conftest import ask, eventually, tone_of
from .live import PARTS, LivePage, expect
from .probes import FOCUSED, NAMELESS, POOR_CONTRAST

pytestmark = pytest.mark.browser

LARGEST_BYTES = 1_000_000
SLOW = 5
"""Stage 1, data rank 1 of pp2,dp4."""


@pytest.fixture(scope="module")
def collector(lasting: Any) -> Any:
    """One run, ``slow``, in which rank 5 is slow in all that it computes."""
    started = lasting.collector()
    lasting.feed(started, "slow", "pp2,dp4", f"compute:1.5@rank{SLOW}:step20").advance(240)
    eventually(lambda: tone_of(started, "slow") == "bad")
    eventually(lambda: ask(started, "/v1/run?run=slow")["answer"]["rank"] == SLOW)
    return started


def test_the_answer_is_what_the_collector_says(collector: Any, look: Any) -> None:
    """Who, since when, why, what it costs, with which evidence, and what to do."""
    answer = ask(collector, "/v1/run?run=slow")["answer"]
    page = look(collector)
    page.is_connected()
    page.says("answer.headline", f"Rank {SLOW}")
    page.says("answer.headline", answer["node"])
    page.says("answer.sentence", answer["sentence"][:40])
    page.says("answer.cause", "slow GPU")
    for field in ("since", "cost", "evidence"):
        expect(page.field(field)).not_to_be_empty()
    for advice in answer["advice"]:
        page.says("answer.advice", advice)


def test_every_part_is_there_and_shown(collector: Any, look: Any) -> None:
    """None is missing, empty or hidden."""
    page = look(collector)
    for name in PARTS:
        expect(page.part(name)).to_be_visible()
    expect(page.part("rank")).not_to_be_visible()


def test_parts_show_this_run(collector: Any, look: Any) -> None:
    """Its sections, ranks and windows; the matrix has a hot worker where the slow rank is."""
    page = look(collector)
    page.says("picker", "slow")
    page.has("matrix", "data-pattern", "hot_cell")
    page.has("matrix", "data-hot", "1,1")
    page.has("rank-time", "data-first-rank", "0")
    page.has("rank-time", "data-last-rank", "7")
    assert int(page.attribute("rank-time", "data-columns") or 0) >= 8
    for section in ("forward", "backward", "gradient_sync"):
        page.says("ledger", section)
    expect(page.part("liveness")).to_contain_text(re.compile(r"8\s*ok"))
    page.says("verdicts", f"rank {SLOW}")


def test_the_answer_is_seen_first(collector: Any, look: Any) -> None:
    """Before anything is scrolled, on a laptop's screen: headline, cause and what to do."""
    page = look(collector, viewport={"width": 1280, "height": 720})
    for field in ("headline", "sentence", "cause", "since", "cost", "advice"):
        expect(page.field(field)).to_be_in_viewport()


def test_the_page_is_light(collector: Any, open_page: Any) -> None:
    """All that it loads in its first seconds, uncompressed, is under a megabyte."""
    watched = open_page()
    responses: list[Any] = []

    def remember(response: Any) -> None:
        responses.append(response)

    watched.page.on("response", remember)
    LivePage(watched.goto(f"{collector.url}/")).until_drawn().is_connected()
    finite = [each for each in responses if "/v1/events" not in each.url]
    sizes = {each.url: len(each.body()) for each in finite}
    assert len(sizes) >= 4, sizes
    assert 0 < sum(sizes.values()) < LARGEST_BYTES, sizes


def test_nothing_inline_may_run(collector: Any, open_page: Any) -> None:
    """The page's own policy forbids it, and a browser keeps to it."""
    watched = open_page(f"{collector.url}/")
    LivePage(watched).until_drawn()
    watched.expects_trouble = True
    watched.page.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "window.hasRun = true";
            document.body.append(script);
            const image = document.createElement("img");
            image.setAttribute("onerror", "window.hasRun = true");
            image.src = "data:,nothing";
            document.body.append(image);
        }"""
    )
    watched.page.wait_for_timeout(200)
    assert watched.page.evaluate("window.hasRun") is None
    assert any("Content Security Policy" in error for error in watched.errors), watched.errors


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_the_colours_of_the_system(collector: Any, look: Any, scheme: str) -> None:
    """And all text can be read: contrast of 4.5 and more, 3 where it is large."""
    page = look(collector, color_scheme=scheme)
    expect(page.page.locator("html")).to_have_attribute("data-theme", scheme)
    poor = page.page.evaluate(POOR_CONTRAST)
    assert not poor, poor


def test_what_can_be_used_has_a_name(collector: Any, look: Any) -> None:
    """For people who hear the page: buttons, links, fields and canvases."""
    page = look(collector)
    nameless = page.page.evaluate(NAMELESS)
    assert not nameless, nameless
    assert page.page.locator("html").get_attribute("lang") == "en"
    assert page.page.title()
    assert page.page.locator("h1").count() == 1


def test_the_whole_page_is_walked_with_the_tab_key(collector: Any, look: Any) -> None:
    """Everything that can be used is reached, and what has the focus can be seen."""
    page = look(collector)
    seen: list[str] = []
    for _ in range(200):
        page.page.keyboard.press("Tab")
        result = page.page.evaluate(FOCUSED)
        if result is None:
            break
        assert result["outline"], f"the focus is not seen on {result['name']}"
        seen += result["parts"]
    assert {"picker", "matrix", "rank-time", "sections"} <= set(seen)
