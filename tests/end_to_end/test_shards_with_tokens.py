"""Agents, a gateway and a shard that ask each other for tokens, over TLS."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_straggler.cli import main
from otel_straggler.collector.access.settings import AuthSettings, TlsSettings
from otel_straggler.collector.settings import HistorySettings

from ..servers.certificate import make_certificate
from ..servers.otelcol import OtelCollector, free_address, otelcol_program
from ..waiting import eventually
from .fleet import Shard, send_run

SPANS = 800  # eight ranks, twenty steps, five sections
SHARD, GATEWAY = "token-of-the-shards-0123", "token-of-the-gateway-0123"


class Chain:
    """An agent, a gateway, and a shard, which counts the spans that it takes."""

    def __init__(self, folder: Path, tokens: dict[str, str], monkeypatch: Any) -> None:
        self.folder, self._stack = folder, ExitStack()
        for name, token in tokens.items():
            monkeypatch.setenv(name, token)
        certificate = make_certificate(folder, days=1, untried="TLS between collectors")
        (folder / "grants").write_text(f"ingest gateway token:{SHARD}\n")
        (folder / "grants").chmod(0o600)
        self.shard = Shard(
            auth=AuthSettings(grant_files=(str(folder / "grants"),)),
            tls=TlsSettings(cert_file=str(certificate / "both.pem")),
            history=HistorySettings(),
        )
        self._stack.callback(self.shard.close)
        port = self.shard.addresses["otlp_http"].rpartition(":")[2]
        ca, key = str(certificate / "cert.pem"), str(certificate / "key.pem")
        arguments = [
            *("--shards", "1", "-o", str(folder), "--otelcol", str(otelcol_program())),
            *("--shard-url", f"https://localhost:{port}", "--shard-ca-file", ca),
            *("--gateway-url", "https://localhost:4317"),
            *("--gateway-ca-file", ca, "--gateway-cert-file", ca, "--gateway-key-file", key),
            *("--shard-token-env", "SHARD_TOKEN", "--gateway-token-env", "GATEWAY_TOKEN"),
            *("--queue-dir", str(folder / "queue")),
        ]
        assert main(["deploy", "otelcol", *arguments]) == 0
        # Ports are chosen at the last moment: others who look for free ones could get them.
        self.gateway_http, grpc = free_address(), free_address()
        self.gateway = self._start("gateway", self.gateway_http, grpc)
        monkeypatch.setenv("GATEWAY_TOKEN", tokens.get("AGENTS_TOKEN", tokens["GATEWAY_TOKEN"]))
        self.agent_http, own_grpc = free_address(), free_address()
        to_gateway = f"exporters::otlp_grpc::endpoint=localhost:{grpc.rpartition(':')[2]}"
        self.agent = self._start("agent", self.agent_http, own_grpc, to_gateway)

    def _start(self, name: str, http: str, grpc: str, *more: str) -> OtelCollector:
        file = self.folder / f"{name}.yaml"
        document = yaml.safe_load(file.read_text())
        document["extensions"]["file_storage"]["directory"] = str(self.folder / f"{name}-queue")
        file.write_text(yaml.safe_dump(document))
        protocol = "receivers::otlp::protocols"
        settings = [
            f"{protocol}::http::endpoint={http}",
            f"{protocol}::grpc::endpoint={grpc}",
            *more,
        ]
        server = OtelCollector(file, http, settings)
        self._stack.callback(server.close)
        return server

    def send(self) -> str:
        """A run to the agent; its name. On a busy machine an agent now and then closes a connection
        before it answers: senders try again."""
        for run_id in ("run", "again", "once-more"):
            try:
                send_run(f"http://{self.agent_http}", run_id, steps=20)
            except AssertionError:
                continue
            return run_id
        pytest.fail("the agent takes nothing")

    def rows(self) -> int:
        """Executions of sections that the shard has scored."""
        return int(self.shard.collector._worker.counts().rows["scored"])

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Chain]]:
    with ExitStack() as stack:

        def start(**tokens: str) -> Chain:
            result = Chain(tmp_path, tokens, monkeypatch)
            stack.callback(result.close)
            return result

        yield start


def test_what_comes_with_the_right_tokens_is_scored(chain: Callable[..., Chain]) -> None:
    """Whole, and who sends to the gateway with another one is refused."""
    fleet = chain(SHARD_TOKEN=SHARD, GATEWAY_TOKEN=GATEWAY)
    run_id = fleet.send()
    eventually(lambda: run_id in fleet.shard.collector._worker.snapshot.runs)
    eventually(lambda: fleet.rows() >= SPANS)
    trust = ssl.create_default_context(cafile=str(fleet.folder / "cert.pem"))
    url = f"https://localhost:{fleet.gateway_http.rpartition(':')[2]}/v1/traces"
    headers = {"Content-Type": "application/x-protobuf", "Authorization": "Bearer another"}
    request = urllib.request.Request(url, b"", headers)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=10, context=trust)
    with refused.value as answer:
        assert answer.code == 401


@pytest.mark.parametrize(
    ("tokens", "log"),
    [
        ({"SHARD_TOKEN": "no-token-of-the-shards", "GATEWAY_TOKEN": GATEWAY}, "gateway"),
        ({"SHARD_TOKEN": SHARD, "GATEWAY_TOKEN": GATEWAY, "AGENTS_TOKEN": "another"}, "agent"),
    ],
)
def test_what_comes_with_a_wrong_token_is_refused(
    chain: Callable[..., Chain], tokens: dict[str, str], log: str
) -> None:
    """By the shard, or by the gateway; the log of who sent it says so."""
    fleet = chain(**tokens)
    fleet.send()
    text = {"gateway": "401", "agent": "Unauthenticated"}[log]
    file = getattr(fleet, log).log
    eventually(lambda: text in file.read_text())
    assert fleet.shard.collector._worker.snapshot.runs == {}
