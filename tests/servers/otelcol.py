"""A real OpenTelemetry Collector, where one is next to the project (or named by OTELCOL)."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

_READY_S = 30.0


def otelcol_program() -> Path:
    """The program; skips the test if there is none."""
    here = Path(__file__).resolve()
    places = [up / "shared/tools/otelcol/otelcol" for up in here.parents]
    if named := os.environ.get("OTELCOL"):
        places = [Path(named)]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        pytest.skip(
            "no OpenTelemetry Collector (OTELCOL, ../shared/tools/otelcol/otelcol): it would show "
            "that a stock one in between changes no score"
        )
    return found


def free_address() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


class OtelCollector:
    """One that listens for OTLP/HTTP at ``address``.

    Args:
        settings: ``a::b=value`` over the file's.
    """

    def __init__(self, config: Path, address: str, settings: Sequence[str] = ()) -> None:
        self.address = address
        self.log = config.with_suffix(".log")
        options = [
            f"--set={each}" for each in ("service::telemetry::metrics::level=none", *settings)
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(otelcol_program()), "--config", str(config), *options],
                stdout=log,
                stderr=log,
            )
        self._wait_until_ready()

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def _wait_until_ready(self) -> None:
        host, _, port = self.address.rpartition(":")
        until_s = time.monotonic() + _READY_S
        while time.monotonic() < until_s and self._process.poll() is None:
            try:
                socket.create_connection((host, int(port)), 1.0).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        self.kill()
        pytest.fail(f"otelcol did not start: {self.log.read_text()[-3000:]}")

    def kill(self) -> None:
        """As ``kill -9``."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it in order: what it holds is sent, or stays in its queue."""
        self._process.terminate()
        try:
            self._process.wait(15.0)
        except subprocess.TimeoutExpired:
            self.kill()


@contextmanager
def running_otelcol(
    config: Path, address: str, settings: Sequence[str] = ()
) -> Iterator[OtelCollector]:
    server = OtelCollector(config, address, settings)
    try:
        yield server
    finally:
        server.close()
