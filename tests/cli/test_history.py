"""``otel-straggler history``: what a collector has kept, listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.cli import main
from otel_straggler.collector.history.history import History
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.model.verdict import Verdict
from otel_straggler.simulate.scenarios import Plan, simulate


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Thirty windows with a slow rank, and two changes of its verdict."""
    file = tmp_path_factory.mktemp("history") / "history.db"
    history = History(file, wall_s=lambda: 1_790_000_000.0)
    history.open()
    scorer = Scorer(ScoreSettings(window_steps=2))
    plan = Plan(ranks=4, steps=60, slow_rank=2, run_id="run [x]")
    scorer.observe(simulate("one_slow_rank", plan).batch, 0)
    history.put(windows=scorer.close_all())
    values: dict[str, Any] = {"run_id": "run [x]", "subject_id": "rank/2", "scope": "rank"}
    for step, state, printed in (7, "suspect", ""), (9, "confirmed", "rank 2 is slow\x1b[31m"):
        history.put(
            changes=[Verdict(**values, state=state, at_step=step, at_ns=step, sentence=printed)]
        )
    history.close()
    return file


def printed(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main(["history", *map(str, arguments)]) == code
    out, err = capsys.readouterr()
    return err if code else out


def test_runs_are_listed(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    """With how much there is of each, and when it was seen."""
    assert printed(capsys, path) == printed(capsys, "--path", path)
    assert printed(capsys, path) == (
        "run [x] (simulation): 30 windows, 2 changes of verdicts, "
        "2026-09-21 14:13:20 UTC to 2026-09-21 14:13:20 UTC\n"
    )


def test_a_run_is_listed_with_its_verdicts_and_newest_windows(
    capsys: pytest.CaptureFixture[str], path: Path
) -> None:
    """What a terminal would obey is shown as ``?``."""
    lines = printed(capsys, "--path", path, "--run", "run [x]").splitlines()
    assert lines[1] == "  1970-01-01 00:00:00 UTC step 7 suspect: rank/2: suspect"
    assert lines[2] == "  1970-01-01 00:00:00 UTC step 9 confirmed: rank 2 is slow?[31m"
    assert lines[3] == "  the newest 20 of 30 windows:"
    assert "steps 58 to 59" in lines[-1]
    assert lines[-1].endswith(": 4 ranks, 1 with a low score")
    assert len(lines) == 4 + 20


def test_json_has_all_windows_and_all_of_a_verdict(
    capsys: pytest.CaptureFixture[str], path: Path
) -> None:
    """What is not known is null."""
    result = json.loads(printed(capsys, "--path", path, "--json"))
    assert [run["windows"] for run in result["runs"]] == [30]
    result = json.loads(printed(capsys, "--path", path, "--run", "run [x]", "--json"))
    assert result["schema_version"] == 1
    assert len(result["windows"]) == 30
    assert [v["state"] for v in result["verdicts"]] == ["suspect", "confirmed"]
    assert result["verdicts"][0]["slowdown"] is None


def test_a_window_is_told_in_tables(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    """Under the names of the report."""
    window = json.loads(printed(capsys, "--path", path, "--window", 30))["window"]
    assert (window["first_step"], window["last_step"]) == (58, 59)
    assert window["ranks"]["2"]["role"] == "default"
    (section,) = {s["section"] for s in window["stragglers"] if s["section"]}
    assert window["section_relative_scores"][section]["2"] < 0.75
    assert window["section_counts"][section]["0"] >= 2
    assert window["gpu_relative_scores"]["0"] is None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--path", "/nowhere.db"], "/nowhere.db: got 'no file'"),
        (["--path", "PATH", "--run", "other"], "one of the runs in PATH: run [x]"),
        (["--path", "PATH", "--window", "99"], "--window: got 99"),
        ([], "Missing argument 'FILE'"),
    ],
)
def test_what_is_not_there_is_one_sentence(
    capsys: pytest.CaptureFixture[str], path: Path, arguments: list[str], expected: str
) -> None:
    """Exit code 2."""
    given = [argument.replace("PATH", str(path)) for argument in arguments]
    err = printed(capsys, *given, code=2)
    assert expected.replace("PATH", str(path)) in err
    assert "Traceback" not in err
