"""What the base package keeps to where nothing but it and its dependencies is installed.

Not collected with the other tests: `make neighbours` runs it inside each environment.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import otel_straggler

EXTRAS = (
    "torch",
    "cramjam",
    "grpc",
    "h2",
    "httptools",
    "uvloop",
    "yaml",
    "click",
    "rich",
    "pynvml",
    "promql_parser",
    "grafana_foundation_sdk",
)
NEED_AN_EXTRA = (
    "otel_straggler.cli.",
    "otel_straggler.collector.",
    "otel_straggler.collector.ingest.",
    "otel_straggler.alerts.checking",  # for `otel-straggler alerts check`, which says so
    "otel_straggler.dashboards.",  # makes the files that the wheel has; `export` needs none
)
NEED_TORCH = (  # torch's own parts, extended
    "otel_straggler.checkpoint.",
    "otel_straggler.launcher.elastic",
)
FIVE_LINES = """
import otel_straggler
from otel_straggler.testing import CapturedRequests
with CapturedRequests() as sink:
    otel_straggler.configure(endpoint=sink.url)
    with otel_straggler.step(1), otel_straggler.section("forward"):
        pass
    otel_straggler.shutdown()
    print(*[span.name for span in sink.spans()])
    print(*sorted({point.metric for point in sink.points()}))
"""


def test_it_is_the_installed_package_that_is_tested() -> None:
    """Not the source tree beside the tests."""
    assert Path(otel_straggler.__file__).is_relative_to(sys.prefix)


def test_the_native_part_is_here_and_used() -> None:
    """The wheel has it, and this Python loads it."""
    from otel_straggler.native import NATIVE, REASON

    assert (REASON, Path(str(NATIVE.__file__)).parent) == ("", Path(otel_straggler.__file__).parent)


@pytest.mark.parametrize("name", EXTRAS)
def test_no_extra_is_here(name: str) -> None:
    """Otherwise the rest would show nothing."""
    assert importlib.util.find_spec(name) is None


def test_spans_and_heartbeats_are_sent_without_a_warning() -> None:
    """No deprecated call of ours at import, while recording, or at the end, on any Python."""
    ours = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_STRAGGLER_TEST_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FIVE_LINES],
        env=ours,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert not [
        line for line in done.stderr.splitlines() if not line.startswith("otel-straggler: run ")
    ]
    spans, metrics = done.stdout.splitlines()
    assert spans == "forward step"
    assert "straggler.rank.finished" in metrics


MODULES = [m.name for m in pkgutil.walk_packages(otel_straggler.__path__, "otel_straggler.")]


TRAINERS = ("accelerate", "deepspeed", "lightning", "transformers")
FOR_A_TRAINER = tuple(f"otel_straggler.integrations.{name}" for name in TRAINERS)


@pytest.mark.parametrize("module", [m for m in MODULES if not m.endswith("__main__")])
def test_a_module_needs_no_extra_unless_it_serves(module: str) -> None:
    """Recording, sending, scoring, simulating and reading files work in a training image."""
    missing = ""
    try:
        importlib.import_module(module)
    except ImportError as error:
        missing = error.name or str(error)
    if module.startswith(FOR_A_TRAINER):  # only who has its library calls it
        assert not missing or missing in TRAINERS or "pip install lightning" in missing
        return
    if missing == "torch" and module.startswith(NEED_TORCH):
        return
    assert not missing or (missing in EXTRAS and module.startswith(NEED_AN_EXTRA))


@pytest.mark.parametrize("verb", ["", "collector", "score", "simulate", "top"])
def test_the_command_says_in_one_line_which_extra_is_missing(verb: str) -> None:
    """With the command that installs it."""
    program = Path(sys.prefix) / "bin" / "otel-straggler"
    done = subprocess.run(
        [program, *verb.split()], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "pip install 'otel-straggler[cli]'" in line
