"""From pages and a Prometheus to one HTML text: the whole of a preview."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_straggler.dashboards.preview.annotations import events
from otel_straggler.dashboards.preview.boxes import Box, box
from otel_straggler.dashboards.preview.chosen import filled
from otel_straggler.dashboards.preview.colours import Palette
from otel_straggler.dashboards.preview.document import Sheet, chart_library, document, row_heading
from otel_straggler.dashboards.preview.drawn import Look
from otel_straggler.dashboards.preview.pages import Page, read
from otel_straggler.dashboards.preview.prometheus import Prometheus
from otel_straggler.dashboards.preview.queries import Asking
from otel_straggler.dashboards.preview.ranges import TimeRange
from otel_straggler.dashboards.preview.variables import Variables

WIDTH_PX: Final = 1_600
SCRAPE_S: Final = 15.0
_MARGIN_PX: Final = 32
_COLUMNS: Final = 24
_GAP_PX: Final = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """What a preview is made with.

    Attributes:
        values: of variables, by name; what is not there is what Grafana would begin with.
        begin, end: the range; empty for that of each page.
        width_px: of the window, which decides how many points a panel asks for.
        scrape_s: the scrape interval that Grafana's data source would be told.
    """

    url: str
    values: Mapping[str, Sequence[str]]
    begin: str = ""
    end: str = ""
    width_px: int = WIDTH_PX
    scrape_s: float = SCRAPE_S
    theme: str = "dark"


def preview_page(
    url: str, page: str, *, begin: str = "now-1h", end: str = "now", theme: str = "dark",
    folder: Path | None = None, **values: str,
) -> tuple[str, list[Box]]:  # fmt: skip
    """One page as HTML, and what became of its panels; ``values`` are of its variables."""
    chosen = {name: (value,) for name, value in values.items()}
    settings = Settings(url, chosen, begin, end, theme=theme)
    return preview_pages(read(folder, [page]), settings)


def preview_pages(pages: Sequence[Page], settings: Settings) -> tuple[str, list[Box]]:
    """All pages as one HTML text, and what became of their panels, in reading order.

    Raises:
        UnavailableError: Prometheus does not answer, or the chart library is missing.
        ConfigError: the range cannot be read.
    """
    chart_library()  # before anything is asked
    server = Prometheus(settings.url)
    server.greet()
    now_s = time.time()
    palette = Palette(settings.theme)
    uids = frozenset(page.uid for page in pages)
    sheets = [_sheet(page, server, settings, now_s, palette, uids) for page in pages]
    html = document(sheets, settings.url, now_s, palette)
    return html, [one for sheet in sheets for one in sheet.boxes]


def _sheet(
    page: Page, server: Prometheus, settings: Settings, now_s: float,
    palette: Palette, uids: frozenset[str],
) -> Sheet:  # fmt: skip
    told = page.told.get("time") or {}
    begin = settings.begin or str(told.get("from") or "now-1h")
    span = TimeRange.parse(begin, settings.end or str(told.get("to") or "now"), now_s)
    variables = Variables(server, span, settings.values)
    variables.choose(page.variables)
    asking = Asking(server, span, variables.chosen, settings.scrape_s)
    found, problems = events(page.annotations, asking, palette)
    look = Look(palette, span, variables.chosen, uids, tuple(found))
    boxes: list[Box] = []
    pieces = []
    for panel in page.panels():
        if panel["type"] == "row":
            title = filled(str(panel.get("title") or ""), look.chosen, {}, is_query=False)
            pieces.append(row_heading(int(panel["gridPos"]["y"]), title))
        else:
            width_px = panel_width_px(settings.width_px, panel["gridPos"]["w"])
            boxes.append(box(page.name, panel, asking, look, width_px))
            pieces.append(boxes[-1].html)
    return Sheet(page, look, boxes, pieces, [*variables.problems, *problems])


def panel_width_px(window_px: float, columns: int) -> float:
    """
    >>> panel_width_px(1600, 24), panel_width_px(1600, 12)
    (1568.0, 780.0)
    """
    one_px = (window_px - _MARGIN_PX - (_COLUMNS - 1) * _GAP_PX) / _COLUMNS
    return columns * one_px + (columns - 1) * _GAP_PX
