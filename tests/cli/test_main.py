"""What every verb has in common: help, errors, exit codes."""

import io
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

import otel_straggler
from otel_straggler.cli import main
from otel_straggler.cli.group import VERBS
from otel_straggler.collector.history.history import History
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.simulate.scenarios import Plan, simulate


def test_version_is_printed(call) -> None:
    """The version of the installed package."""
    assert call("--version") == (
        0, f"otel-straggler, version {otel_straggler.__version__}\n", "",
    )  # fmt: skip


def test_help_loads_neither_numpy_nor_torch_nor_grpc() -> None:
    """So that it answers at once."""
    code = (
        "import sys, otel_straggler.cli as c; c.main(['--help']);"
        "print([m for m in ('numpy', 'torch', 'grpc', 'google.protobuf') if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=True
    )
    assert answer.stdout.splitlines()[-1] == b"[]"


def test_without_click_one_line_says_what_to_install() -> None:
    """The base install of a training image has no command line."""
    code = (
        "import sys; sys.modules['click'] = None;"
        "from otel_straggler.cli import main; sys.exit(main(['score']))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=False
    )
    assert answer.returncode == 2
    assert answer.stderr == (
        b"otel-straggler: error: click is not installed. Run: pip install 'otel-straggler[cli]'\n"
    )


def test_an_unknown_verb_is_refused(call) -> None:
    """With the exit code of wrong use."""
    code, _, errors = call("scroe")
    assert code == 2
    assert "No such command 'scroe'. Did you mean 'score'? Run 'otel-straggler --help'" in errors
    assert "Did you mean 'render'? Run" in call("alerts", "rendr")[2]
    assert "Did you mean" not in call("nonsense")[2]


def test_an_error_is_one_line_without_a_traceback(otel_straggler) -> None:
    """On standard error, with exit code 2."""
    answer = otel_straggler("score", "nowhere.csv")
    assert answer.returncode == 2
    assert answer.stdout == b""
    assert answer.stderr == (
        b"otel-straggler: error: nowhere.csv: got 'No such file or directory'; "
        b"expected a file that can be read. Is the path right?\n"
    )


def test_a_reader_that_goes_away_is_no_error(recorded) -> None:
    """``otel-straggler score run.csv | head -1`` ends quietly."""
    path = recorded(ranks=64, steps=20)
    process = subprocess.Popen(
        [sys.executable, "-m", "otel_straggler.cli", "score", str(path), "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 141
    assert errors.strip() == b""


PRINTS = {
    "alerts": "render --only rules",
    "checkpoints": "--help",
    "collector": "--help",
    "dashboards": "export {folder}",
    "demo": "--help",
    "deploy": "otelcol --shards 2 --output {folder}/otelcol",
    "doctor": "--endpoint http://127.0.0.1:1",
    "goodput": "{run}",
    "hang": "--help",
    "history": "{folder}/history.db",
    "inject": "--fault crash@rank0:1s --dry-run",
    "maintenance": "--help",
    "profile": "nsys --dry-run -- torchrun train.py",
    "replay": "--would-have-paged {run}",
    "report": "--history {folder}/history.db",
    "run": "--help",
    "scalability": "{run}",
    "score": "{run}",
    "simulate": "--ranks 2 --steps 2 --slow-rank 1",
    "supervise": "--help",
    "top": "--collector http://127.0.0.1:1",
    "trace": "--help",
    "verdict": "explain --help",
}


@pytest.mark.parametrize("verb", VERBS)
def test_no_verb_minds_that_nobody_reads(verb: str, recorded, tmp_path, monkeypatch) -> None:
    """Whichever way it prints: the exit code is that of SIGPIPE, which is no verb's answer."""
    history = History(tmp_path / "history.db")
    history.open()
    scorer = Scorer(ScoreSettings(window_steps=5))
    scorer.observe(simulate("one_slow_rank", Plan(ranks=2, steps=5, slow_rank=1)).batch, 0)
    history.put(windows=scorer.close_all())
    history.close()
    arguments = (
        PRINTS[verb].format(folder=tmp_path, run=recorded(ranks=2, steps=5, slow_rank=1)).split()
    )
    reading, writing = os.pipe()
    os.close(reading)
    with io.FileIO(writing, "w") as closed:
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(Unbuffered(closed)))
        assert main([verb, *arguments]) == 141


class Unbuffered(io.BufferedWriter):
    """Has nothing left to write when it is closed."""

    def write(self, content: Any) -> int:
        written = self.raw.write(content)
        assert written is not None
        return written


def test_output_to_a_full_disk_is_one_line(recorded) -> None:
    """Not a traceback, whichever way it is printed."""
    for option in ((), ("--json",)):
        with open("/dev/full", "wb") as full:  # noqa: PTH123 (a device)
            answer = subprocess.run(
                [sys.executable, "-m", "otel_straggler.cli", "score", str(recorded()), *option],
                stdout=full,
                stderr=subprocess.PIPE,
                timeout=60,
                check=False,
            )
        assert answer.returncode == 2
        assert answer.stderr == (
            b"otel-straggler: error: output: No space left on device. "
            b"Is there room, and may you write there?\n"
        )


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_name_that_the_terminal_has_no_letters_for_is_printed(
    encoding: str, recorded, monkeypatch
) -> None:
    """As question marks, without a traceback."""
    path = recorded(ranks=4, steps=5, slow_rank=1, run_id="запуск-日本")
    printed = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(printed, encoding=encoding))
    assert main(["score", str(path)]) == 0
    sys.stdout.flush()
    assert b"run ??????-??: 4 ranks on 1 host" in printed.getvalue()


def test_ctrl_c_ends_quietly_with_130() -> None:
    """As every program that was interrupted."""
    # A shell's background job ignores the signal, and so would its children.
    listening = "from signal import *; signal(SIGINT, default_int_handler)"
    program = f"{listening}; import sys; from otel_straggler.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "top", "--collector", "http://127.0.0.1:9"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.strip() == b""


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (("score", "--window-steps", "x"), "'--window-steps': 'x' is not a valid integer"),
        (("scor",), "No such command 'scor'"),
        (("top", "--nothing"), "No such option"),
    ],
)
def test_a_wrong_option_is_one_line_with_the_way_out(
    call, arguments: tuple[str, ...], printed: str
) -> None:
    """Exit code 2, and where the accepted ones are listed."""
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert printed in err
    assert err.startswith("otel-straggler: error: ")
    assert "--help' for what is accepted." in err
    assert err.count("\n") == 1
