"""Servers of the demo in their own processes: a collector, an Alertmanager."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from otel_straggler.errors import UnavailableError

READY_WITHIN_S = 60.0
PROGRAMS = ("alertmanager", "prometheus-alertmanager")
"""Alertmanager's name, and the one that Debian gives it."""
_POLITE_S = 10
Json = dict[str, Any]


class Collector:
    """``otel-straggler collector`` on this machine.

    Args:
        flags: of the command.
        addresses: HOST:PORT by the names below; free ports by default.

    Attributes:
        addresses: its ready line: "otlp_http", "otlp_grpc", "metrics".

    Raises:
        UnavailableError: it does not start; with the end of its output.
    """

    def __init__(self, *flags: str, addresses: dict[str, str] | None = None) -> None:
        where = addresses or dict.fromkeys(("otlp_http", "otlp_grpc", "metrics"), "127.0.0.1:0")
        ports = [f"--{name.replace('_', '-')}={at}" for name, at in where.items()]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close())
        self._process = subprocess.Popen(  # noqa: S603  our own command
            [sys.executable, "-m", "otel_straggler.cli", "collector", *ports, *flags],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self.addresses = self._read_ready_line()

    @property
    def endpoint(self) -> str:
        return f"http://{self.addresses['otlp_http']}"

    @property
    def url(self) -> str:
        return f"http://{self.addresses['metrics']}"

    def kill(self) -> None:
        self._process.kill()
        self.close()

    def close(self) -> None:
        end(self._process)
        self._output.close()
        self._errors.close()

    def _read_ready_line(self) -> dict[str, str]:
        alarm = threading.Timer(READY_WITHIN_S, self._process.kill)
        alarm.start()
        line = self._output.readline()
        alarm.cancel()
        if not line:
            exit_code = self._process.wait()
            self._errors.seek(0)
            log = self._errors.read().decode(errors="replace")[-2000:]
            self.close()
            raise UnavailableError(f"the collector did not start (exit code {exit_code})\n{log}")
        addresses: dict[str, str] = json.loads(line)
        return addresses


class Server:
    """A server, started and ready; :meth:`close` ends it.

    Args:
        address: HOST:PORT that it listens on.
        log: file for its output.

    Raises:
        UnavailableError: it has ended, or does not answer on ``/-/ready``.
    """

    def __init__(self, command: Sequence[str], address: str, log: Path) -> None:
        self.url = f"http://{address}"
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(  # noqa: S603  what the caller has found on PATH
                command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            self._wait_until_ready(command[0])
        except BaseException:
            self.close()
            raise

    @property
    def log(self) -> str:
        """The end of its output."""
        return self._log.read_text(errors="replace")[-4000:]

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        end(self._process)

    def _wait_until_ready(self, program: str) -> None:
        ends_at_s = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < ends_at_s and self._process.poll() is None:
            with (
                contextlib.suppress(OSError),
                urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer,  # noqa: S310  ours
            ):
                if answer.status == 200:
                    return
            time.sleep(0.05)
        exit_code, remedy = self._process.poll(), f"Its log ends with:\n{self.log}"
        raise UnavailableError.of(
            program, f"exit code {exit_code}", "an answer on /-/ready", remedy
        )


def find_alertmanager() -> str | None:
    """Path of the program; None if none is on PATH."""
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None)


def start_alertmanager(program: str, config: Json, folder: Path) -> Server:
    """Start it, and wait until it is ready.

    Args:
        program: from :func:`find_alertmanager`.
        config: its configuration file; JSON is YAML too.
        folder: for its files; created if needed.

    Raises:
        StragglerError: it does not start; with the end of its log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "alertmanager.yml"
    file.write_text(json.dumps(config))
    address = free_address()
    flags = (
        f"--config.file={file}",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",  # alone: no gossip
    )
    return Server([program, *flags], address, folder / "log")


def config_of(url: str, *, wait_s: float) -> Json:
    """Everything goes to one webhook, grouped by run.

    Args:
        wait_s: before the first notification of a group; twice that before each further one.
    """
    return {
        "route": {
            "receiver": "webhook",
            "group_by": ["cluster", "run_id", "group"],
            "group_wait": f"{wait_s:g}s",
            "group_interval": f"{2 * wait_s:g}s",
            "repeat_interval": "4h",
        },
        "receivers": [
            {"name": "webhook", "webhook_configs": [{"url": url, "send_resolved": True}]}
        ],
    }


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate it, after a while kill it with its children: it leads its own session."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_POLITE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_address() -> str:
    """HOST:PORT of a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"
