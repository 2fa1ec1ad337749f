"""Arms: a process each, which take turns, one at a time, ABBA."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.endings import last_lines, text_of
from benchmarks.gpu.presence import FAKE

ROOT = Path(__file__).parents[2]
FAKED_TIMES = 20.0
"""So much longer an arm may take where the GPU is faked: tests run on machines that are busy."""
GONE_S = 10.0
"""A process that was killed while the driver holds it may stay forever."""


class ArmFailedError(Exception):
    """An arm has ended, or does not answer; the message says how, with its last lines."""


class Arm:
    """One process. It gets ready by itself: start all, then wait for each.

    Args:
        module: see arm.py.
        name: of the arm.
        options: for the module, JSON.
    """

    def __init__(self, module: str, name: str, options: Mapping[str, Any]) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        command = [sys.executable, "-m", "benchmarks.gpu.arm", module, name, json.dumps(options)]
        self._process = _starter()(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._unread = b""

    def wait_until_ready(self, timeout_s: float) -> None:
        """
        Raises:
            ArmFailedError: it does not get ready.
        """
        self._read(timeout_s)

    def ask(self, timeout_s: float, **order: Any) -> dict[str, Any]:
        """Have it work.

        Raises:
            ArmFailedError: it has ended, or not answered in time. It is killed then.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise self._failed("has ended") from error
        return self._read(timeout_s)

    def end(self) -> None:
        """Close it, and kill it if it is still there."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GONE_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def _read(self, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        timeout_s *= FAKED_TIMES if os.environ.get(FAKE) else 1.0
        until_s = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not select.select([self._process.stdout], [], [], left_s)[0]:
                raise self._failed(f"has not answered in {timeout_s:.0f} s")
            more = self._process.stdout.read1(65_536)  # type: ignore[attr-defined]
            if not more:
                raise self._failed("has ended")
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise self._failed(answer["error"])
        return answer

    def _failed(self, why: str) -> ArmFailedError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        how = text_of(self._process.poll()) if self._process.poll() is not None else "killed"
        self._process.kill()
        lines = " | ".join(last_lines(self._errors))
        return ArmFailedError(f"arm {self.name} {why} ({how}){': ' + lines if lines else ''}")


def _starter() -> Any:
    """``subprocess.Popen``; where the GPU is faked, what forks this process."""
    if not os.environ.get(FAKE):
        return subprocess.Popen
    from benchmarks.gpu.forked import Forked

    return Forked


class Arms:
    """All arms of a comparison. What fails is dropped, the rest goes on.

    Attributes:
        failures: by name, in words.
    """

    def __init__(self, arms: Sequence[Arm], ready_s: float) -> None:
        self._arms = {arm.name: arm for arm in arms}
        self.failures: dict[str, str] = {}
        until_s = time.monotonic() + ready_s
        for arm in arms:
            with self._dropping(arm):
                arm.wait_until_ready(max(0.1, until_s - time.monotonic()))

    def names(self) -> list[str]:
        """Of those that are left."""
        return list(self._arms)

    def round(
        self, at: int, timeout_s: float, orders: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        """Every arm that has an order works once; in every second round in the opposite order."""
        names = [name for name in orders if name in self._arms]
        answers = {}
        for name in names if at % 2 == 0 else reversed(names):
            with self._dropping(self._arms[name]):
                answers[name] = self._arms[name].ask(timeout_s, **orders[name])
        return answers

    def end(self) -> None:
        for arm in self._arms.values():
            arm.end()

    @contextlib.contextmanager
    def _dropping(self, arm: Arm) -> Iterator[None]:
        try:
            yield
        except ArmFailedError as failure:
            self.failures[arm.name] = str(failure)
            self._arms.pop(arm.name).end()


@contextlib.contextmanager
def arms_of(
    module: str, names: Sequence[str], options: Mapping[str, Any], ready_s: float = 90
) -> Iterator[Arms]:
    """Start an arm per name, all at once; they are ended afterwards."""
    started = [Arm(module, name, options) for name in names]
    arms = Arms(started, ready_s)
    try:
        yield arms
    finally:
        arms.end()
