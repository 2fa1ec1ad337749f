"""``make demo`` says where to look, and the page shows the slow rank while training runs.

By night: with each push tests/demo has the demo, and test_stories.py the page beside collectors.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .live import LivePage, expect

pytestmark = [pytest.mark.browser, pytest.mark.demo, pytest.mark.nightly]

TRAIN = Path(__file__).parents[2] / "examples" / "demo" / "train.py"
FLAGS = (f"--train={TRAIN}", "--fault=slow", "--rank=2", "--section=forward", "--keep")


@pytest.fixture
def demo() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "otel_straggler.cli", "demo", *FLAGS],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield process
        process.terminate()


def test_the_live_page_names_the_slow_rank_while_training_runs(demo: Any, open_page: Any) -> None:
    """Rank 2, forward; the address is among the first lines."""
    url = address_reported_by(demo)
    page = LivePage(open_page(url)).until_drawn()
    expect(page.part("answer")).to_contain_text("Rank 2", timeout=120_000)
    page.says("answer.headline", "forward")
    assert demo.poll() is None
    page.is_connected()
    page.watched.keep("demo")


def address_reported_by(demo: subprocess.Popen[str]) -> str:
    assert demo.stdout is not None
    for line in demo.stdout:
        if result := re.search(r"http://127\.0\.0\.1:\d+/", line):
            return result[0]
    pytest.fail(f"no address; exit code {demo.wait()}")
