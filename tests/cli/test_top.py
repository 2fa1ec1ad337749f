"""``otel-straggler top``: what it shows of a collector, and what of none.

The reports come from a plain HTTP server, so that each state can be set up; the real collector is
watched in tests/end_to_end.
"""

import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from rich.console import Console

from otel_straggler.cli.top import View
from otel_straggler.collector.views.report_json import RunReport, report_json
from otel_straggler.otlp.clients.client import NO_ANSWER, Response
from otel_straggler.otlp.clients.http import HttpClient


class Reports(ThreadingHTTPServer):
    """Answers /v1/report with ``answer``."""

    answer: bytes = b""
    status: int = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Reports)
        self.send_response(server.status if self.path == "/v1/report" else 404)
        self.end_headers()
        self.wfile.write(server.answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Reports]:
    with Reports(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(timeout=10)


@pytest.fixture
def report(call, recorded):
    """The JSON report of a simulated run."""

    def build(scenario: str = "one_slow_rank", **plan: object) -> bytes:
        return call("score", recorded(scenario, **plan), "--json")[1].encode()

    return build


@pytest.mark.parametrize("url", ["http://", "http://127.0.0.1:99999", "http://127.0.0.1:0"])
def test_an_address_without_a_place_is_refused_at_once(call, url: str) -> None:
    """It would not be there in a second either."""
    code, output, errors = call("top", "--collector", url)
    assert (code, output) == (2, "")
    assert f"--collector: got '{url}'; expected a host and a port" in errors


@pytest.mark.parametrize("command", [("top", "--once"), ("report",), ("verdict", "explain", "5")])
def test_tls_that_fails_is_told_with_what_to_do(call, monkeypatch, command) -> None:
    """By every command that asks a collector: whose certificate, in which variable."""
    reason = "certificate verify failed: unable to get local issuer certificate"

    def refused(*_: object, **__: object) -> Response:
        return Response(NO_ANSWER, error=reason)

    monkeypatch.setattr(HttpClient, "send", refused)
    code, _, errors = call(*command, "--collector", "https://127.0.0.1:1")
    assert code == 2
    assert reason in errors
    assert "export SSL_CERT_FILE=/path/to/ca.pem" in errors


def run_verdicts_report(report: bytes, run_verdicts) -> bytes:
    """The report with layer 2 put in."""
    result = json.loads(report)
    made = report_json({"simulated": RunReport(run_verdicts=run_verdicts)})["runs"]["simulated"]
    result["runs"]["simulated"] |= {key: made[key] for key in ("verdicts", "run")}
    return json.dumps(result).encode()


def test_verdicts_are_the_first_lines(call, collector, report, by_hand) -> None:
    """Dearest first, then what the run loses, then the table."""
    run_verdicts = by_hand.run_verdicts(
        by_hand.verdict("suspect", subject_id="s", sentence="rank 3 may be slow"),
        by_hand.verdict(gpu_seconds_lost_per_hour=3600.0),
        worlds=(by_hand.world(),),
    )
    collector.answer = run_verdicts_report(report("healthy"), run_verdicts)
    _, output, _ = call("top", "--collector", collector.url, "--once")
    lines = output.splitlines()
    assert lines[0].startswith(
        "confirmed, pages: rank 5 on node-1 takes 1.52x as long as its 7 peers in forward"
    )
    assert lines[2] == "suspect: rank 3 may be slow"
    assert lines[3].startswith("the run takes 1.18x as long as it could")
    assert lines[4].startswith("run simulated: 8 ranks")
    assert "no straggler" not in output


def test_ranks_that_the_lines_name_are_marked_in_the_table(
    call, collector, report, by_hand
) -> None:
    """Also where no score is below the threshold, and of a hang; they come first."""
    once = ("top", "--collector", collector.url, "--once")

    def marked() -> list[str]:
        lines = (line.split() for line in call(*once)[1].splitlines())
        return [words[1] for words in lines if words[:1] == [">"] and words[1].isdigit()]

    collector.answer = report("healthy")
    assert marked() == []
    run_verdicts = by_hand.run_verdicts(by_hand.verdict(), worlds=(by_hand.world(),))
    collector.answer = run_verdicts_report(report("healthy"), run_verdicts)
    assert marked() == ["5"]
    result = json.loads(collector.answer)
    result["runs"]["simulated"]["liveness"] = [hanging(culprits=[2])]
    collector.answer = json.dumps(result).encode()
    assert marked() == ["2", "5"]
    output = call(*once)[1].splitlines()
    assert "> before a rank: named here" in output
    first = next(at for at, line in enumerate(output) if line.startswith("rank"))
    assert [line.split()[1] for line in output[first + 2 : first + 4]] == ["2", "5"]


def test_a_run_that_nobody_knows_is_waited_for_as_such(report) -> None:
    """While it polls; it may be on its way, or misspelled."""
    console = Console(width=200, record=True)
    view = View({"runs": json.loads(report("healthy"))["runs"]}, "another", "http://c:9464")
    console.print(view)
    text = console.export_text()
    assert "http://c:9464 knows no run another, and waits for it; its runs: simulated" in text


def hanging(state: str = "partly_lost", **changes: object) -> dict[str, object]:
    """A world of the report's block ``liveness``."""
    reported = {"group": "", "state": state, "since_s": 1_790_000_000.0, "acknowledged": False}
    sentence = "Rank 2: no sign of life; 3 ranks wait."
    return {**reported, "sentence": sentence, "hung": True, **changes}


def test_a_run_that_hangs_is_the_first_line(call, collector, report) -> None:
    """A window of before the hang says nothing of it; nor is there one where it never began."""
    result = json.loads(report("healthy"))
    result["runs"]["simulated"]["liveness"] = [hanging()]
    collector.answer = json.dumps(result).encode()
    stands = "partly lost since 2026-09-21 14:13:20 UTC: Rank 2: no sign of life; 3 ranks wait."
    assert call("top", "--collector", collector.url, "--once")[1].splitlines()[0] == stands
    result["runs"]["simulated"]["windows"] = []
    collector.answer = json.dumps(result).encode()
    output = call("top", "--collector", collector.url, "--once")[1]
    assert output.splitlines() == [stands]


def test_the_longest_hang_of_before_is_told(call, collector, report) -> None:
    """It went on by itself in the night, and all is well now."""
    earlier = {
        "since_s": 1_790_000_000.0, "duration_s": 2_400.0, "is_end_seen": True,
        "gpu_seconds_lost": 19_200.0, "sentence": "Rank 5 on node-1 was silent.",
        "then": "it went on by itself",
    }  # fmt: skip
    short = {**earlier, "duration_s": 30.0}
    result = json.loads(report("healthy"))
    trains = hanging("training", sentence=None, hung=False, earlier=[short, earlier])
    result["runs"]["simulated"]["liveness"] = [trains]
    run_verdicts = result["runs"]["simulated"]["run"]["worlds"][""]
    for on_gpu, hours in ((True, "GPU-hours"), (False, "rank-hours")):
        result["runs"]["simulated"]["run"]["worlds"] = {"": {**run_verdicts, "on_gpu": on_gpu}}
        collector.answer = json.dumps(result).encode()
        output = call("top", "--collector", collector.url, "--once")[1]
        assert f"Rank 5 on node-1 was silent. 5.33 {hours} were" in " ".join(output.split())
    assert " ".join(output.split()).startswith(
        "hung from 2026-09-21 14:13:20 UTC for 40 min: Rank 5 on node-1 was silent. 5.33 rank-hours"
        " were lost. Then it went on by itself. 1 shorter: otel-straggler report."
    )


def test_scores_of_a_run_that_has_ended_are_told_in_the_past(call, collector, report) -> None:
    """Nobody takes longer any more."""
    result = json.loads(report())
    result["runs"]["simulated"]["liveness"] = [hanging("finished", sentence=None, hung=False)]
    collector.answer = json.dumps(result).encode()
    output = call("top", "--collector", collector.url, "--once")[1]
    assert "rank 5 on node-1: forward took 1.5" in output
    assert " takes " not in output


def test_another_run_that_hangs_is_named(call, collector, report) -> None:
    """Nobody looks at it; what has ended is told of the run that is shown."""
    result = json.loads(report("healthy"))
    ended = hanging("failed", sentence=None, hung=False)
    result["runs"]["simulated"]["liveness"] = [ended]
    for name in ("idle", "silent"):
        result["runs"][name] = {"windows": [], "liveness": [hanging(hung=name == "silent")]}
    collector.answer = json.dumps(result).encode()
    lines = call("top", "--collector", collector.url, "--once")[1].splitlines()
    assert lines[0] == "the run has ended at 2026-09-21 14:13:20 UTC: failed"
    assert lines[-1] == "of the other runs 1 hangs: silent (--run)"


def test_an_address_as_the_collector_prints_it_will_do(call, collector, report) -> None:
    """Without http://, as the value of 'metrics' in its first line."""
    collector.answer = report()
    address = collector.url.removeprefix("http://")
    assert "run simulated" in call("top", "--collector", address, "--once")[1]


@pytest.mark.parametrize("width", [40, 80, 160])
def test_a_whole_sentence_is_shown_where_there_is_room(
    collector, report, by_hand, width: int
) -> None:
    """Wrapped, never wider than the terminal; the table keeps its place."""
    run = json.loads(run_verdicts_report(report(), by_hand.run_verdicts(by_hand.verdict())))
    console = Console(width=width, height=40, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(View(run, None, collector.url))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    assert by_hand.sentence in " ".join(line.strip() for line in lines[:8])
    assert len(lines) <= 40


def test_many_verdicts_leave_room_for_the_table(collector, report, by_hand) -> None:
    """In a small terminal of each sentence the beginning is shown."""
    many = [by_hand.verdict(subject_id=str(n)) for n in range(30)]
    run = json.loads(run_verdicts_report(report(), by_hand.run_verdicts(*many)))
    console = Console(width=80, height=24, force_terminal=True, color_system=None)
    with console.capture() as capture:
        console.print(View(run, None, collector.url))
    lines = capture.get().splitlines()
    assert len(lines) <= 24
    assert [line[:9] for line in lines[:5]] == ["confirmed"] * 5
    assert lines[0].endswith("…")
    assert lines[5] == "and 25 confirmed that lose less"
    assert any(line.split()[:3] == [">", "5", "node-1"] for line in lines)


def test_a_collector_without_a_window_is_no_error(call, collector) -> None:
    """It says what it waits for."""
    collector.answer = b'{"schema_version": 1, "runs": {}}'
    code, output, _ = call("top", "--collector", collector.url, "--once")
    assert code == 0
    assert "waiting for ranks to finish the first steps" in output


def test_an_unknown_run_is_refused_with_those_that_are_there(call, collector, report) -> None:
    """So that a wrong name can be corrected."""
    collector.answer = report()
    code, _, errors = call("top", "--collector", collector.url, "--once", "--run", "other")
    assert code == 2
    assert "--run: got 'other'; expected one of: simulated" in errors


def test_a_collector_that_does_not_answer_is_an_error_once(call, collector) -> None:
    """With the address and what to check."""
    url = collector.url
    collector.server_close()
    code, _, errors = call("top", "--collector", url, "--once")
    assert code == 2
    assert f"{url}/v1/report: got " in errors
    assert "Is it running, and is this its --metrics address?" in errors


@pytest.mark.parametrize(
    ("status", "answer"), [(404, b""), (200, b"<html>"), (200, b"[]"), (200, b'{"runs": {}}')]
)
def test_another_program_at_the_address_is_told(call, collector, status, answer) -> None:
    """A wrong port is the most usual mistake."""
    collector.status, collector.answer = status, answer
    code, _, errors = call("top", "--collector", collector.url, "--once")
    assert code == 2
    assert "Is another program, or another version of the collector, listening there?" in errors


def test_a_watcher_survives_a_collector_that_goes_and_comes(collector, report) -> None:
    """Live, in a terminal: trouble is shown above the last report, and goes away again."""
    collector.answer = report()
    with _terminal("top", "--collector", collector.url, "--interval", "0.1") as screen:
        screen.wait_for(b"rank 5 on node-1: forward")
        collector.status = 503
        screen.wait_for(b"no answer:")
        collector.status, collector.answer = 200, report("healthy")
        screen.wait_for(b"no straggler")


class _terminal:  # noqa: N801 (used like a function)
    """The command in a pseudo-terminal of 100 x 30."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments

    def __enter__(self) -> "_terminal":
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "otel_straggler.cli", *self._arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=os.environ | {"COLUMNS": "100", "LINES": "30", "TERM": "xterm"},
        )
        os.close(slave)
        return self

    def wait_for(self, text: bytes) -> None:
        """Read the screen until ``text`` appears; the time-out of the test run is the limit."""
        seen = b""
        while text not in seen:
            seen = (seen + os.read(self._master, 65_536))[-200_000:]

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)
        os.close(self._master)


def test_a_thousand_ranks_fit_a_small_terminal(collector, report) -> None:
    """The worst ranks, and how many more there are, within the height of the terminal."""
    collector.answer = report(ranks=1000, steps=2, slow_rank=999)
    with _terminal("top", "--collector", collector.url, "--interval", "0.1") as screen:
        screen.wait_for(b"more ranks, none of them slower than these")
        screen.wait_for(b"rank 999 on node-249: forward")


def test_interval_and_address_are_checked(call) -> None:
    """Before anything is fetched."""
    assert "--interval: got 0.0; expected 0.1 to 3600 seconds" in call("top", "--interval", 0)[2]
    assert "--collector: got 'here'; expected a URL" in call("top", "--collector", "here")[2]


def test_the_same_report_is_printed_without_a_terminal(collector, report) -> None:
    """In a pipe every look is a block of plain lines."""
    collector.answer = report()
    process = subprocess.Popen(
        [sys.executable, "-m", "otel_straggler.cli", "top", "--collector", collector.url],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(12)]
    process.terminate()
    process.wait(timeout=30)
    process.stdout.close()
    assert any(b"run simulated: 8 ranks" in line for line in lines)
    assert not any(b"\x1b" in line for line in lines)
    assert json.loads(collector.answer)["schema_version"] == 1


def test_the_runs_of_several_shards_are_shown_together(
    call, collector: Reports, report, tmp_path
) -> None:
    """And without one that does not answer, which is named."""
    collector.answer = report()
    with Reports(("127.0.0.1", 0), _Handler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        other.answer = report(run_id="on-another-shard")
        both = ("--collector", collector.url, "--collector", other.url)
        _, output, _ = call("top", "--once", "--run", "on-another-shard", *both)
        assert "on-another-shard" in output
        assert "1 other run: simulated (--run)" in output
        assert f"scored by {other.url}" in output
        other.shutdown()
    away = ("--collector", collector.url, "--collector", "http://127.0.0.1:1")
    code, output, _ = call("top", "--once", *away)
    assert code == 0
    assert "no answer: http://127.0.0.1:1/v1/report" in output


def test_names_of_a_collector_cannot_control_the_terminal(call, collector, report) -> None:
    """Runs, hosts and sections; also of a collector that does not clean them."""
    bad = json.dumps("\x1b[2J\u202e\r\x9b")[1:-1].encode()
    answer = report()
    for name in (b"simulated", b"forward", b"node-"):
        assert name in answer
        answer = answer.replace(name, name + bad)
    collector.answer = answer
    code, output, errors = call("top", "--once", "--collector", collector.url)
    assert code == 0
    assert "forward?[2J" in output
    assert not {"\x1b", "\u202e", "\r", "\x9b"} & set(output + errors)


def test_what_an_error_quotes_cannot_control_the_terminal(call) -> None:
    """A path, or the answer of a server."""
    code, _, errors = call("hang", "read", "/nowhere/\x1b[2J")
    assert code == 2
    assert "\x1b" not in errors
