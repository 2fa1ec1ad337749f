"""A process that undoes what a fault has changed outside of its rank, or of a rank that is stopped.

It undoes it when the rank says so, when the time is up, or when the rank is gone. As a program it
imports nothing of this package, so that it starts within some 20 ms.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Action = tuple[str, ...]
"""("continue",): SIGCONT to the rank; ("remove", path); ("run", *command)."""
_POLL_S = 0.1
_WAIT_S = 10.0


class Keeper:
    """Undoes ``actions`` at :meth:`close`, after ``seconds``, or when this process has died.

    Returns from its constructor once that is certain.
    """

    def __init__(self, actions: Sequence[Action], seconds: float) -> None:
        order = {"parent": os.getpid(), "seconds": seconds, "actions": list(map(list, actions))}
        self._process = subprocess.Popen(  # noqa: S603  our own file
            [sys.executable, "-I", "-S", str(Path(__file__).resolve()), json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            self._process.wait()
            raise OSError("the process that would undo the fault did not start")

    def close(self) -> None:
        """Undo now; returns when that is done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_WAIT_S)
        except subprocess.TimeoutExpired:  # a command of it hangs, such as tc
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def main(order: dict[str, Any]) -> None:
    """Wait, and undo."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    parent, until_s = order["parent"], time.monotonic() + order["seconds"]
    print("ready", flush=True)  # noqa: T201  to the rank
    while os.getppid() == parent and time.monotonic() < until_s:
        if select.select([0], [], [], min(_POLL_S, max(0.0, until_s - time.monotonic())))[0]:
            break
    for action in order["actions"]:
        with contextlib.suppress(OSError, subprocess.SubprocessError):  # it may be gone already
            _undo(action, parent)


def _undo(action: Sequence[str], parent: int) -> None:
    what, *rest = action
    if what == "continue" and os.getppid() == parent:
        os.kill(parent, signal.SIGCONT)
    elif what == "remove":
        Path(rest[0]).unlink()
    elif what == "run":
        subprocess.run(rest, check=False, capture_output=True, timeout=_WAIT_S)  # noqa: S603


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
