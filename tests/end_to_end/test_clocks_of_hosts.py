"""Goodput of a run whose hosts' clocks differ, or are set while it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.cli import main
from otel_straggler.simulate.runs import Fault, Layout, RunPlan, generate
from otel_straggler.simulate.writers import encode_requests_of, frame

from .collecting import Ahead, Collecting, moved

STEPS, JUMP = 200, 100
PLAN = RunPlan(
    layout=Layout(dp=4),
    steps=STEPS,
    noise=0.005,
    spikes=0.0,
    microbatches=1,
    step_s=0.2,
    outside_s=0.05,
    ranks_per_node=1,
    faults=(Fault.parse("compute:1.5@rank1:step60"),),
    run_id="clocks",
    start_ns=1_790_000_000 * 10**9,
)
CLOCKS: dict[str, Ahead] = {
    "one an hour ahead": lambda rank, _: 3600.0 * (rank == 1),
    "the lowest rank's half an hour behind": lambda rank, _: -1800.0 * (rank == 0),
    "all differ": lambda rank, _: (3600.0, -1800.0, 5.0, 0.0)[rank],
    "one set back by ten minutes": lambda rank, step: -600.0 * (rank == 1 and step >= JUMP),
    "one set forward by ten minutes": lambda rank, step: 600.0 * (rank == 2 and step >= JUMP),
}
LIVE = ("one an hour ahead", "the lowest rank's half an hour behind", "all differ",
        "one set back by ten minutes")  # fmt: skip


def recorded(folder: Path, ahead: Ahead) -> dict[str, Any]:
    path, out = folder / "run.otlp", folder / "out.json"
    batches = (moved(batch, ahead) for batch in generate(PLAN).batches())
    path.write_bytes(b"".join(map(frame, encode_requests_of(batches))))
    assert main(["goodput", str(path), "--json", str(out)]) == 0
    [run] = json.loads(out.read_text())["runs"]
    return dict(run)


@pytest.fixture(scope="module")
def true_run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return recorded(tmp_path_factory.mktemp("true"), lambda *_: 0.0)


@pytest.mark.parametrize("clocks", CLOCKS)
def test_a_recorded_account_is_that_of_one_clock(
    clocks: str,
    true_run: dict[str, Any],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """To 2 points, and a note says which clock differs."""
    run = recorded(tmp_path, CLOCKS[clocks])
    assert run["goodput"] == pytest.approx(true_run["goodput"], abs=0.02)
    assert run["elapsed_s"] == pytest.approx(true_run["elapsed_s"], rel=0.02)
    stragglers = true_run["categories"]["stragglers"]["share"]
    assert run["categories"]["stragglers"]["share"] == pytest.approx(stragglers, abs=0.02)
    assert "the clock of rank" in capfd.readouterr().err


def test_clocks_that_agree_are_not_mentioned(
    true_run: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Milliseconds between hosts are nothing."""
    run = recorded(tmp_path, lambda rank, _: 0.004 * rank)
    assert run["goodput"] == pytest.approx(true_run["goodput"], abs=0.005)
    assert "clock" not in capfd.readouterr().err


@pytest.mark.parametrize("clocks", LIVE)
def test_a_live_account_is_that_of_one_clock(clocks: str, true_run: dict[str, Any]) -> None:
    """On the page: the run is as long as it is, and stragglers cost what they cost."""
    collecting = Collecting("clocks", ahead=CLOCKS[clocks])
    for batch in generate(PLAN).batches(10):
        collecting.observe(batch)
    collecting.end(batch.sources, STEPS - 1)
    goodput = collecting.page()["goodput"]
    elapsed_s = goodput["end_s"] - goodput["start_s"]
    assert elapsed_s == pytest.approx(true_run["elapsed_s"], rel=0.05)
    shares = {each["reason"]: each["share"] for each in goodput["lost"]}
    expected = true_run["categories"]["stragglers"]["share"]
    assert shares["stragglers"] == pytest.approx(expected, abs=0.03)
    assert goodput["goodput"] == pytest.approx(true_run["goodput"], abs=0.04)
