"""E2: whether correlation ids are one increasing sequence, which marks rest on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.native import CUSTOM2, DRIVER, EXTERNAL, KEEP, KERNEL, RUNTIME

THREADS, LAUNCHES = 4, 25
GET_VERSION = 2


def measure(notebook: Notebook) -> None:
    """Two arms: marks among launches of threads; and PyTorch's calls with all records."""
    with arms_of(__name__, ("marks", "calls"), {}) as arms:
        rounds = 100 if notebook.is_quick else 1_000
        for name, times in (("marks", rounds), ("calls", 50)):
            figures = arms.round(0, 25, {name: {"rounds": times}}).get(name, {})
            notebook.failures(arms.failures)
            notebook.fact(name, figures)
            for figure, value in figures.items():
                notebook.figure(figure, value)


class Arm:
    """One of the two."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del options
        self._is_marks = name == "marks"
        self._cuda = cuda()
        self._cuda.begin()
        self._probe = self._cuda.probe()
        self._probe.reading(KEEP)
        self._probe.open_launcher(self._cuda.driver)
        self._probe.register()
        kinds = (EXTERNAL, KERNEL) if self._is_marks else (RUNTIME, DRIVER, KERNEL)
        for kind in kinds:
            if code := self._probe.enable(kind):
                raise RuntimeError(f"cuptiActivityEnable({kind}) gave {code}")

    def turn(self, rounds: int) -> dict[str, float]:
        """Figures by name."""
        return self._marks(rounds) if self._is_marks else self._calls(rounds)

    def _marks(self, rounds: int) -> dict[str, float]:
        if code := self._probe.driver_call(GET_VERSION, 1):
            raise RuntimeError(f"cuptiActivityEnableDriverApi gave {code}")
        code = self._probe.order(rounds, THREADS, LAUNCHES, 1)
        self._cuda.synchronize()
        self._probe.flush(0)
        records = self._probe.take()
        if code:
            raise RuntimeError(f"the driver refused a launch with {code}")
        return marks_found(records, rounds, THREADS * LAUNCHES)

    def _calls(self, rounds: int) -> dict[str, float]:
        x = self._cuda.torch.ones(16, device=self._cuda.device)
        self._cuda.synchronize()
        self._probe.flush(0)
        self._probe.take()  # to fill it was a kernel too
        with self._cuda.launches():
            for _ in range(rounds):
                x.add_(1)
        self._probe.launch(rounds, 0, None)
        self._cuda.synchronize()
        self._probe.flush(0)
        records = self._probe.take()
        kernels = records[records["kind"] == KERNEL]["correlation"]
        calls = records[records["kind"] == DRIVER]
        runtime = records[records["kind"] == RUNTIME]
        return {
            "kernels": len(kernels),
            "kernels with the id of a runtime call": int(
                np.isin(kernels, runtime["correlation"]).sum()
            ),
            "kernels with the id of a driver call": int(
                np.isin(kernels, calls["correlation"]).sum()
            ),
            "inversions of ids in time": inversions(np.concatenate([calls, runtime])),
        }

    def finish(self) -> dict[str, Any]:
        return {}


def marks_found(records: npt.NDArray[Any], rounds: int, kernels_each: int) -> dict[str, float]:
    """How kernels lie among marks, where ``kernels_each`` were launched between each two."""
    marks = records[(records["kind"] == EXTERNAL) & (records["call"] == CUSTOM2)]
    marks = marks[np.argsort(marks["external"])]
    kernels = np.sort(records[records["kind"] == KERNEL]["correlation"].astype(np.int64))
    ids = marks["correlation"].astype(np.int64)
    between = np.diff(np.searchsorted(kernels, ids)) if len(ids) > 1 else np.zeros(0)
    steps = np.diff(ids)
    return {
        "marks seen": len(ids) / (rounds + 1),
        "kernels seen": len(kernels) / (rounds * kernels_each),
        "marks out of order": int((steps <= 0).sum()),
        "kernels between wrong marks": int(np.abs(between - kernels_each).sum()) // 2
        + abs(len(kernels) - int(between.sum())),
        "ids that a launch without a record takes": float(np.median(steps) - 1) / kernels_each
        if len(steps)
        else float("nan"),
        "ids that two kernels share": len(kernels) - len(np.unique(kernels)),
    }


def inversions(calls: npt.NDArray[Any]) -> int:
    """Neighbours in time, within a thread, of which the later has the smaller id. A runtime call
    and the driver call inside it may share one."""
    found = 0
    for thread in np.unique(calls["thread"]):
        own = calls[calls["thread"] == thread]
        own = own[np.argsort(own["start"], kind="stable")]
        found += int((np.diff(own["correlation"].astype(np.int64)) < 0).sum())
    return found


make_arm = Arm
EXPERIMENT = Experiment(
    key="E2",
    question="whether correlation ids are one increasing sequence over all threads",
    expected=(
        Expected(figure="marks seen", least=1, most=1, is_requirement=True),
        Expected(figure="kernels seen", least=1, most=1, is_requirement=True),
        Expected(figure="marks out of order", most=0, is_requirement=True),
        Expected(figure="kernels between wrong marks", most=0, is_requirement=True),
        Expected(figure="ids that two kernels share", most=0, is_requirement=True),
        Expected(figure="ids that a launch without a record takes", least=1),
        Expected(figure="kernels", least=100, most=100),
        Expected(figure="kernels with the id of a runtime call", least=50),
        Expected(figure="kernels with the id of a driver call", least=50),
        Expected(figure="inversions of ids in time", most=0),
    ),
    limit_s=75,
    measure=measure,
)
