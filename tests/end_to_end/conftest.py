"""The demo's collector, for tests that need a real one."""

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from otel_straggler.demo.processes import Collector

collect_ignore = ["fake_torch_gpu.py", "gpu_entry_rank.py"]
"""Programs of ranks, which read their environment as they begin; their doctests are none."""

LONGEST_S = 120
Json = dict[str, Any]


class Watched:
    """A collector, all the windows of one run that it has reported, and its report."""

    def __init__(self, collector: Collector, run_id: str) -> None:
        self.collector = collector
        self.run_id = run_id
        self.windows: list[Json] = []
        self.run: Json = {}

    def look(self) -> None:
        with urllib.request.urlopen(f"{self.collector.url}/v1/report", timeout=30) as answer:
            self.run = json.load(answer)["runs"].get(self.run_id, {})
        newest = self.run.get("windows", [])[-1:]
        self.windows += [window for window in newest if window not in self.windows]

    def wait_for(self, is_enough: Callable[[Json], bool]) -> Json:
        """The first window that is enough."""
        ends_at = time.monotonic() + LONGEST_S
        while time.monotonic() < ends_at:
            self.look()
            for window in self.windows:
                if is_enough(window):
                    return window
            time.sleep(0.05)
        pytest.fail(f"not within {LONGEST_S} s; windows: {[*map(summary, self.windows)]}")


def summary(window: Json) -> str:
    reported = ("attempt", "first_step", "last_step", "closed_by")
    return ", ".join(f"{name} {window[name]}" for name in reported)


@pytest.fixture
def start_collector() -> Iterator[Callable[..., Collector]]:
    """Starts collectors and ends those that are left."""
    started: list[Collector] = []

    def start(*flags: str, addresses: dict[str, str] | None = None) -> Collector:
        started.append(Collector(*flags, addresses=addresses))
        return started[-1]

    yield start
    for collector in started:
        collector.close()


@pytest.fixture
def watch() -> type[Watched]:
    return Watched
