"""The Unix socket of a collector: who connects is asked of the kernel, and needs no token."""

from __future__ import annotations

import logging
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.cli import main
from otel_straggler.cli.exchange import base_url
from otel_straggler.collector.access.guard import Guard
from otel_straggler.collector.access.roles import NOBODY, Peer
from otel_straggler.collector.access.settings import AuthSettings
from otel_straggler.collector.ingest.http_server import bind_unix
from otel_straggler.errors import UnavailableError
from otel_straggler.otlp.clients.http import HttpClient

from .authorities import Authority, write_grants


def url_of(path: Path, target: str) -> str:
    return base_url(f"unix:{path}", "--collector", "") + target


def test_the_user_of_the_collector_is_admin_without_a_token(
    start: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    """Commands take unix:PATH; TLS and grants of the other addresses stay as they are."""
    caplog.set_level(logging.INFO, "otel_straggler.audit")
    path = tmp_path / "a.sock"
    live = start(
        metrics__socket=str(path),
        auth__grant_files=(write_grants(tmp_path),),
        **Authority(tmp_path).settings(),
    )
    assert live.addresses["metrics_socket"] == str(path)
    client = HttpClient(url_of(path, "/v1/runs"))
    assert client.get().status == client.get().status == 200
    client.close()
    add = ["maintenance", "add", "--node", "n", "--for", "1h", "--reason", "r"]
    assert main([*add, "--collector", f"unix:{path}"]) == 0
    capsys.readouterr()
    [line] = caplog.messages
    assert f'who="uid:{os.geteuid()}" role="admin" from="unix, uid {os.geteuid()}"' in line
    live.stop()
    assert not path.exists()


def test_another_user_needs_a_grant(tmp_path: Path) -> None:
    """Root may do everything; others what a line with uid:NUMBER says."""
    grants = write_grants(tmp_path, "read someone uid:4242")
    guard = Guard(AuthSettings(grant_files=(grants,)))
    assert guard.identify(Peer(uid=4242)).role == "read"
    assert guard.identify(Peer(uid=4243)) is NOBODY
    assert guard.identify(Peer(uid=None)) is NOBODY
    assert guard.identify(Peer(uid=0)).role == "admin"


def test_a_socket_that_nobody_serves_is_replaced_and_nothing_else(
    start: Any, tmp_path: Path
) -> None:
    """After a kill; a file, or the socket of a running program, stays."""
    path = tmp_path / "a.sock"
    bind_unix(str(path)).close()
    assert stat.S_ISSOCK(path.stat().st_mode)
    start(metrics__socket=str(path))
    with pytest.raises(UnavailableError, match=r"metrics\.socket"):
        start(metrics__socket=str(path))
    file = tmp_path / "file"
    file.write_text("content")
    with pytest.raises(UnavailableError, match=r"metrics\.socket"):
        start(metrics__socket=str(file))
    assert file.read_text() == "content"


def test_a_socket_without_a_server_is_no_answer(tmp_path: Path) -> None:
    """As a port where nobody listens."""
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
    response = HttpClient(url_of(path, "/")).get()
    assert (response.status, response.error) == (0, "Connection refused")
