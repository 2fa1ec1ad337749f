"""``otel-straggler maintenance``, against real collectors and a real Alertmanager."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from otel_straggler.cli.fitting_table import seconds_of
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import CollectorSettings, MetricsSettings, ReceiverSettings
from otel_straggler.errors import ConfigError

FREE = "127.0.0.1:0"
AWKWARD = 'n"1\\'
Begin = Callable[..., str]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Starts a collector; its --metrics URL."""
    running: list[Collector] = []

    def begin(*, decisions: bool = True) -> str:
        settings = CollectorSettings(
            receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
            metrics=MetricsSettings(listen=FREE, decisions=decisions),
        )
        running.append(Collector(settings))
        return f"http://{running[-1].start()['metrics']}"

    yield begin
    for collector in running:
        collector.stop()


@pytest.fixture
def add(call: Any) -> Any:
    def add(*collectors: str, node: str = "n1", length: str = "4h", more: Any = ()) -> Any:
        named = [part for url in collectors for part in ("--collector", url)]
        options = ["--node", node, "--for", length, "--reason", "a fan", *more]
        return call("maintenance", "add", *options, *named)

    return add


def listed(call: Any, *collectors: str) -> dict[str, Any]:
    named = [part for url in collectors for part in ("--collector", url)]
    code, output, _ = call("maintenance", "list", "--json", *named)
    assert code == 0
    result: dict[str, Any] = json.loads(output)["collectors"]
    return result


def test_a_node_is_put_under_maintenance_listed_and_taken_out(
    call: Any, begin: Begin, add: Any
) -> None:
    """At every collector that is named, under the name of who said so."""
    urls = [begin(), begin()]
    code, output, _ = add(*urls, more=["--by", "ada"])
    assert code == 0
    assert [line.split(" until ")[0] for line in output.splitlines()] == [
        "n1 is under maintenance"
    ] * 2
    for url in urls:
        [each] = listed(call, *urls)[url]
        assert (each["node"], each["reason"], each["by"]) == ("n1", "a fan", "ada")
        assert each["until_ns"] - each["at_ns"] == 4 * 3_600 * 10**9
    code, output, _ = call("maintenance", "list", "--collector", urls[0])
    assert code == 0
    assert output.splitlines()[0] == f"{urls[0]}:"
    assert output.splitlines()[1].startswith("  n1 until 20")
    assert output.splitlines()[1].endswith(" UTC, ada: a fan")
    code, output, _ = call("maintenance", "end", "--node", "n1", "--collector", urls[0])
    assert (code, output) == (0, f"n1 is no longer under maintenance at {urls[0]}\n")
    assert {url: len(nodes) for url, nodes in listed(call, *urls).items()} == {
        urls[0]: 0,
        urls[1]: 1,
    }
    assert call("maintenance", "end", "--node", "n1", "--collector", urls[0])[1] == (
        f"n1 was not under maintenance at {urls[0]}\n"
    )
    assert "no host is under maintenance" in call("maintenance", "list", "--collector", urls[0])[1]


def test_who_says_so_is_the_user_unless_told(call: Any, begin: Begin, add: Any) -> None:
    """And nobody, where that is asked for."""
    url = begin()
    add(url, more=["--by", ""])
    assert listed(call, url)[url][0]["by"] == ""


@pytest.mark.parametrize(
    ("length", "seconds"),
    [("30m", 1_800.0), ("4h", 14_400.0), ("2d", 172_800.0), ("90s", 90.0), (" 1.5h ", 5_400.0)],
)
def test_lengths_are_read_as_people_write_them(length: str, seconds: float) -> None:
    """A number and a unit."""
    assert seconds_of(length, "--for") == seconds


@pytest.mark.parametrize(
    "length", ["", "4", "h", "4y", "-4h", "0h", "4h30m", "1e3h", "٤h", "inf", "9" * 400 + "d"]
)
def test_other_lengths_are_refused_with_the_place(add: Any, length: str) -> None:
    """Before anybody is asked."""
    with pytest.raises(ConfigError):
        seconds_of(length, "--for")
    code, _, printed = add("http://127.0.0.1:1", length=length)
    assert code == 2
    assert printed.startswith(
        f"otel-straggler: error: --for: got {length!r}; expected a number and s"
    )
    assert "For example 8h" in printed


def test_what_a_collector_refuses_is_said_in_its_words(begin: Begin, add: Any, call: Any) -> None:
    """Too long, or not allowed there."""
    url, closed = begin(), begin(decisions=False)
    code, _, printed = add(url, length="31d")
    assert code == 2
    assert f"{url}/v1/maintenance: seconds: got 2678400.0; expected 1 to 2592000" in printed
    code, _, printed = add(closed)
    assert code == 2
    assert "HTTP 404" in printed
    assert "is metrics.decisions off?" in printed
    assert call("maintenance", "list", "--collector", closed)[0] == 2


def test_one_collector_that_is_away_does_not_keep_the_others_from_it(
    begin: Begin, add: Any, call: Any
) -> None:
    """It is named, and the exit code says that not all is done."""
    url = begin()
    code, output, printed = add("http://127.0.0.1:1", url, "http://127.0.0.1:2")
    assert code == 2
    assert output.startswith("n1 is under maintenance until")
    assert printed.count("otel-straggler: error: http://127.0.0.1:") == 2
    assert printed.count("Connection refused") == 2
    assert len(listed(call, url)[url]) == 1


@pytest.mark.parametrize(
    "url", ["127.0.0.1:1", "ftp://x", "http://[", "http://a b", "http://127.0.0.1:x"]
)
def test_what_is_no_url_is_refused(add: Any, url: str) -> None:
    """In one line."""
    code, _, printed = add(url)
    assert (code, len(printed.splitlines())) == (2, 1)
    assert url in printed


@pytest.fixture
def foreign() -> Iterator[str]:
    """Another program, which answers everything with JSON of its own."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"hello": [1]}' if "silences" not in self.path else b"<html>"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815 - http.server's name

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_another_program_is_told_from_a_collector(
    foreign: str, begin: Begin, add: Any, call: Any
) -> None:
    """And from an Alertmanager."""
    assert "JSON without until_ns" in add(foreign)[2]
    assert "JSON without maintenance" in call("maintenance", "list", "--collector", foreign)[2]
    code, output, printed = add(begin(), more=["--alertmanager", foreign])
    assert (code, "n1 is under maintenance" in output, "no JSON" in printed) == (2, True, True)


# --- Alertmanager ---------------------------------------------------------------------------------


@pytest.fixture
def alertmanager(tmp_path: Path) -> Iterator[str]:
    """A real one; its URL."""
    program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if program is None:
        sentence = "alertmanager is not installed (make servers): no real silence was made"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    config = tmp_path / "alertmanager.yml"
    config.write_text("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n")
    options = [f"--config.file={config}", f"--storage.path={tmp_path / 'data'}",
               f"--web.listen-address={address}", "--cluster.listen-address="]  # fmt: skip
    server = subprocess.Popen(
        [program, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    with server:
        try:
            _wait_for(f"http://{address}")
            yield f"http://{address}"
        finally:
            server.terminate()


def _wait_for(url: str) -> None:
    until = time.monotonic() + 30.0
    while True:
        try:
            silences(url)
        except OSError:
            assert time.monotonic() < until, f"{url} does not answer"
            time.sleep(0.05)
        else:
            return


def silences(url: str) -> list[dict[str, Any]]:
    """Those in force, in the words of Alertmanager."""
    with urllib.request.urlopen(f"{url}/api/v2/silences", timeout=10) as answer:
        result = json.load(answer)
    return [each for each in result if each["status"]["state"] == "active"]


def test_a_silence_is_made_and_ended_with_it(
    begin: Begin, add: Any, call: Any, alertmanager: str
) -> None:
    """Of exactly this node; a silence that somebody else has made stays."""
    url, more = begin(), ["--alertmanager", alertmanager, "--by", "ada"]
    code, output, _ = add(url, node=AWKWARD, more=more)
    [silence] = silences(alertmanager)
    assert code == 0
    assert f"silence {silence['id']} at {alertmanager}" in output
    assert silence["matchers"] == [
        {"name": "node", "value": AWKWARD, "isRegex": False, "isEqual": True}
    ]
    assert (silence["createdBy"], silence["comment"]) == (
        "ada",
        "otel-straggler maintenance: a fan",
    )
    _silence(alertmanager, silence, comment="mine")
    add(url, node="n2", more=more)
    code, output, _ = call("maintenance", "end", "--node", AWKWARD, "--collector", url, *more[:2])
    assert (code, output.splitlines()[1]) == (
        0,
        f"silences ended at {alertmanager}: {silence['id']}",
    )
    left = [(each["comment"], each["matchers"][0]["value"]) for each in silences(alertmanager)]
    assert sorted(left) == [("mine", AWKWARD), ("otel-straggler maintenance: a fan", "n2")]


def _silence(url: str, like: dict[str, Any], **changes: str) -> None:
    keys = ("matchers", "startsAt", "endsAt", "createdBy", "comment")
    body = json.dumps({**{key: like[key] for key in keys}, **changes}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/api/v2/silences", body, headers)
    with urllib.request.urlopen(request, timeout=10):
        pass


def test_an_alertmanager_that_is_away_is_named(begin: Begin, add: Any, call: Any) -> None:
    """The collector knows all the same."""
    url = begin()
    code, output, printed = add(url, more=["--alertmanager", "http://127.0.0.1:1"])
    assert (code, "n1 is under maintenance" in output) == (2, True)
    assert "http://127.0.0.1:1/api/v2/silences: got" in printed
    assert "expected an Alertmanager with its v2 API" in printed
    assert call("maintenance", "end", "--node", "n1", "--collector", url)[0] == 0
