"""An arm that is forked and not started, for a dry run without a GPU: PyTorch is imported once."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import traceback
from typing import IO, Any, ClassVar

import torch
import torch._dynamo
import torch.utils.checkpoint

from benchmarks.gpu import arm


class Forked:
    """As much of ``subprocess.Popen`` as an arm needs.

    Args:
        command: as :class:`benchmarks.gpu.arms.Arm` starts it; its last three words are used.
        stderr: a file that the arm writes to.
    """

    of_parent: ClassVar[list[int]] = []
    """Ends of pipes that no child may keep open."""

    def __init__(self, command: list[str], *, stderr: IO[bytes], **_: Any) -> None:
        orders, self._in = os.pipe()
        self._out, answers = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            self._serve(command[3:], orders, answers, stderr.fileno())
        os.close(orders)
        os.close(answers)
        self.of_parent += [self._in, self._out]
        self.stdin, self.stdout = os.fdopen(self._in, "wb"), os.fdopen(self._out, "rb")

    def poll(self) -> int | None:
        """Its exit status; None while it is there."""
        if self.returncode is None and (waited := os.waitpid(self.pid, os.WNOHANG))[0]:
            self.returncode = os.waitstatus_to_exitcode(waited[1])
        return self.returncode

    def wait(self, timeout: float = 60) -> int:
        """Its exit status.

        Raises:
            TimeoutExpired: it is still there.
        """
        until_s = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until_s:
                raise subprocess.TimeoutExpired("an arm", timeout)
            time.sleep(0.005)
        return code

    def kill(self) -> None:
        """End it, if it is still there."""
        if self.poll() is None:
            os.kill(self.pid, 9)

    def _serve(self, words: list[str], orders: int, answers: int, errors: int) -> None:
        for mine, wanted in ((orders, 0), (answers, 1), (errors, 2)):
            os.dup2(mine, wanted)
        for end in (*self.of_parent, self._in, self._out):
            with contextlib.suppress(OSError):
                os.close(end)
        sys.stdin = os.fdopen(0)
        torch.set_num_threads(1)
        try:
            code = arm.main(*words)
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
            code = 1
        os._exit(code)
