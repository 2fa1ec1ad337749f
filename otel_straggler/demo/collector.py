"""A collector in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading

from otel_straggler.errors import UnavailableError

_READY_WITHIN_S = 60
_POLITE_S = 10


class Collector:
    """``otel-straggler collector`` on this machine.

    Args:
        flags: of the command.
        addresses: HOST:PORT by the names below; free ports by default.

    Attributes:
        addresses: its ready line: "otlp_http", "otlp_grpc", "metrics".

    Raises:
        UnavailableError: it does not start; the message has the end of what it printed.
    """

    def __init__(self, *flags: str, addresses: dict[str, str] | None = None) -> None:
        where = addresses or dict.fromkeys(("otlp_http", "otlp_grpc", "metrics"), "127.0.0.1:0")
        ports = [word for name, at in where.items() for word in (f"--{_dashed(name)}", at)]
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
        """Of the reports."""
        return f"http://{self.addresses['metrics']}"

    def kill(self) -> None:
        """As the kernel does when memory runs out."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """End it, if it has not ended."""
        end(self._process)
        self._output.close()
        self._errors.close()

    def _read_ready_line(self) -> dict[str, str]:
        alarm = threading.Timer(_READY_WITHIN_S, self._process.kill)
        alarm.start()
        line = self._output.readline()
        alarm.cancel()
        if not line:
            exit_code = self._process.wait()
            self._errors.seek(0)
            told = self._errors.read().decode(errors="replace")[-2000:]
            self.close()
            raise UnavailableError(f"the collector did not start (exit code {exit_code})\n{told}")
        addresses: dict[str, str] = json.loads(line)
        return addresses


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end; after a while make it. It leads its own session, so its children go too."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_POLITE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _dashed(name: str) -> str:
    return name.replace("_", "-")
