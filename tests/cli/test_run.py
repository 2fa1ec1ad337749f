"""``otel-straggler run``: torchrun, with what runs the script in the script's place."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from otel_straggler.cli.run import RUNNER, torchrun_command
from otel_straggler.errors import UsageError
from otel_straggler.testing import CapturedRequests

pytest.importorskip("torch.distributed.run")
PROGRAM = Path(__file__).parents[1] / "integrations" / "plain_training.py"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("train.py", "-m RUNNER train.py"),
        (
            "--nproc-per-node 4 train.py --epochs 3",
            "--nproc-per-node 4 -m RUNNER train.py --epochs 3",
        ),
        ("-m package.train -m x", "-m RUNNER -m package.train -m x"),
        ("--nnodes=2 --module a.b", "--nnodes=2 --module RUNNER -m a.b"),
        ("t.py --nproc-per-node 4", "-m RUNNER t.py --nproc-per-node 4"),
    ],
)
def test_the_script_and_its_arguments_are_found_as_torchrun_finds_them(
    given: str, expected: str
) -> None:
    """Options of the script are the script's, even where torchrun has such."""
    line = torchrun_command(given.split())
    assert line[:3] == [sys.executable, "-m", "torch.distributed.run"]
    assert line[3:] == expected.replace("RUNNER", RUNNER).split()


@pytest.mark.parametrize("option", ["--no-python", "--run-path"])
def test_what_is_not_run_by_python_is_refused(option: str) -> None:
    """There is nothing to watch it with."""
    with pytest.raises(UsageError, match="Leave the option out"):
        torchrun_command([option, "train.sh"])


def test_an_option_that_torchrun_does_not_know_is_refused_by_torchrun(call) -> None:  # type: ignore[no-untyped-def]
    """With its own words."""
    with pytest.raises(SystemExit) as refused:
        call("run", "--no-such-option", "train.py")
    assert refused.value.code == 2


def test_every_rank_is_watched_and_the_exit_code_is_torchruns(otel_straggler) -> None:  # type: ignore[no-untyped-def]
    """Two real ranks; the command has become torchrun."""
    with CapturedRequests() as sink:
        environment = {**os.environ, "OTEL_STRAGGLER_ENDPOINT": sink.url}
        flags = ("--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node=2")
        done = otel_straggler("run", *flags, str(PROGRAM), "0", env=environment, timeout=200)
        assert done.returncode == 0, done.stderr
        about = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
        assert [each["argv"][1:] for each in about] == [["0"]] * 2
        ranks = {span.resource["training.rank"] for span in sink.spans()}
        assert ranks == {0, 1}
        assert {span.resource["service.name"] for span in sink.spans()} == {"plain_training"}
