"""The page's modules in Node: where it is, and files of facts that it runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

import otel_straggler.page

HERE = Path(__file__).parent
JS = Path(otel_straggler.page.__file__).parent / "static" / "js"


def node_program(what: str) -> str:
    """Skips without one, and says that ``what`` was not tried; under CI that is a failure."""
    node = shutil.which("node")
    if node is None:
        sentence = f"no node (make servers): {what} was not tried"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    assert node is not None
    return node


def check_facts(folder: Path, names: Iterable[str], cases: object, *, minimum: int) -> None:
    """Run files of tests beside the modules: all of them hold, and at least so many.

    Args:
        folder: an empty one.
        names: files of this folder.
        cases: what the tests read from cases.json.
    """
    names = sorted(names)
    node = node_program(", ".join(names))
    (folder / "package.json").write_text('{"type": "module"}')
    shutil.copytree(JS, folder / "js")
    for name in names:
        shutil.copy(HERE / name, folder)
    (folder / "cases.json").write_text(json.dumps(cases, allow_nan=False))
    command = [node, "--test", "--test-reporter=tap", *names]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"^# pass (\d+)$", done.stdout, re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) >= minimum
