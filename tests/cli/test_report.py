"""``otel-straggler report``: the same picture from a collector and from what it has kept."""

from __future__ import annotations

import copy
import io
import json
import os
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from otel_straggler.cli import report
from otel_straggler.cli.report import MAX_FLAGGED, WORST_RANKS, ranks_of_interest
from otel_straggler.cli.report_lines import report_lines
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import (
    CollectorSettings,
    HistorySettings,
    MetricsSettings,
    ReceiverSettings,
)

FREE = "127.0.0.1:0"
SLOW = 5
PATIENCE_S = 60.0
LIVE_ONLY = {
    "collector", "version", "started_at_s", "now_s", "snapshot", "next_look_s", "timeline",
}  # fmt: skip
"""Who says it and when; numbers of windows are those of whoever keeps them."""


class Ran:
    """What a collector said of a finished run with a slow rank, and the history that it left.

    Attributes:
        run_view, page, text: from the running collector at ``url``.
        history: the file, which nobody writes any more.
    """

    def __init__(self, folder: Path) -> None:
        self.history = folder / "history.db"
        collector = Collector(
            CollectorSettings(
                receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
                metrics=MetricsSettings(listen=FREE),
                history=HistorySettings(path=str(self.history)),
            )
        )
        addresses = collector.start()
        try:
            self._train(f"http://{addresses['otlp_http']}")
            url = f"http://{addresses['metrics']}"
            self.run_view = self._run_verdicts(url)
            self.page = reported("report", "slow", "--collector", url, "--html", "-")
            self.text = reported("report", "slow", "--collector", url)
            self.url = url
        finally:
            collector.stop()

    def _train(self, otlp: str) -> None:
        send = ("--send", otlp, "--speed", "1000")
        plan = ("--layout", "pp2,dp8", "--fault", f"compute:1.5@rank{SLOW}:step60", "--steps", 200)
        reported("simulate", *plan, "--step-s", 0.4, "--run-id", "slow", *send)
        well = ("--scenario", "healthy", "--ranks", 4, "--steps", 60, "--run-id", "well")
        reported("simulate", *well, *send)

    def _run_verdicts(self, url: str) -> Any:
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            run_view = json.loads(reported("report", "slow", "--collector", url, "--json"))
            is_over = run_view["run"]["state"] == "finished"
            if is_over and run_view["answer"]["rank"] == SLOW:
                return run_view
            assert time.monotonic() < deadline_s, run_view["answer"]
            time.sleep(0.1)


def reported(*arguments: object) -> str:
    """What the command prints, in a process of its own."""
    command = [sys.executable, "-m", "otel_straggler.cli", *map(str, arguments)]
    environment = os.environ | {"COLUMNS": "160"}
    done = subprocess.run(command, capture_output=True, timeout=120, env=environment, check=True)
    return done.stdout.decode()


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(tmp_path_factory.mktemp("report"))


def test_the_terminal_says_who_is_slow_since_when_why_and_what_to_do(ran: Ran) -> None:
    """The answer first, then the slowest ranks and where the time of a step goes."""
    lines = ran.text.splitlines()
    assert lines[0].startswith("run slow (simulation): finished, 16 of 16 ranks, step 199")
    assert f"ank {SLOW} on node-0 was slow" in lines[1]
    assert "since step 60" in ran.text
    assert "do: " in ran.text
    (worst,) = [line for line in lines if re.match(rf"\s+{SLOW} +node-0", line)]
    assert re.search(r"1\.[45]\dx", worst)
    assert re.search(r"^ forward +\d+ ms", ran.text, re.MULTILINE)
    assert "confirmed: " not in ran.text  # the answer's sentence is not told again


@pytest.mark.parametrize(
    ("width", "gone"),
    [
        (30, ["host, role, state", "typical, last of all"]),
        (60, ["role"]),
        (80, []),
        (200, []),
    ],
)
def test_tables_give_way_to_a_narrow_terminal(ran: Ran, width: int, gone: list[str]) -> None:
    """Whole columns go, which is told; what is left can be read."""
    console = Console(width=width, file=io.StringIO(), record=True)
    for line in report_lines(ran.run_view):
        console.print(line)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    reported = " ".join(text.split())
    assert reported.count("without room: ") == len(gone)
    assert all(f"without room: {names}" in reported for names in gone)


def test_a_collector_and_its_history_agree(ran: Ran, call: Any) -> None:
    """On all that both know; the history keeps five digits. Timelines and ranks too."""
    live = copy.deepcopy(ran.run_view)
    code, out, error = call("report", "slow", "--history", ran.history, "--json")
    assert (code, error) == (0, "")
    kept = json.loads(out)
    assert kept["timeline"]["n_columns"] == live["timeline"]["n_columns"] == 10
    assert (live["run"].pop("is_live"), kept["run"].pop("is_live")) == (True, False)
    asks = f"otel-straggler verdict explain {SLOW} --run slow --collector {ran.url}"
    assert live["answer"].pop("commands")[0] == asks
    assert kept["answer"].pop("commands") == []  # nobody is there to be asked
    shown, expected = like(strip(kept)), like(strip(live))
    assert {key: shown[key] for key in expected if shown[key] != expected[key]} == {}
    _, page, _ = call("report", "slow", "--history", ran.history, "--html", "-")
    from_collector, from_file = embedded(ran.page), embedded(page)
    assert from_file["timelines"].keys() == from_collector["timelines"].keys()
    for section, timeline in from_collector["timelines"].items():
        assert from_file["timelines"][section]["values"] == timeline["values"]
    assert set(from_file["ranks"]) == set(from_collector["ranks"])
    slow = from_file["ranks"][str(SLOW)]
    assert slow["parallel"] == {"data": SLOW, "pipeline": 0}
    assert len(slow["history"]["columns"]) == 10


def strip(run_view: Any) -> Any:
    return {key: value for key, value in run_view.items() if key not in LIVE_ONLY}


def like(value: Any) -> Any:
    """With numbers cut to what a history keeps of them; ages grow while one looks."""
    if isinstance(value, dict):
        return {k: like(v) for k, v in value.items() if not k.endswith("_age_s")}
    if isinstance(value, list):
        return [like(each) for each in value]
    return float(f"{value:.3g}") if isinstance(value, float) else value


def embedded(page: str) -> Any:
    (text,) = re.findall(r'<script type="application/json" id="straggler-data">(.*?)</', page)
    return json.loads(text)


def test_without_a_name_the_run_in_most_trouble_is_shown(ran: Ran, call: Any) -> None:
    """Of a history of runs that are over, the one heard of last; its entry stands in the page."""
    _, out, _ = call("report", "--history", ran.history, "--json")
    chosen = json.loads(out)["run"]["run_id"]
    _, page, _ = call("report", "--history", ran.history, "--html", "-")
    data = embedded(page)
    assert chosen == data["run"]["run"]["run_id"] == "well"
    assert [run["run_id"] for run in data["runs"]["runs"]] == [chosen]
    assert data["left_out"] == {"sections": [], "ranks": 0}


def test_a_page_is_written_whole_or_not_at_all(
    ran: Ran, call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed one leaves what was there, and nothing beside it; rights are as for any file."""
    target = tmp_path / "run.html"
    target.write_text("before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdopen", full)
        code, _, error = call("report", "slow", "--history", ran.history, "--html", target)
    assert code == 2
    assert "No space left" in error
    assert [path.name for path in tmp_path.iterdir()] == ["run.html"]
    assert target.read_text() == "before"
    before = os.umask(0o027)
    try:
        code, out, _ = call("report", "slow", "--history", ran.history, "--html", target)
    finally:
        os.umask(before)
    assert (code, out) == (0, "")
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert embedded(target.read_text())["run"]["run"]["run_id"] == "slow"
    code, _, error = call("report", "--history", ran.history, "--html", tmp_path / "no" / "x.html")
    assert code == 2
    assert "No such file" in error


WRONG: dict[str, tuple[tuple[str, ...], str]] = {
    "run": (("nosuch",), "RUN: got 'nosuch'; expected one of: "),
    "group": (("slow", "--group", "actor"), "--group: got 'actor'; expected one of: ''"),
    "both": (("--collector", "http://127.0.0.1:1"), "expected a collector or a history"),
    "two outputs": (("--json", "--html", "-"), "expected one output"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_shown_is_told(ran: Ran, call: Any, case: str) -> None:
    """With what there is instead; exit code 2."""
    arguments, reported = WRONG[case]
    code, out, error = call("report", *arguments, "--history", ran.history)
    assert (code, out) == (2, "")
    assert reported in error


@pytest.fixture
def pages() -> Iterator[Callable[[int, bytes], str]]:
    """Servers that answer everything alike."""
    servers: list[ThreadingHTTPServer] = []

    def answering(status: int, body: bytes) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(status)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield answering
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "body", "reported"),
    [
        (404, b'{"error": "no such path; there are /metrics, /v1/report"}', "no /v1/runs"),
        (200, b'{"schema_version": 99, "runs": []}', "another answer to /v1/runs"),
        (200, b"[]", "another answer to /v1/runs"),
    ],
)
def test_an_older_collector_is_told_apart(
    pages: Any, call: Any, status: int, body: bytes, reported: str
) -> None:
    """The sentence says what to use instead."""
    code, out, error = call("report", "--collector", pages(status, body))
    assert (code, out) == (2, "")
    assert reported in error
    assert "It is an older one, or another program" in error
    assert "--history" in error


def test_a_collector_without_runs_and_nobody_at_all(pages: Any, call: Any) -> None:
    """Each has its sentence."""
    url = pages(200, b'{"schema_version": 1, "runs": []}')
    _, _, error = call("report", "--collector", url)
    assert f"expected a run; {url} has none yet" in error
    code, _, error = call("report", "--collector", "http://127.0.0.1:1")
    assert code == 2
    assert "Is it running, and is this its --metrics address?" in error


def test_ranks_that_verdicts_name_come_with_details_then_the_slowest() -> None:
    """At most fifty of each, no rank twice, none that the picture does not have."""
    n_ranks = 500
    run_view = {
        "answer": {"rank": 7},
        "hangs": [{"culprits": [9]}],
        "verdicts": [
            {"stands": True, "rank": rank} for rank in (8, 7, None, 10**6, *range(100, 200))
        ] + [{"stands": False, "rank": 400}],
        "ranks": {"rank": list(range(n_ranks))},
        "slowdowns": {"overall": [None, *(1 + rank / 1000 for rank in range(1, n_ranks))]},
    }  # fmt: skip
    chosen = ranks_of_interest(run_view)
    assert chosen[:4] == [7, 9, 8, 100]
    assert chosen[-WORST_RANKS:] == list(range(499, 499 - WORST_RANKS, -1))
    assert len(chosen) == len(set(chosen)) == MAX_FLAGGED - 1 + WORST_RANKS


def test_timelines_stay_within_their_budget_and_what_is_left_out_is_told(
    ran: Ran, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All sections together come first, then those in which somebody is called slow."""
    monkeypatch.setattr(report, "MAX_TIMELINE_BYTES", 500)
    monkeypatch.setattr(report, "WORST_RANKS", 3)
    code, page, error = call("report", "slow", "--history", ran.history, "--html", "-")
    data = embedded(page)
    assert code == 0
    assert next(iter(data["timelines"])) == ""
    assert 1 <= len(data["timelines"]) <= 3
    sections = {section["name"] for section in data["run"]["sections"]}
    assert set(data["left_out"]["sections"]) == sections - set(data["timelines"])
    assert data["left_out"]["ranks"] == 16 - len(data["ranks"]) > 0
    assert "note: the page is without the timelines of " in error
    assert f"the details of {data['left_out']['ranks']} ranks" in error


def test_text_from_the_network_cannot_move_the_terminal(ran: Ran) -> None:
    """Control characters of names and sentences are shown as question marks."""

    def poisoned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: poisoned(each) for key, each in value.items()}
        if isinstance(value, list):
            return [poisoned(each) for each in value]
        return f"{value}\x1b[31m[bold]" if isinstance(value, str) else value

    bad = {key: poisoned(value) for key, value in ran.run_view.items()}
    bad["heat"]["pattern"] = "hot_cell"
    console = Console(width=200, record=True, file=io.StringIO())
    for line in report_lines(bad):
        console.print(line)
    text = console.export_text()
    assert "\x1b" not in text
    assert "?[31m[bold]" in text


def test_every_part_may_be_missing() -> None:
    """Of a run of which only the name is known."""
    from otel_straggler.collector.views.page_json import ResponseMeta, page_json
    from otel_straggler.collector.views.world_view import WorldView

    bare = page_json(WorldView(run_id="bare", now_s=0.0), ResponseMeta(version="1"))
    first = next(iter(report_lines(bare)))
    assert str(first).startswith("run bare: unknown, 0 of 0")


def test_some_seconds_lost_are_not_no_hours() -> None:
    """Six seconds of four ranks, in a run of minutes."""
    from otel_straggler.collector.views.page_json import ResponseMeta, page_json
    from otel_straggler.collector.views.world_view import WorldView

    run_view = page_json(WorldView(run_id="short", now_s=0.0), ResponseMeta(version="1"))
    run_view["answer"]["cost"] = {"gpu_seconds_lost_per_hour": 18.0, "gpu_seconds_lost": 6.0}
    reported = "\n".join(str(line) for line in report_lines(run_view))
    assert "costs 0.005 rank-hours an hour, 0.0017 rank-hours lost" in reported


@pytest.mark.parametrize(("on_gpu", "hours"), [(True, "GPU-hours"), (False, "rank-hours")])
def test_brief_hangs_are_one_line_and_lost_hours_are_of_what_there_is(
    on_gpu: bool, hours: str
) -> None:
    """The ten that were short are not told one by one."""
    from otel_straggler.collector.views.page_json import ResponseMeta, page_json
    from otel_straggler.collector.views.world_view import WorldView

    run_view = page_json(WorldView(run_id="bare", now_s=0.0), ResponseMeta(version="1"))
    run_view["run"]["on_gpu"] = on_gpu
    hang = {"is_brief": True, "duration_s": 40.0}
    sentence = "10 shorter than 2 min, 7 min together."
    brief = {"sentence": sentence, "gpu_seconds_lost": 36_000.0}
    run_view["hangs"] = [{"sentence": None, "earlier": [hang] * 10, "earlier_brief": brief}]
    lines = [str(line) for line in report_lines(run_view)]
    assert [line for line in lines if "hang" in line] == [
        f"hangs: {sentence} 10.0 {hours} were lost."
    ]


def test_the_goodput_of_a_run_is_read_from_its_history(ran: Ran, call: Any, tmp_path) -> None:
    """By windows of 20 steps: the run is slow since step 60 of 200, by a rank that takes 1.5 times
    as long; the verdict says what that costs."""
    out = tmp_path / "goodput.json"
    code, output, _ = call("goodput", "slow", "--history", ran.history, "--json", out)
    assert code == 0
    assert "slow: goodput" in output
    [run] = json.loads(out.read_text())["runs"]
    assert len(run["ranks"]) == 16
    assert sum(run["time_ns"].values()) == run["elapsed_s"] * 1e9
    assert run["steps"]["productive"] == 200
    assert 0.1 < run["categories"]["stragglers"]["share"] < 0.4
    shares = run["timeline"]["share"]["stragglers"]
    assert sum(shares[: len(shares) // 5]) == 0.0


def test_the_history_alone_gives_the_goodput_of_the_newest_run(ran: Ran, call: Any) -> None:
    assert "well: goodput" in call("goodput", ran.history)[1]
    assert "slow: goodput" in call("goodput", ran.history, "--run", "slow")[1]
    code, _, error = call("goodput", ran.history, "--run", "none")
    assert code == 2
    assert "well" in error
