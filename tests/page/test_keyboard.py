"""The page by keyboard alone, and what it does when the collector is away."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .run_views import World
from .scenarios import healthy, huge, straggler
from .test_parts import expect, part

pytestmark = pytest.mark.browser

TRY_NOW = "() => document.querySelector('[data-part=notice] button')?.click()"
"""The page may have tried by itself, and the button is gone."""


def many_runs(number: int) -> list[World]:
    """A slow one first, then healthy ones."""
    well = [
        World(run_id=f"run-{n:03d}", job=f"job-{n % 7}", ranks=8, stages=1) for n in range(number)
    ]
    return [straggler(), *well]


def test_the_first_tab_leads_past_the_bar(show: Any) -> None:
    """To the answer, which then has the focus."""
    page, _ = show(straggler())
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the answer")).to_be_focused()
    page.keyboard.press("Enter")
    expect(part(page, "answer")).to_be_focused()
    assert "Rank 21" in part(page, "answer").inner_text()


def test_one_of_five_hundred_runs_is_found_by_typing(show: Any) -> None:
    """Down, type, Enter: the page shows it, and the focus is back on the button."""
    page, _ = show(*many_runs(500))
    button = page.locator(".run-button")
    expect(button).to_contain_text("+500")
    button.focus()
    page.keyboard.press("Enter")
    box = page.get_by_role("combobox", name=re.compile("Find a run"))
    expect(box).to_be_focused()
    options = page.get_by_role("listbox", name="Runs").get_by_role("option")
    expect(options).to_have_count(100)
    page.keyboard.type("run-417")
    expect(options).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("run=run-417"))
    expect(button).to_be_focused()
    expect(button).to_contain_text("run-417")


def test_escape_closes_the_list_and_changes_nothing(show: Any) -> None:
    """Arrows move the mark; what is marked is told to who listens."""
    page, _ = show(*many_runs(3))
    page.locator(".run-button").click()
    page.keyboard.press("ArrowDown")
    marked = page.locator("[role=option][aria-selected=true]")
    expect(marked).to_contain_text("run-000")
    box = page.get_by_role("combobox", name=re.compile("Find a run"))
    expect(box).to_have_attribute("aria-activedescendant", str(marked.get_attribute("id")))
    page.keyboard.press("Escape")
    expect(page.get_by_role("listbox", name="Runs")).to_have_count(0)
    expect(part(page, "answer")).to_contain_text("Rank 21")


def test_the_list_closes_when_one_looks_elsewhere(show: Any) -> None:
    """By a click beside it."""
    page, _ = show(*many_runs(3))
    page.locator(".run-button").click()
    expect(page.get_by_role("listbox", name="Runs")).to_be_visible()
    part(page, "figures").click()
    expect(page.get_by_role("listbox", name="Runs")).to_have_count(0)


def test_ranks_are_walked_in_the_strip(show: Any) -> None:
    """Arrows, Home and End; each rank is told in words; Enter opens it, Escape closes."""
    page, _ = show(huge())
    strip = part(page, "liveness").locator("canvas")
    strip.focus()
    page.keyboard.press("End")
    expect(strip).to_have_attribute("aria-valuetext", re.compile(r"^rank 9999 on .*stuck"))
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(strip).to_have_attribute("aria-valuetext", re.compile(r"^rank 1 on node-0: ok"))
    page.keyboard.press("Enter")
    panel = part(page, "rank")
    expect(panel.locator("h2")).to_have_text("Rank 1")
    expect(panel.locator("h2")).to_be_focused()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    expect(strip).to_be_focused()


def test_every_stop_of_the_tab_key_can_be_seen_and_has_a_name(show: Any) -> None:
    """From the first to the last, without a trap."""
    page, _ = show(straggler())
    seen = set()
    for _ in range(150):
        page.keyboard.press("Tab")
        stop = page.evaluate(STOP)
        if stop is None:
            break
        assert stop["name"], stop
        assert stop["ring"], stop
        seen.update(stop["parts"])
    else:
        pytest.fail("no end of stops")
    parts = {"picker", "theme", "answer", "matrix", "rank-time", "sections", "ledger", "waits"}
    assert parts | {"liveness", "alerts", "verdicts"} <= seen


STOP = """() => {
    const e = document.activeElement;
    if (!e || e === document.body) return null;
    const style = getComputedStyle(e);
    const parts = [];
    for (let at = e; at; at = at.parentElement) if (at.dataset.part) parts.push(at.dataset.part);
    return {
        html: e.outerHTML.slice(0, 150),
        name: (e.getAttribute("aria-label") || e.labels?.[0]?.textContent || e.textContent).trim(),
        ring: (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2)
            || style.boxShadow !== "none",
        parts,
    };
}"""


def test_chosen_colours_are_remembered_whatever_the_system_says(show: Any) -> None:
    """Also after a reload; without a choice the system decides."""
    page, _ = show(healthy(), color_scheme="dark")
    root = page.locator("html")
    expect(root).to_have_attribute("data-theme", "dark")
    page.emulate_media(color_scheme="light")
    expect(root).to_have_attribute("data-theme", "light")
    page.get_by_role("button", name="Change to dark colours").click()
    expect(root).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(root).to_have_attribute("data-theme", "dark")


def test_on_paper_everything_is_light_and_nothing_to_click(show: Any) -> None:
    """Also where the screen is dark."""
    page, _ = show(straggler(), color_scheme="dark")
    ground = "getComputedStyle(document.querySelector('.card')).backgroundColor"
    assert page.evaluate(ground) != "rgb(255, 255, 255)"
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    expect(page.locator(".copy").first).to_be_hidden()


def test_nothing_moves_for_who_wants_it_still(show: Any) -> None:
    """With prefers-reduced-motion no element has a transition or an animation."""
    page, _ = show(straggler(), reduced_motion="reduce")
    assert page.evaluate(
        "[...document.querySelectorAll('*')].every(e => {"
        "const s = getComputedStyle(e);"
        "return s.transitionDuration === '0s' && s.animationName === 'none'})"
    )


def test_a_collector_that_goes_away_is_said_and_what_is_shown_stays(
    canned: Any, open_page: Any
) -> None:
    """With its age; once the collector is back the page follows it, also another process."""
    collector = canned(healthy())
    watched = open_page(collector.url)
    watched.expects_trouble = True  # nobody answers for a while, on purpose
    page = watched.page
    expect(part(page, "answer")).to_contain_text("All 64 ranks are alike")
    collector.go_away()
    expect(part(page, "connection")).to_have_attribute("data-state", "reconnecting")
    expect(part(page, "notice")).to_contain_text(re.compile(r"has not responded for .* old\."))
    expect(part(page, "answer")).to_contain_text("All 64 ranks are alike")
    expect(page.get_by_role("button", name="Try now")).to_be_visible()
    collector.worlds = [straggler()]
    collector.come_back(is_restarted=True)
    page.evaluate(TRY_NOW)
    expect(part(page, "connection")).to_have_attribute("data-state", "live")
    expect(part(page, "answer")).to_contain_text("Rank 21")
    expect(part(page, "notice")).to_be_hidden()


def test_a_page_comes_back_by_itself(canned: Any, open_page: Any) -> None:
    """Nobody has to press a button."""
    collector = canned(healthy())
    watched = open_page(collector.url)
    watched.expects_trouble = True
    expect(part(watched.page, "connection")).to_have_attribute("data-state", "live")
    collector.go_away()
    expect(part(watched.page, "connection")).to_have_attribute("data-state", "reconnecting")
    collector.come_back()
    expect(part(watched.page, "connection")).to_have_attribute("data-state", "live")


def test_an_unknown_run_has_a_way_back(canned: Any, open_page: Any) -> None:
    """The collector's sentence and a button."""
    collector = canned(healthy())
    watched = open_page(collector.url + "#run=gone&rank=3")
    watched.expects_trouble = True  # 404 for what is not there
    expect(part(watched.page, "notice")).to_contain_text("Waiting for the first data of run gone")
    watched.page.get_by_role("button", name="Show the first run").click()
    expect(part(watched.page, "answer")).to_contain_text("All 64 ranks")


def test_a_command_is_copied(show: Any) -> None:
    """To the clipboard, and the button says so, aloud too: it keeps its name."""
    page, collector = show(straggler(), permissions=["clipboard-read", "clipboard-write"])
    button = page.get_by_role("button", name=re.compile("^Copy: otel-straggler verdict explain"))
    button.first.click()
    expect(button.first).to_have_text("Copied")
    expect(part(page, "announcer")).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    command = "otel-straggler verdict explain 21 --run llama-7b-0412"
    assert copied == f"{command} --collector {collector.url.rstrip('/')}"


@pytest.mark.parametrize(
    "width", [360, *(pytest.param(w, marks=pytest.mark.nightly) for w in (768, 1280)), 2560]
)
def test_nothing_is_wider_than_the_window(show: Any, width: int) -> None:
    """From a telephone to a wall, with and without the panel."""
    page, _ = show(straggler(), viewport={"width": width, "height": 900})
    wide = "document.documentElement.scrollWidth > innerWidth"
    assert not page.evaluate(wide)
    page.locator(".rank-link").first.click()
    expect(part(page, "rank")).to_be_in_viewport()
    assert not page.evaluate(wide)
