"""Rotel, a collector in Rust (Apache-2.0; ``pip install rotel``), where it is installed."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

LONGEST_START_S = 10.0
PROGRAM = "rotel-agent"


def find() -> Path | None:
    """Its program: named by ``ROTEL_AGENT``, on the path, or in the installed package."""
    if named := os.environ.get("ROTEL_AGENT") or shutil.which(PROGRAM):
        return Path(named)
    package = importlib.util.find_spec("rotel")
    if package is None or package.origin is None:
        return None
    program = Path(package.origin).with_name(PROGRAM)
    return program if program.exists() else None


def version(program: Path) -> str:
    """What it says of itself."""
    done = subprocess.run(
        [program, "--version"], capture_output=True, text=True, env=_environment(), check=False
    )
    return done.stdout.strip() or f"it does not start: {done.stderr.strip()}"


@contextlib.contextmanager
def serving(program: Path, forward_to: str | None) -> Iterator[tuple[dict[str, str], int]]:
    """Its addresses by protocol, and its process id.

    Args:
        program: see :func:`find`.
        forward_to: host:port that gets the traces over HTTP; None throws them away.

    Raises:
        RuntimeError: it did not listen in time.
    """
    addresses = {protocol: f"127.0.0.1:{_free_port()}" for protocol in ("http", "grpc")}
    exporter = ["--exporter", "blackhole"]
    if forward_to is not None:
        exporter = ["--exporter", "otlp", "--otlp-exporter-protocol", "http"]
        exporter += ["--otlp-exporter-endpoint", f"http://{forward_to}"]
        exporter += ["--otlp-exporter-compression", "none"]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rotel-"))
        command = [str(program), "start", "--pid-file", f"{folder}/pid", *exporter]
        for protocol, address in addresses.items():
            command += [f"--otlp-{protocol}-endpoint", address]
        log = stack.enter_context(Path(folder, "log").open("w+"))
        with subprocess.Popen(command, stdout=log, stderr=log, env=_environment()) as agent:
            try:
                for address in addresses.values():
                    _wait_until_listening(address, agent, Path(log.name))
                yield addresses, agent.pid
            finally:
                agent.terminate()


def _environment() -> dict[str, str]:
    """It links Python's library, which may lie where only this Python searches."""
    own = str(Path(sys.base_prefix, "lib"))
    paths = [own, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(paths)}


def _free_port() -> int:
    """It cannot choose one itself and report it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_listening(address: str, agent: subprocess.Popen[bytes], log: Path) -> None:
    host, _, port = address.rpartition(":")
    ends_at = time.monotonic() + LONGEST_START_S
    while time.monotonic() < ends_at and agent.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port))):
            return
        time.sleep(0.05)
    raise RuntimeError(f"rotel does not listen on {address}; it said: {log.read_text()}")
