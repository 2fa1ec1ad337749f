"""Every Python block of every page runs, and prints what it claims."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from otel_straggler.testing import CapturedRequests

from .pages import Block, blocks, training_of_a_reader

LONGEST_S = 240
FORKED_RANKS = Path(__file__).with_name("forked_ranks.py")
AROUND = {
    "README.md": training_of_a_reader(),
    "docs/operate/profiles.md": {"loader": range(3)},
    "docs/recipes/experiment-trackers.md": {"writer": lambda name, value, step: None, "steps": 3},
}
"""What a page's blocks take from the reader's own program."""


@pytest.mark.parametrize("block", list(blocks()), ids=str)
def test_a_block_of_code_runs_and_prints_what_it_claims(block: Block, tmp_path: Path) -> None:
    """As a reader would run it; a comment before it says what it needs around it."""
    run = next(run for what, run in WAYS.items() if what in block.how)
    printed = run(block, tmp_path)
    if block.printed is not None:
        assert printed == block.printed


def as_it_is(block: Block, folder: Path) -> str:
    """In this process; what it sends anywhere goes to a sink."""
    del folder
    printed = io.StringIO()
    environment = dict(os.environ)
    try:
        with CapturedRequests() as sink, contextlib.redirect_stdout(printed):
            code = block.code.replace("http://127.0.0.1:4318", sink.url)
            exec(compile(code, str(block), "exec"), {**AROUND.get(block.page, {})})
    finally:
        os.environ.clear()
        os.environ.update(environment)
    return printed.getvalue()


# gloo aborts now and then while the interpreter ends, whatever the program was (pytorch#190489)
LEAVE = "\nimport os, sys\nsys.stdout.flush()\nos._exit(0)\n"


def with_ranks(block: Block, folder: Path) -> str:
    """As torchrun starts them; lines in order of ranks. After a comma: environment, NAME=VALUE."""
    ranks, *variables = block.how.replace("ranks", "").replace(",", " ").split()
    script = folder / "train.py"
    script.write_text(block.code + LEAVE)
    command = [str(FORKED_RANKS), ranks, str(script)]
    return "".join(sorted(_output(command, *variables).splitlines(keepends=True)))


def with_a_collector(block: Block, folder: Path) -> str:
    """Beside a real one, at its addresses."""
    options = block.how.partition("a collector")[2].split()
    with running_collector(*options) as where:
        script = folder / "program.py"
        code = block.code.replace("127.0.0.1:4318", where["otlp_http"])
        script.write_text(code.replace("127.0.0.1:9464", where["metrics"]))
        return _output([str(script)])


def with_a_package(block: Block, folder: Path) -> str:
    """In a process of its own, if the package that the comment names is installed: a trainer takes
    long to load."""
    package = block.how.partition("package")[2].strip()
    if not importlib.util.find_spec(package):
        pytest.skip(f"needs {package}: it would show that the page's code runs with it")
    script = folder / "train.py"
    script.write_text(block.code)
    return _output([str(script)], "OTEL_STRAGGLER_EXIT_DEADLINE_S=0.1")


WAYS: dict[str, Callable[[Block, Path], str]] = {
    "package": with_a_package,
    "ranks": with_ranks,
    "a collector": with_a_collector,
    "": as_it_is,
}
"""By what the comment names."""


@contextlib.contextmanager
def running_collector(*options: str) -> Iterator[dict[str, str]]:
    """A collector of its own process, on free ports."""
    ports = [f"--{name}=127.0.0.1:0" for name in ("otlp-http", "otlp-grpc", "metrics")]
    command = [sys.executable, "-m", "otel_straggler.cli", "collector", *ports, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment()) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())
        finally:
            process.terminate()


def _output(command: list[str], *variables: str) -> str:
    answer = subprocess.run(
        [sys.executable, *command],
        env={**_environment(), **dict(pair.split("=") for pair in variables)},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-4000:]
    return answer.stdout


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, sys.path))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
