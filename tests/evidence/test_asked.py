"""A rank is asked for its stacks over a real collector, and asks nobody unless it was told to."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.cli import main

from .conftest import ON, TOKEN, Live


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Any:
    """``hang ask`` of all ranks of the run; its exit code."""

    def ask(live: Live, *more: str, token: str = TOKEN) -> int:
        monkeypatch.setenv("OTEL_STRAGGLER_COMMANDS_TOKEN", token)
        return main(["hang", "ask", "--collector", live.pages, "--run", "stuck-run",
                     "dump_stacks", *more])  # fmt: skip

    return ask


@pytest.mark.parametrize("native", ["auto", "off"])
def test_stacks_appear_when_the_collector_asks(
    start: Any, wait: Any, collect: Any, ask: Any, native: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever exporter sends; once, logged on both sides; who asked is told what came of it."""
    live = collect()
    stuck = start(
        "deadlocked", OTEL_STRAGGLER_ENDPOINT=live.otlp, OTEL_STRAGGLER_NATIVE=native, **ON
    )
    assert stuck.line() == "stuck"
    assert stuck.dumps() == []
    wait(lambda: ask(live, "--wait", "20") == 0)
    assert "Rank 0: done." in capsys.readouterr().out
    [dump] = stuck.dumps()
    assert dump.main.frames[0].function == "wait_for_lock"
    assert dump.head.why.startswith("command ")
    assert (dump.head.step, dump.head.section) == ("812", "forward")
    time.sleep(1.0)  # some polls more
    assert len(stuck.dumps()) == 1
    assert "of the collector: dump_stacks" in stuck.close()


def test_with_a_wrong_token_nothing_happens(
    start: Any, wait: Any, collect: Any, ask: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither a rank nor a person; the rank says so once, without the token."""
    live = collect()
    mine = {**ON, "OTEL_STRAGGLER_COMMANDS_TOKEN": "another"}
    stuck = start("asleep", OTEL_STRAGGLER_ENDPOINT=live.otlp, **mine)
    assert stuck.line() == "stuck"
    wait(lambda: ask(live, "--wait", "0") == 0)
    capsys.readouterr()
    assert ask(live, token="wrong") == 2
    assert "commands.token" in capsys.readouterr().err
    assert ask(live, "--wait", "1.5") == 0
    assert "has not answered" in capsys.readouterr().out
    assert stuck.dumps() == []
    printed = stuck.close()
    assert printed.count("does not take our OTEL_STRAGGLER_COMMANDS_TOKEN (HTTP 403)") == 1
    assert "another" not in printed


def test_a_collector_asks_by_itself_when_a_run_is_stuck(
    start: Any, wait: Any, collect: Any, tmp_path: Path, free_port: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """The culprit and those that wait, once each."""
    live = collect("dump_stacks", start_timeout_s=4.0, lost_after_s=20.0)
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port}
    ranks = [
        start("asleep", rank=rank, OTEL_STRAGGLER_ENDPOINT=live.otlp, **world, **ON)
        for rank in range(2)
    ]
    for one in ranks:
        assert one.line() == "stuck"
    for one in ranks:
        wait(one.dumps)
    time.sleep(1.0)
    assert [len(one.dumps()) for one in ranks] == [1, 1]
    assert main(["hang", str(tmp_path)]) == 0
    assert "Ranks 0 and 1 are in asleep" in capsys.readouterr().out


# --- a server that writes down what it is asked -----------------------------------------------


class Listening:
    """Answers everything; remembers paths and when spans came."""

    def __init__(self, *, delay_s: float = 0.0, commands: bytes = b'{"commands":[]}') -> None:
        self.paths: list[str] = []
        self.spans_at_s: list[float] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", "0")))
                outer.paths.append(self.path)
                if self.path == "/v1/traces":
                    outer.spans_at_s.append(time.monotonic())
                self.answer(b"")

            def do_GET(self) -> None:
                outer.paths.append(self.path.partition("?")[0])
                outer.queries.append(self.path.partition("?")[2])
                time.sleep(delay_s)
                self.answer(commands)

            def answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header(semconv.SCORER_HEADER, semconv.WIRE_VERSION)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.queries: list[str] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def listen() -> Iterator[Any]:
    opened: list[Listening] = []

    def begin(**how: Any) -> Listening:
        opened.append(Listening(**how))
        return opened[-1]

    yield begin
    for one in opened:
        one.close()


TRAINING = """
import time
import otel_straggler as o
o.configure(run_id="r", heartbeat_s=0.1, flush_s=0.05)
ends = time.monotonic() + 2.0
n = 0
while n < 150 or time.monotonic() < ends:  # also where the machine stands still meanwhile
    with o.step(n), o.section("forward"):
        time.sleep(0.01)
    n += 1
o.shutdown()
"""


def train(url: str, tmp_path: Path, **env: str) -> str:
    """What a short training says on standard error."""
    import os

    given = {
        **os.environ,
        "OTEL_STRAGGLER_ENDPOINT": url,
        "OTEL_STRAGGLER_EVIDENCE_DIR": str(tmp_path),
        **env,
    }
    command = [sys.executable, "-c", TRAINING]
    done = subprocess.run(
        command, env=given, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_where_commands_are_off_nobody_is_asked(listen: Any, tmp_path: Path) -> None:
    """Not one request; switched on, the same training asks with every heartbeat."""
    off, on = listen(), listen()
    train(off.url, tmp_path)
    train(on.url, tmp_path, **ON)
    assert set(off.paths) == {"/v1/traces", "/v1/metrics"}
    assert on.paths.count("/v1/commands") > 5
    assert "rank=0" in on.queries[0]


def test_without_a_token_nobody_is_asked(listen: Any, tmp_path: Path) -> None:
    """And that is said."""
    server = listen()
    printed = train(server.url, tmp_path, OTEL_STRAGGLER_COMMANDS="on")
    assert "/v1/commands" not in server.paths
    assert "OTEL_STRAGGLER_COMMANDS_TOKEN is not set" in printed


def test_whoever_is_not_known_to_score_is_not_asked(listen: Any, tmp_path: Path) -> None:
    """The token is for a collector of ours, not for any backend."""
    server = listen()
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": server.url, "OTEL_STRAGGLER_ENDPOINT": ""}
    original = semconv.SCORER_HEADER
    try:
        semconv.SCORER_HEADER = "some-header"  # type: ignore[misc]
        train(server.url, tmp_path, **env, **ON)
    finally:
        semconv.SCORER_HEADER = original  # type: ignore[misc]
    assert "/v1/metrics" in server.paths
    assert "/v1/commands" not in server.paths


@pytest.mark.parametrize("native", ["auto", "off"])
def test_a_collector_that_is_slow_to_answer_holds_up_no_spans(
    listen: Any, tmp_path: Path, native: str
) -> None:
    """While the one poll waits, spans go on in their usual rhythm, and training ends in time."""
    server = listen(delay_s=30.0)
    train(server.url, tmp_path, OTEL_STRAGGLER_NATIVE=native, **ON)
    assert server.paths.count("/v1/commands") in {1, 2}
    assert len(server.spans_at_s) > 10


def test_what_is_not_on_the_list_is_refused_and_told(listen: Any, tmp_path: Path) -> None:
    """Once for each id; nonsense beside it is passed over."""
    commands = [
        {"id": "a1", "verb": "run_shell"},
        {"id": "a1", "verb": "dump_stacks"},
        {"id": "../x", "verb": "dump_stacks"},
        {"id": 7, "verb": "dump_stacks"},
        {"verb": "dump_stacks"},
        "dump_stacks",
    ]
    server = listen(commands=json.dumps({"commands": commands}).encode())
    printed = train(server.url, tmp_path, **ON)
    assert printed.count("command a1, 'run_shell', is refused") == 1
    assert any("done=a1%3Arefused" in query for query in server.queries)
    assert not list(tmp_path.glob("*.stacks.txt"))


@pytest.mark.parametrize(
    "body", [b"", b"no", b"[]", b'{"commands": 7}', b"[" * 100_000, b'{"commands":[[[]]]}']
)
def test_nonsense_for_an_answer_changes_nothing(listen: Any, tmp_path: Path, body: bytes) -> None:
    """Training ends as ever, without a traceback."""
    printed = train(listen(commands=body).url, tmp_path, **ON)
    assert "Traceback" not in printed


def test_a_collector_that_is_away_is_no_matter(tmp_path: Path) -> None:
    """Training ends as ever; of commands nothing is said, since spans say it already."""
    printed = train("http://127.0.0.1:1", tmp_path, **ON)
    assert "COMMANDS" not in printed
    assert "Traceback" not in printed
