"""``otel-straggler alerts``."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_straggler.alerts.render import render_all
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.cli import main

from .conftest import ROOT

RULES = ROOT / "alerts" / "otel-straggler-rules.yaml"


def test_one_part_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """As it stands in the repository, if nothing is set."""
    assert main(["alerts", "render", "--only", "rules"]) == 0
    assert capsys.readouterr().out == RULES.read_text(encoding="utf-8")


@pytest.mark.parametrize("verb", [["render", "--out"], ["export"]])
def test_all_files_are_written_to_a_folder(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With other thresholds; ``export DIR`` is what ``dashboards`` calls it."""
    folder = tmp_path / "new"
    assert main(["alerts", *verb, str(folder), "--set", "gpu_threshold=0.5"]) == 0
    written = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert written == set(render_all(AlertSettings()))
    assert "< 0.5)" in (folder / RULES.name).read_text()
    assert str(folder / RULES.name) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["render"], "--out DIR"),
        (["render", "--set", "hang_for=3", "--only", "rules"], "Did you mean hang_for_seconds"),
        (["render", "--set", "gpu_threshold=2", "--only", "rules"], "at most 1"),
        (["check"], "expected at least one"),
        (["check", "no-such-file.yaml"], "no-such-file.yaml"),
        (["runbook", "RunHang"], "expected one of StragglerRunHung"),
        (["tset"], "Run 'otel-straggler alerts --help'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    arguments: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 2."""
    assert main(["alerts", *arguments]) == 2
    error = capsys.readouterr().err
    assert printed in error
    assert error.count("\n") == 1


def test_a_file_of_something_else_is_not_poured_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its beginning tells which one it is."""
    file = tmp_path / "run.csv"
    file.write_text("run_id,rank\n" + "simulated,0\n" * 5_000)
    assert main(["alerts", "check", str(file)]) == 2
    error = capsys.readouterr().err
    assert "got 'run_id,rank simulated,0 " in error
    assert "...'; expected a mapping" in error
    assert len(error) < 400 + len(str(file))


def test_a_right_file_and_a_wrong_one_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 if anything is wrong."""
    assert main(["alerts", "check", str(RULES)]) == 0
    assert "nothing wrong" in capsys.readouterr().out
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(RULES.read_text().replace("straggler_run_slowdown", "straggler_run_slow"))
    assert main(["alerts", "check", str(RULES), str(wrong)]) == 1
    assert ":warning: straggler_run_slow: no metric" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["StragglerRankLost", "ranklost"])
def test_the_runbook_of_an_alert_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By its name, however it is written."""
    assert main(["alerts", "runbook", name]) == 0
    assert capsys.readouterr().out.startswith("## StragglerRankLost\n")


def test_a_file_that_is_no_mapping_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what was expected."""
    for text in ("- a\n", "a: [\n", ""):
        (tmp_path / "odd.yaml").write_text(text)
        assert main(["alerts", "check", str(tmp_path / "odd.yaml")]) == 2
        assert "odd.yaml" in capsys.readouterr().err
