"""A real PostgreSQL on a free port, for tests; the fixture ``database`` is in tests/conftest.py."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ..waiting import eventually
from .alertmanager import wait_for_port
from .otelcol import free_address

_SETTINGS = {
    "fsync": "off",
    "unix_socket_directories": "",
    "max_connections": "30",
    "shared_buffers": "16MB",
}
_DEBIAN = Path("/usr/lib/postgresql")
"""Where Debian's packages have the programs, by version, outside of PATH."""


def postgres_programs() -> Path:
    """The folder of the programs; skips without one; under CI that is a failure."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else [*_DEBIAN.glob("*/bin")]
    for folder in sorted(folders, reverse=True):
        if (folder / "initdb").is_file() and (folder / "postgres").is_file():
            return folder
    sentence = "no PostgreSQL is installed (make servers): a history in one was not tried"
    if os.environ.get("CI"):
        pytest.fail(sentence)
    pytest.skip(sentence)


def _user() -> dict[str, Any]:
    """PostgreSQL does not run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    pytest.skip("root, and no other user to run PostgreSQL: a history in one was not tried")


class Postgres:
    """A server of its own. ``stop`` and ``start`` at will; ``close`` removes all of it."""

    def __init__(self) -> None:
        self._programs = postgres_programs()
        pytest.importorskip("psycopg")
        self._user = _user()
        self._folder = Path(tempfile.mkdtemp(prefix="straggler-postgres-"))
        self._data = self._folder / "data"
        if self._user:
            os.chown(self._folder, self._user["user"], self._user["group"])
        options = ["-A", "trust", "-U", "straggler", "-E", "UTF8", "--locale=C", "--no-sync"]
        self._run("initdb", *options, "-D", str(self._data))
        self.address = free_address()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql://straggler@{self.address}/postgres"

    def start(self) -> None:
        host, _, port = self.address.rpartition(":")
        settings = {**_SETTINGS, "listen_addresses": host, "port": port}
        options = [f"--{name}={value}" for name, value in settings.items()]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._programs / "postgres"), "-D", str(self._data), *options],
                stdout=log, stderr=log, cwd=self._folder, **self._user,
            )  # fmt: skip
        wait_for_port(self.address, self._process)
        eventually(self._answers)  # not before it has read its log

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.OperationalError):
            self.ask("SELECT 1")
            return True
        return False

    def stop(self) -> None:
        """Clients lose their connections."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(30.0)
            self._process = None

    def clear(self) -> None:
        """Drop what a test has left."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )
            connection.execute("DROP SCHEMA IF EXISTS otel_straggler CASCADE")

    def ask(self, question: str, *values: object) -> list[Any]:
        """Rows of a statement; none of one that has none."""
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("SET search_path = otel_straggler")
            cursor = connection.execute(question, values)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder, **self._user)
