"""``otel-straggler inject``: the plan, and the command that gets it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from otel_straggler.cli.inject import command
from otel_straggler.errors import ConfigError, UnavailableError


def output(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_without_a_command_the_variable_is_printed(tmp_path: Path):
    """For a job script; a file of a plan travels as its content."""
    plan = tmp_path / "plan.csv"
    plan.write_text("fault\ncrash@rank1:30s\n")
    assert output("--fault", "crash@rank1:30s") == (
        "export OTEL_STRAGGLER_INJECT=rank_killed@rank1:30s\n"
    )
    assert output("--plan", str(plan)) == "export OTEL_STRAGGLER_INJECT=rank_killed@rank1:30s\n"
    assert "'seed=3 interval=60 until=86400 kinds=rank_killed,rank_hung'" in output("--seed", "3")


def test_a_dry_run_prints_who_has_what_and_when():
    """Of drawn and named faults, in order."""
    shown = output(
        "--mtbf", "100", "--seed", "3", "--until", "150", "--kinds", "compute:1.5+20s",
        "--fault", "crash@rank2:5s", "--ranks", "3", "--dry-run",
    )  # fmt: skip
    head, *rows = shown.splitlines()
    assert head.split() == ["begins", "kind", "size", "ranks", "ends"]
    assert rows[0].split() == ["5", "s", "rank_killed", "rank2"]
    assert rows[1].split()[2:] == ["compute", "1.5", "rank2", "after", "20", "s"]
    seconds = [float(row.split()[0]) for row in rows]
    assert seconds == sorted(seconds)


def test_the_command_runs_with_the_variable(monkeypatch: pytest.MonkeyPatch):
    """It takes this process's place, so signals and exit code are its own."""
    called: list[object] = []
    monkeypatch.setattr(os, "execvpe", lambda *arguments: called.append(arguments))
    output("--fault", "crash@rank1:30s", "--", "otel-straggler", "run", "--nproc-per-node", "2")
    ((program, arguments, environment),) = called
    assert program == "otel-straggler"
    assert arguments == ("otel-straggler", "run", "--nproc-per-node", "2")
    assert environment["OTEL_STRAGGLER_INJECT"] == "rank_killed@rank1:30s"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "got no faults"),
        (("--plan", "x.csv", "--mtbf", "3"), "the file has all of them"),
        (("--mtbf", "30", "--dry-run"), "got no --ranks"),
    ],
)
def test_a_wrong_call_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], expected: str
):
    """As errors of usage."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 2
    assert expected in result.output


def test_a_program_that_is_not_there_is_named():
    """With its name, as given."""
    with pytest.raises(UnavailableError, match="nonesuch"):
        output("--fault", "crash@rank1:30s", "--", "nonesuch-program")


def test_a_wrong_fault_is_refused():
    """Before anything starts."""
    with pytest.raises(ConfigError, match="expected a fault"):
        output("--fault", "crash", "--", "true")
