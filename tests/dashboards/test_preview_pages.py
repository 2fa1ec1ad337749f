"""All pages, drawn from a real Prometheus, in a real browser: what each panel shows is there.

Pictures and the HTML itself are kept in out/previews for people to look at.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.dashboards.preview.boxes import Box
from otel_straggler.dashboards.preview.build import Settings, preview_pages
from otel_straggler.dashboards.preview.pages import read

from ..servers.chromium import Pages
from .live_feed import HOT_NODE, LOSSY, SLOW_RANK, STEADY, STUCK, STUCK_RANK, Feed, running_feed

pytest.importorskip("plotly", reason="would show that pages are drawn")
pytestmark = [pytest.mark.browser, pytest.mark.real_server]
KEPT = Path(os.environ.get("OTEL_STRAGGLER_PREVIEWS", "out/previews"))
LONGEST_S = 180
PAGES: Mapping[str, tuple[str, ...]] = {
    STEADY: ("fleet", "run", "matrix", "rank", "liveness", "pipeline"),
    STUCK: ("liveness",),
    HOT_NODE: ("matrix",),
    LOSSY: ("rank",),
}
"""Pages by the run that they are drawn of: the last three are there for panels about trouble."""
RANKS = {STEADY: SLOW_RANK, STUCK: STUCK_RANK, HOT_NODE: 8, LOSSY: 0}
FILES = {LOSSY: "strange"}
"""Names of files, where that of the run cannot be one."""
SAID = {
    (page.name, panel["id"]): panel["fieldConfig"]["defaults"]["noValue"]
    for page in read(None)
    for panel in page.panels()
    if panel["type"] != "row"
}
"""What a panel says where it has nothing to draw."""
SHOWN = {
    "timeseries": ".scatterlayer .trace, .barlayer .trace",
    "stat": ".stat .value",
    "bargauge": ".bars .bar",
    "table": "tbody tr",
    "state-timeline": ".ytick",
    "heatmap": ".heatmaplayer image",
}
"""What stands in a panel once for each of its series, by kind."""
Previews = dict[str, tuple[str, list[Box]]]


@pytest.fixture(scope="module")
def previews(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Previews]:
    """By run: the HTML, and what became of the panels; once all have data, and waits a culprit."""
    with running_feed(tmp_path_factory.mktemp("previewed"), "no page was drawn") as feed:
        until_s = time.monotonic() + LONGEST_S
        made = draw(feed)
        while (never_drawn(made) or not is_blamed(made)) and time.monotonic() < until_s:
            time.sleep(2.0)
            made = draw(feed)
        yield made


def is_blamed(previews: Previews) -> bool:
    """Whether others have waited for the slow rank since Prometheus first looked."""
    (waits,) = (box for box in previews[STEADY][1] if box.title == "Who others waited for")
    return f"rank {SLOW_RANK} " in waits.html


def draw(feed: Feed) -> Previews:
    made = {}
    for run_id, names in PAGES.items():
        chosen = {"run_id": [run_id], "rank": [str(RANKS[run_id])]}
        settings = Settings(feed.url, chosen, begin=f"{feed.began_s:.0f}", end="now", scrape_s=1.0)
        made[run_id] = preview_pages(read(None, names), settings)
    return made


def never_drawn(previews: Previews) -> set[str]:
    """Panels that draw nothing of any run."""
    all_boxes = [box for _, boxes in previews.values() for box in boxes]
    drawn = {(box.page, box.panel) for box in all_boxes if box.state == "drawn"}
    missing = [box for box in all_boxes if (box.page, box.panel) not in drawn]
    return {f"{box.page} / {box.title}: {box.state}" for box in missing}


@pytest.fixture(scope="module", params=PAGES, ids=lambda run_id: FILES.get(run_id, run_id))
def opened(request: pytest.FixtureRequest, previews: Previews, chromium: Any) -> Iterator[Any]:
    """The run, its panels, and the file in a browser, drawn; nothing may go wrong in it."""
    run_id = request.param
    KEPT.mkdir(parents=True, exist_ok=True)
    name = FILES.get(run_id, run_id)
    file = KEPT / f"{name}.html"
    file.write_text(previews[run_id][0], encoding="utf-8")
    pages = Pages(chromium, f"preview-{name}")
    page = pages(file.absolute().as_uri(), viewport={"width": 1600, "height": 1000}).page
    page.wait_for_selector("body[data-ready]")
    yield run_id, previews[run_id][1], page
    assert not pages.close(has_failed=False)


only_steady = pytest.mark.parametrize("opened", [STEADY], indirect=True, scope="module")


def test_every_panel_draws_data(previews: Previews) -> None:
    """Of a run with a slow rank, or of one with the trouble that the panel is for."""
    assert never_drawn(previews) == set()


def test_each_panel_shows_what_it_was_given(opened: Any) -> None:
    """As many lines, rows, bars, figures as series; the browser asked nobody and complains not.

    Pictures of all pages are kept, and where is said.
    """
    run_id, boxes, page = opened
    wrong = {}
    for box in boxes:
        panel = page.locator(f"#panel-{box.page}-{box.panel}")
        assert panel.get_attribute("data-state") == box.state
        shown = panel.locator(SHOWN[box.kind]).count()
        if box.kind == "timeseries" and box.figure:
            shown -= sum("annotations" in trace.get("meta", ()) for trace in box.figure["data"])
        if shown != box.n_series:
            wrong[f"{box.page} / {box.title}"] = (shown, box.n_series)
        if box.state != "drawn":
            assert SAID[box.page, box.panel] in panel.inner_text(), box.said
    assert not wrong
    for section in page.query_selector_all("section.page"):
        name = FILES.get(run_id, run_id)
        file = KEPT / f"{name}-{section.get_attribute('data-page')}.png"
        section.screenshot(path=file)
        assert file.stat().st_size > 20_000
    print(f"\npictures of the pages: {KEPT.absolute()}")


@only_steady
def test_the_pages_name_the_slow_rank(opened: Any) -> None:
    """The culprits of the fleet, the flagged rows of the matrix, the verdict on the rank; its own
    sections are the worst, and none in which ranks wait for it."""
    _, _, page = opened
    for name, title in (
        ("fleet", "Current culprits"),
        ("matrix", "Flagged ranks"),
        ("rank", "Verdicts on the rank"),
        ("run", "Who others waited for"),
    ):
        panel = page.locator(f"#otel-straggler-{name} .panel", has_text=title)
        text = " ".join(panel.first.locator(".body").all_text_contents())
        assert str(SLOW_RANK) in text, title
    rows = page.locator("#otel-straggler-run .panel", has_text="Worst 20 now").locator("tbody tr")
    assert str(SLOW_RANK) in rows.first.locator("td").all_inner_texts()
    assert not {"gradient_sync", "pipeline_wait"} & set(" ".join(rows.all_inner_texts()).split())


@only_steady
def test_ranks_that_are_well_are_green(opened: Any) -> None:
    """Whatever the order of the lines."""
    _, boxes, _ = opened
    (states,) = (box for box in boxes if box.title == "Ranks by state")
    assert states.figure is not None
    colours = {
        line["name"].strip(): line["line"]["color"]
        for line in states.figure["data"]
        if "line" in line
    }
    assert (colours["ok"], colours["stuck"]) == ("#73BF69", "#C4162A")


@only_steady
def test_the_matrix_is_in_order_and_hot_where_the_slow_rank_is(opened: Any) -> None:
    """Stages and data ranks as numbers, up: rank 37 of 16 data ranks is number 5 of stage 2."""
    _, _, page = opened
    table = page.locator("#otel-straggler-matrix table").first
    head = table.locator("th").all_inner_texts()
    assert head == ["pipeline_stage\\data_rank", *map(str, range(16))]
    rows = [row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()]
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    cells = {(row[0], column): float(row[1 + int(column)]) for row in rows for column in head[1:]}
    assert max(cells, key=lambda cell: cells[cell]) == ("2", "5")


@only_steady
def test_names_hide_lines_and_links_lead_to_pages(opened: Any) -> None:
    """A click in a legend; a row of the fleet leads to the page of the run, in the same file."""
    _, _, page = opened
    panel = page.locator("#otel-straggler-run .panel", has_text="Scores of all ranks").first
    before = panel.locator(".scatterlayer .trace").count()
    panel.locator(".legend li").first.click()
    panel.locator(".legend li.off").wait_for()
    assert panel.locator(".scatterlayer .trace").count() == before - 1
    page.locator("#otel-straggler-fleet table a").first.click()
    assert page.url.endswith("#otel-straggler-run")
