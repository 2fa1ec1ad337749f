"""Scalars for experiment trackers: once each, cheap, and never a reason for training to stop."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import otel_straggler
from otel_straggler.errors import ConfigError, UsageError
from otel_straggler.integrations import TrackerScalars
from otel_straggler.integrations.tracker_scalars import scalars_of_report
from otel_straggler.report.types import Report
from otel_straggler.semconv import TRACKER_PREFIX, TRACKER_SCALARS

from ..waiting import eventually

PATIENCE_S = 60.0
SCALARS = {
    "worst_score": 0.5, "worst_rank": 3, "slowdown": 1.2, "gpu_seconds_lost": 7.5,
    "gpu_seconds_lost_per_hour": None, "step_s": None, "news": 1.0,
}  # fmt: skip
LOGGED = {"straggler/worst_score": 0.5, "straggler/worst_rank": 3, "straggler/slowdown": 1.2,
          "straggler/gpu_seconds_lost": 7.5}  # fmt: skip


class Pages:
    """A collector's ``/v1/scalars``; tests say what it answers."""

    def __init__(self) -> None:
        self.status, self.body, self.asked = 200, b"", []  # type: ignore[var-annotated]
        self.answer("a", SCALARS)
        pages = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                pages.asked.append(self.path)
                self.send_response(pages.status)
                self.end_headers()
                self.wfile.write(pages.body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, snapshot: str, scalars: dict[str, Any]) -> None:
        self.body = json.dumps({"snapshot": snapshot, "scalars": scalars}).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def pages() -> Iterator[Pages]:
    made = Pages()
    yield made
    made.close()


@pytest.fixture
def scalars(pages: Pages) -> Iterator[Callable[..., TrackerScalars]]:
    made: list[TrackerScalars] = []

    def make(tracker: Any, **changes: Any) -> TrackerScalars:
        settings = {"collector": pages.url, "every_s": 1.0, "run_id": "my run", "rank": 0}
        made.append(TrackerScalars(tracker, **settings | changes))
        return made[-1]

    yield make
    for each in made:
        each.close()
    eventually(lambda: not threads())


def threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "otel-straggler-scalars"]


class Writer:
    """As TensorBoard's; it remembers."""

    def __init__(self) -> None:
        self.added: list[tuple[str, float, int | None]] = []
        self.threads: set[str] = set()

    def add_scalar(self, tag: str, value: float, global_step: int | None = None) -> None:
        self.added.append((tag, value, global_step))
        self.threads.add(threading.current_thread().name)


def test_what_is_known_is_logged_once_in_the_thread_that_calls(scalars: Any, pages: Pages) -> None:
    """Names and step as documented; nothing that is not known; the next moment once again."""
    writer = Writer()
    each = scalars(writer)
    step = iter(range(10**9))
    eventually(lambda: each.log(next(step)) or writer.added)
    assert {name: value for name, value, _ in writer.added} == LOGGED
    assert len({at for *_, at in writer.added}) == 1
    assert writer.threads == {threading.current_thread().name}
    n_asked = len(pages.asked)
    eventually(lambda: each.log(next(step)) or len(pages.asked) > n_asked + 1)
    assert len(writer.added) == len(LOGGED)
    pages.answer("b", {"slowdown": 1.3})
    eventually(lambda: each.log(next(step)) or len(writer.added) > len(LOGGED))
    assert writer.added[-1][:2] == ("straggler/slowdown", 1.3)
    assert set(pages.asked) == {"/v1/scalars?run=my+run&group="}


def test_at_most_ten_scalars_and_all_names_are_documented() -> None:
    """One table, which the page of trackers repeats."""
    page = (Path(__file__).parents[2] / "docs" / "recipes" / "experiment-trackers.md").read_text()
    assert len(TRACKER_SCALARS) <= 10
    for name in TRACKER_SCALARS:
        assert f"`{TRACKER_PREFIX}{name}`" in page


class Run:
    """As a run of W&B."""

    def __init__(self) -> None:
        self.logged: list[tuple[dict[str, float], dict[str, Any]]] = []

    def log(self, data: dict[str, float], **how: Any) -> None:
        self.logged.append((data, how))


class Mlflow:
    """As the module, or a logger of a framework; whatever else it has does not matter."""

    def __init__(self) -> None:
        self.logged: list[tuple[dict[str, float], int | None]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.logged.append((metrics, step))

    def log(self) -> None:
        raise AssertionError


def test_every_kind_of_tracker_gets_them_in_its_own_way(scalars: Any) -> None:
    """A W&B run without a step keeps them for the script's own next call."""
    run, stepless, mlflow = Run(), Run(), Mlflow()
    reported: list[tuple[str, float, int | None]] = []
    for tracker, logged, step in (
        (run, run.logged, 5),
        (stepless, stepless.logged, None),
        (mlflow, mlflow.logged, 5),
        (lambda *each: reported.append(each), reported, 5),
    ):
        each = scalars(tracker)
        eventually(lambda each=each, step=step, logged=logged: each.log(step) or logged)
    assert run.logged == [(LOGGED, {"step": 5})]
    assert stepless.logged == [(LOGGED, {"commit": False})]
    assert mlflow.logged == [(LOGGED, 5)]
    assert reported == [(name, value, 5) for name, value in LOGGED.items()]


def test_other_ranks_ask_nobody(scalars: Any, pages: Pages) -> None:
    """Nor does a process in which telemetry is switched off."""
    writer = Writer()
    each = scalars(writer, rank=1)
    each.log(1)
    each.log_report(Report(rank=1, section_relative_perf_scores={"f": {1: 0.5}}), 1)
    assert (threads(), pages.asked, writer.added) == ([], [], [])


def test_no_tracker_is_nothing_to_do(scalars: Any, pages: Pages) -> None:
    """A script has a writer on rank 0 only, and passes what it has on all ranks."""
    none = scalars(None, rank=0)
    none.log(1)
    none.log_report(Report(rank=0, section_relative_perf_scores={"f": {0: 0.5}}), 1)
    none.close()
    assert (threads(), pages.asked) == ([], [])


def test_a_process_with_telemetry_switched_off_asks_nobody(
    scalars: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for everything else."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    scalars(Writer()).log(1)
    assert threads() == []


@pytest.mark.parametrize(
    ("status", "body", "reported"),
    [
        (404, b'{"error": "no such path; there are /metrics"}', "an older collector"),
        (404, b'{"error": "no run is called x"}', "does not know the run yet"),
        (500, b"", "status 500"),
        (200, b"<html>", "Expecting value"),
        (200, b"[]", "another answer than a collector's"),
        (200, b'{"snapshot": "a"}', "another answer than a collector's"),
        (200, b'{"snapshot": "a", "scalars": 5}', "another answer than a collector's"),
    ],
)
def test_another_answer_is_logged_once_and_training_goes_on(
    scalars: Any, pages: Pages, status: int, body: bytes, reported: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """And what comes later is taken all the same."""
    pages.status, pages.body = status, body
    writer = Writer()
    each = scalars(writer)
    with caplog.at_level(logging.WARNING, "otel_straggler"):
        eventually(lambda: each.log(1) or len(pages.asked) > 2)
    (message,) = [record.getMessage() for record in caplog.records]
    assert reported in message
    assert "training goes on without" in message
    assert writer.added == []
    pages.status = 200
    pages.answer("a", SCALARS)
    eventually(lambda: each.log(2) or writer.added)


def test_nobody_there_is_no_reason_to_stop(scalars: Any, pages: Pages) -> None:
    """The thread goes on asking."""
    each = scalars(Writer(), collector="http://127.0.0.1:1")
    each.log(1)
    (thread,) = threads()
    eventually(lambda: each._polling is not None and each._polling._has_logged)
    assert thread.is_alive()


def test_a_tracker_that_fails_does_not_stop_training(
    scalars: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged once and counted; strict set-ups, which tests have, raise."""
    calls: list[int | None] = []

    def broken(name: str, value: float, step: int | None) -> None:
        calls.append(step)
        raise RuntimeError("run is finished")

    monkeypatch.setattr("otel_straggler.client.guard.GUARD.is_strict", False)
    each = scalars(broken)
    with caplog.at_level(logging.WARNING, "otel_straggler"):
        eventually(lambda: each.log(7) or calls)
    assert "RuntimeError: run is finished" in caplog.text
    monkeypatch.setattr("otel_straggler.client.guard.GUARD.is_strict", True)
    other = scalars(broken)
    with pytest.raises(UsageError, match="run is finished"):
        eventually(lambda: other.log(8))


def test_closing_ends_the_thread_and_may_be_done_twice(scalars: Any) -> None:
    """Nothing is logged afterwards."""
    writer = Writer()
    each = scalars(writer)
    each.log(1)
    (thread,) = threads()
    each.close()
    each.close()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    each.log(2)
    assert threads() == []


def test_the_end_of_the_session_is_the_end_of_asking(scalars: Any, pages: Pages) -> None:
    """``shutdown()`` knows nothing of trackers; the thread sees that the session has gone, and
    who it asks for is what ``configure()`` has decided."""
    otel_straggler.configure(endpoint="http://127.0.0.1:1", run_id="named", rank=0, world_size=1)
    try:
        each = scalars(Writer(), run_id=None, rank=None)
        each.log(1)
        (thread,) = threads()
        eventually(lambda: pages.asked)
    finally:
        otel_straggler.shutdown()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert pages.asked[0].startswith("/v1/scalars?run=named")


def test_a_forked_child_asks_and_logs_nothing(scalars: Any, pages: Pages) -> None:
    """Nor does it touch the parent's locks; the parent goes on."""
    writer = Writer()
    each = scalars(writer)
    eventually(lambda: each.log(1) or writer.added)
    pages.answer("b", SCALARS)
    child = os.fork()
    if child == 0:
        before = len(writer.added)
        for step in range(3):
            each.log(step)
        os._exit(0 if len(writer.added) == before and each._polling is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    eventually(lambda: each.log(2) or len(writer.added) > len(LOGGED))


def test_a_process_ends_although_a_question_is_open(pages: Pages) -> None:
    """At its exit nobody waits for the collector."""
    program = (
        "import sys, time\n"
        "from otel_straggler.integrations import TrackerScalars\n"
        "each = TrackerScalars(print, collector=sys.argv[1], rank=0, run_id='x', every_s=1)\n"
        "each.log(1)\n"
        "time.sleep(0.3)\n"
        "print('end')\n"
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent:
        url = f"http://127.0.0.1:{silent.server_address[1]}"  # connects, and is never answered
        done = subprocess.run(
            [sys.executable, "-c", program, url], capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"tracker": 5}, "a SummaryWriter, the module mlflow"),
        ({"every_s": 0.5}, "at least 1 s"),
        ({"every_s": float("nan")}, "at least 1 s"),
        ({"collector": "myhost:9464"}, "a URL such as"),
    ],
)
def test_a_wrong_argument_is_told_at_once(
    scalars: Any, changes: dict[str, Any], reported: str
) -> None:
    """Before training begins."""
    with pytest.raises(ConfigError, match=reported):
        scalars(changes.pop("tracker", print), **changes)


def test_a_report_in_process_needs_no_collector(scalars: Any, pages: Pages) -> None:
    """Sections that wait for others are no work; None, which most calls give, is nothing."""
    nan = float("nan")
    report = Report(
        section_relative_perf_scores={
            "forward": {0: 1.0, 1: 0.6, 2: nan},
            "sync": {0: 0.1, 1: 1.0, 2: 1.0},
        },
        gpu_relative_perf_scores={0: 0.9, 1: 0.7, 2: nan},
        rank_to_node={0: "a", 1: "a", 2: "b"},
        rank=0,
        section_kinds={"sync": "wait"},
    )
    writer = Writer()
    each = scalars(writer)
    each.log_report(None, 3)
    each.log_report(report, 4)
    assert writer.added == [
        ("straggler/worst_score", 0.6, 4),
        ("straggler/worst_rank", 1, 4),
        ("straggler/ranks_called_slow", 1, 4),
        ("straggler/ranks_reporting", 3, 4),
    ]
    assert (pages.asked, threads()) == ([], [])
    assert scalars_of_report(Report()) == {"straggler/ranks_called_slow": 0}
