"""DNS rebinding: a page of somebody else's cannot read what the collector says."""

from __future__ import annotations

import http.client
from typing import Any

import pytest

from ..servers.chromium import running_chromium

pytestmark = pytest.mark.browser

PATHS = (
    "/",
    "/page/js/main.js",
    "/v1/runs",
    "/v1/run",
    "/v1/rank?rank=0",
    "/v1/timeline",
    "/v1/events",
)


def test_a_foreign_name_gets_nothing_in_a_browser(world: Any) -> None:
    """evil.example resolves to this machine, as an attacker would have it: 403, and no page."""
    collector = world.collector()
    world.feed(collector, "secret").advance(60)
    port = collector.addresses["metrics"].rpartition(":")[2]
    rule = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    with running_chromium(rule) as browser:
        page = browser.new_page()
        answer = page.goto(f"http://evil.example:{port}/")
        assert answer is not None
        assert answer.status == 403
        assert page.locator("[data-part]").count() == 0
        reported = page.evaluate("fetch('/v1/runs').then(answer => answer.status)")
        assert reported == 403
        own = page.goto(f"{collector.url}/")
        assert own is not None
        assert own.status == 200


@pytest.mark.parametrize("path", PATHS)
def test_no_path_is_served_under_a_foreign_name(world: Any, path: str) -> None:
    """The stream of news included."""
    collector = world.collector()
    host, _, port = collector.addresses["metrics"].rpartition(":")
    for name, status in (("evil.example", 403), (f"evil.example:{port}", 403)):
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        connection.request("GET", path, headers={"Host": name})
        assert connection.getresponse().status == status, (path, name)
        connection.close()
