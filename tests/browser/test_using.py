"""What a person does with the page: choosing runs, ranks, sections and colours; another window."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .conftest import eventually, tone_of
from .live import PARTS, LivePage, expect
from .probes import FITTING, TOO_WIDE

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def collector(lasting: Any) -> Any:
    """Two runs: ``slow`` has a slow rank 5, ``well`` has none."""
    started = lasting.collector()
    lasting.feed(started, "slow", "pp2,dp4", "compute:1.5@rank5:step20").advance(160)
    lasting.feed(started, "well", "dp8", seed=3).advance(160)
    eventually(lambda: tone_of(started, "slow") == "bad")
    eventually(lambda: tone_of(started, "well") == "good")
    return started


def test_the_run_that_needs_somebody_comes_first(collector: Any, look: Any) -> None:
    """The slow one is shown, the picker offers both, each with a word on how it is."""
    page = look(collector)
    page.says("answer.headline", "Rank 5")
    page.says("picker", "slow")
    page.part("picker").get_by_role("button").first.click()
    options = page.part("picker").get_by_role("option")
    expect(options).to_have_count(2)
    expect(options.nth(0)).to_contain_text("Rank 5")
    expect(options.nth(1)).to_contain_text("well")


def test_another_run_is_chosen_and_stays_chosen(collector: Any, look: Any) -> None:
    """Also after a reload, and for whoever gets the address."""
    page = look(collector)
    choose_run(page, "well")
    expect(page.field("headline")).not_to_contain_text("Rank 5")
    expect(page.page).to_have_url(re.compile(r"#.*run=well"))
    page.reload()
    expect(page.part("answer")).not_to_contain_text("Rank 5")
    other = look(collector, "#run=slow")
    other.says("answer.headline", "Rank 5")


def test_a_click_on_a_worker_opens_its_ranks_details(collector: Any, look: Any) -> None:
    """The hot cell of the matrix is rank 5; the panel has its sections and closes by Escape."""
    page = look(collector)
    page.click_in_chart("matrix", "stage 1, data rank 1")
    shows_rank(page, 5)
    expect(page.page).to_have_url(re.compile(r"rank=5"))
    for section in ("forward", "backward"):
        page.says("rank", section)
    page.page.keyboard.press("Escape")
    expect(page.part("rank")).not_to_be_visible()
    expect(page.page).not_to_have_url(re.compile(r"rank=5"))


def test_a_click_in_rank_by_time_opens_the_rank_below_the_pointer(
    collector: Any, look: Any
) -> None:
    """The pointer is told which rank it is on; a click opens just that."""
    page = look(collector)
    for rank in (0, 6):
        page.click_in_chart("rank-time", f"rank {rank}")
        shows_rank(page, rank)
        expect(page.page).to_have_url(re.compile(rf"rank={rank}"))
        page.page.keyboard.press("Escape")


def test_a_rank_is_chosen_with_the_keyboard(collector: Any, look: Any) -> None:
    """Arrow keys move in the chart, a live text tells where, Enter opens."""
    page = look(collector)
    canvas = page.canvas("rank-time")
    canvas.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowLeft"):
        page.page.keyboard.press(key)
    reported = page.page.locator("[aria-live]").filter(
        has_text=re.compile(r"rank \d", re.IGNORECASE)
    )
    expect(reported.first).to_be_attached()
    page.page.keyboard.press("Enter")
    expect(page.part("rank")).to_be_visible()


def test_an_address_with_a_rank_opens_its_details(collector: Any, look: Any) -> None:
    """A view can be shared."""
    shows_rank(look(collector, "#run=slow&rank=3"), 3)


def test_an_address_with_nonsense_is_no_harm(collector: Any, look: Any, open_page: Any) -> None:
    """An unknown run: the page says so, and has a way out."""
    page = LivePage(open_page(f"{collector.url}/#run=nobody&rank=99999&section=none&group=x"))
    page.watched.expects_trouble = True  # 404 for what is not there
    page.until_drawn()
    expect(page.page.locator("body")).to_contain_text("nobody")
    page.page.get_by_role("button", name="Show the first run").click()
    page.says("answer.headline", "Rank 5")


def test_colours_are_changed_by_a_button_and_kept(collector: Any, look: Any) -> None:
    """Whatever the system says."""
    page = look(collector, color_scheme="light")
    html = page.page.locator("html")
    toggle = page.page.get_by_role(
        "button", name=re.compile("theme|dark|light|colou?r", re.IGNORECASE)
    ).first
    for _ in range(3):
        if html.get_attribute("data-theme") == "dark":
            break
        toggle.click()
    expect(html).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(html).to_have_attribute("data-theme", "dark")


@pytest.mark.parametrize(
    ("width", "height"),
    [
        (360, 740),
        pytest.param(820, 1180, marks=pytest.mark.nightly),
        pytest.param(1280, 720, marks=pytest.mark.nightly),
        (2560, 1300),
    ],
)
def test_no_window_cuts_anything_off(collector: Any, look: Any, width: int, height: int) -> None:
    """From a telephone to a large screen: nothing is wider than the window."""
    page = look(collector, viewport={"width": width, "height": height})
    assert not page.page.evaluate(TOO_WIDE), (width, page.page.evaluate(TOO_WIDE))
    for name in PARTS:
        expect(page.part(name)).to_be_visible()


def test_charts_follow_the_window(collector: Any, look: Any) -> None:
    """A canvas gets as many pixels as it covers, before and after."""
    page = look(collector, viewport={"width": 1600, "height": 1000})
    wide = eventually(lambda: fitting(page))
    page.page.set_viewport_size({"width": 700, "height": 900})
    narrow = eventually(lambda: fitting(page))
    assert 0 < narrow < wide
    assert not page.page.evaluate(TOO_WIDE)
    page.page.set_viewport_size({"width": 1600, "height": 1000})
    eventually(lambda: fitting(page) == wide)


def test_canvases_are_sharp_on_fine_screens(collector: Any, look: Any) -> None:
    """Two pixels of the device for one of the page."""
    page = look(collector, device_scale_factor=2)
    assert eventually(lambda: fitting(page))


def choose_run(page: LivePage, run: str) -> None:
    """By the picker's list."""
    picker = page.part("picker")
    picker.get_by_role("button").first.click()
    picker.get_by_role("option").filter(has_text=run).first.click()


def shows_rank(page: LivePage, rank: int) -> None:
    expect(page.part("rank")).to_be_visible()
    page.says("rank", f"rank {rank}")


def fitting(page: LivePage) -> float:
    """Width of all canvases together, if each has the pixels that it covers; else 0."""
    result: float = page.page.evaluate(FITTING)
    return result
