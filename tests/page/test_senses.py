"""The page by ear, by finger, in large text and in the colours of the system."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .scenarios import ended, hang, healthy, straggler
from .test_parts import expect, part

pytestmark = pytest.mark.browser

UNHEARD = """() => {
    const seen = [...document.querySelectorAll("main *")].filter(e => e.checkVisibility());
    const of = selector => seen.filter(e => e.matches(selector));
    const levels = of("h1, h2, h3").map(e => Number(e.tagName[1]));
    const jumps = levels.filter((level, i) => level > (levels[i - 1] ?? 0) + 1);
    const regions = of("section:not([aria-label]):not([aria-labelledby]):not(.first-steps)");
    const tables = of("table").filter(e => !e.caption || !e.querySelector("thead th[scope=col]")
        || [...e.tBodies[0].rows].some(row => !row.querySelector("th[scope=row]")));
    const charts = of("canvas:not([aria-hidden])").filter(e => !e.getAttribute("aria-valuetext")
        && !e.closest("section").querySelector("table"));
    if (levels.filter(level => level === 1).length !== 1) jumps.push("h1");
    return [...jumps, ...[...regions, ...tables, ...charts].map(e => e.outerHTML.slice(0, 120))];
}"""
"""Headings that leave a level out, nameless regions, tables without heads, charts without words."""


def test_what_is_seen_is_heard(show: Any) -> None:
    """In every state: headings in order, named regions, tables with heads, charts with a table."""
    page, collector = show(straggler())
    rows = {
        "The slowest workers": r"^rank 21 on node-2 \S+ its peers stage 1, data rank 5 ok slow",
        "The slowest ranks of the newest window": r"^rank 21 on node-2 \S+ its peers step .* slow",
        "The slowest ranks of the newest window, all sections together": r"forward, 1\.5",
    }
    for caption, text in rows.items():
        table = page.get_by_role("table", name=caption, exact=True)
        expect(table.get_by_role("row", name=re.compile(text))).to_have_count(1)
    states = {"Act": straggler, "Healthy": healthy, "Ended": ended}
    for word, scenario in states.items():
        collector.show(scenario())
        expect(part(page, "answer").locator(".eyebrow")).to_have_text(word)
        assert page.evaluate(UNHEARD) == []
    collector.show(hang())
    expect(part(page, "answer")).to_have_attribute("data-kind", "hang")
    assert page.evaluate(UNHEARD) == []


def test_a_page_without_runs_is_heard_too(show: Any) -> None:
    """One heading on top, and no way past a bar to an answer that is not there."""
    page, _ = show()
    assert page.evaluate(UNHEARD) == []
    expect(page.get_by_role("link", name="Skip to the answer")).to_be_hidden()


def test_a_panel_that_would_hide_the_focus_closes(show: Any) -> None:
    """Who tabs out of it, back into the page below, sees where the focus is."""
    page, _ = show(straggler(), viewport={"width": 400, "height": 800})
    page.get_by_role("button", name="All about rank 21").focus()
    page.keyboard.press("Enter")
    expect(part(page, "rank").locator("h2")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(part(page, "rank")).to_be_hidden()
    expect(part(page, "verdicts").locator(":focus")).to_have_count(1)


def test_what_moves_among_its_siblings_keeps_the_focus(show: Any) -> None:
    """A list that is sorted anew does not throw out who walks through it."""
    page, _ = show(healthy())
    assert page.evaluate(
        """async () => {
            const {el, patch} = await import("./page/js/dom.js");
            const place = document.querySelector("[data-part=figures]");
            const list = names => names.map(name => el("button", {key: name}, name));
            patch(place, list(["a", "b", "c"]));
            place.children[2].focus();
            patch(place, list(["c", "b", "a"]));
            return document.activeElement.textContent;
        }"""
    ) == "c"  # fmt: skip


def test_large_text_and_system_colours(show: Any) -> None:
    """Charts grow with text and nothing is cut off; bars and marks do not vanish."""
    page, _ = show(
        straggler(), viewport={"width": 640, "height": 800}, forced_colors="active"
    )  # fmt: skip
    canvas = part(page, "matrix").locator("canvas")
    before = canvas.bounding_box()["height"]
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    page.wait_for_function(
        "([canvas, before]) => canvas.getBoundingClientRect().height > 1.9*before",
        arg=[canvas.element_handle(), before],
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(
        """() => [".bar-fill", ".stack .shade", ".chart-mark-flagged"].filter(name => {
            const colour = e => getComputedStyle(e).backgroundColor;
            return colour(document.querySelector(name)) === colour(document.body);
        })"""
    ) == []  # fmt: skip


def test_fingers_zoom_pan_and_choose(show: Any) -> None:
    """Two zoom, one pans what is zoomed, a tap opens the rank; what is whole scrolls the page."""
    page, _ = show(
        straggler(), viewport={"width": 400, "height": 800}, has_touch=True, is_mobile=True
    )
    cdp = page.context.new_cdp_session(page)
    chart = part(page, "rank-time")
    canvas = chart.locator("canvas.chart-canvas")
    canvas.scroll_into_view_if_needed()
    expect(canvas).to_have_css("touch-action", "pan-y")
    box = canvas.bounding_box()
    x, y = box["x"] + 150, box["y"] + box["height"] / 2

    def drag(*ways: tuple[float, float]) -> None:
        for part_of_way in range(5):
            points = [
                {"x": x, "y": y + from_y + by * part_of_way / 4, "id": finger}
                for finger, (from_y, by) in enumerate(ways)
            ]
            kind = "touchMove" if part_of_way else "touchStart"
            cdp.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        cdp.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    drag((-30, -80), (30, 80))
    expect(canvas).to_have_css("touch-action", "none")
    expect(chart).not_to_have_attribute("data-first-rank", "0")
    first = chart.get_attribute("data-first-rank")
    drag((0, -80))
    expect(chart).not_to_have_attribute("data-first-rank", first)
    page.touchscreen.tap(x, y)
    expect(part(page, "rank")).to_be_visible()
