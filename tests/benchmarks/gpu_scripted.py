"""Experiments of which the end is known: one that ends well, one that crashes, one that hangs, and
one with arms. A registry for ``python -m benchmarks.gpu --experiments``."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.experiment import Expected, Experiment, Notebook


def well(notebook: Notebook) -> None:
    notebook.figure("cost", {"value": 0.3, "iqr": [0.2, 0.4]})
    notebook.figure("guess", 7)
    notebook.figure("nothing", float("nan"))
    notebook.fact("seen", {"also nothing": [float("nan"), 1.0]})


def crash(notebook: Notebook) -> None:
    notebook.figure("before", 1)
    print("the last thing it did", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGSEGV)


def hang(notebook: Notebook) -> None:
    notebook.figure("before", 1)
    time.sleep(600)


def turns(notebook: Notebook) -> None:
    with arms_of(__name__, ("good", "dies", "unborn"), {"log": os.environ["SCRIPTED_LOG"]}) as arms:
        orders = {name: {"at": at} for at, name in enumerate(("good", "dies", "unborn"))}
        rounds = [arms.round(at, 30, orders) for at in range(4)]
        notebook.failures(arms.failures)
    notebook.fact("rounds", rounds)


class Arm:
    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        if name == "unborn":
            raise RuntimeError("no such device")
        self._name, self._log, self._turns = name, Path(options["log"]), 0

    def turn(self, at: int) -> dict[str, Any]:
        print("noise on standard output")
        with self._log.open("a") as log:
            log.write(self._name + "\n")
        self._turns += 1
        if self._name == "dies" and self._turns == 3:
            os.abort()
        return {"at": at, "pid": os.getpid()}


make_arm = Arm
BEFORE = (Expected(figure="before", minimum=1, maximum=1), Expected(figure="after", maximum=1))
EXPERIMENTS = (
    Experiment(
        key="E1",
        question="one that ends well",
        expected=(
            Expected(figure="cost", unit="%", maximum=0.5, is_requirement=True),
            Expected(figure="guess", maximum=5),
            Expected(figure="nothing", maximum=1),
        ),
        limit_s=60,
        measure=well,
    ),
    Experiment(key="E2", question="a crash", expected=BEFORE, limit_s=60, measure=crash),
    Experiment(key="E3", question="a hang", expected=BEFORE, limit_s=6, measure=hang),
    Experiment(key="E10", question="arms", expected=(), limit_s=60, measure=turns),
)
