"""``otel-straggler demo``: the alert arrives, at an Alertmanager or without one."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.cli import main
from otel_straggler.demo.processes import find_alertmanager
from otel_straggler.demo.training import FAULTS

COMMAND = (sys.executable, "-m", "otel_straggler.cli", "demo")
TRAIN = Path(__file__).parents[2] / "examples" / "demo" / "train.py"
LONGEST_S = 200
WAYS = ("alertmanager", "webhook")
ABOUT = {
    "slow": {"StragglerRankStraggling"},
    "stuck": {"StragglerRankStuck", "StragglerRunHung"},
    "lost": {"StragglerRankLost", "StragglerRunHung"},
}
CASES = [(fault, way) for fault in FAULTS for way in WAYS]


@pytest.fixture(scope="module")
def outcomes(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[tuple[str, str], Future[subprocess.CompletedProcess[str]]]]:
    """All demos, two at a time."""
    nowhere = str(tmp_path_factory.mktemp("path"))

    def run(fault: str, way: str) -> subprocess.CompletedProcess[str]:
        env = dict(os.environ) if way == "alertmanager" else {**os.environ, "PATH": nowhere}
        flags = ("--fault", fault, "--rank", "2", "--seconds", "0", "--json")
        return subprocess.run(
            [*COMMAND, *flags],
            capture_output=True,
            text=True,
            env=env,
            timeout=LONGEST_S,
            check=False,
        )

    with ThreadPoolExecutor(2) as pool:
        yield {case: pool.submit(run, *case) for case in CASES}


@pytest.mark.demo
@pytest.mark.nightly
@pytest.mark.parametrize(("fault", "way"), CASES)
def test_the_alert_names_the_rank_that_goes_wrong(outcomes: Any, fault: str, way: str) -> None:
    """Who, since when and a sentence, through Alertmanager and, where there is none, without."""
    if way == "alertmanager" and find_alertmanager() is None:
        sentence = "no Alertmanager is installed (make servers): the demo was tried without one"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    run = outcomes[fault, way].result()
    assert run.returncode == 0, run.stdout + run.stderr
    reported = json.loads(run.stdout)
    assert (reported["fault"], reported["right"], reported["way"]) == (fault, True, way)
    assert {alert["labels"]["alertname"] for alert in reported["alerts"]} <= ABOUT[fault]
    printed = " ".join(f"{alert['labels']} {alert['annotations']}" for alert in reported["alerts"])
    assert "rank 2" in printed.lower()
    assert reported["alerts"][0]["startsAt"].startswith("20")
    assert reported["delay_s"] > 0


@pytest.mark.demo
@pytest.mark.nightly
def test_what_people_see_ends_with_the_message(tmp_path: Path) -> None:
    """Without a terminal: plain lines, the message in a frame, and whether it was right."""
    run = subprocess.run(
        [*COMMAND, "--fault", "lost", "--rank", "1", "--seconds", "0"],
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Rank 1 on node-0 is killed (SIGKILL)." in run.stdout
    assert "A notification arrives" in run.stdout
    assert "since" in run.stdout
    assert "The right rank was named." in run.stdout
    assert "\x1b" not in run.stdout


@pytest.mark.demo
@pytest.mark.nightly
def test_with_keep_the_page_stays_until_somebody_ends_it() -> None:
    """Its address is told at the start and at the end; Ctrl-C is no failure."""
    demo = subprocess.Popen(
        [*COMMAND, "--rank", "1", "--seconds", "0", "--keep"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with demo:
        assert demo.stdout is not None
        urls = []
        for line in demo.stdout:
            urls += re.findall(r"http://127\.0\.0\.1:\d+/(?=$| stays)", line.rstrip())
            if "stays until" in line:
                break
        assert len(urls) == 2
        assert urls[0] == urls[1]
        with urllib.request.urlopen(f"{urls[0]}v1/report", timeout=30) as answer:
            assert "demo" in json.load(answer)["runs"]
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0


@pytest.mark.demo
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGTERM]
)
def test_a_demo_that_is_interrupted_leaves_no_process(number: int) -> None:
    """Ctrl-C and SIGTERM, while its ranks train: all that it has started ends."""
    demo = subprocess.Popen(
        [*COMMAND, "--seconds", "600"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with demo:
        assert demo.stdout is not None
        assert b"watches 4 ranks" in demo.stdout.readline()
        children = children_of(demo.pid)
        assert len(children) >= 5  # a collector and four ranks; an Alertmanager if there is one
        demo.send_signal(number)
        assert demo.wait(60) == (130 if number == signal.SIGINT else 143)
    ends_at_s = time.monotonic() + 10
    while alive := [pid for pid in children if is_alive(pid)]:
        assert time.monotonic() < ends_at_s, alive
        time.sleep(0.05)


@pytest.mark.demo
def test_a_real_training_is_watched_in_the_same_way() -> None:
    """As ``make demo`` has it: DDP, one rank that becomes slow in a section."""
    flags = ("--train", str(TRAIN), "--fault", "slow", "--section", "data_loading", "--json")
    run = subprocess.run(
        [*COMMAND, *flags], capture_output=True, text=True, timeout=LONGEST_S, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    reported = json.loads(run.stdout)
    assert reported["planted"]["section"] == "data_loading"
    assert reported["alerts"][0]["annotations"]["section"] == "data_loading"


def test_what_a_real_training_cannot_show_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Its collectives fail when a rank is killed: the others would not be found waiting."""
    assert main(["demo", "--train", str(TRAIN), "--fault", "lost"]) == 2
    assert "--fault lost: got --train" in capsys.readouterr().err


def test_a_rank_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is started; the message has both numbers."""
    assert main(["demo", "--ranks", "4", "--rank", "4"]) == 2
    assert "--rank: got 4; expected less than --ranks, which is 4" in capsys.readouterr().err


def children_of(pid: int) -> list[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for of_thread in lists for child in of_thread.read_text().split()]


def is_alive(pid: int) -> bool:
    """Whether it runs; one that only waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
