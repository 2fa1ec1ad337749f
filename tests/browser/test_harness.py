"""The harness itself: pages that go wrong are noticed, and a test file has one Chromium."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ..servers.chromium import Pages

pytestmark = pytest.mark.browser

PAGES = {
    "/good": b"<!doctype html><link rel=icon href='data:,'><h1>good</h1>",
    "/throws": b"<!doctype html><link rel=icon href='data:,'><script>throw Error('ouch')</script>",
    "/missing": b"<!doctype html><link rel=icon href='data:,'><img src=/nothing.png>",
    "/foreign": b"<!doctype html><link rel=icon href='data:,'><img src=http://127.0.0.1:9/x.png>",
}


@pytest.fixture
def site() -> Iterator[str]:
    """A small site; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = PAGES.get(self.path)
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_good_page_is_without_trouble(open_page: Any, site: str) -> None:
    """Two tabs of one context, and a page with a context of its own."""
    first = open_page(f"{site}/good")
    second = open_page(f"{site}/good", beside=first)
    third = open_page(f"{site}/good", color_scheme="dark")
    assert first.page.context is second.page.context is not third.page.context
    assert [each.page.inner_text("h1") for each in open_page.opened] == ["good"] * 3
    assert third.page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")


@pytest.mark.parametrize(
    ("path", "words"),
    [("/throws", "ouch"), ("/missing", "404"), ("/foreign", "another origin")],
)
def test_trouble_is_told(open_page: Any, site: str, path: str, words: str) -> None:
    """An exception, a request that fails, and one to another origin."""
    watched = open_page(site + path)
    watched.page.wait_for_load_state("networkidle")
    assert any(words in reported for reported in watched.trouble()), watched.trouble()
    watched.errors, watched.failed, watched.foreign = [], [], []


def test_another_origin_is_never_forgiven(open_page: Any, site: str) -> None:
    """Not even where errors are expected."""
    watched = open_page(f"{site}/foreign")
    watched.expects_trouble = True
    assert watched.trouble() == ["asked another origin: http://127.0.0.1:9/x.png"]
    watched.foreign = []


def test_a_page_finds_nothing_of_an_earlier_test(
    chromium: Any, kept_contexts: Any, site: str
) -> None:
    """Neither what was stored nor a cookie, though the context is the same."""
    result = []
    for name in ("first", "second"):
        pages = Pages(chromium, name, kept_contexts)
        page = pages(f"{site}/good", viewport={"width": 500, "height": 500}).page
        result.append((page.context, page.evaluate("[localStorage.length, document.cookie]")))
        page.evaluate("localStorage.setItem('theme', 'dark'); document.cookie = 'a=b'")
        assert page.evaluate("[localStorage.length, document.cookie]") == [1, "a=b"]
        assert pages.close(has_failed=False) == []
    assert result[0] == result[1] == (result[0][0], [0, ""])
