"""A server in a process of its own, that answers on a port before it is used."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from otel_straggler.errors import UnavailableError, describe

READY_WITHIN_S = 60.0
_POLITE_S = 10.0


class Server:
    """Started and ready; :meth:`close` ends it.

    Args:
        command: with its flags.
        address: HOST:PORT that it listens on.
        log: file for all that it prints.

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
        """What it has printed, the end of it."""
        return self._log.read_text(errors="replace")[-4000:]

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """Ask it to end, and after a while make it. Safe to call twice."""
        self._process.terminate()
        try:
            self._process.wait(_POLITE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

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
        message = describe(
            where=program,
            value=f"exit code {self._process.poll()}",
            expected="an answer on /-/ready",
            remedy=f"Its log ends with:\n{self.log}",
        )
        raise UnavailableError(message)


def free_address() -> str:
    """HOST:PORT of a port of this machine that nobody listened on a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"
