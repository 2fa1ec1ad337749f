"""All pages, drawn from a real Prometheus, in a real browser: what each panel shows is there.

Pictures and the HTML itself are kept in out/previews for people to look at.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.dashboards.preview.boxes import Box
from otel_straggler.dashboards.preview.build import Settings, preview_pages
from otel_straggler.dashboards.preview.pages import read

from .fed_prometheus import WHO, fed_prometheus

pytest.importorskip("plotly", reason="would show that pages are drawn")
pytestmark = [pytest.mark.browser, pytest.mark.real_server]
KEPT = Path(os.environ.get("OTEL_STRAGGLER_PREVIEWS", "out/previews"))
_LONGEST_S = 120
SHOWN = {
    "timeseries": ".scatterlayer .trace, .barlayer .trace",
    "stat": ".stat .value",
    "bargauge": ".bars .bar",
    "table": "tbody tr",
    "state-timeline": ".yaxislayer-above .ytick, .ytick",
    "status-history": ".ytick",
    "heatmap": ".heatmaplayer image",
}
"""What stands in a panel once for each of its series, by kind."""
NEED_TROUBLE = {
    "liveness": {"Why it waits", "For whom it waits", "Ranks that are late, stuck or lost"},
    "matrix": {"Flagged nodes"},
    "pipeline": {
        "Records that ranks lost",
        "Series folded by the budget",
        "What the history could not keep",
        "Requests forwarded",
        "Bytes that wait to be forwarded",
        "Notifications",
        "Receiver processes that were started again",
    },
    "rank": {"Records that it lost"},
}
"""Panels that are empty where nothing is lost, forwarded, stuck or told."""


@pytest.fixture(scope="module")
def previewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[Box]]]:
    """The six pages of a run with one slow rank: the HTML, and what became of the panels."""
    program = shutil.which("prometheus")
    if program is None:
        sentence = "prometheus is not installed (make servers): no page was drawn"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    assert program is not None
    with fed_prometheus(program, tmp_path_factory.mktemp("fed")) as url:
        settings = Settings(url, {"rank": [str(WHO)]}, begin="now-1m", scrape_s=1.0)
        ends_at = time.monotonic() + _LONGEST_S
        made = preview_pages(read(None), settings)
        while empty(made[1]) != NEED_TROUBLE and time.monotonic() < ends_at:
            time.sleep(1.0)  # rates need two scrapes, verdicts some steps
            made = preview_pages(read(None), settings)
        yield made


def empty(boxes: list[Box]) -> dict[str, set[str]]:
    """Titles of panels that drew nothing, by page."""
    titles: dict[str, set[str]] = {}
    for box in boxes:
        if box.state != "drawn":
            titles.setdefault(box.page, set()).add(box.title)
    return titles


@pytest.fixture
def page(previewed: tuple[str, list[Box]], open_page: Any) -> Any:
    """It in a browser, drawn."""
    KEPT.mkdir(parents=True, exist_ok=True)
    file = KEPT / "preview.html"
    file.write_text(previewed[0], encoding="utf-8")
    opened = open_page(file.absolute().as_uri(), viewport={"width": 1600, "height": 1000}).page
    opened.wait_for_selector("body[data-ready]")
    return opened


def test_each_panel_shows_what_it_was_given(previewed: tuple[str, list[Box]], page: Any) -> None:
    """As many lines, rows, bars, figures as series; the browser asked nobody and complains not."""
    wrong = {}
    for box in previewed[1]:
        panel = page.locator(f"#panel-{box.page}-{box.panel}")
        assert panel.get_attribute("data-state") == box.state
        shown = panel.locator(SHOWN[box.kind]).count()
        if box.kind == "timeseries" and box.figure:
            shown -= sum("annotations" in trace.get("meta", ()) for trace in box.figure["data"])
        if shown != box.n_series:
            wrong[f"{box.page} / {box.title}"] = (shown, box.n_series)
        if box.state != "drawn":
            assert box.title in panel.inner_text()
            assert "No data" in panel.inner_text(), box.said
    assert not wrong


def test_every_panel_draws_data(previewed: tuple[str, list[Box]]) -> None:
    """But for those that need trouble, which this run has not."""
    assert empty(previewed[1]) == NEED_TROUBLE


def test_the_pages_name_the_slow_rank(page: Any) -> None:
    """The culprits of the fleet, the flagged rows of the matrix, the verdict on the rank."""
    for name, title in (
        ("fleet", "Current culprits"),
        ("matrix", "Flagged ranks"),
        ("rank", "Verdicts on the rank"),
        ("run", "Who others waited for"),
    ):
        panel = page.locator(f"#otel-straggler-{name} .panel", has_text=title)
        text = " ".join(panel.first.locator(".body").all_text_contents())
        assert str(WHO) in text, title


def test_the_slow_rank_is_the_worst_and_its_victims_are_not_listed(page: Any) -> None:
    """The first rows are its own sections; those in which ranks wait for it are left out."""
    rows = page.locator("#otel-straggler-run .panel", has_text="Worst 20 now").locator("tbody tr")
    first = rows.first.locator("td").all_inner_texts()
    assert str(WHO) in first
    assert not {"gradient_sync", "pipeline_wait"} & set(" ".join(rows.all_inner_texts()).split())


def test_the_matrix_is_in_order_and_hot_where_the_slow_rank_is(page: Any) -> None:
    """Stages and data ranks as numbers, up; rank 13 of tp2, dp8 is data rank 6 of stage 0."""
    table = page.locator("#otel-straggler-matrix table").first
    head = table.locator("th").all_inner_texts()
    assert head == ["pipeline_stage\\data_rank", *map(str, range(8))]
    rows = [row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()]
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    cells = {(row[0], column): float(row[1 + int(column)]) for row in rows for column in head[1:]}
    assert max(cells, key=lambda cell: cells[cell]) == ("0", "6")


def test_pictures_are_kept_for_people(page: Any) -> None:
    """One of each page, and where they are is said."""
    for section in page.query_selector_all("section.page"):
        file = KEPT / f"{section.get_attribute('data-page')}.png"
        section.screenshot(path=file)
        assert file.stat().st_size > 20_000
    print(f"\npictures of the pages: {KEPT.absolute()}")


def test_a_click_on_a_name_hides_its_line_and_links_lead_to_pages(page: Any) -> None:
    """A row of the fleet leads to the page of the run, in the same file."""
    link = page.locator("#otel-straggler-fleet table a").first
    assert link.get_attribute("href") == "#otel-straggler-run"
    link.click()
    assert page.url.endswith("#otel-straggler-run")
    assert page.locator("#otel-straggler-run").count() == 1
