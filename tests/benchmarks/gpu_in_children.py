"""Runs experiments on the faked GPU, with arms that are forked instead of started: PyTorch is
imported once. ``python -m tests.benchmarks.gpu_in_children E2,E4 NOTEBOOKS``."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import torch
import torch._dynamo
import torch.utils.checkpoint

from benchmarks.gpu import arm, arms, native
from benchmarks.gpu.experiment import Notebook
from benchmarks.gpu.presence import FAKE
from benchmarks.gpu.registry import experiments


class Forked:
    """As much of ``subprocess.Popen`` as an arm needs."""

    of_parent: ClassVar[list[int]] = []
    """Ends of pipes that no child may keep open."""

    def __init__(self, command, *, stderr, **_):
        orders, self._in = os.pipe()
        self._out, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for mine, wanted in ((orders, 0), (answers, 1), (stderr.fileno(), 2)):
                os.dup2(mine, wanted)
            for end in (*self.of_parent, self._in, self._out):
                with contextlib.suppress(OSError):
                    os.close(end)
            sys.stdin = os.fdopen(0)
            torch.set_num_threads(1)
            try:
                code = arm.main(*command[3:])
            except BaseException:  # noqa: BLE001
                traceback.print_exc()
                code = 1
            os._exit(code)
        os.close(orders)
        os.close(answers)
        self.of_parent += [self._in, self._out]
        self.stdin, self.stdout = os.fdopen(self._in, "wb"), os.fdopen(self._out, "rb")
        self.returncode = None

    def poll(self):
        if self.returncode is None and (waited := os.waitpid(self.pid, os.WNOHANG))[0]:
            self.returncode = os.waitstatus_to_exitcode(waited[1])
        return self.returncode

    def wait(self, timeout=60):
        until_s = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > until_s:
                raise subprocess.TimeoutExpired("an arm", timeout)
            time.sleep(0.005)
        return self.returncode

    def kill(self):
        if self.poll() is None:
            os.kill(self.pid, 9)


def main(keys: str, folder: str) -> None:
    os.environ[FAKE] = "1"
    native.build()
    native.build_fake()
    expired = subprocess.TimeoutExpired
    arms.subprocess = SimpleNamespace(Popen=Forked, PIPE=subprocess.PIPE, TimeoutExpired=expired)
    for key in keys.split(","):
        experiment = experiments()[key]
        notebook = Notebook(Path(folder) / key, is_quick=True, limit_s=3_600)
        experiment.measure(notebook)


if __name__ == "__main__":
    main(*sys.argv[1:])
