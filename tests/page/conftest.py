"""Pages on canned pictures, in a real Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from .run_views import World
from .server import CannedCollector

if TYPE_CHECKING:
    from playwright.sync_api import Page

Show: TypeAlias = Callable[..., "tuple[Page, CannedCollector]"]


@pytest.fixture
def canned() -> Iterator[Callable[..., CannedCollector]]:
    """Starts collectors that only pretend; they end with the test."""
    started: list[CannedCollector] = []

    def start(*worlds: World) -> CannedCollector:
        started.append(CannedCollector(*worlds))
        return started[-1]

    yield start
    for each in started:
        each.__exit__(None, None, None)


@pytest.fixture
def show(canned: Callable[..., CannedCollector], open_page: Any) -> Show:
    """Opens the page on worlds, and waits until it has drawn; ``at``: a fragment that chooses."""

    def opened(*worlds: World, at: str = "", **options: Any) -> tuple[Page, CannedCollector]:
        collector = canned(*worlds)
        watched = open_page(collector.url + at, **options)
        watched.page.wait_for_selector("body[data-ready]", state="attached")
        page: Page = watched.page
        return page, collector

    return opened
