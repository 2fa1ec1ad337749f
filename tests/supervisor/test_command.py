"""``otel-straggler supervise``: serving, and the commands of people."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from otel_straggler.cli import main
from otel_straggler.cli.exchange import Server
from otel_straggler.cli.supervise import command
from otel_straggler.supervisor.service import Supervisor
from otel_straggler.supervisor.settings import load_settings

from .supervised import Remembering

TOKEN = "a-token-of-the-test-0123"
CONFIG = """
server: {{listen: "127.0.0.1:0"}}
state: {{path: {folder}/db}}
fleet: {{hosts: {{a: running, s: spare}}}}
policy: {{rules: [{{name: lost, alert: StragglerRankLost, action: cordon}}]}}
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "supervisor.yaml"
    path.write_text(CONFIG.format(folder=tmp_path))
    return path


@pytest.fixture
def url(config: Path) -> Iterator[str]:
    """Of a supervisor that asks for a token."""
    grants = config.with_name("grants")
    grants.write_text(f"operate alice token:{TOKEN}\n")
    config.write_text(config.read_text() + f"auth: {{grant_files: [{grants}]}}\n")
    supervisor = Supervisor(load_settings(config), executor=Remembering())
    yield f"http://{supervisor.start()}"
    supervisor.stop()


def test_the_program_serves_and_ends_with_sigterm(config: Path) -> None:
    """Its first line is the address."""
    arguments = [sys.executable, "-m", "otel_straggler.cli", "supervise", "--config", str(config)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["supervisor"]
        shown = CliRunner().invoke(command, ["status", "--url", f"http://{address}"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    unknown = "It is not known which hosts are cordoned, as the journal is new. Name them: "
    assert shown.output.splitlines() == [
        "It acts, with the executor print.",
        f"{unknown}otel-straggler supervise mark HOST cordoned",
        "running: 1 (a)",
        "spare: 1 (s)",
        "no decisions yet",
    ]


def test_one_command_stops_it_and_one_has_it_act_again(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the token of the environment."""
    run = CliRunner().invoke
    assert main(["supervise", "stop", "--reason", "x", "--url", url]) == 2
    (tmp_path / "token").write_text(TOKEN)
    monkeypatch.setenv("OTEL_STRAGGLER_TOKEN_FILE", str(tmp_path / "token"))
    stopped = run(command, ["stop", "--reason", "new switches", "--by", "alice", "--url", url])
    assert "by alice: new switches" in stopped.output
    assert run(command, ["status", "--url", url]).output.startswith("It is stopped since ")
    answer = json.loads(run(command, ["status", "--json", "--url", url]).output)
    assert answer["stopped"]["reason"] == "new switches"
    assert run(command, ["resume", "--url", url]).output == "It acts again.\n"
    assert run(command, ["resume", "--url", url]).output == "It was not stopped.\n"
    assert run(command, ["mark", "a", "cordoned", "--url", url]).output == "a is cordoned.\n"
    assert "cordoned: 1 (a)" in run(command, ["status", "--url", url]).output


def test_settings_are_checked_without_opening_anything(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake is one line and exit code 2."""
    assert main(["supervise", "--config", str(config), "--check"]) == 0
    assert "would start" in capsys.readouterr().out
    assert not config.with_name("db").exists()
    config.write_text(config.read_text() + "exekutor: {kind: slurm}\n")
    assert main(["supervise", "--config", str(config), "--check"]) == 2
    assert "Did you mean executor" in capsys.readouterr().err


def test_a_dry_run_reads_the_journal_of_a_supervisor_that_runs(
    url: str, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the settings of another file."""
    (config.parent / "token").write_text(TOKEN)
    monkeypatch.setenv("OTEL_STRAGGLER_TOKEN_FILE", str(config.parent / "token"))
    assert main(["supervise", "mark", "gone-node", "spare", "--url", url]) == 0
    assert main(["supervise", "mark", "gone-node", "gone", "--url", url]) == 0
    assert "gone-node is gone" in capsys.readouterr().out
    new = config.with_name("new.yaml")
    new.write_text(CONFIG.format(folder=config.parent).replace("cordon}", "notify}"))
    assert main(["supervise", "--config", str(new), "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("0 causes of the last 24 h are in the journal")
    assert main(["supervise", "--dry-run", "status"]) == 2
    new.write_text("state: {path: /nowhere/db}\n")
    assert main(["supervise", "--config", str(new), "--dry-run"]) == 2
    assert "state.path: got '/nowhere/db'" in capsys.readouterr().err


def test_another_program_at_the_address_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """As is one that is not there."""
    assert main(["supervise", "status", "--url", "http://127.0.0.1:9"]) == 2
    assert "expected a supervisor" in capsys.readouterr().err
    assert main(["supervise", "--check", "status"]) == 2
    assert "are for no command" in capsys.readouterr().err


def test_importing_the_settings_needs_no_optional_library() -> None:
    """Neither the client of Kubernetes nor the parser of HTTP."""
    script = (
        "import sys; sys.modules['kubernetes'] = sys.modules['httptools'] = None\n"
        "import otel_straggler.supervisor.service, otel_straggler.cli.supervise"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ)


EVIL = "\x1b[2J\x07"
HOST = {"name": "a", "state": EVIL}
DECISION = {
    "action": EVIL, "status": EVIL, "reason": EVIL, "host": EVIL, "run_id": "", "cause": EVIL,
    "text": EVIL, "at_unix_s": 0.0,
}  # fmt: skip
ANSWER = {"stopped": None, "executor": EVIL, "hosts": [HOST], "decisions": [DECISION]}


@pytest.mark.parametrize(
    "answer",
    [
        {**ANSWER, "waiting": EVIL, "shed": EVIL},
        {**ANSWER, "decisions": [{**DECISION, "action": None}]},
        {**ANSWER, "stopped": {"by": EVIL, "reason": EVIL, "at_unix_s": 0.0}},
        {**ANSWER, "stopped": 5},
        {**ANSWER, "stopped": {"by": "x", "reason": "y", "at_unix_s": 1e308}},
        {**ANSWER, "executor": []},
        {**ANSWER, "hosts": {"a": 1}},
        {**ANSWER, "decisions": "x"},
        {**ANSWER, "decisions": [{}]},
        {"decisions": []},
    ],
)
@pytest.mark.parametrize(
    "arguments", [["status"], ["stop", "--reason", "x"], ["mark", "a", "gone"]]
)
def test_whatever_answers_nothing_comes_through_and_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    answer: dict[str, Any],
) -> None:
    """Another program at the address, or a supervisor that somebody else has."""
    whole = {"stopped": None, "state": EVIL, "name": "a", **answer}
    monkeypatch.setattr(Server, "ask", lambda *_: whole)
    assert main(["supervise", *arguments]) in (0, 2)
    shown = "".join(capsys.readouterr())
    assert shown
    assert not {"\x1b", "\x07"} & set(shown)
