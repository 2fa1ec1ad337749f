"""A stock OpenTelemetry Collector sends with a token over TLS, by gRPC and HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..servers.otelcol import OtelCollector, free_address
from .authorities import Authority, write_grants

TOKEN = "gateway-0123456789abcdef"


def test_a_gateway_with_a_token_sends_its_runs_and_no_others(
    start: Any, kit: Any, tmp_path: Path
) -> None:
    """Spans by gRPC, heartbeats by HTTP; a run beyond its grant is refused for good."""
    authority = Authority(tmp_path)
    grants = write_grants(tmp_path, f"ingest gateway token:{TOKEN} runs=mine/")
    live = start(auth__grant_files=(grants,), **authority.settings())
    address = free_address()
    common = {
        "headers": {"authorization": f"Bearer {TOKEN}"},
        "tls": {"ca_file": authority.ca_file},
        "sending_queue": {"enabled": False},
    }
    http, grpc = (live.addresses[name] for name in ("otlp_http", "otlp_grpc"))
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": address}}}},
        "exporters": {
            "otlp_grpc": {"endpoint": grpc, **common},
            "otlp_http": {"endpoint": f"https://{http}", **common},
        },
        "service": {
            "pipelines": {
                "traces": {"receivers": ["otlp"], "exporters": ["otlp_grpc"]},
                "metrics": {"receivers": ["otlp"], "exporters": ["otlp_http"]},
            }
        },
    }
    file = tmp_path / "otelcol.yaml"
    file.write_text(json.dumps(config), encoding="utf-8")
    gateway = OtelCollector(file, address)
    protobuf = {"Content-Type": "application/x-protobuf"}

    def send(run_id: str, signal: str) -> int:
        who = kit.rank(0, 1, run_id=run_id)
        body = kit.spans_of(who, range(8)) if signal == "traces" else kit.beat_of(who, step=1)
        status: int = kit.ask(address, "POST", f"/v1/{signal}", body, protobuf).status
        return status

    try:
        for signal in ("traces", "metrics"):
            assert send("mine/1", signal) == 200
            assert send("other/1", signal) >= 400
    finally:
        gateway.kill()
    assert kit.eventually(lambda: list(live.collector._worker.snapshot.runs)) == ["mine/1"]
