"""A hand on the page with the charts alone: shows a run, points, and reads what is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..servers.chromium import Watched
from .charts_fixtures import Story

if TYPE_CHECKING:
    from playwright.sync_api import Locator

LEFT, TOP = 82, 4  # gutters of ranks over time
MATRIX_LEFT, MATRIX_TOP = 66, 24
SECTIONS_TOP = 38
ROW = 26  # pixels of a rank while there is room
MATRIX_ROW = 44
Json = dict[str, Any]
Colour = tuple[int, int, int]


class Hand:
    """What tests do with the page.

    Args:
        watched: the page, opened.
    """

    def __init__(self, watched: Watched) -> None:
        self.page = watched.page
        self.page.wait_for_selector("body[data-ready]")

    def show(
        self, story: Story, *, windows: int | None = None, run_view: Json | None = None
    ) -> None:
        """A run, of it the first windows; then waits until it is drawn."""
        reported = [run_view or story.run_view(), story.timeline(end=windows)]
        self.page.evaluate("([p, t]) => charts.show(p, t)", reported)
        self.drawn()

    def add(self, story: Story, first: int, end: int) -> None:
        """More windows of the run."""
        self.page.evaluate("t => charts.add(t)", story.timeline(first=first, end=end))
        self.drawn()

    def drawn(self) -> None:
        """Waits for two frames: in the first all is drawn that was asked for."""
        frames = "new Promise(go => requestAnimationFrame(() => requestAnimationFrame(go)))"
        self.page.evaluate(frames)

    def canvas(self, chart: str) -> Locator:
        return self.page.locator(f"#{chart} canvas.chart-canvas")

    def tooltip(self, chart: str) -> str:
        return self.page.locator(f"#{chart} .chart-tooltip").inner_text()

    def spoken(self, chart: str) -> str:
        return self.page.locator(f"#{chart} [role=status]").inner_text()

    def facts(self, chart: str) -> dict[str, str]:
        """The attributes `data-...` of a chart."""
        result: dict[str, str] = self.page.locator(f"#{chart}").evaluate("e => ({...e.dataset})")
        return result

    def selected(self) -> list[Json]:
        result: list[Json] = self.page.evaluate("charts.selected")
        return result

    def counts(self) -> dict[str, int]:
        result: dict[str, int] = self.page.evaluate("charts.parts.rankTime.counts()")
        return result

    def cell(self, rank: int, window: int, slots: int) -> tuple[float, float]:
        """The middle of a cell on the canvas of few ranks over time, which has room for `slots`."""
        box = self.box("rank-time")
        width = min(90.0, (box["width"] - LEFT) / slots)
        return LEFT + (window + 0.5) * width, TOP + (rank + 0.5) * ROW

    def matrix_width(self, columns: int) -> float:
        """Of a column of the matrix, in pixels."""
        return min(96.0, (self.box("matrix")["width"] - MATRIX_LEFT - 2) / columns)

    def box(self, chart: str) -> dict[str, float]:
        self.canvas(chart).scroll_into_view_if_needed()
        box = self.canvas(chart).bounding_box()
        assert box is not None
        return dict(box)

    def point(self, chart: str, x: float, y: float) -> None:
        box = self.box(chart)
        self.page.mouse.move(box["x"] + x, box["y"] + y)
        self.drawn()

    def leave(self) -> None:
        self.page.mouse.move(1, 1)
        self.drawn()

    def colour(self, chart: str, x: float, y: float) -> Colour:
        """Of one pixel, in CSS pixels of the canvas."""
        script = """(canvas, [x, y]) => {
            const ratio = canvas.width / canvas.clientWidth;
            const at = [Math.round(x * ratio), Math.round(y * ratio), 1, 1];
            return [...canvas.getContext("2d").getImageData(...at).data];
        }"""
        red, green, blue, _ = self.canvas(chart).evaluate(script, [x, y])
        return red, green, blue


def is_hot(colour: Colour) -> bool:
    """Orange: much more red than blue, and some green, unlike the frame of who is flagged."""
    red, green, blue = colour
    return red > green > blue + 25 and red - blue > 90
