"""A real Alertmanager on a free port, for tests; and a receiver that it, or we, can send to."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.demo.processes import find_alertmanager, free_address

from ..waiting import eventually


def alertmanager_program() -> str:
    """Skips without one; under CI that is a failure."""
    result = find_alertmanager()
    if result is None:
        sentence = "no Alertmanager is installed (make servers): the real server was not tried"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    return result


class Alertmanager:
    """One that runs."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)

    def post(self, path: str, body: Any) -> None:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=10):
            pass

    def alerts(self, name: str = "") -> list[dict[str, Any]]:
        """Those that fire."""
        result: list[dict[str, Any]] = self.ask("/api/v2/alerts")
        return [each for each in result if name in ("", each["labels"]["alertname"])]


@contextlib.contextmanager
def running_alertmanager(
    folder: Path, config: dict[str, Any] | None = None, *, prefix: str = "", web: Any = None
) -> Iterator[Alertmanager]:
    """An Alertmanager with this configuration; by default one that tells nobody.

    Args:
        folder: for its files.
        config: as in alertmanager.yml.
        prefix: of the path of all its pages.
        web: its web configuration: TLS and users.
    """
    folder.mkdir(parents=True, exist_ok=True)
    reported = config or {"route": {"receiver": "nobody"}, "receivers": [{"name": "nobody"}]}
    (folder / "alertmanager.yml").write_text(json.dumps(reported))
    address = free_address()
    command = [
        alertmanager_program(),
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
        f"--web.route-prefix=/{prefix.strip('/')}",
    ]
    if web is not None:
        (folder / "web.yml").write_text(json.dumps(web))
        command.append(f"--web.config.file={folder / 'web.yml'}")
    scheme = "https" if web and "tls_server_config" in web else "http"
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    with process:
        try:
            wait_for_port(address, process)
            yield Alertmanager(f"{scheme}://{address}{prefix}")
        finally:
            process.terminate()


def wait_for_port(address: str, process: subprocess.Popen[bytes]) -> None:
    host, _, port = address.rpartition(":")

    def is_open() -> bool:
        assert process.poll() is None, "it has ended"
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            return False
        return True

    eventually(is_open)
