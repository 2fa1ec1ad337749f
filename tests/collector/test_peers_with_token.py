"""Shards with grants ask each other with the token of OTEL_STRAGGLER_TOKEN_FILE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_straggler.otlp.clients.token import TOKEN_VARIABLE

from .authorities import TOKENS, bearer, write_grants


def test_a_shard_shows_the_runs_of_another_once_it_has_a_token(
    start: Any, kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without one the list says why they are missing."""
    grants = (write_grants(tmp_path),)
    first = start(auth__grant_files=grants)
    url = f"http://{first.addresses['metrics']}"
    second = start(auth__grant_files=grants, metrics__peers=(url,), metrics__collector_id="b")
    headers = {"Content-Type": "application/x-protobuf", **bearer(TOKENS["ingest"])}
    body = kit.spans_of(kit.rank(0, 1), range(8))
    sent = kit.ask(first.addresses["otlp_http"], "POST", "/v1/traces", body, headers)
    assert sent.status == 200

    def listed() -> Any:
        return second.get("/v1/runs", bearer(TOKENS["read"])).json()

    kit.eventually(lambda: any("401" in each for each in listed()["problems"]))
    token = tmp_path / "token"
    token.write_text(TOKENS["read"])
    monkeypatch.setenv(TOKEN_VARIABLE, str(token))
    kit.eventually(lambda: [each["run_id"] for each in listed()["runs"]] == ["run"])
