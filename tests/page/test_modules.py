"""The page's modules without a browser: Node runs what is told of them in ``*.test.js`` here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import otel_straggler.page

from .pictures import picture, rank_detail, runs_of, timeline
from .scenarios import SCENARIOS

HERE = Path(__file__).parent
JS = Path(otel_straggler.page.__file__).parent / "static" / "js"
FILES = {
    "format.test.js": 8,
    "state.test.js": 5,
    "source.test.js": 12,
    "parts.test.js": 15,
}
"""What Node runs, and the least number of facts in it."""


@pytest.mark.parametrize("name", FILES)
def test_facts_of_the_modules_hold(name: str, tmp_path: Path) -> None:
    """All of the file, and none of them was lost."""
    node = shutil.which("node")
    if node is None:
        sentence = f"no node (make servers): {name} was not tried"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    assert node is not None
    (tmp_path / "package.json").write_text('{"type": "module"}')
    shutil.copytree(JS, tmp_path / "js")
    shutil.copy(HERE / name, tmp_path)
    (tmp_path / "cases.json").write_text(json.dumps(_cases(), allow_nan=False))
    command = [node, "--test", "--test-reporter=tap", name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"^# pass (\d+)$", done.stdout, re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) >= FILES[name]


def _cases() -> dict[str, object]:
    """Every scenario as a collector would answer, but for the huge one."""
    worlds = {name: make() for name, make in SCENARIOS.items() if name != "huge"}
    return {
        "pictures": {name: picture(world) for name, world in worlds.items()},
        "runs": runs_of([picture(world) for world in worlds.values()]),
        "timeline": timeline(worlds["straggler"]),
        "rank": rank_detail(worlds["straggler"], 21),
    }
