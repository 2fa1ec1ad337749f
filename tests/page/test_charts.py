"""The three charts in Chromium, on a page of their own, with made-up runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..servers.chromium import OpenPage
from .charts_fixtures import STORIES, Story, without_layout
from .charts_hand import (
    LEFT,
    MATRIX_LEFT,
    MATRIX_ROW,
    MATRIX_TOP,
    ROW,
    SECTIONS_TOP,
    TOP,
    Hand,
    is_hot,
)
from .charts_server import served

WIDTH, HEIGHT = 1400, 900
SLOTS = 120
DASH = "\N{EN DASH}"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served() as result:
        yield result


@pytest.fixture
def hand(open_page: OpenPage, address: str) -> Hand:
    return Hand(open_page(address, viewport={"width": WIDTH, "height": HEIGHT}))


def test_pointing_at_a_cell_tells_rank_node_steps_and_slowdown(hand: Hand) -> None:
    """The tooltip names them, and why the rank is flagged."""
    hand.show(Story("hot_cell", 8))
    hand.point("rank-time", *hand.cell(5, 100, SLOTS))
    first, more = hand.tooltip("rank-time").splitlines()
    assert first.startswith(f"rank 5 on node-0, steps 2000{DASH}2019: 1.")
    assert first.endswith("x its peers")
    assert "flagged: slow" in more
    hand.leave()
    assert not hand.page.locator("#rank-time .chart-tooltip").is_visible()


def test_a_click_selects_the_rank_in_each_chart(hand: Hand) -> None:
    """Whatever one clicks, the page is asked to select its rank, and it is outlined."""
    hand.show(Story("hot_cell", 8))
    for chart, x, y in (
        ("rank-time", *hand.cell(5, 100, SLOTS)),
        ("matrix", MATRIX_LEFT + 1.5 * 64, MATRIX_TOP + 1.5 * 38),
        ("sections", LEFT + 30, SECTIONS_TOP + 5.5 * 26),
    ):
        hand.page.evaluate("charts.selected.length = 0")
        hand.canvas(chart).click(position={"x": x, "y": y})
        assert hand.selected()[0]["rank"] == 5, chart


def test_a_click_on_a_section_selects_it_too(hand: Hand) -> None:
    """In ranks by section the column tells the section; that of all sections is none of them."""
    hand.show(Story("hot_cell", 8))
    width = (hand.box("sections")["width"] - LEFT - 2) / 6
    for column, section in ((0, ""), (2, "forward")):
        hand.canvas("sections").click(
            position={"x": LEFT + (column + 0.5) * width, "y": SECTIONS_TOP + 40}
        )
        assert hand.selected()[-1]["section"] == section


def test_keys_walk_through_cells_and_are_told_aloud(hand: Hand) -> None:
    """Keys begin at the flagged rank, or the chosen one; each cell is said; Enter selects."""
    hand.show(Story("hot_cell", 8))
    for chart, first in (("rank-time", "rank 5 on node-0"), ("sections", "rank 3 on node-0")):
        hand.canvas(chart).focus()
        assert hand.spoken(chart).startswith(first)
        hand.page.keyboard.press("Control+Home")
        hand.page.keyboard.press("Home")
        assert hand.spoken(chart).startswith("rank 0 on node-0")
        for _ in range(3):
            hand.page.keyboard.press("ArrowDown")
        assert hand.spoken(chart).startswith("rank 3 on node-0")
        hand.page.keyboard.press("Enter")
        assert hand.selected()[-1]["rank"] == 3
    hand.canvas("rank-time").focus()
    hand.page.keyboard.press("End")
    assert f"steps 2380{DASH}2399" in hand.spoken("rank-time")
    hand.page.keyboard.press("ArrowLeft")
    assert f"steps 2360{DASH}2379" in hand.spoken("rank-time")
    hand.canvas("matrix").focus()
    assert hand.spoken("matrix").endswith("rank 3 on node-0")
    hand.page.keyboard.press("Control+Home")
    hand.page.keyboard.press("Home")
    hand.page.keyboard.press("ArrowRight")
    assert hand.spoken("matrix").startswith("stage 0, data rank 1: ")


def test_everything_is_reached_by_tab_and_has_a_name(hand: Hand) -> None:
    """Canvases, buttons and lists can be focused, and say what they are."""
    hand.show(Story("hot_cell", 64))
    nameless = hand.page.evaluate(
        """[...document.querySelectorAll("canvas.chart-canvas, button, select")].filter(
            e => !e.getAttribute("aria-label") || e.tabIndex < 0).length"""
    )
    assert nameless == 0
    assert hand.canvas("rank-time").get_attribute("role") == "application"
    assert hand.canvas("rank-time").get_attribute("aria-describedby")


def test_the_worst_ranks_stand_in_a_table_for_those_who_do_not_see_the_chart(hand: Hand) -> None:
    """Twenty ranks, the flagged one first, with its slowdown and why it is flagged."""
    hand.show(Story("hot_cell", 64))
    rows = hand.page.locator("#rank-time table tbody tr")
    assert rows.count() == 20
    text = rows.first.inner_text()
    assert text.startswith("rank 21 on node-2")
    assert "x its peers" in text
    assert "slow" in text


@pytest.mark.parametrize("story", STORIES)
def test_the_pattern_of_a_run_is_told_by_attributes_and_legend(hand: Hand, story: str) -> None:
    """`data-pattern`, `data-hot` and the marked line of the legend are those of the run."""
    run = Story(story, 64)
    hand.show(run)
    facts = hand.facts("matrix")
    assert facts["pattern"] == story
    marked = hand.page.locator("#matrix [aria-current=true]")
    assert marked.count() == 1
    hot = {tuple(map(int, cell.split(","))) for cell in facts["hot"].split(";") if cell}
    index = (run.culprit // run.data_ranks, run.culprit % run.data_ranks)
    expected = {
        "even": set(),
        "silent": set(),
        "hot_cell": {index},
        "hot_row": {(3, data) for data in range(16)},
        "hot_column": {(stage, index[1]) for stage in range(4)},
    }
    if story == "spread":
        assert len({stage for stage, _ in hot}) > 2
        assert len(hot) > 4
    else:
        assert hot == expected[story]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_hot_cells_have_hot_pixels_and_even_ones_have_not(hand: Hand, theme: str) -> None:
    """In both themes, also after the theme has changed under the charts."""
    hand.show(Story("hot_cell", 8))
    hand.page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
    hand.drawn()
    for window, rank, is_slow in ((100, 5, True), (20, 5, False), (100, 4, False)):
        x, y = hand.cell(rank, window, SLOTS)
        assert is_hot(hand.colour("rank-time", x, y)) is is_slow, (window, rank)
    corner = (6, 8)  # beside the figure
    hot = (MATRIX_LEFT + hand.matrix_width(4) + corner[0], MATRIX_TOP + MATRIX_ROW + corner[1])
    assert is_hot(hand.colour("matrix", *hot))
    assert not is_hot(hand.colour("matrix", MATRIX_LEFT + corner[0], MATRIX_TOP + corner[1]))


def test_flagged_ranks_are_outlined(hand: Hand) -> None:
    """The row of the named rank has a frame, and so has its worker; others have none."""
    story = Story("hot_cell", 8)
    hand.show(story)
    box = hand.box("rank-time")
    middle = LEFT + (box["width"] - LEFT) / 2

    def is_frame(colour: tuple[int, int, int]) -> bool:
        red, green, blue = colour
        return red - green > 100 and abs(green - blue) < 30

    def frames(chart: str, x: float, top: float, row: int, height: float) -> int:
        lines = range(int(top + row * height), int(top + (row + 1) * height))
        return sum(is_frame(hand.colour(chart, x, y)) for y in lines)

    assert frames("rank-time", middle, TOP, story.culprit, ROW) >= 2
    assert frames("rank-time", middle, TOP, 2, ROW) == 0
    hot = MATRIX_LEFT + 1.5 * hand.matrix_width(4)
    assert frames("matrix", hot, MATRIX_TOP, 1, MATRIX_ROW) >= 2
    assert frames("matrix", hot, MATRIX_TOP, 0, MATRIX_ROW) == 0


def test_one_slow_rank_of_ten_thousand_is_seen(hand: Hand) -> None:
    """Many ranks share a line of pixels, and the slowest of them is shown; a sentence says so."""
    story = Story("hot_cell", 10_000, 60)
    hand.show(story)
    for chart, top, share in (("rank-time", TOP, 0.9), ("sections", SECTIONS_TOP, 0.05)):
        box = hand.box(chart)
        x = LEFT + (box["width"] - LEFT) * share
        rows = [hand.colour(chart, x, y) for y in range(top, int(box["height"]) - 24)]
        assert 1 <= sum(map(is_hot, rows)) <= 4, chart
        note = hand.page.locator(f"#{chart} .chart-note").inner_text()
        assert "Each line shows the slowest of 64 ranks." in note
    hot = next(y for y, colour in enumerate(rows) if is_hot(colour))
    hand.point("sections", LEFT + 30, SECTIONS_TOP + hot + 1)
    assert f"rank {story.culprit} on" in hand.tooltip("sections")
    assert "slowest of 64 ranks" in hand.tooltip("sections")


def test_a_silent_worker_is_hatched_and_told_so(hand: Hand) -> None:
    """It has neither a slow one's colour nor an even one's, with a layout and without."""
    run = Story("silent", 64)
    for run_view in (run.run_view(), without_layout(run.run_view())):
        hand.show(run, run_view=run_view)
        columns = 16 if run_view["ranks"]["dp"] else 8
        row, column = divmod(run.culprit, columns)
        width = hand.matrix_width(columns)
        x, y = MATRIX_LEFT + (column + 0.5) * width, MATRIX_TOP + (row + 0.5) * MATRIX_ROW
        colours = {hand.colour("matrix", x + i - 4, y) for i in range(8)}
        assert len(colours) > 2  # lines, and what is between them
        hand.point("matrix", x, y)
        assert "silent" in hand.tooltip("matrix")


def test_the_plot_follows_its_room_and_the_density_of_pixels(
    open_page: OpenPage, address: str
) -> None:
    """After a change of size the canvas has the new size, twice as many pixels at a ratio of 2."""
    room = {"width": WIDTH, "height": HEIGHT}
    hand = Hand(open_page(address, viewport=room, device_scale_factor=2))
    page = hand.page
    hand.show(Story("hot_cell", 8))
    for width in (1400, 640, 1100):
        page.set_viewport_size({"width": width, "height": HEIGHT})
        page.wait_for_function(
            """() => [...document.querySelectorAll("canvas.chart-canvas")].every(
                c => c.width > 1 && c.width === Math.round(c.parentElement.clientWidth * 2))"""
        )
        hand.drawn()
        x, y = hand.cell(5, 100, SLOTS)
        assert is_hot(hand.colour("rank-time", x, y)), width


def test_panning_draws_once_per_frame_and_builds_no_column_again(hand: Hand) -> None:
    """However many moves come in a frame; levels are built when windows come, one for each."""
    story = Story("hot_cell", 1_000, 130)
    hand.show(story, windows=SLOTS)
    hand.page.get_by_role("button", name="ranks: zoom in").first.click()
    hand.drawn()
    before = hand.counts()
    assert before["columnsBuilt"] == SLOTS
    hand.page.evaluate(
        """async () => {
            const canvas = document.querySelector("#rank-time canvas");
            const send = (type, y) => canvas.dispatchEvent(new PointerEvent(
                type, { clientX: 700, clientY: 200 + y, pointerId: 1, button: 0 }));
            canvas.setPointerCapture = () => {};
            send("pointerdown", 0);
            for (let frame = 0; frame < 10; frame += 1) {
                for (let move = 0; move < 5; move += 1) send("pointermove", -frame * 5 - move - 5);
                await new Promise(requestAnimationFrame);
            }
            send("pointerup", -50);
        }"""
    )
    hand.drawn()
    after = hand.counts()
    assert 10 <= after["draws"] - before["draws"] <= 12
    assert after["columnsBuilt"] == SLOTS
    hand.add(story, SLOTS, 130)
    assert hand.counts()["columnsBuilt"] == 130


def test_wheel_and_keys_zoom_and_pan_and_the_page_scrolls_where_nothing_pans(hand: Hand) -> None:
    """Control and wheel zoom ranks; the wheel pans then; where it cannot, it is the page's."""
    hand.show(Story("hot_cell", 1_000))
    x, y = LEFT + 200, 150.0
    is_taken = """canvas => new Promise(go => addEventListener(
        "wheel", event => setTimeout(() => go(event.defaultPrevented)), { once: true }))"""
    hand.point("rank-time", x, y)
    hand.page.evaluate(f"void (window.taken = ({is_taken})())")
    hand.page.mouse.wheel(0, 30)
    assert hand.page.evaluate("window.taken") is False
    hand.page.evaluate("scrollTo(0, 0)")
    hand.point("rank-time", x, y)
    hand.page.keyboard.down("Control")
    for _ in range(5):
        hand.page.mouse.wheel(0, -120)
    hand.page.keyboard.up("Control")
    hand.page.wait_for_function(
        "() => { const d = document.querySelector('#rank-time').dataset;"
        " return d.lastRank - d.firstRank < 300 }"
    )
    first = int(hand.facts("rank-time")["firstRank"])
    hand.page.mouse.wheel(0, 60)
    hand.page.wait_for_function(
        f"() => document.querySelector('#rank-time').dataset.firstRank > {first}"
    )
    hand.canvas("rank-time").focus()
    hand.page.keyboard.press("0")
    hand.drawn()
    assert (hand.facts("rank-time")["firstRank"], hand.facts("rank-time")["lastRank"]) == (
        "0",
        "999",
    )


def test_new_windows_do_not_move_what_one_looks_at(hand: Hand) -> None:
    """Under the pointer the same cell stays; who looks at the newest goes along when he leaves."""
    story = Story("hot_cell", 8, 160)
    hand.show(story, windows=100)
    for _ in range(3):
        hand.page.get_by_role("button", name="time: zoom in").click()
    hand.page.get_by_role("button", name="newest").click(force=True)
    hand.drawn()
    hand.point("rank-time", LEFT + 200, TOP + 5.5 * ROW)
    before = hand.tooltip("rank-time").splitlines()[0]
    hand.add(story, 100, 130)
    hand.point("rank-time", LEFT + 200, TOP + 5.5 * ROW + 2)
    assert hand.tooltip("rank-time").splitlines()[0] == before
    newest = hand.page.get_by_role("button", name="newest")
    assert newest.is_enabled()
    newest.click()
    hand.leave()
    hand.add(story, 130, 160)
    hand.canvas("rank-time").focus()
    assert newest.is_disabled()
    hand.page.keyboard.press("End")
    assert f"steps 3180{DASH}3199" in hand.spoken("rank-time")


def test_section_and_order_can_be_chosen(hand: Hand) -> None:
    """A section is asked for; ranks come in the order chosen, flagged ones alone if one likes."""
    hand.show(Story("hot_cell", 64))
    section = hand.page.locator("#rank-time").get_by_label("section")
    section.select_option("forward")
    assert hand.selected()[-1] == {"section": "forward"}
    order = hand.page.locator("#rank-time").get_by_label("order of ranks")
    for name, first, last in (("worst", "21", None), ("flagged", "21", "21"), ("rank", "0", "63")):
        order.select_option(name)
        hand.drawn()
        facts = hand.facts("rank-time")
        assert facts["firstRank"] == first, name
        assert last is None or facts["lastRank"] == last, name
    hand.show(Story("even", 64))
    order.select_option("flagged")
    assert hand.page.locator("#rank-time .chart-stage").get_attribute("data-empty") == (
        "No rank is flagged."
    )


def test_before_the_first_window_the_charts_say_so(hand: Hand) -> None:
    """Nothing is drawn, and a sentence says why, whatever the picture does not know."""
    run_view = Story("even", 8).run_view()
    nothing = [None] * 8
    run_view["slowdowns"] = {"overall": nothing, "by_section": [nothing] * 5}
    run_view["heat"] |= {"stages": [], "data_ranks": [], "cells": [], "pattern": "unknown"}
    hand.page.evaluate("p => charts.show(p, null)", run_view)
    hand.drawn()
    for chart in ("rank-time", "sections", "matrix"):
        stage = hand.page.locator(f"#{chart} .chart-stage")
        assert stage.get_attribute("data-empty"), chart
        hand.canvas(chart).focus()
        hand.page.keyboard.press("ArrowDown")
        hand.page.keyboard.press("Enter")
    assert hand.selected() == []


def test_two_fingers_zoom_and_one_pans(open_page: OpenPage, address: str) -> None:
    """On a touch screen: a pinch makes cells larger, a drag then moves them."""
    hand = Hand(open_page(address, viewport={"width": 800, "height": HEIGHT}, has_touch=True))
    hand.show(Story("hot_cell", 1_000))
    box = hand.box("rank-time")
    x, y = box["x"] + 300, box["y"] + 200
    session = hand.page.context.new_cdp_session(hand.page)

    def touch(kind: str, *indexes: float) -> None:
        points = [{"x": x, "y": at, "id": i} for i, at in enumerate(indexes)]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", y - 30, y + 30)
    for spread in range(40, 160, 10):
        touch("touchMove", y - spread, y + spread)
    touch("touchEnd")
    hand.drawn()
    facts = hand.facts("rank-time")
    assert int(facts["lastRank"]) - int(facts["firstRank"]) < 500
    touch("touchStart", y)
    for by in range(10, 100, 10):
        touch("touchMove", y + by)
    touch("touchEnd")
    hand.drawn()
    assert int(hand.facts("rank-time")["firstRank"]) < int(facts["firstRank"])


def test_a_chart_that_is_destroyed_leaves_nothing(hand: Hand) -> None:
    """Its elements go, and neither sizes nor themes make it draw again."""
    hand.show(Story("hot_cell", 8))
    hand.page.evaluate("Object.values(charts.parts).forEach(part => part.destroy())")
    draws = hand.counts()["draws"]
    assert hand.page.locator("canvas").count() == 0
    hand.page.set_viewport_size({"width": 700, "height": 500})
    hand.page.evaluate("document.documentElement.dataset.theme = 'dark'")
    hand.drawn()
    assert hand.counts()["draws"] == draws


def test_names_from_the_network_are_shown_as_text(hand: Hand) -> None:
    """What looks like markup is read as it is written, what turns a line around is shown."""
    story = Story("hot_cell", 8)
    run_view = story.run_view()
    run_view["ranks"]["nodes"] = ["<img src=x onerror=alert(1)>\N{RIGHT-TO-LEFT OVERRIDE}"]
    run_view["sections"][1]["name"] = "<script>alert(2)</script>"
    hand.show(story, run_view=run_view)
    hand.point("rank-time", *hand.cell(5, 100, SLOTS))
    assert "on <img src=x onerror=alert(1)>\N{REPLACEMENT CHARACTER}," in hand.tooltip("rank-time")
    assert hand.page.locator("main img, main script").count() == 0
