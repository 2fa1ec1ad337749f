"""Running a program for a step: no shell, a deadline, and never two at a time, crashes included.

A supervisor that is killed leaves the program running. So the program inherits a lock, which a new
supervisor waits for before it asks whether the step was done.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otel_straggler.model.names import visible
from otel_straggler.regular_files import open_regular
from otel_straggler.supervisor.executors import StepError, UncertainError, is_words, shown

FIELD: Final = re.compile(r"\{(\w+)\}")
_OF_OPERATOR: Final = frozenset({"rule"})
"""Values of the configuration, which nobody else chooses."""
_MAX_SHOWN: Final = 500
MAX_OUTPUT: Final = 64 * 1024 * 1024
"""Bytes; of more only the end is kept."""
_LOCK_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Done:
    """A program that has ended; ``output`` is of both streams, or only its end."""

    exit_code: int
    output: str
    is_whole: bool = True

    @property
    def end(self) -> str:
        """The end of the output in one line, for a log."""
        end = self.output[-20 * _MAX_SHOWN :]
        return visible(" ".join(end.split()))[-_MAX_SHOWN:]

    @property
    def shown(self) -> str:
        """Exit code and end of the output."""
        return f"exit code {self.exit_code}: {self.end}".rstrip(": ")


class Programs:
    """Runs programs.

    Args:
        lock: path of the lock file.
        timeout_s: for each program.
    """

    def __init__(self, lock: Path, timeout_s: float) -> None:
        self._lock = lock
        self._timeout_s = timeout_s

    def run(self, command: Sequence[str]) -> Done:
        """Run a program to its end, one at a time.

        Raises:
            StepError: it cannot be started.
            UncertainError: it did not end in time, or one of before a crash still runs.
        """
        with self._locked() as lock:
            return self._run(command, (lock,))

    def checked(self, command: Sequence[str]) -> str:
        """What to log of a program that must succeed: the end of its output.

        Raises:
            StepError: it cannot be started, or fails.
            UncertainError: see :meth:`run`.
        """
        return _succeeded(command, self.run(command)).end

    def wait(self) -> None:
        """Wait until no program runs, also of a supervisor that was killed.

        Raises:
            UncertainError: one of before a crash still runs.
        """
        with self._locked():
            pass

    def read(self, command: Sequence[str]) -> Done:
        """Run a program that changes nothing, alongside any other; see :meth:`run` for the rest."""
        return self._run(command)

    def listed(self, command: Sequence[str]) -> str:
        """The whole output of a program that changes nothing, alongside any other.

        Raises:
            StepError: it cannot be started, fails, or prints too much.
            UncertainError: it did not end in time.
        """
        done = _succeeded(command, self.read(command))
        if not done.is_whole:
            raise StepError(f"{command[0]} prints more than {MAX_OUTPUT} bytes")
        return done.output

    def _run(self, command: Sequence[str], descriptors: Sequence[int] = ()) -> Done:
        try:
            process = subprocess.Popen(  # noqa: S603 - of the configuration
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=descriptors,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise StepError(f"{command[0]} cannot be started: {error}") from None
        with process:
            try:
                output, is_whole = _read(process, self._timeout_s)
            except subprocess.TimeoutExpired:
                _kill(process)
                text = f"{command[0]} did not end within {self._timeout_s:g} s and was killed"
                raise UncertainError(text) from None
        return Done(process.returncode, output.decode("utf-8", "replace"), is_whole)

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

    >>> filled(["cordon", "{host}", "--reason={code}"], {"host": "n1", "code": "xid_79"})
    ['cordon', 'n1', '--reason=xid_79']

    Raises:
        StepError: an argument would be empty, or have a value that some program could read as
            more than a name: an option, a path, several names, a shell's or a format's characters.
    """
    return [_filled(argument, values) for argument in template]


def _filled(argument: str, values: Mapping[str, str]) -> str:
    for name in FIELD.findall(argument):
        value = values[name]
        if value and name not in _OF_OPERATOR and not is_words(value):
            raise StepError(
                f"the argument {argument} would have {shown(value)}; expected ASCII letters, "
                "digits, '.', '_', ':', '-' and '/' between two names, first and last a letter or "
                "digit. Nothing was done"
            )
    result = FIELD.sub(lambda field: values[field[1]], argument)
    if argument and not result:
        raise StepError(f"the argument {argument} is empty: the cause names none")
    if result.startswith("-") and not argument.startswith("-"):
        raise StepError(f"the argument {argument} would be the option {shown(result)}")
    return result


def _succeeded(command: Sequence[str], done: Done) -> Done:
    if done.exit_code:
        raise StepError(f"{command[0]}: {done.shown}")
    return done


def _read(process: subprocess.Popen[bytes], timeout_s: float) -> tuple[bytes, bool]:
    """The end of what a program prints until it ends, and whether that is all."""
    assert process.stdout is not None
    until_s, output, is_whole = time.monotonic() + timeout_s, bytearray(), True
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while selector.select(max(0.0, until_s - time.monotonic())):
            part = os.read(process.stdout.fileno(), 65_536)
            if not part:
                process.wait(max(0.0, until_s - time.monotonic()))
                return bytes(output[-MAX_OUTPUT:]), is_whole
            output += part
            if len(output) > 2 * MAX_OUTPUT:
                del output[:-MAX_OUTPUT]
                is_whole = False
    raise subprocess.TimeoutExpired(process.args, timeout_s)


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
