"""A fleet of two shards on the page: runs of the other one are listed, shown, and linked to it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ..servers.otelcol import free_address
from .conftest import ask, eventually
from .live import expect

pytestmark = pytest.mark.browser


def addresses(page: str) -> dict[str, str]:
    return {"otlp_http": "127.0.0.1:0", "otlp_grpc": "127.0.0.1:0", "metrics": page}


def test_a_run_of_another_shard_is_shown_and_its_row_leads_there(world: Any, look: Any) -> None:
    """To the address for people, where that shard has one of its own; by keyboard next to its
    name."""
    here, there = (free_address() for _ in range(2))
    public = f"http://localhost:{there.rpartition(':')[2]}"
    peers = [f"http://{each}" for each in (here, there)]
    metrics = {"peers": peers}
    first = world.collector(addresses(here), metrics={**metrics, "collector_id": "shard-0"})
    other = world.collector(
        addresses(there),
        metrics={**metrics, "collector_id": "shard-1"},
        alerts={"notify": {"external_url": public}},
    )
    world.feed(first, "run-here").advance(60)
    world.feed(other, "run-there", "dp4", "compute:1.6@rank1:step20").advance(140)
    eventually(lambda: len(ask(first, "/v1/runs")["runs"]) == 2)
    page = look(first, "#run=run-here")
    page.says("picker", "run-here")
    picker = page.part("picker")
    expect(picker.get_by_role("link")).to_have_count(0)
    picker.get_by_role("button").first.click()
    row = picker.get_by_role("option", name=re.compile("run-there"))
    expect(row.locator("a")).to_have_attribute("href", f"{public}/#run=run-there")
    expect(row).to_contain_text("on shard-1")
    page.watched.keep("fleet-list")
    row.locator(".option-name").click()
    page.says("picker", "run-there")
    page.says("answer.headline", "Rank 1")
    link = picker.get_by_role("link", name=re.compile("shard-1"))
    expect(link).to_be_visible()
    page.watched.keep("fleet-run-of-another-shard")
    its = look(other, "#run=run-there")
    its.says("answer.headline", "Rank 1")
    expect(its.part("picker").get_by_role("link")).to_have_count(0)
    assert link.get_attribute("href") == f"{public}/#run=run-there"
