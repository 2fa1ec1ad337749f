"""The agent as a process of its own: one for each job on a node, started again if it dies."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from otel_straggler.agent.config import FaultToleranceConfig
from otel_straggler.agent.monitoring import SOCKET_VARIABLES
from otel_straggler.client.diagnostics.processes import ProcessHandle
from otel_straggler.client.termination import PARENT_PID
from otel_straggler.errors import ConfigError, UnavailableError
from otel_straggler.regular_files import (
    FOLDER_MODE,
    FileLock,
    LockedError,
    create_folder,
    open_regular,
)
from otel_straggler.semconv import CHECKPOINT_REQUEST_FILE

SOCKET: Final = "agent.sock"
LOCK: Final = "agent.lock"
CONFIG: Final = "agent.json"
CHECKPOINT_REQUEST: Final = "checkpoint"
READY_S: Final = 30.0
STOP_S: Final = 5.0
RESTART_S: Final = 0.5
MAX_RESTART_S: Final = 30.0
"""Between two attempts to start it, while they fail."""
_MAX_PATH: Final = 107
_BACKLOG: Final = 256
_LOG = logging.getLogger("otel_straggler.agent")


@contextlib.contextmanager
def running_agent(
    config: FaultToleranceConfig, *, folder: Path | str, environment: Mapping[str, str]
) -> Iterator[dict[str, str]]:
    """Run the node's agent for one job; it is started again if it dies meanwhile.

    Args:
        folder: of this job on this node; created with mode 0700.
        environment: of the agent: where it sends reports and telemetry, the name of the run.

    Yields:
        Variables to set for the ranks.

    Raises:
        ConfigError: the folder is not this user's alone, or its path is too long for a socket.
        UnavailableError: another agent runs for this job, or this one does not start.
    """
    place = checked_folder(Path(folder))
    request = {
        CHECKPOINT_REQUEST_FILE: environment.get(CHECKPOINT_REQUEST_FILE)
        or str(place / CHECKPOINT_REQUEST)
    }
    keeper = _Keeper(config, place, {**environment, **request})
    keeper.start()
    try:
        yield {**dict.fromkeys(SOCKET_VARIABLES, str(place / SOCKET)), **request}
    finally:
        keeper.stop()


class _Keeper:
    """Starts the agent, again if it dies, and ends it."""

    def __init__(
        self, config: FaultToleranceConfig, folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._folder, self._environment = folder, dict(environment)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agent-keeper", daemon=True)
        file = open_regular(folder / CONFIG, os.O_WRONLY | os.O_CREAT)
        with os.fdopen(file, "w", encoding="utf-8") as out:
            out.truncate()
            json.dump({"fault_tolerance": config.as_values()}, out)
        self.process = self._started()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(STOP_S + READY_S)
        _end(self.process, STOP_S)

    def _run(self) -> None:
        wait_s = RESTART_S
        while not self._stopping.wait(wait_s):
            code = self.process.poll()
            if code is None:
                continue
            _LOG.warning("the agent has ended with code %d; it is started again", code)
            try:
                self.process = self._started()
                wait_s = RESTART_S
            except (UnavailableError, OSError) as error:
                wait_s = min(2 * wait_s, MAX_RESTART_S)
                _LOG.error("%s; trying again in %g s", error, wait_s)

    def _started(self) -> subprocess.Popen[bytes]:
        """Once it listens."""
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as ready, os.fdopen(writing, "wb") as theirs:
            process = subprocess.Popen(  # noqa: S603  ourselves
                [
                    *(sys.executable, "-m", "otel_straggler.agent", "--folder", self._folder),
                    *("--ready-fd", str(theirs.fileno())),
                ],
                env={**self._environment, PARENT_PID: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C ends the ranks first
            )
            theirs.close()
            is_ready, _, _ = select.select([ready], [], [], READY_S)
            answer = ready.readline().decode("utf-8", "replace").strip() if is_ready else ""
        if answer == "ready":
            return process
        _end(process, 0.0)
        raise UnavailableError(answer or f"{self._folder}: the agent ended before it listened")


def _end(process: subprocess.Popen[bytes], after_s: float) -> None:
    """End it by SIGTERM, by SIGKILL if it still runs after so many seconds; also one that is
    stopped."""
    with (
        contextlib.suppress(ProcessLookupError),
        contextlib.closing(ProcessHandle(process.pid)) as child,
    ):
        if after_s:
            child.signal(signal.SIGTERM, signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(after_s)
        if process.poll() is None:
            child.signal(signal.SIGKILL)
    process.wait()


def checked_folder(folder: Path) -> Path:
    """The folder, created if need be.

    Raises:
        ConfigError: others may enter it, or a socket in it would have too long a path.
    """
    folder = folder.absolute()
    remedy = "Name another folder, such as one in /tmp or $XDG_RUNTIME_DIR."
    if len(os.fsencode(folder / SOCKET)) > _MAX_PATH:
        expected = f"a path of at most {_MAX_PATH - len(SOCKET) - 1} bytes, for a socket in it"
        raise ConfigError.of("agent folder", str(folder), expected, remedy)
    try:
        create_folder(folder)
        found = folder.lstat()
    except OSError as error:
        raise ConfigError.of("agent folder", str(error), "a folder", remedy) from error
    mode = stat.S_IMODE(found.st_mode)
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    if not is_own or mode & ~FOLDER_MODE:
        value = f"{folder}, mode {mode:04o}, of user {found.st_uid}"
        expected = f"a folder of user {os.geteuid()} with mode 0700"
        raise ConfigError.of("agent folder", value, expected, remedy)
    return folder


def locked(folder: Path) -> FileLock:
    """Lock the folder for as long as this process lives.

    Raises:
        UnavailableError: another agent has it.
    """
    try:
        return FileLock(folder / LOCK)
    except LockedError as error:
        raise UnavailableError.of(
            "agent",
            f"{folder}, where the agent of process {error.holder} runs",
            "one agent a node and job",
            "Use that one, end it, or name another folder for another job.",
        ) from error
    except OSError as error:
        raise UnavailableError(f"{folder / LOCK}: {error}") from error


def listening(folder: Path) -> socket.socket:
    """The socket, in place of one that an earlier agent has left. Only with the lock.

    Raises:
        UnavailableError: it cannot be made.
    """
    path = folder / SOCKET
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        path.unlink(missing_ok=True)
        made.bind(str(path))
        path.chmod(0o600)
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise UnavailableError(f"{path}: no socket can be made there: {error}") from error
    return made
