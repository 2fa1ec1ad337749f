"""Commands at a collector with grants: they send the token of OTEL_STRAGGLER_TOKEN_FILE."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.cli.exchange import exchange
from otel_straggler.collector.access.settings import AuthSettings
from otel_straggler.collector.service import Collector
from otel_straggler.collector.settings import CollectorSettings, MetricsSettings, ReceiverSettings
from otel_straggler.errors import ConfigError
from otel_straggler.otlp.clients.token import TOKEN_VARIABLE, token_headers, token_headers_or_none
from otel_straggler.secret import reveal

FREE = "127.0.0.1:0"
READ, OPERATE, INGEST = "read-0123456789abcdef", "operate-0123456789abcdef", "in-0123456789abcdef"


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: Any) -> Iterator[dict[str, str]]:
    """Of a collector with three grants."""
    file = tmp_path_factory.mktemp("grants") / "grants"
    file.write_text(f"read r token:{READ}\noperate o token:{OPERATE}\ningest i token:{INGEST}\n")
    settings = CollectorSettings(
        receivers=ReceiverSettings(otlp_http=FREE, otlp_grpc=FREE),
        metrics=MetricsSettings(listen=FREE),
        auth=AuthSettings(grant_files=(str(file),)),
    )
    collector = Collector(settings)
    yield {name: f"http://{address}" for name, address in collector.start().items()}
    collector.stop(4.0)


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Names a file with this token."""

    def use(token: str) -> None:
        file = tmp_path / "token"
        file.write_text(f"{token}\n")
        monkeypatch.setenv(TOKEN_VARIABLE, str(file))

    return use


ADD = ["maintenance", "add", "--node", "n", "--for", "1h", "--reason", "r"]


def test_commands_without_a_token_say_how_to_name_one(call: Any, addresses: Any) -> None:
    """Also with one of a role that is not enough."""
    for command in (["maintenance", "list"], ["report", "--json"], [*ADD]):
        code, _, error = call(*command, "--collector", addresses["metrics"])
        assert code != 0
        assert "HTTP 401" in error
        assert f"export {TOKEN_VARIABLE}=" in error


def test_commands_send_the_token_of_the_file(call: Any, addresses: Any, use: Any) -> None:
    """Who may read cannot change; who may operate can do both."""
    where = ["--collector", addresses["metrics"]]
    use(READ)
    assert call("maintenance", "list", "--json", *where)[0] == 0
    code, _, error = call(*ADD, *where)
    assert (code != 0, "HTTP 403" in error, TOKEN_VARIABLE in error) == (True, True, True)
    use(OPERATE)
    assert call(*ADD, *where)[0] == 0
    code, output, _ = call("maintenance", "list", "--json", *where)
    assert '"node":"n"' in output
    code, output, error = call("alerts", "test", *where)
    assert "notifies nobody" in output, error


def test_a_simulated_run_sends_the_headers_of_the_environment(
    call: Any, addresses: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a training process does."""
    simulate = ["simulate", "--ranks", "2", "--steps", "3", "--send", addresses["otlp_http"]]
    assert call(*simulate)[0] != 0
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"authorization=Bearer%20{INGEST}")
    code, _, error = call(*simulate)
    assert code == 0, error


def test_the_doctor_names_the_token_that_is_missing(call: Any, addresses: Any, use: Any) -> None:
    """And reads with it."""
    doctor = ["doctor", "--json", "--collector", addresses["metrics"]]
    _, output, _ = call(*doctor)
    findings = {each["id"]: each for each in json.loads(output)["findings"]}
    assert TOKEN_VARIABLE in findings["collector.reachable"]["remedy"]
    use(READ)
    _, output, _ = call(*doctor)
    findings = {each["id"]: each for each in json.loads(output)["findings"]}
    assert findings["collector.reachable"]["status"] == "ok"
    assert "collector.insecure" not in findings


def test_a_file_that_cannot_be_read_stops_a_command_and_no_training(tmp_path: Path) -> None:
    """The file is read each time."""
    env = {TOKEN_VARIABLE: str(tmp_path / "none")}
    with pytest.raises(ConfigError, match=TOKEN_VARIABLE):
        token_headers(env)
    assert token_headers({}) == {}
    assert token_headers_or_none() == {}
    (tmp_path / "none").write_text("abc\n")
    headers = token_headers(env)
    assert str(headers) == "{'Authorization': ***}"
    assert reveal(headers["Authorization"]) == "Bearer abc"


def test_a_redirect_to_another_server_gets_no_token() -> None:
    """What is secret is for the server that was named."""
    seen: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers.get("Authorization")))
            port = servers[1].server_port if self.path == "/a" else None
            self.send_response(307 if port else 200)
            if port:
                self.send_header("Location", f"http://127.0.0.1:{port}/b")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    servers = [ThreadingHTTPServer(("127.0.0.1", 0), Handler) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        url = f"http://127.0.0.1:{servers[0].server_port}/a"
        assert exchange(url, headers={"Authorization": "Bearer x"}).status == 200
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
    assert seen == [("/a", "Bearer x"), ("/b", None)]
