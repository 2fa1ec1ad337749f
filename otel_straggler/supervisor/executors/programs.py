"""Running a program for a step: no shell, a deadline, and never two at a time, crashes included.

A supervisor that is killed leaves the program running. So the program inherits a lock, which a new
supervisor waits for before it asks whether the step was done.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_straggler.regular_files import open_regular
from otel_straggler.supervisor.executors import StepError, UncertainError

FIELD: Final = re.compile(r"\{(\w+)\}")
_MAX_OUTPUT: Final = 500
_LOCK_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Done:
    """A program that has ended; ``output`` is of both streams."""

    exit_code: int
    output: str

    @property
    def shown(self) -> str:
        """The end of the output, for a log."""
        return f"exit code {self.exit_code}: {self.output.strip()[-_MAX_OUTPUT:]}".rstrip(": ")


class Programs:
    """Runs programs one at a time.

    Args:
        lock: path of the lock file.
        timeout_s: for each program.
    """

    def __init__(self, lock: Path, timeout_s: float) -> None:
        self._lock = lock
        self._timeout_s = timeout_s

    def run(self, command: Sequence[str]) -> Done:
        """Run a program to its end.

        Raises:
            StepError: it cannot be started.
            UncertainError: it did not end in time, or one of before a crash still runs.
        """
        with self._locked() as lock:
            try:
                process = subprocess.Popen(  # noqa: S603 - of the configuration
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    pass_fds=(lock,),
                    start_new_session=True,
                )
            except OSError as error:
                raise StepError(f"{command[0]} cannot be started: {error}") from None
            with process:
                try:
                    output, _ = process.communicate(timeout=self._timeout_s)
                except subprocess.TimeoutExpired:
                    _kill(process)
                    text = f"{command[0]} did not end within {self._timeout_s:g} s and was killed"
                    raise UncertainError(text) from None
        return Done(process.returncode, output.decode("utf-8", "replace"))

    def checked(self, command: Sequence[str]) -> str:
        """The output of a program that must succeed.

        Raises:
            StepError: it cannot be started, or fails.
            UncertainError: see :meth:`run`.
        """
        done = self.run(command)
        if done.exit_code:
            raise StepError(f"{command[0]}: {done.shown}")
        return done.output

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        lock = open_regular(self._lock, os.O_RDWR | os.O_CREAT)
        try:
            until_s = time.monotonic() + self._timeout_s
            while not _is_acquired(lock):
                if time.monotonic() > until_s:
                    raise UncertainError("a program of an earlier step still runs")
                time.sleep(_LOCK_POLL_S)
            yield lock
        finally:
            os.close(lock)


def filled(template: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """A command from its template: each ``{name}`` is replaced within its argument.

    >>> filled(["cordon", "{host}", "--reason={code}"], {"host": "n 1;id", "code": "xid_79"})
    ['cordon', 'n 1;id', '--reason=xid_79']

    Raises:
        StepError: a value is missing where an argument needs it, or would become an option.
    """
    return [_filled(argument, values) for argument in template]


def _filled(argument: str, values: Mapping[str, str]) -> str:
    result = FIELD.sub(lambda field: values[field[1]], argument)
    if argument and not result:
        raise StepError(f"the argument {argument} is empty: the cause names none")
    if result.startswith("-") and not argument.startswith("-"):
        raise StepError(f"the argument {argument} would be the option {result!r:.80}")
    if "\0" in result:
        raise StepError(f"the argument {argument} has a zero byte")
    return result


def _is_acquired(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _kill(process: subprocess.Popen[bytes]) -> None:
    """It, and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
