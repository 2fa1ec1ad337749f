"""What the other tests are fed with arrives as meant."""

from __future__ import annotations

from typing import Any

from .conftest import ask, eventually
from .feeding import renamed


def test_a_run_goes_on_when_it_is_told_to(world: Any) -> None:
    """So many steps more, scored by a real collector; then it ends."""
    collector = world.collector()
    feed = world.feed(collector, "fed", change=renamed("<b>"))
    feed.advance(60)
    eventually(lambda: last_steps(collector) == [39])
    feed.advance(40)
    eventually(lambda: last_steps(collector) == [79])
    run = ask(collector, "/v1/report")["runs"]["fed"]
    assert run["liveness"][0]["state"] == "training"
    assert {row["node"] for row in run["run"]["waits"]} <= {"<b>node-0"}
    feed.finish()
    eventually(
        lambda: ask(collector, "/v1/report")["runs"]["fed"]["liveness"][0]["state"] == "finished"
    )


def last_steps(collector: Any) -> list[int]:
    """Of the newest windows; none before the run is known."""
    run = ask(collector, "/v1/report")["runs"].get("fed", {"windows": []})
    return [window["last_step"] for window in run["windows"]]
