"""The OpenTelemetry Collector (Apache-2.0), where there is one: it receives, and throws away."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

LONGEST_START_S = 20.0
NEXT_TO_CHECKOUT = Path(__file__).parents[2].parent / "shared/tools/otelcol/otelcol"
_CONFIGURATION = """
receivers: {otlp: {protocols: {http: {endpoint: "%s"}}}}
exporters: {nop: {}}
service:
  telemetry: {metrics: {level: none}}
  pipelines: {traces: {receivers: [otlp], exporters: [nop]}}
"""


def find() -> Path | None:
    """Its program: named by ``OTELCOL``, on the path, or next to this checkout."""
    if named := os.environ.get("OTELCOL") or shutil.which("otelcol"):
        return Path(named)
    return NEXT_TO_CHECKOUT if NEXT_TO_CHECKOUT.exists() else None


def version(program: Path) -> str:
    """What it says of itself."""
    return subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()


@contextlib.contextmanager
def serving(program: Path) -> Iterator[tuple[str, int]]:
    """Where it takes OTLP/HTTP, and its process id.

    Raises:
        RuntimeError: it did not listen in time.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host, port = probe.getsockname()
    with tempfile.TemporaryDirectory(prefix="otelcol-") as folder:
        configuration = Path(folder, "config.yaml")
        configuration.write_text(_CONFIGURATION % f"{host}:{port}", encoding="utf-8")
        log = Path(folder, "log")
        command = [program, "--config", configuration]
        with log.open("w") as errors, subprocess.Popen(command, stderr=errors) as server:
            try:
                wait_until_listening(host, port, log)
                yield f"{host}:{port}", server.pid
            finally:
                server.terminate()


def wait_until_listening(host: str, port: int, log: Path) -> None:
    """Raises: RuntimeError: it does not, in time."""
    ends_at = time.monotonic() + LONGEST_START_S
    while time.monotonic() < ends_at:
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1.0):
            return
        time.sleep(0.05)
    raise RuntimeError(f"otelcol does not listen: {log.read_text()[-1000:]}")
