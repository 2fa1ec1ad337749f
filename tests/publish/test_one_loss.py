"""One run, one loss: the same number in text, ``top``, ``/v1/report``, ``/v1/run`` and scalars."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from otel_straggler.cli import main
from otel_straggler.cli.report_lines import report_lines
from otel_straggler.cli.score import configured, read_input, score_recording
from otel_straggler.cli.top import View
from otel_straggler.collector.views.numbers import number
from otel_straggler.collector.views.page_json import ResponseMeta, page_json
from otel_straggler.collector.views.run_json import run_entry, scalars_of
from otel_straggler.collector.views.run_view import RunView, WindowView
from otel_straggler.collector.views.snapshot import Snapshot
from otel_straggler.detect.scores.settings import ScoreSettings
from otel_straggler.model.verdict import CALLED_SLOW

META = ResponseMeta(collector="here", version="1", started_at_s=0.0)
TIMES = re.compile(r"takes (\d+\.\d\d)x as long as it\s+could")
MAX_ROUNDING = 1e-5
SIMULATED = {
    "healthy": ("dp8",),
    "slow GPU": ("dp8", "compute:1.4@rank5:step40"),
    "two slow GPUs": ("dp8", "compute:1.4@rank5:step40", "compute:1.4@rank2:step40"),
    "three of several sizes": (
        "dp16", "compute:1.5@rank5:step40", "compute:1.2@rank2:step40", "data:0.3@rank9:step40",
    ),
    "slow data": ("dp8", "data:0.2@rank2:step40"),
    "late": ("dp8", "late:0.2@rank6:step40"),
    "two hosts": ("dp32", "compute:1.3@host1:step40", "compute:1.3@host2:step40"),
    "stalls": ("dp8", "flap:1.5@rank3:step40"),
    "stages": ("pp4,dp4", "--stage-factor", "1.4"),
    "stages and a GPU": ("pp4,dp4", "compute:1.6@rank5:step40", "--stage-factor", "1.3"),
    "local times": (
        "dp8", "compute:1.4@rank5:step40", "compute:2@rank2:step40", "--timing", "local",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """A run by every way to see it."""

    text: str
    top: str
    page_text: str
    offline: Any
    report: Any
    page: Any
    scalars: Any
    entry: Any


def shown(file: Path, capsys: pytest.CaptureFixture[str]) -> Shown:
    """A recording as ``score`` and a collector show it."""
    capsys.readouterr()
    assert main(["score", str(file)]) == 0
    text = capsys.readouterr().out
    assert main(["score", "--json", str(file)]) == 0
    offline = json.loads(capsys.readouterr().out)
    recording = read_input(str(file), configured(None)[0])
    windows, scorer = score_recording(recording, ScoreSettings(window_steps=20))
    run_id = windows[-1].run_id
    run = RunView(
        run_id=run_id,
        now_s=windows[-1].end_ns / 1e9,
        windows=(WindowView(windows[-1]),),
        run_verdicts=scorer.verdicts(run_id),
    )
    report = json.loads(Snapshot(runs={run_id: run}).report())
    world = run.world("")
    page = page_json(world, META)
    return Shown(
        text=text,
        top=printed(View(report, run_id, "collector")),
        page_text="\n".join(printed(line) for line in report_lines(page)),
        offline=offline["runs"][run_id],
        report=report["runs"][run_id],
        page=page,
        scalars=scalars_of(world),
        entry=run_entry([world]),
    )


def printed(renderable: Any) -> str:
    output = io.StringIO()
    Console(file=output, width=200).print(renderable)
    return output.getvalue()


def check(seen: Shown) -> None:
    run = seen.offline["run"]
    slowdown, waste = run["slowdown"], run["waste"]
    assert waste == pytest.approx(1.0 - 1.0 / slowdown)
    live = seen.report["run"]
    assert (live["slowdown"], live["waste"]) == (slowdown, waste)
    for other in (seen.page["run"], seen.scalars, seen.entry):
        assert other["slowdown"] == number(slowdown)
    assert seen.page["run"]["waste"] == number(waste)
    for text in (seen.text, seen.top, seen.page_text):
        assert TIMES.findall(text) == [f"{slowdown:.2f}"], text
    n_ranks = seen.page["run"]["world_size"]
    of_run = waste * n_ranks * 3600.0
    assert seen.page["run"]["gpu_seconds_lost_per_hour"] == number(of_run)
    for verdicts in (seen.offline["verdicts"], seen.report["verdicts"], seen.page["verdicts"]):
        newest = {verdict["subject_id"]: verdict for verdict in verdicts}.values()
        lost = sum(
            v["gpu_seconds_lost_per_hour"] or 0.0 for v in newest if v["state"] in CALLED_SLOW
        )
        assert lost <= of_run * (1.0 + MAX_ROUNDING)


def step_seconds(slow: dict[int, float], n_ranks: int = 10, steps: int = 200) -> Any:
    """(T, R); ranks are slow in the second half."""
    seconds = np.exp(np.random.default_rng(0).normal(0.0, 0.02, (steps, n_ranks)))
    for rank, times in slow.items():
        seconds[steps // 2 :, rank] *= times
    return seconds


def write_steps(file: Path, slow: dict[int, float], n_ranks: int = 10, steps: int = 200) -> None:
    """Times of whole steps, as recorded by each rank alone: nobody's contains waiting."""
    seconds = step_seconds(slow, n_ranks, steps)
    begins_s = np.concatenate([[0.0], np.cumsum(seconds.max(axis=1))])
    lines = ["run_id,rank,node,role,section,kind,step,start_ns,duration_s"]
    for step, row in enumerate(seconds.tolist()):
        at_ns = 1_790_000_000_000_000_000 + int(begins_s[step] * 1e9)
        lines += [
            f"r,{r},node-{r},default,step,compute,{step},{at_ns},{s:.9f}" for r, s in enumerate(row)
        ]
    file.write_text("\n".join(lines))


@pytest.mark.parametrize("times", [1.2, 4.0])
def test_a_step_is_as_long_as_the_slowest_rank_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], times: float
) -> None:
    """A rank at 4x costs three quarters of the run, which takes nearly 4x as long as without it: of
    the others one is the last by chance. Related to the usual step of the others it would be three
    times all there is, cut to all of it: 100x."""
    write_steps(tmp_path / "steps.csv", {3: times})
    seen = shown(tmp_path / "steps.csv", capsys)
    check(seen)
    with_it, without = (step_seconds(slow)[100:].max(axis=1).sum() for slow in ({3: times}, {}))
    assert 1.0 - 1.0 / seen.offline["run"]["slowdown"] == pytest.approx(
        1.0 - without / with_it, abs=0.015
    )
    [verdict] = [v for v in seen.offline["verdicts"] if v["state"] == "confirmed"]
    share = verdict["gpu_seconds_lost_per_hour"] / 10 / 3600.0
    assert share == pytest.approx(1.0 - 1.0 / seen.offline["run"]["slowdown"], abs=0.01)
    hours = verdict["gpu_seconds_lost_per_hour"] / 3600.0
    assert f"The job loses {hours:.1f} h of rank time per hour." in verdict["sentence"]


def test_slow_ranks_share_what_the_run_loses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two ranks at 2x: repairing one alone would win nothing, so neither costs half of the run."""
    write_steps(tmp_path / "steps.csv", {3: 2.0, 7: 2.0})
    seen = shown(tmp_path / "steps.csv", capsys)
    check(seen)
    called = {v["rank"]: v for v in seen.page["verdicts"] if v["state"] in CALLED_SLOW}
    assert set(called) == {3, 7}
    costs = [v["gpu_seconds_lost_per_hour"] / 36_000.0 for v in called.values()]
    assert costs == pytest.approx([0.25, 0.25], abs=0.02)


def test_a_suspect_costs_what_it_would_cost_if_confirmed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In data loading, which the balance of work leaves out: 10 ms of a step of 220 ms, not the
    noise of the rest of it."""
    rng = np.random.default_rng(0)
    lines = ["run_id,rank,node,role,section,kind,step,start_ns,duration_s"]
    longer_s = []
    for step in range(20):
        own_s = rng.normal(1.0, 0.001, (8, 2)) * (0.01, 0.2)
        longer_s.append(-own_s.sum(axis=1).max())
        own_s[3, 0] *= 2.0
        longer_s[-1] += own_s.sum(axis=1).max()
        wait_s = 0.001 + own_s.sum(axis=1).max() - own_s.sum(axis=1)
        for rank, row in enumerate(np.column_stack([own_s, wait_s]).tolist()):
            at_ns = 1_790_000_000_000_000_000 + step * 230_000_000
            for name, seconds in zip(("data", "compute", "wait"), row, strict=True):
                lines.append(
                    f"r,{rank},n-{rank},default,{name},{name},{step},{at_ns},{seconds:.9f}"
                )
                at_ns += int(seconds * 1e9)
    (tmp_path / "steps.csv").write_text("\n".join(lines))
    seen = shown(tmp_path / "steps.csv", capsys)
    check(seen)
    [verdict] = seen.offline["verdicts"]
    assert (verdict["state"], verdict["rank"]) == ("suspect", 3)
    lost = np.mean(longer_s) / 0.221 * 8 * 3600.0
    assert verdict["gpu_seconds_lost_per_hour"] == pytest.approx(lost, rel=0.05)


@pytest.mark.parametrize("name", SIMULATED)
def test_every_view_of_a_simulated_run_has_its_loss(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the verdicts together have lost no more."""
    file = tmp_path / "run.csv"
    layout, *more = SIMULATED[name]
    options = [word for each in more for word in (("--fault", each) if "@" in each else (each,))]
    small = ("--microbatches", "1", "--step-s", "0.5", "--steps", "120", "--ranks-per-node", "4")
    assert main(["simulate", "--layout", layout, *options, *small, "-o", str(file)]) == 0
    check(shown(file, capsys))
