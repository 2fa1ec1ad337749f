"""Verdicts on traces of production jobs, whose truth is published."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.cli import main
from otel_straggler.detect.verdicts.pipeline import what_if

from .pipeline_traces import (
    PUBLISHED,
    Trace,
    read_trace,
    worker_seconds_of,
    write_operations,
    write_steps,
)

Write = Callable[[Trace, Path], Path]
Score = Callable[[Path], dict[str, Any]]
ways = pytest.mark.parametrize("write", [write_operations, write_steps])


@pytest.fixture
def scored(capsys: pytest.CaptureFixture[str]) -> Score:
    """What `otel-straggler score --json` says of the run in a file."""

    def score(path: Path) -> dict[str, Any]:
        code = main(["score", str(path), "--json"])
        output, errors = capsys.readouterr()
        assert code == 0, errors
        return dict(json.loads(output)["runs"][path.stem])

    return score


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_the_closed_form_finds_the_published_slowdown(name: str) -> None:
    """Within 5 % of what a replay of all operations gives; M_W and M_S tell the same story."""
    result, published = what_if(*worker_seconds_of(read_trace(name))), PUBLISHED[name]
    assert result.slowdown == pytest.approx(published.slowdown, rel=0.05)
    assert result.m_w == pytest.approx(published.m_w, abs=0.05)
    assert result.m_s == pytest.approx(published.m_s, abs=0.15)


def test_the_slowed_worker_is_the_hottest_of_the_map() -> None:
    """AR: data rank 0 of stage 0, and no stage is long."""
    result = what_if(*worker_seconds_of(read_trace("AR")))
    others = result.of_worker.copy()
    others[0, 0] = 1.0
    assert result.of_worker[0, 0] > 1.9
    assert others.max() < 1.1
    assert result.stages.max() < 1.05


def test_the_long_stage_is_the_last_and_no_worker_is_hot() -> None:
    """ST: 1.4 times the mean stage, on both data ranks."""
    result = what_if(*worker_seconds_of(read_trace("ST")))
    assert result.stages[3] == max(result.stages)
    assert result.stages[3] == pytest.approx(1.41, abs=0.05)
    assert result.of_worker[0] == pytest.approx(result.of_worker[1], rel=0.02)


@ways
def test_the_slowed_worker_is_named_and_nobody_else(
    write: Write, scored: Score, tmp_path: Path
) -> None:
    """AR, by `otel-straggler score`: rank 0 is data rank 0 of stage 0."""
    run = scored(write(read_trace("AR"), tmp_path / "AR.csv"))
    assert run["run"]["slowdown"] == pytest.approx(PUBLISHED["AR"].slowdown, rel=0.05)
    assert run["run"]["m_w"] >= 0.95
    assert {v["rank"] for v in named(run)} == {0}
    assert {v["scope"] for v in named(run)} == {"rank"}
    (last,) = [v for v in newest(run) if v["scope"] == "rank"]
    assert (last["state"], last["since_step"]) == ("confirmed", 16)  # from the first step on
    assert last["slowdown"] == pytest.approx(2.36, rel=0.05)


@ways
def test_a_long_stage_is_named_and_no_rank(write: Write, scored: Score, tmp_path: Path) -> None:
    """ST, by `otel-straggler score`: there is nothing to replace, but a stage to split anew."""
    run = scored(write(read_trace("ST"), tmp_path / "ST.csv"))
    assert run["run"]["slowdown"] == pytest.approx(PUBLISHED["ST"].slowdown, rel=0.05)
    assert run["run"]["m_w"] < 0.5
    assert run["run"]["m_s"] >= 0.95
    assert {v["cause"] for v in named(run)} == {"stage_imbalance"}
    assert [v["state"] for v in newest(run)] == ["confirmed"]
    assert not [v for v in run["verdicts"] if v["scope"] in ("rank", "host")]


@pytest.mark.parametrize(("name", "cause"), [("AR", "slow_gpu"), ("ST", "stage_imbalance")])
def test_the_run_says_why_it_is_slow(name: str, cause: str, scored: Score, tmp_path: Path) -> None:
    """The cause of the dearest confirmed verdict."""
    run = scored(write_steps(read_trace(name), tmp_path / f"{name}.csv"))
    assert run["run"]["cause"] == cause


def newest(run: dict[str, Any]) -> list[dict[str, Any]]:
    """The last verdict of each subject."""
    return list({v["subject_id"]: v for v in run["verdicts"]}.values())


def named(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Whoever was called anything but fine, at any time."""
    return [v for v in run["verdicts"] if v["state"] in ("suspect", "confirmed", "flapping")]
