"""What the README and the page of simulated runs show is what happens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import otel_straggler
from otel_straggler.testing import CapturedRequests

from .pages import training_of_a_reader

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


SIMULATE = (ROOT / "docs" / "recipes" / "simulated-runs.md").read_text(encoding="utf-8")


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def test_the_lines_for_a_training_loop_send_the_sections_they_name() -> None:
    """The Python block runs as it stands, with a model and batches to go with it."""
    code, _ = blocks("python")
    with CapturedRequests() as sink:
        code = code.replace("http://127.0.0.1:4318", sink.url)
        names = training_of_a_reader()
        try:
            exec(compile(code, "README.md", "exec"), names)
        finally:
            otel_straggler.shutdown()
        sections = [span.name for span in sink.spans() if span.name != "step"]
    assert sections.count("forward") == sections.count("backward") == 3


def test_the_simulated_run_prints_the_table_of_its_page() -> None:
    """Line by line, as far as it is shown."""
    command = [sys.executable, "-m", "otel_straggler.cli"]
    simulated = subprocess.run(
        [*command, "simulate", "--ranks", "8", "--slow-rank", "5"],
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    scored = subprocess.run(
        [*command, "score", "-"],
        input=simulated.stdout,
        env={k: v for k, v in os.environ.items() if k != "COLUMNS"},
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    )
    printed = {line.rstrip() for line in scored.stdout.decode().splitlines()}
    (shown,) = [
        block for block in blocks("", SIMULATE) if block.lstrip().startswith("data_loading")
    ]
    for line in shown.splitlines():
        if line.strip() != "...":
            assert line.rstrip() in printed
