"""The page's modules without a browser: Node runs what is told of them in ``*.test.js`` here."""

from __future__ import annotations

from pathlib import Path

import pytest

from .in_node import check_facts
from .run_views import rank_detail, run_view, runs_of, timeline
from .scenarios import SCENARIOS

FILES = {
    "format.test.js": 8,
    "state.test.js": 5,
    "source.test.js": 18,
    "parts.test.js": 30,
}
"""What Node runs, and the least number of facts in it."""


@pytest.mark.parametrize("name", FILES)
def test_facts_of_the_modules_hold(name: str, tmp_path: Path) -> None:
    """All of the file, and none of them was lost."""
    check_facts(tmp_path, [name], _cases(), minimum=FILES[name])


def _cases() -> dict[str, object]:
    """Every scenario as a collector would answer, but for the huge one."""
    worlds = {name: make() for name, make in SCENARIOS.items() if name != "huge"}
    return {
        "pictures": {name: run_view(world) for name, world in worlds.items()},
        "runs": runs_of([run_view(world) for world in worlds.values()]),
        "timeline": timeline(worlds["straggler"]),
        "rank": rank_detail(worlds["straggler"], 21),
    }
