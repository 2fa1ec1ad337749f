"""What each part of the page shows of canned pictures, in a real Chromium."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .scenarios import (
    SCENARIOS,
    ended,
    hang,
    healthy,
    history,
    hostile,
    huge,
    imbalance,
    straggler,
    waiting,
)

pytestmark = pytest.mark.browser
by_night = pytest.mark.nightly
THEMES = ("light", "dark")


def expect(result: Any) -> Any:
    from playwright.sync_api import expect as playwright_expect

    return playwright_expect(result)


def part(page: Any, name: str) -> Any:
    return page.locator(f"[data-part={name}]")


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "huge"])
@pytest.mark.parametrize("theme", [THEMES[0], pytest.param(THEMES[1], marks=by_night)])
def test_every_picture_has_its_answer_first(show: Any, name: str, theme: str) -> None:
    """As the only first heading, in both themes, without a hole in any text."""
    world = SCENARIOS[name]()
    page, _ = show(world, color_scheme=theme)
    expect(page.locator("html")).to_have_attribute("data-theme", theme)
    headline = page.locator("h1:visible")
    expect(headline).to_have_count(1)
    expect(headline).to_be_in_viewport()
    text = page.locator("body").inner_text()
    assert not re.search(r"\b(undefined|NaN|null|Infinity)\b|\[object", text)


@pytest.mark.parametrize(
    ("world", "tone"),
    [
        (healthy, "good"),
        (imbalance, "watch"),
        (hang, "bad"),
        (waiting, "unknown"),
        (ended, "ended"),
    ],
)
def test_the_tone_is_a_word_and_a_mark_too(show: Any, world: Any, tone: str) -> None:
    """Who sees no colours sees the same."""
    page, _ = show(world())
    answer = part(page, "answer")
    expect(answer).to_have_attribute("data-tone", tone)
    text = {
        "good": "Healthy",
        "watch": "eye",
        "bad": "Act",
        "unknown": "Not known",
        "ended": "Ended",
    }
    expect(answer.locator(".eyebrow")).to_contain_text(text[tone])
    assert answer.locator(".answer-mark").inner_text()


def test_a_slow_rank_is_told_in_every_part(show: Any) -> None:
    """Who, since when, why, what it costs, what to do; and the proof below."""
    page, _ = show(straggler())
    expect(part(page, "answer").locator("[data-field=headline]")).to_have_text(
        "Rank 21 on node-2 is slow in forward"
    )
    for name, reported in {
        "answer": [
            "1.50\u00d7",
            "165 ms",
            "110 ms",
            "slow GPU",
            "9.2 GPU-h per hour",
            "Compare its",
        ],
        "figures": ["458 ms", "15 %", "64 of 64", "18,240", "1.7 %"],
        "ledger": ["forward", "165 ms", "rank 21"],
        "waits": ["rank 21", "96 s"],
        "liveness": ["64 ok"],
        "alerts": ["StragglerRankStraggling", "critical"],
        "verdicts": ["confirmed", "suspect", "recovered", "its disk is being replaced", "node-7"],
        "connection": ["live", "data"],
        "picker": ["llama-7b"],
    }.items():
        for text in reported:
            expect(part(page, name)).to_contain_text(text)
    expect(part(page, "matrix")).to_have_attribute("data-pattern", "hot_cell")
    assert page.title().startswith("✕ Rank 21")


def test_a_hang_names_the_silent_rank_among_the_waiting(show: Any) -> None:
    """It is the first of those to look at."""
    page, _ = show(hang())
    expect(part(page, "answer")).to_contain_text("since the last heartbeat")
    expect(part(page, "liveness").locator("tbody tr").first).to_contain_text("rank 11")
    expect(part(page, "liveness")).to_contain_text("63 stuck")
    expect(part(page, "figures")).to_contain_text("1 lost")


@pytest.mark.parametrize("world", [ended, history])
def test_a_run_that_is_over_says_so(show: Any, world: Any) -> None:
    """When, and whether anybody still sends."""
    page, _ = show(world())
    expect(part(page, "connection")).to_have_attribute("data-state", "ended")
    reported = "This run finished" if world is ended else "history"
    expect(part(page, "notice")).to_contain_text(reported)


def test_without_a_run_the_page_says_what_to_do(show: Any) -> None:
    """The five lines with this collector's name in them; the run appears by itself."""
    page, collector = show()
    steps = part(page, "first-steps")
    expect(steps).to_contain_text('ots.configure(endpoint="http://127.0.0.1:4318")')
    expect(steps).to_contain_text("otel-straggler doctor")
    expect(part(page, "answer")).to_be_hidden()
    collector.show(healthy())
    expect(part(page, "answer")).to_contain_text("All 64 ranks are alike")
    expect(steps).to_be_hidden()


def test_the_panel_of_a_rank_shows_all_of_it(show: Any) -> None:
    """Sections beside peers, its past as a line, waits, verdicts, commands."""
    page, collector = show(straggler(), at="#rank=21")
    panel = part(page, "rank")
    for text in ("Rank 21", "node-2", "H200", "forward", "made others wait", "confirmed"):
        expect(panel).to_contain_text(text)
    expect(part(page, "connection")).to_be_in_viewport()
    box, bar = panel.bounding_box(), page.locator(".top-bar").bounding_box()
    assert box["y"] >= bar["y"] + bar["height"] - 1
    expect(panel.locator("svg.spark")).to_have_count(5)
    expect(panel.locator("code").last).to_have_text(
        f"otel-straggler verdict explain 21 --run llama-7b-0412 --collector {collector.url[:-1]}"
    )


@pytest.mark.parametrize("theme", THEMES)
def test_names_from_the_network_are_text(show: Any, theme: str) -> None:
    """Markup in every name: nothing of it becomes an element, nothing runs, nothing is cut."""
    page, _ = show(hostile(), at="#rank=3", color_scheme=theme)
    for name in ("answer", "picker", "ledger", "waits", "liveness", "alerts", "verdicts", "rank"):
        expect(part(page, name)).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("img, iframe, object, a[href^='javascript']").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    part(page, "matrix").locator("canvas").first.press("ArrowRight")  # it says what is there
    for name in ("rank-time", "sections"):
        part(page, name).locator("canvas").first.hover(position={"x": 200, "y": 60})
    assert "\ufffd" in (part(page, "matrix").text_content() or "")
    assert "\u202e" not in (page.locator("body").text_content() or "")
    assert "\u202e" not in page.title()


def test_ten_thousand_ranks_are_one_strip(show: Any) -> None:
    """With counts beside it, and the three that are not well by name."""
    page, _ = show(huge())
    liveness = part(page, "liveness")
    expect(liveness).to_contain_text("9,997 ok")
    expect(liveness.locator("tbody tr")).to_have_count(3)
    assert liveness.locator("canvas").bounding_box()["height"] < 140
    assert page.locator("body *").count() < 3000


def test_a_new_picture_changes_what_is_shown_and_keeps_the_focus(show: Any) -> None:
    """Nobody who reads with the keyboard is thrown out by new numbers."""
    page, collector = show(straggler())
    link = part(page, "waits").locator(".rank-link").nth(2)
    link.focus()
    before = page.evaluate("document.activeElement.textContent")
    collector.show(straggler(), answer={"headline": "Rank 21 is still slow"})
    expect(part(page, "answer").locator("h1")).to_have_text("Rank 21 is still slow")
    assert page.evaluate("document.activeElement.textContent") == before


def test_a_changed_answer_is_said_once(show: Any) -> None:
    """What is read aloud is the headline, not every number; at the start nothing is."""
    page, collector = show(healthy())
    announcer = part(page, "announcer")
    expect(announcer).to_have_attribute("aria-live", "polite")
    expect(announcer).to_have_text("")
    collector.show(straggler())
    expect(announcer).to_have_text("Act: Rank 21 on node-2 is slow in forward")
    assert page.locator(
        "[aria-live]:not(.visually-hidden):not([data-part=announcer])"
    ).evaluate_all("all => all.every(each => getComputedStyle(each).clipPath !== 'none')")
