"""A shard that lies, is slow, endless or broken: the next one is asked all the same, the list of
runs is there, and says which shard gave nothing and why."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given

from otel_straggler.collector.api.cache import Answer
from otel_straggler.collector.api.peer_answers import MAX_ALERTS, MAX_BYTES, MAX_RUNS
from otel_straggler.collector.api.peers import Peers, UnknownOnPeerError
from otel_straggler.collector.views.page_json import ResponseMeta, runs_json
from otel_straggler.errors import UnavailableError
from otel_straggler.model.alert import Alert
from otel_straggler.otlp.clients.client import Response
from otel_straggler.otlp.clients.token import TOKEN_VARIABLE

from ..damage import damaged

Json = dict[str, Any]
NOW_S = 1_800_000_000.0
DIGITS = "9" * 400
META = ResponseMeta(version="1", collector="a")


def entry(name: str, **changes: Any) -> Json:
    """A run as a shard lists it."""
    whole = {
        "run_id": name, "job": "j", "is_live": True, "state": "training", "began_at_s": NOW_S,
        "received_at_s": NOW_S, "finished_at_s": None, "world_size": 8, "ranks_reporting": 8,
        "slowdown": 1.5, "tone": "good", "headline": "fine", "alerts": 1,
    }  # fmt: skip
    return whole | changes


def listing(*runs: Any, **changes: Any) -> bytes:
    answer = {"collector": "b", "now_s": NOW_S, "page_url": None, "runs": [*runs]}
    return json.dumps(answer | changes).encode()


GOOD = listing(entry("healthy"), collector="c")


class Shards:
    """Two other shards: ``b`` answers whatever it likes, ``c`` as it should."""

    def __init__(self, answer: Callable[[str], Response]) -> None:
        self.answer = answer
        self.evicted: list[str] = []
        self.taken: list[Alert] = []
        self.ages: dict[str, float] = {}
        self.peers = Peers(
            ["http://b", "http://c"],
            ages=lambda: self.ages,
            evict=self.evicted.extend,
            take_over=self.taken.extend,
            ask=lambda url: self.answer(url) if "//b/" in url else Response(200, body=GOOD),
            monotonic_s=lambda: 100.0,
        )
        self.peers.own_id = "a"

    def shown(self, prefix: str = "") -> Json:
        """The body of /v1/runs after one round, as a page gets it."""
        self.peers.tick()
        runs = self.peers.merged([entry("own", received_at_s=NOW_S - 1.0)])
        made = runs_json(runs, META, NOW_S, problems=self.peers.problems(prefix))
        result: Json = json.loads(Answer(made).body)
        return result


def shards_with(body: bytes, status: int = 200) -> Shards:
    return Shards(lambda _: Response(status, body=body))


BAD_LISTS = {
    "nothing": b"",
    "no JSON": b"<html>",
    "not UTF-8": b"\xff\xfe{}",
    "a list": b"[]",
    "null": b"null",
    "no runs": b'{"now_s": 1, "collector": "b"}',
    "runs is text": listing(runs="all"),
    "runs is an object": listing(runs={"run_id": "x"}),
    "a run is a text": listing("x"),
    "a run is null": listing(None),
    "a run without a name": listing({"is_live": True}),
    "a name that is a list": listing(entry("x", run_id=["x"])),
    "live is a text": listing(entry("x", is_live="yes")),
    "an unknown tone": listing(entry("x", tone="purple")),
    "a tone that is an object": listing(entry("x", tone={})),
    "a slowdown that is a text": listing(entry("x", slowdown="2")),
    "received at NaN": listing(entry("x", received_at_s=float("nan"))),
    "received at infinity": listing(entry("x", received_at_s=float("inf"))),
    "received at 1e400": listing(entry("x")).replace(b"1800000000.0, \"fin", b"1e400, \"fin"),
    "received at 400 digits": listing(entry("x", received_at_s=int(DIGITS))),
    "received before 1970": listing(entry("x", received_at_s=-1)),
    "5,000 digits": listing(entry("x")).replace(b'"alerts": 1', b'"alerts": ' + b"9" * 5_000),
    "now of 400 digits": listing(now_s=int(DIGITS)),
    "now is a text": listing(now_s="now"),
    "now is missing": listing(now_s=None),
    "nested 100,000 deep": b'{"runs": ' + b"[" * 100_000,
    "nested 500 deep": b'{"runs": [], "now_s": 1, "x": ' + b"[" * 500 + b"]" * 500 + b"}",
    "too many runs": listing(runs=[None] * (MAX_RUNS + 1)),
    "too large": b" " * MAX_BYTES,
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_LISTS)
def test_one_bad_shard_hides_neither_the_next_one_nor_the_list(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Which one gave nothing, and why, is a problem of the list and one line of the log."""
    shards = shards_with(BAD_LISTS[what])
    for _ in range(2):
        shown = shards.shown()
        assert {run["run_id"] for run in shown["runs"]} == {"own", "healthy"}
        [problem] = shown["problems"]
        assert problem.startswith("the shard http://b does not answer (")
        assert len(problem) < 400
        assert problem.isprintable()
    [line] = [message for message in caplog.messages if "http://b" in message]
    assert line.isprintable()
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("status", [301, 302, 307, 308, 401, 403, 404, 429, 500, 503])
def test_what_is_no_success_is_no_list(status: int) -> None:
    shown = shards_with(listing(entry("x")), status).shown()
    assert f"(HTTP {status})" in shown["problems"][0]
    assert {run["run_id"] for run in shown["runs"]} == {"own", "healthy"}


def test_a_client_that_fails_in_any_way_is_a_problem_of_its_shard() -> None:
    def fails(_: str) -> Response:
        raise KeyError("scheme")

    assert "'scheme'" in Shards(fails).shown()["problems"][0]


def test_a_reader_of_one_tenant_learns_that_a_list_is_missing_and_not_where() -> None:
    [problem] = shards_with(b"").shown("team-a/")["problems"]
    assert problem.startswith("1 of 2 shards gave no list of runs")
    assert "http" not in problem


def test_what_a_shard_adds_to_a_run_is_not_passed_on() -> None:
    """Names and texts are cleaned, unknown fields are left out, and a time to come is now."""
    rogue = entry(
        "x\x1b[31m\r\nforged: line", headline="<!channel> a\nb", received_at_s=NOW_S + 1e9,
        url="http://elsewhere", page_url="javascript:1", script="x", job="\u202ej",
    )  # fmt: skip
    [shown] = [r for r in shards_with(listing(rogue)).shown()["runs"] if r["collector"] == "b"]
    assert shown["run_id"].isprintable()
    assert shown["headline"].isprintable()
    assert "<!" not in shown["headline"]
    assert shown["job"] == "\N{REPLACEMENT CHARACTER}j"
    assert shown["received_at_s"] == NOW_S
    assert (shown["url"], shown["page_url"]) == ("http://b", "http://b")
    assert shown.keys() == entry("x").keys() | {"collector", "url", "page_url"}


def test_a_slow_shard_is_not_waited_for_and_not_asked_twice() -> None:
    """The next one is asked in the same round; what comes late counts from then on."""
    released = threading.Event()
    asked: list[str] = []

    def slow(url: str) -> Response:
        asked.append(url)
        assert released.wait(60.0)
        return Response(200, body=listing(entry("late")))

    shards = Shards(slow)
    for _ in range(2):
        assert {run["run_id"] for run in shards.shown()["runs"]} == {"own", "healthy"}
    assert len(asked) == 1
    released.set()
    poll = shards.peers.peers[0].poll
    assert poll is not None
    poll.result(60.0)
    assert {run["run_id"] for run in shards.shown()["runs"]} == {"own", "healthy", "late"}
    shards.peers.stop(0.0)


# --- single runs ----------------------------------------------------------------------------------

BAD_ANSWERS = {
    "another run": b'{"run_id": "team-b/secret"}',
    "another run, in the view": b'{"run": {"run_id": "other"}, "run_id": "x"}',
    "no run": b"{}",
    "a run that is a list": b'{"run_id": ["x"]}',
    "no JSON": b"{",
    "a list": b"[]",
    "NaN": b'{"run_id": "x", "a": NaN}',
    "1e400": b'{"run_id": "x", "a": 1e400}',
    "400 digits": b'{"run_id": "x", "a": ' + DIGITS.encode() + b"}",
    "deep": b'{"run_id": "x", "a": ' + b"[" * 900 + b"]" * 900 + b"}",
    "very deep": b"[" * 1_000_000,
    "too large": b" " * MAX_BYTES,
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_ANSWERS)
def test_what_is_no_answer_about_the_run_is_not_shown(what: str) -> None:
    """In particular no run of another tenant under the name of one's own."""
    shards = shards_with(BAD_ANSWERS[what])
    with pytest.raises(UnavailableError, match="an answer of the shard that has it"):
        shards.peers.fetch(shards.peers.peers[0], "/v1/run", {"run": "x"})


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"error": 1}', b'{"error": "a\\nb\\u001b[31m"}', b"[" * 100_000]
)
def test_what_a_shard_says_of_a_run_that_it_has_not_is_one_line(body: bytes) -> None:
    shards = shards_with(body, 404)
    with pytest.raises(UnknownOnPeerError) as unknown:
        shards.peers.fetch(shards.peers.peers[0], "/v1/run", {"run": "x"})
    assert str(unknown.value).isprintable()


def test_pages_that_wait_for_a_slow_shard_leave_threads_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two wait; who comes next is told so."""
    monkeypatch.setattr("otel_straggler.collector.api.peers._ROOM_S", 0.0)
    released, both = threading.Event(), threading.Barrier(3)

    def slow(_: str) -> Response:
        both.wait(60.0)
        released.wait(60.0)
        return Response(200, body=b'{"run_id": "x"}')

    shards = Shards(slow)
    peer = shards.peers.peers[0]
    results: list[Json] = []

    def fetch() -> None:
        results.append(shards.peers.fetch(peer, "/v1/run", {"run": "x"}))

    threads = [threading.Thread(target=fetch) for _ in range(2)]
    for thread in threads:
        thread.start()
    both.wait(60.0)
    with pytest.raises(UnavailableError, match="no answer yet to others"):
        fetch()
    released.set()
    for thread in threads:
        thread.join(60.0)
    assert len(results) == 2


# --- alerts that are taken over -------------------------------------------------------------------


def alert_of(run_id: str, name: str = "StragglerRankStraggling", **changes: Any) -> Json:
    labels = {"alertname": name, "run_id": run_id, "collector": "b"}
    return {"labels": labels, "annotations": {"summary": "s"}, "since_ns": 5 * 10**9} | changes


BAD_ALERTS = {
    "another run": [alert_of("other")],
    "an alert that nobody knows": [alert_of("r", "Pay1000")],
    "400 digits": [alert_of("r", since_ns=int(DIGITS))],
    "before 1970": [alert_of("r", since_ns=-1)],
    "no time": [alert_of("r", since_ns=None)],
    "labels are a list": [alert_of("r", labels=[])],
    "labels are missing": [{"since_ns": 1}],
    "a label is a number": [alert_of("r", labels={"run_id": 3})],
    "a label that is no name": [alert_of("r", annotations={"a b": "c"})],
    "too many labels": [alert_of("r", annotations={f"a{n}": "" for n in range(1_000)})],
    "a text": ["alert"],
    "an object": {"a": alert_of("r")},
    "too many": [alert_of("r")] * (MAX_ALERTS + 1),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_ALERTS)
def test_alerts_that_are_none_are_not_taken_over(what: str) -> None:
    """And the round goes on: the runs of the next shard are there, others have moved."""
    report = json.dumps({"runs": {"r": {"alerts": BAD_ALERTS[what]}}}).encode()

    def answer(url: str) -> Response:
        is_report = "/v1/report" in url
        return Response(200, body=report if is_report else listing(entry("r", alerts=1)))

    shards = Shards(answer)
    shards.ages = {"r": 0.0}
    shards.peers.peers[0].now_s = NOW_S
    old = listing(entry("r", received_at_s=NOW_S - 4.0))
    shards.answer = lambda url: answer(url) if "/v1/report" in url else Response(200, body=old)
    assert {run["run_id"] for run in shards.shown()["runs"]} == {"own", "healthy", "r"}
    assert shards.taken == []


def test_a_shard_that_does_not_give_its_alerts_is_asked_once_in_a_round() -> None:
    """However many runs it says it has: each may take seconds."""
    names = [f"r{n}" for n in range(50)]
    asked: list[str] = []

    def answer(url: str) -> Response:
        asked.append(url)
        old = [entry(name, received_at_s=NOW_S - 4.0) for name in names]
        return Response(500) if "/v1/report" in url else Response(200, body=listing(*old))

    shards = Shards(answer)
    shards.ages = dict.fromkeys(names, 0.0)
    shards.peers.tick()
    assert len([url for url in asked if "/v1/report" in url]) == 1


# --- over the network -----------------------------------------------------------------------------


@dataclass
class Elsewhere:
    """A server to which a shard would like our token to go."""

    requests: list[dict[str, str]] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    seen = Elsewhere()
    with served(lambda handler: seen.requests.append(dict(handler.headers))) as url:
        seen.url = url
        yield seen


class served:  # noqa: N801 - reads as a function
    """An HTTP server of one handler."""

    def __init__(self, handle: Callable[[BaseHTTPRequestHandler], None]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                handle(self)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(
    status: int, elsewhere: Elsewhere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our token goes to the address that is configured and to no other."""
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    monkeypatch.setenv(TOKEN_VARIABLE, str(token))
    given: list[str] = []

    def redirect(handler: BaseHTTPRequestHandler) -> None:
        given.append(handler.headers.get("Authorization", ""))
        handler.send_response(status)
        handler.send_header("Location", f"{elsewhere.url}/v1/runs")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with served(redirect) as url:
        peers = Peers([url])
        peers.tick()
        assert f"(HTTP {status})" in peers.problems()[0]
        with pytest.raises(UnavailableError):
            peers.fetch(peers.peers[0], "/v1/run", {"run": "x"})
        peers.stop(0.0)
    assert given == ["Bearer 0123456789abcdef"] * 2
    assert elsewhere.requests == []


@pytest.mark.parametrize("what", ["says nothing", "never ends", "closes", "a head without an end"])
def test_a_server_that_is_no_shard_ends_in_a_sentence(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within its time."""
    monkeypatch.setattr("otel_straggler.collector.api.peers._TIMEOUT_S", 0.5)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        thread = threading.Thread(target=_misbehave, args=(server, what), daemon=True)
        thread.start()
        peers = Peers([f"http://127.0.0.1:{server.getsockname()[1]}"])
        peers.tick()
        assert len(peers.problems()) == 1
        peers.stop(0.0)
    thread.join(60.0)


def _misbehave(server: socket.socket, what: str) -> None:
    connection = server.accept()[0]
    with closing(connection):
        connection.recv(65_536)
        if what == "closes":
            return
        begin = b"HTTP/1.1 200 OK\r\n" + b"Transfer-Encoding: chunked\r\n\r\n" * (
            what == "never ends"
        )
        piece = {"never ends": b"1\r\n[\r\n", "a head without an end": b"X: y\r\n"}.get(what, b"")
        try:
            if piece:
                connection.sendall(begin)
            while True:
                connection.sendall(piece)
                if not connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK):
                    return
        except BlockingIOError:
            _keep_on(connection, piece)
        except OSError:
            return


def _keep_on(connection: socket.socket, piece: bytes) -> None:
    while True:
        time.sleep(0.02)
        try:
            connection.sendall(piece)
            if not piece and not connection.recv(1):
                return
        except OSError:
            return


# --- damage ---------------------------------------------------------------------------------------

WHOLE = [
    listing(entry("x"), entry("y", tone="bad", world_size=None)),
    json.dumps({"runs": {"r": {"alerts": [alert_of("r")]}}}).encode(),
    json.dumps(
        {"run_id": "r", "ranks": {"rank": [0, 1]}, "slowdowns": {"overall": [1.0]}}
    ).encode(),
]


@given(body=damaged(WHOLE))
@example(body=WHOLE[0])
def test_a_damaged_answer_never_costs_more_than_itself(body: bytes) -> None:
    """The list is there, the next shard is in it, a run of one's own stays; whatever is asked."""
    logging.disable(logging.WARNING)
    try:
        shards = shards_with(body)
        shards.ages = {"r": 0.0, "own": 0.0}
        shown = shards.shown()
        assert {"own", "healthy"} <= {run["run_id"] for run in shown["runs"]}
        assert shards.evicted == []
        with contextlib.suppress(UnavailableError, UnknownOnPeerError):
            Answer(shards.peers.fetch(shards.peers.peers[0], "/v1/run", {"run": "r"}))
        shards.peers.stop(0.0)
    finally:
        logging.disable(logging.NOTSET)
