"""``otel-straggler doctor`` as people and scripts run it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from otel_straggler.cli import main
from otel_straggler.client.recording import FORM, WHY_PYTHON

Run = Callable[..., tuple[int, str, str]]

GOLDEN = """\
Identity
   ok  The run is called 'run-7', from OTEL_STRAGGLER_RUN_ID.
   ok  rank 0 (RANK), world_size 2 (WORLD_SIZE).
   ok  The role is 'actor', from OTEL_STRAGGLER_ROLE.
   ok  The job is called 'ppo', from OTEL_SERVICE_NAME.
Settings
   !!  Nothing reads OTEL_STRAGGLER_ROLLE.
       export OTEL_STRAGGLER_ROLE="$OTEL_STRAGGLER_ROLLE"; unset OTEL_STRAGGLER_ROLLE
   ok  Traces go to http://127.0.0.1:1/v1/traces (OTEL_STRAGGLER_ENDPOINT) \
over http/protobuf (by default); headers: none.
   ok  Metrics go to http://127.0.0.1:1/v1/metrics (OTEL_STRAGGLER_ENDPOINT) \
over http/protobuf (by default); headers: none.
   ok  Heartbeats and spans go out also while a library holds the GIL.
Endpoint
   XX  Nothing listens on port 1 of 127.0.0.1.
       otel-straggler collector   # or name the right host in OTEL_STRAGGLER_ENDPOINT
"""
IN_PYTHON = (
    "   ok  Heartbeats and spans go out also while a library holds the GIL.\n",
    (
        "   --  Nothing is sent while a library holds the GIL: the exporter is in Python "
        f"({WHY_PYTHON}).\n"
    ),
)
ENVIRONMENT = {
    "RANK": "0",
    "WORLD_SIZE": "2",
    "OTEL_STRAGGLER_RUN_ID": "run-7",
    "OTEL_STRAGGLER_ENDPOINT": "http://127.0.0.1:1",
    "OTEL_STRAGGLER_ROLE": "actor",
    "OTEL_STRAGGLER_ROLLE": "actor",
    "OTEL_SERVICE_NAME": "ppo",
}


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the verb in this process: exit code, standard output, standard error."""
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: str, **env: str) -> tuple[int, str, str]:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        return (main(["doctor", *arguments]), *capsys.readouterr())

    return run


def test_what_people_read(call: Run) -> None:
    """By subject; a warning and a problem come with what to type."""
    code, out, errors = call(**ENVIRONMENT)
    assert (code, errors) == (1, "")
    lines = "".join(f"{line.rstrip()}\n" for line in out.splitlines())
    assert (GOLDEN if FORM == "native" else GOLDEN.replace(*IN_PYTHON)) in lines
    assert lines.endswith("1 problem, 1 warning.\n")


def test_no_problem_is_exit_code_zero(call: Run, collector: dict[str, str]) -> None:
    """Warnings and hints are none."""
    code, out, _ = call("--endpoint", collector["otlp_http"], "--collector", collector["metrics"])
    assert (code, "no problems, no warnings." in out) == (0, True)
    as_printed = collector["metrics"].removeprefix("http://")  # by the collector, as it starts
    code, out, _ = call("--endpoint", collector["otlp_http"], "--collector", as_printed)
    assert (code, "no problems, no warnings." in out) == (0, True)


def test_other_ranks_print_their_problems_only(call: Run, collector: dict[str, str]) -> None:
    """A thousand ranks would otherwise print the same page a thousand times."""
    code, out, _ = call(**{**ENVIRONMENT, "RANK": "1"})
    assert code == 1
    assert [line[:14] for line in out.splitlines()] == ["   XX  rank 1:", "       otel-st"]
    env = {"RANK": "1", "WORLD_SIZE": "2", "OTEL_STRAGGLER_RUN_ID": "r"}
    env["OTEL_STRAGGLER_ENDPOINT"] = collector["otlp_http"]
    assert call(**env) == (0, "", "")


def test_json_has_every_finding(call: Run) -> None:
    """One object with a version, for rank 1 as for rank 0."""
    code, out, _ = call("--json", **{**ENVIRONMENT, "RANK": "1"})
    reported: dict[str, Any] = json.loads(out)
    assert code == 1
    assert (reported["schema_version"], reported["ok"], reported["rank"]) == (1, False, 1)
    for finding in reported["findings"]:
        assert list(finding) == ["id", "status", "sentence", "value", "remedy"]
        assert re.fullmatch(r"[a-z]+\.[A-Za-z_-]+", finding["id"])
    subjects = list(dict.fromkeys(f["id"].partition(".")[0] for f in reported["findings"]))
    assert subjects == [
        "versions", "recording", "identity", "settings", "endpoint", "collector", "clock", "volume",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        ("--collector", "ftp://127.0.0.1:9464"),
        ("--timeout", "0"),
        ("--step-seconds", "nan"),
        ("--sections-per-step", "-1"),
        ("--no-such-option",),
    ],
)
def test_wrong_use_is_exit_code_two(call: Run, wrong: tuple[str, ...]) -> None:
    """And one line that names the option."""
    code, out, errors = call(*wrong)
    assert (code, out) == (2, "")
    assert wrong[0] in errors


def test_a_run_of_torchrun_tells_its_name_on_every_rank(tmp_path: Any) -> None:
    """Inside of a job, with the environment that the launcher gives."""
    pytest.importorskip("torch")
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1"]
    script = tmp_path / "doctor.py"
    script.write_text(
        "import contextlib, os, sys; from otel_straggler.cli import main\n"
        "with open(sys.argv[1] + os.environ['RANK'], 'w') as out, "
        "contextlib.redirect_stdout(out):\n    main(['doctor', '--json'])\n"
    )
    subprocess.run(
        [sys.executable, *launcher, "--master-port=0", script, str(tmp_path / "rank")],
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"},
        check=True,
        capture_output=True,
        timeout=120,
    )
    names = []
    for rank in (0, 1):
        reported = json.loads((tmp_path / f"rank{rank}").read_text())
        result = {finding["id"]: finding for finding in reported["findings"]}
        assert result["identity.rank"]["value"]["rank"] == reported["rank"] == rank
        names.append(result["identity.run_id"]["value"])
    assert names[0] == names[1] != ""
