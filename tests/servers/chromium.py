"""A real headless Chromium for tests, and pages that remember what went wrong in them.

The fixtures are in tests/conftest.py: ``chromium`` (one for each file of tests: playwright's loop
would be in the way of other files that use asyncio) and ``open_page`` (a context for each page,
fresh or as good as that; the page must be without trouble at the end of the test).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--disable-gpu", "--disable-quic")
"""Beside playwright's own, which keep Chromium from talking to its maker."""
PATIENCE_MS = 30_000
"""How long anything may take to show: machines are shared."""
SHOTS = Path(os.environ.get("OTEL_STRAGGLER_SHOTS", "out/screenshots"))
"""Pictures of pages of tests that failed, and those that tests keep for people."""


def chromium_program() -> str:
    """Skips without one, or without playwright; under CI that is a failure."""
    result = next(filter(None, map(shutil.which, NAMES)), None)
    sentence = ""
    if result is None:
        sentence = "no Chromium is installed (make servers): the page was not tried in a browser"
    else:
        try:
            import playwright  # noqa: F401
        except ImportError:
            sentence = "playwright is not installed (make dev): the page was not tried in a browser"
    if sentence:
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    assert result is not None
    return result


@contextlib.contextmanager
def running_chromium(*flags: str) -> Iterator[Browser]:
    """A Chromium of its own process; it ends with the block."""
    program = chromium_program()
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=[*FLAGS, *flags], timeout=2 * PATIENCE_MS
        )
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, and what went wrong in it.

    Attributes:
        page: playwright's.
        errors: console errors and exceptions that nobody caught.
        failed: requests without an answer or with a status of 400 and more.
        foreign: URLs that were asked of anybody but the first address of the page.
        expects_trouble: set by a test in which errors and failures are right; ``foreign`` never is.
    """

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        self.failed: list[str] = []
        self.foreign: list[str] = []
        self.expects_trouble = False
        self._origin = ""
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(f"not caught: {error}"))
        page.on("request", self._on_request)
        page.on("requestfailed", self._on_failed)
        page.on("response", self._on_response)

    def goto(self, url: str) -> Watched:
        """Open an address; its origin is then the only one that may be asked."""
        self._origin = _origin(url)
        self.page.goto(url)
        return self

    @property
    def is_at_home(self) -> bool:
        """Whether it is open, where it was sent first, on a server."""
        url = "" if self.page.is_closed() else self.page.url
        return url.startswith("http") and _origin(url) == self._origin

    def forget(self) -> None:
        """Nothing of its origin stays stored in its context."""
        session = self.page.context.new_cdp_session(self.page)
        of_all = {"origin": self._origin.rstrip("/"), "storageTypes": "all"}
        session.send("Storage.clearDataForOrigin", of_all)

    def trouble(self) -> list[str]:
        """What must not be at the end of a test."""
        reported = [] if self.expects_trouble else [*self.errors, *self.failed]
        return reported + [f"asked another origin: {url}" for url in self.foreign]

    def keep(self, name: str) -> Path:
        """A picture of the whole page for people to look at; its path."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        path = SHOTS / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name)}.png"
        self.page.screenshot(path=path, full_page=True)
        return path

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "assert"):
            self.errors.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _on_request(self, request: Any) -> None:
        own = (self._origin, "data:", "blob:", "about:", "file:")
        if not request.url.startswith(own):
            self.foreign.append(request.url)

    def _on_failed(self, request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # the page itself gave up, or was left
            self.failed.append(f"{request.method} {request.url}: {request.failure}")

    def _on_response(self, response: Any) -> None:
        if response.status >= 400:
            self.failed.append(f"{response.request.method} {response.url}: {response.status}")


class Contexts:
    """Contexts of a browser, for one test after the other: in one that was there already a page
    opens for half of the processor time, for a blank page keeps its process alive.

    One is kept only if no test after this could tell it from a new one: its pages were all still
    open, each at its first origin, of which nothing is stored then.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._free: dict[str, list[BrowserContext]] = {}

    def take(self, options: dict[str, Any]) -> BrowserContext:
        """One that no other has, with these options."""
        if free := self._free.get(_key(options)):
            return free.pop()
        context = self._browser.new_context(**options)
        context.new_page()
        return context

    def give_back(
        self, context: BrowserContext, options: dict[str, Any], opened: list[Watched]
    ) -> None:
        """Close the pages of a test; keep the context if all is well with them."""
        pages = [watched.page for watched in opened]
        is_known = context.pages[1:] == pages and all(watched.is_at_home for watched in opened)
        if not is_known:
            context.close()
            return
        for watched in opened:
            watched.forget()
            watched.page.close()
        context.clear_cookies()
        self._free.setdefault(_key(options), []).append(context)


class Pages:
    """Opens pages of one browser for one test, and judges them at its end.

    Args:
        browser: that is running.
        name: of the test, for pictures of its failure.
        contexts: kept from test to test; None: each is new.
    """

    def __init__(self, browser: Browser, name: str, contexts: Contexts | None = None) -> None:
        self.browser = browser
        self._name = name
        self._kept = contexts or Contexts(browser)
        self._contexts: list[tuple[BrowserContext, dict[str, Any]]] = []
        self.opened: list[Watched] = []

    def __call__(
        self, url: str | None = None, *, beside: Watched | None = None, **options: Any
    ) -> Watched:
        """A page.

        Args:
            url: where it goes; None: nowhere yet.
            beside: a page with which it shares the context: another tab.
            options: of a new context, such as ``color_scheme="dark"``, ``viewport``, ``has_touch``.
        """
        context = beside.page.context if beside else self._new_context(options)
        watched = Watched(context.new_page())
        self.opened.append(watched)
        return watched.goto(url) if url else watched

    def close(self, *, has_failed: bool) -> list[str]:
        """Close all; what went wrong in them. Keeps pictures if the test has failed."""
        result = [trouble for watched in self.opened for trouble in watched.trouble()]
        for number, watched in enumerate(self.opened):
            if (has_failed or result) and not watched.page.is_closed():
                with contextlib.suppress(Exception):
                    watched.keep(f"failed-{self._name}-{number}")
        for context, options in self._contexts:
            if has_failed or result:
                context.close()
            else:
                of_context = [each for each in self.opened if each.page.context is context]
                self._kept.give_back(context, options, of_context)
        return result

    def _new_context(self, options: dict[str, Any]) -> BrowserContext:
        chosen = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light", **options}
        context = self._kept.take(chosen)
        self._contexts.append((context, chosen))
        return context


def _key(options: dict[str, Any]) -> str:
    """The same for the same options."""
    return json.dumps(options, sort_keys=True)


def _origin(url: str) -> str:
    """
    >>> _origin("http://127.0.0.1:9464/x?y"), _origin("file:///tmp/report.html")
    ('http://127.0.0.1:9464/', 'file:///tmp/report.html')
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/" if parts.netloc else url


OpenPage = Callable[..., Watched]
