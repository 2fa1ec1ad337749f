"""What tests of the live page share: real collectors, runs that are fed to them, the page."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.demo.processes import Collector

from ..waiting import eventually  # noqa: F401 - for the tests of this folder
from .feeding import Feed
from .live import LivePage

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))

QUICK = {
    "scoring": {"window_steps": 20, "grace_seconds": 0.2},
    "liveness": {
        "lost_after_seconds": 3_600.0,
        "min_timeout_seconds": 3_600.0,
        "max_timeout_seconds": 7_200.0,
    },
}
"""Short windows, and nobody is lost or stuck because a test takes its time."""
Json = dict[str, Any]


class World:
    """Collectors and what is fed to them; :meth:`close` ends all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._collectors: list[Collector] = []
        self._feeds: list[Feed] = []

    def collector(self, addresses: dict[str, str] | None = None, **settings: Any) -> Collector:
        """A real one. Settings are sections of its file, beside short windows."""
        file = self._folder / f"collector-{len(self._collectors)}.yaml"
        file.write_text(json.dumps({**QUICK, **settings}))
        started = Collector(f"--config={file}", addresses=addresses)
        self._collectors.append(started)
        return started

    def feed(self, collector: Collector, *arguments: Any, **plan: Any) -> Feed:
        self._feeds.append(Feed(collector.endpoint, *arguments, **plan))
        return self._feeds[-1]

    def close(self) -> None:
        for feed in self._feeds:
            feed.close()
        for collector in self._collectors:
            collector.close()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world for all tests of a file."""
    made = World(tmp_path_factory.mktemp("world"))
    yield made
    made.close()


@pytest.fixture
def look(open_page: Any) -> Callable[..., LivePage]:
    """Opens the live page of a collector, and waits until it has drawn."""

    def open_and_wait(collector: Collector, hash_: str = "", **options: Any) -> LivePage:
        return LivePage(open_page(f"{collector.url}/{hash_}", **options)).until_drawn()

    return open_and_wait


def ask(collector: Collector, path: str) -> Json:
    with urllib.request.urlopen(collector.url + path, timeout=30) as answer:
        result: Json = json.load(answer)
    return result


def tone_of(collector: Collector, run_id: str) -> str:
    """Of the answer about a run; empty while the collector does not show it yet."""
    known = {run["run_id"] for run in ask(collector, "/v1/runs")["runs"]}
    if run_id not in known:
        return ""
    return str(ask(collector, f"/v1/run?run={run_id}")["answer"]["tone"])
