"""The live page as a person sees it, by the names that its parts have in their attributes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .probes import MEAN_COLOURS, REPORTED_AT_POINTER

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from ..servers.chromium import Watched

PARTS = (
    "picker", "connection", "answer", "matrix", "rank-time", "sections", "ledger", "liveness",
    "alerts", "verdicts",
)  # fmt: skip
"""What is there of every run; the details of a rank only where one is chosen."""
FINE, COARSE = (20, 12), (60, 24)
"""Pixels between the places in a chart that are pointed at, along and down: in every cell, and in
every row."""


class LivePage:
    """One tab with the live page."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched
        self.page: Page = watched.page

    def until_drawn(self) -> LivePage:
        self.page.wait_for_selector("body[data-ready]", state="attached")
        return self

    def part(self, name: str) -> Locator:
        return self.page.locator(f"[data-part={name}]")

    def field(self, name: str) -> Locator:
        return self.part("answer").locator(f"[data-field={name}]")

    def canvas(self, name: str) -> Locator:
        """The canvas of a part, which may be the part itself."""
        return self.page.locator(f"[data-part={name}] canvas, canvas[data-part={name}]").first

    def indexes_in_chart(
        self, name: str, apart: tuple[int, int] = FINE
    ) -> Iterator[tuple[str, float, float]]:
        """What the pointer is told on its way over the canvas of a part, and where."""
        canvas = self.canvas(name)
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        assert box is not None
        for y in range(4, int(box["height"]), apart[1]):
            for x in range(70, int(box["width"]), apart[0]):
                self.page.mouse.move(box["x"] + x, box["y"] + y)
                yield canvas.evaluate(REPORTED_AT_POINTER), x, y

    def click_in_chart(self, name: str, words: str) -> None:
        """Where the pointer is told the words."""
        ways = [self.indexes_in_chart(name, apart) for apart in (COARSE, FINE)]
        for text, _, _ in itertools.chain(*ways):
            if re.search(rf"{re.escape(words)}\b", text):
                self.page.mouse.down()  # the pointer is there
                self.page.mouse.up()
                return
        raise AssertionError(f"{words!r} is nowhere in {name}")

    def colours(self, name: str, indexes: Sequence[tuple[float, float]]) -> list[list[float]]:
        """Mean red, green and blue around places of a canvas, the pointer being elsewhere."""
        self.page.mouse.move(1, 1)
        result: list[list[float]] = self.canvas(name).evaluate(MEAN_COLOURS, indexes)
        return result

    def says(self, name: str, words: str) -> None:
        """Wait until a part, or a field of the answer (``answer.headline``), has the words."""
        part, _, field = name.partition(".")
        where = self.field(field) if field else self.part(part)
        expect(where).to_contain_text(re.compile(re.escape(words), re.IGNORECASE))

    def is_connected(self) -> None:
        """Wait until the page says so."""
        self.has("connection", "data-state", "live")

    def has(self, name: str, attribute: str, value: Any) -> None:
        """Wait until a part has the attribute."""
        expect(self.part(name)).to_have_attribute(attribute, value)

    def attribute(self, name: str, attribute: str) -> str | None:
        return self.part(name).get_attribute(attribute)

    def reload(self) -> LivePage:
        self.page.reload()
        return self.until_drawn()


def expect(result: Any) -> Any:
    """Playwright's, imported where there is one."""
    from playwright.sync_api import expect as playwrights

    return playwrights(result)
