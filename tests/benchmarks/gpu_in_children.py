"""Runs experiments on the faked GPU, with arms that are forked instead of started: PyTorch is
imported once. ``python -m tests.benchmarks.gpu_in_children E2,E4 NOTEBOOKS``."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import torch
import torch._dynamo  # noqa: F401
import torch.utils.checkpoint

from benchmarks.gpu import arm, arms, native
from benchmarks.gpu.experiment import Notebook
from benchmarks.gpu.presence import FAKE
from benchmarks.gpu.registry import experiments


class Forked:
    """As much of ``subprocess.Popen`` as an arm needs."""

    def __init__(self, command, *, stderr, **_):
        orders, self._in = os.pipe()
        self._out, answers = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._in)
            os.close(self._out)
            for mine, wanted in ((orders, 0), (answers, 1), (stderr.fileno(), 2)):
                os.dup2(mine, wanted)
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
        self.stdin, self.stdout = os.fdopen(self._in, "wb"), os.fdopen(self._out, "rb")
        self.returncode = None

    def poll(self):
        if self.returncode is None and (waited := os.waitpid(self.pid, os.WNOHANG))[0]:
            self.returncode = os.waitstatus_to_exitcode(waited[1])
        return self.returncode

    def wait(self, timeout=None):
        del timeout
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def kill(self):
        if self.poll() is None:
            os.kill(self.pid, 9)


def main(keys: str, folder: str) -> None:
    os.environ[FAKE] = "1"
    native.build()
    arms.subprocess.Popen = Forked
    for key in keys.split(","):
        experiment = experiments()[key]
        notebook = Notebook(Path(folder) / key, is_quick=True)
        experiment.measure(notebook)


if __name__ == "__main__":
    main(*sys.argv[1:])
