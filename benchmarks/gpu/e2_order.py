"""E2: whether correlation ids are one increasing sequence, which marks rest on."""

from __future__ import annotations

import ctypes
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.gpu.arms import arms_of
from benchmarks.gpu.cuda import cuda
from benchmarks.gpu.experiment import Expected, Experiment, Notebook
from benchmarks.gpu.native import CUSTOM2, DRIVER, EXTERNAL, KEEP, KERNEL, RUNTIME
from benchmarks.gpu.variants import switch_off_calls

THREADS, LAUNCHES = 4, 25
KINDS = {
    "marks": (DRIVER, EXTERNAL, KERNEL),
    "calls": (RUNTIME, DRIVER, KERNEL),
    "cheap": (EXTERNAL, DRIVER),
}
CHEAP_CALLS = {
    "cuDriverGetVersion": 1,
    "cuDeviceGetCount": 1,
    "cuCtxGetCurrent": 1,
    "cuCtxGetDevice": 1,
    "cuCtxGetFlags": 1,
    "cuCtxGetStreamPriorityRange": 2,
}
"""Driver calls that a mark could be made of, with how many answers each writes: which of them CUPTI
records at all is a fact for choosing another."""
TIMES = 200


def measure(notebook: Notebook) -> None:
    """Arms: marks among launches of threads; PyTorch's calls with all records; cheap calls."""
    with arms_of(__name__, ("marks", "calls", "cheap"), {}) as arms:
        rounds = 100 if notebook.is_quick else 1_000
        for name, times in (("marks", rounds), ("calls", 50)):
            figures = arms.round(0, 25, {name: {"rounds": times}}).get(name, {})
            notebook.failures(arms.failures)
            notebook.fact(name, figures)
            for figure, value in figures.items():
                notebook.figure(figure, value)
        notebook.fact("cheap calls", arms.round(0, 20, {"cheap": {"rounds": TIMES}}).get("cheap"))
        notebook.failures(arms.failures)


class Arm:
    """One of the three."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        del options
        self._name = name
        self._cuda = cuda()
        self._cuda.begin()
        self._probe = self._cuda.probe()
        self._probe.reading(KEEP)
        self._probe.open_launcher(self._cuda.driver)
        self._probe.register()
        for kind in KINDS[name]:
            if code := self._probe.enable(kind):
                raise RuntimeError(f"cuptiActivityEnable({kind}) gave {code}")

    def turn(self, rounds: int) -> dict[str, Any]:
        """Figures by name; of cheap calls, facts."""
        ways = {"marks": self._marks, "calls": self._calls, "cheap": self._cheap}
        return ways[self._name](rounds)

    def _marks(self, rounds: int) -> dict[str, float]:
        switch_off_calls(self._probe)
        code = self._probe.order(rounds, THREADS, LAUNCHES, 1)
        self._cuda.synchronize()
        self._probe.flush(0)
        records = self._probe.take()
        if code:
            raise RuntimeError(f"the driver refused a launch with {code}")
        return marks_result(records, rounds, THREADS * LAUNCHES)

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

    def _cheap(self, rounds: int) -> dict[str, Any]:
        """By call: its result, ns, and how many records there were of which number; "marked": how
        many had the id that was pushed around them."""
        driver = ctypes.CDLL(self._cuda.driver)
        return {
            name: self._recorded(getattr(driver, name), answers, rounds)
            for name, answers in CHEAP_CALLS.items()
            if hasattr(driver, name)
        }

    def _recorded(self, call: Any, answers: int, rounds: int) -> dict[str, Any]:
        out = [ctypes.byref(ctypes.c_uint64()) for _ in range(answers)]
        self._probe.flush(0)
        self._probe.take()
        began_ns = time.perf_counter_ns()
        for at in range(rounds):
            self._probe.push(CUSTOM2, at)
            result = call(*out)
            self._probe.pop(CUSTOM2)
        taken_ns = time.perf_counter_ns() - began_ns
        self._probe.flush(0)
        records = self._probe.take()
        numbers = Counter(records[records["kind"] == DRIVER]["call"].tolist())
        marked = int((records["kind"] == EXTERNAL).sum())
        return {"result": result, "ns": taken_ns / rounds, "records": numbers, "marked": marked}

    def finish(self) -> dict[str, Any]:
        return {}


def marks_result(records: npt.NDArray[Any], rounds: int, kernels_each: int) -> dict[str, float]:
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
    result = 0
    for thread in np.unique(calls["thread"]):
        own = calls[calls["thread"] == thread]
        own = own[np.argsort(own["start"], kind="stable")]
        result += int((np.diff(own["correlation"].astype(np.int64)) < 0).sum())
    return result


make_arm = Arm
EXPERIMENT = Experiment(
    key="E2",
    question="Whether correlation ids are one increasing sequence over all threads",
    expected=(
        Expected(figure="marks seen", minimum=1, maximum=1, is_requirement=True),
        Expected(figure="kernels seen", minimum=1, maximum=1, is_requirement=True),
        Expected(figure="marks out of order", maximum=0, is_requirement=True),
        Expected(figure="kernels between wrong marks", maximum=0, is_requirement=True),
        Expected(figure="ids that two kernels share", maximum=0, is_requirement=True),
        Expected(figure="ids that a launch without a record takes", minimum=1),
        Expected(figure="kernels", minimum=100, maximum=100),
        Expected(figure="kernels with the id of a runtime call", minimum=50),
        Expected(figure="kernels with the id of a driver call", minimum=50),
        Expected(figure="inversions of ids in time", maximum=0),
    ),
    limit_s=75,
    budget_s=10,
    measure=measure,
)
