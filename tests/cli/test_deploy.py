"""`otel-straggler deploy otelcol`: files that a real OpenTelemetry Collector accepts."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from otel_straggler.cli import main
from otel_straggler.cli.otelcol_files import Fleet, gateway, shard_of_run, shard_of_slot

from ..servers.certificate import make_certificate
from ..servers.otelcol import otelcol_program


@pytest.mark.parametrize("shards", [1, 3, 64])
def test_the_real_collector_accepts_both_files(shards: int, tmp_path: Path) -> None:
    program = str(otelcol_program())
    arguments = ["--shards", str(shards), "-o", str(tmp_path), "--otelcol", program]
    assert main(["deploy", "otelcol", *arguments]) == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["agent.yaml", "gateway.yaml"]
    exporters = yaml.safe_load((tmp_path / "gateway.yaml").read_text())["exporters"]
    assert exporters["otlp_http/shard0"]["endpoint"] == "http://straggler-0:4318"
    assert len(exporters) == shards


def test_the_real_collector_accepts_tokens_and_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From agents to the gateway, and from there to the shards."""
    program = str(otelcol_program())
    for name in ("SHARD_TOKEN", "GATEWAY_TOKEN"):
        monkeypatch.setenv(name, "a-token-of-the-test")
    ca, urls = tmp_path / "ca.pem", ("https://shard-{n}:4318", "https://gateway:4317")
    make_certificate(tmp_path, days=1, untried="TLS of a gateway")
    ca.write_bytes((tmp_path / "cert.pem").read_bytes())
    arguments = ["--shards", "2", "-o", str(tmp_path / "out"), "--otelcol", program]
    arguments += ["--shard-url", urls[0], "--gateway-url", urls[1]]
    arguments += ["--shard-token-env", "SHARD_TOKEN", "--gateway-token-env", "GATEWAY_TOKEN"]
    arguments += ["--shard-ca-file", str(ca), "--gateway-ca-file", str(ca)]
    arguments += ["--gateway-cert-file", str(ca), "--gateway-key-file", str(tmp_path / "key.pem")]
    assert main(["deploy", "otelcol", *arguments]) == 0
    agent, gateway = (
        (tmp_path / "out" / name).read_text() for name in ("agent.yaml", "gateway.yaml")
    )
    assert "# Environment: GATEWAY_TOKEN, with a bearer token." in agent
    assert "# Environment: GATEWAY_TOKEN, SHARD_TOKEN, with a bearer token." in gateway
    assert "a-token-of-the-test" not in agent + gateway


def test_without_its_token_the_gateway_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It would let everybody in who sends an empty one."""
    monkeypatch.delenv("GATEWAY_TOKEN", raising=False)
    arguments = ["--shards", "1", "-o", str(tmp_path), "--otelcol", str(otelcol_program())]
    assert main(["deploy", "otelcol", *arguments, "--gateway-token-env", "GATEWAY_TOKEN"]) == 2
    assert "no bearer token" in capsys.readouterr().err


def test_a_file_that_the_collector_refuses_is_an_error_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refuses = tmp_path / "otelcol"
    refuses.write_text("#!/bin/sh\necho unknown component filter >&2\nexit 1\n")
    refuses.chmod(0o755)
    out = str(tmp_path / "out")
    assert main(["deploy", "otelcol", "--shards", "2", "-o", out, "--otelcol", str(refuses)]) == 2
    assert "unknown component filter" in capsys.readouterr().err


@pytest.mark.parametrize("shards", range(1, 65))
def test_runs_are_spread_evenly_over_any_number_of_shards(shards: int) -> None:
    slots = Counter(shard_of_slot(shards))
    assert len(slots) == shards
    assert max(slots.values()) - min(slots.values()) <= 1


@pytest.mark.parametrize("shards", [1, 2, 3, 15, 63])
def test_one_more_shard_moves_no_more_runs_than_it_gets(shards: int) -> None:
    before, after = shard_of_slot(shards), shard_of_slot(shards + 1)
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {shards}
    assert len(moved) == after.count(shards)


def test_every_run_matches_the_pattern_of_its_shard() -> None:
    """The patterns of the file say the same as ``shard_of_run``."""
    of_gateway = gateway(Fleet(shards=5))["processors"]["transform/shard"]
    chosen = [
        re.fullmatch(r'set\(.*, "(\d+)"\) where IsMatch\(.*, "(.*)"\)', statement)
        for statement in of_gateway["trace_statements"][0]["statements"]
    ]
    patterns = {int(match[1]): match[2] for match in chosen if match}
    assert sorted(patterns) == [1, 2, 3, 4]
    for run_id in (f"run-{n}" for n in range(200)):
        slot = hashlib.sha256(run_id.encode()).hexdigest()[:3]
        matching = [shard for shard, pattern in patterns.items() if re.search(pattern, slot)]
        assert (matching or [0]) == [shard_of_run(run_id, 5)]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--shards", "0"], "--shards: got 0; expected 1 to 64"),
        (["--shards", "65"], "--shards: got 65; expected 1 to 64"),
        (["--shards", "2", "--shard-url", "http://one:4318"], "--shard-url: got 'http://one:4318'"),
        (["--shards", "1", "--gateway-url", "one:4317"], "--gateway-url: got 'one:4317'"),
        (["--shards", "1", "--shard-token-env", "3f-9c"], "--shard-token-env: got '...'"),
        (["--shards", "1", "--shard-ca-file", "ca.pem"], "expected --shard-url with it"),
        (["--shards", "1", "--gateway-cert-file", "c"], "expected --gateway-key-file with it"),
    ],
)
def test_what_cannot_be_deployed_is_refused_with_the_value(
    arguments: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", "otelcol", "-o", str(tmp_path / "out"), *arguments]) == 2
    assert named in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
