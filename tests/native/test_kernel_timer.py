"""Kernels timed by CUPTI, from Python, on a fake libcupti."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler import semconv
from otel_straggler.model.observation import kernel_class_of
from otel_straggler.native import NATIVE

from .fake_cupti import FakeGpu, build

pytestmark = pytest.mark.skipif(
    NATIVE is None,
    reason="the extension was not built: it would show that kernels count in their sections",
)

RECORD = np.dtype(
    {
        "names": [
            "span",
            "parent",
            "start_ns",
            "end_ns",
            "section",
            "kernel_time_ns",
            "busy_time_ns",
            "nccl_time_ns",
            "kernel_count",
            "state",
        ],
        "formats": ["u8", "u8", "i8", "i8", "u4", "i8", "i8", "i8", "u4", "u4"],
        "offsets": [0, 8, 32, 40, 64, 96, 104, 112, 120, 124],
        "itemsize": 128,
    }
)
TIMED, MISSING = 2, 3


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    """One for all tests: a library that is loaded stays."""
    return FakeGpu(build(tmp_path_factory.mktemp("cupti")))


@dataclass
class Process:
    """A thread that trains, and what it knows of its own runs."""

    gpu: FakeGpu
    timer: Any
    last_span: int = 0
    open_runs: list[Any] = field(default_factory=list)

    def begin(self, section: int) -> None:
        self.last_span += 1
        run = np.zeros((), RECORD)
        run["span"], run["section"] = self.last_span, section
        run["parent"] = self.open_runs[-1]["span"] if self.open_runs else 0
        run["start_ns"] = time.monotonic_ns()
        self.open_runs.append(run)
        self.timer.boundary(True, self.last_span, section)

    def end(self) -> None:
        run = self.open_runs.pop()
        run["end_ns"] = time.monotonic_ns()
        around = self.open_runs[-1] if self.open_runs else {"span": 0, "section": 0}
        self.timer.boundary(True, int(around["span"]), int(around["section"]))
        self.timer.add(run.tobytes())

    def finish(self) -> Any:
        """All runs with their numbers, after the GPU has ended."""
        while self.open_runs:
            self.end()
        self.timer.flush()
        self.timer.flush()
        return np.frombuffer(self.timer.take_all(True), RECORD)


@pytest.fixture(scope="module", params=["marks", "launches"])
def process(gpu: FakeGpu, request: pytest.FixtureRequest) -> Iterator[Process]:
    """Timing, in both ways of knowing whose kernels are whose."""
    assert NATIVE is not None
    timer = NATIVE.KernelTimer(gpu.path, "", gpu.path, request.param == "launches", False, False)
    assert timer.start() == ""
    yield Process(gpu, timer)
    timer.stop(time.monotonic_ns())


def test_without_a_driver_the_reason_is_told() -> None:
    """A laptop, a login node: one sentence, and nothing is loaded."""
    assert NATIVE is not None
    timer = NATIVE.KernelTimer("", "", "libno_such_driver.so", False, False, False)
    assert "no CUDA driver is loaded in this process (libno_such_driver.so)" in timer.start()
    assert timer.library() == ("", 0, 0)
    with pytest.raises(RuntimeError, match="no CUDA driver"):
        timer.flush()


def test_a_refusal_is_told_with_its_remedy(gpu: FakeGpu) -> None:
    """What an administrator has to change stands in the sentence."""
    assert NATIVE is not None
    timer = NATIVE.KernelTimer(gpu.path, "", gpu.path, False, False, False)
    gpu.fail("cuptiActivityEnable", 35)
    try:
        assert "NVreg_RestrictProfilingToAdminUsers=0" in timer.start()
    finally:
        gpu.fail("cuptiActivityEnable", 0)
    assert timer.library()[:2] == (gpu.path, 130_000)


def test_a_run_has_its_kernels_and_those_of_runs_inside(process: Process) -> None:
    """Kernel time, busy time and count of the outer run hold what the inner one launched."""
    process.begin(1)
    process.gpu.launch("gemm", 1_000)
    process.begin(2)
    process.gpu.launch("ncclDevKernel_AllReduce", 500)
    inner, outer = process.finish()
    assert (inner["state"], outer["state"]) == (TIMED, TIMED)
    assert (inner["kernel_time_ns"], inner["nccl_time_ns"], inner["kernel_count"]) == (500, 500, 1)
    assert (outer["kernel_time_ns"], outer["busy_time_ns"]) == (1_500, 1_500)
    kernels = {(k[0], k[2]): k for k in process.timer.take_kernels()}
    assert kernels["gemm", 1][3:7] == (1, 1_000, 1_000, 1_000)
    assert kernels["ncclDevKernel_AllReduce", 2][1] == semconv.KERNEL_CLASSES.index("nccl")
    assert sum(np.frombuffer(kernels["gemm", 1][9], np.uint32)) == 1


EXIT = """
import ctypes, os, sys
from otel_straggler._native import KernelTimer
gpu = ctypes.CDLL(sys.argv[1])
timer = KernelTimer(sys.argv[1], "", sys.argv[1], sys.argv[2] == "launches", False, False)
assert timer.start() == ""
timer.start_thread()
timer.boundary(True, 1, 1)
for _ in range(10_000):
    gpu.fake_launch(b"gemm", ctypes.c_uint64(10), 0, 7)
child = os.fork()
if child == 0:
    timer.boundary(True, 2, 1)
    sys.exit(0 if "forked child" in timer.start() else 1)
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.parametrize("way", ["marks", "launches"])
def test_a_process_may_fork_and_end_while_kernels_are_timed(gpu: FakeGpu, way: str) -> None:
    """Nothing waits, nothing crashes, and DataLoader workers are left alone."""
    answer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", EXIT, gpu.path, way],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (answer.returncode, answer.stderr) == (0, "")


def test_records_of_a_broken_length_are_refused(process: Process) -> None:
    """Nothing is read beyond what was given."""
    with pytest.raises(ValueError, match="127 bytes of records; expected a multiple of 128"):
        process.timer.add(bytes(127))


ACTIONS = st.one_of(
    st.tuples(st.just("begin"), st.integers(1, 4)),
    st.just(("end", 0)),
    st.tuples(st.sampled_from(["gemm", "softmax", "ncclKernel_x"]), st.integers(1, 10_000)),
    st.just(("flush", 0)),
)


@settings(deadline=None)
@given(script=st.lists(ACTIONS, max_size=40), shuffle=st.integers(0, 20))
def test_any_script_gives_the_numbers_of_a_plain_model(
    process: Process, script: list[tuple[str, int]], shuffle: int
) -> None:
    """However sections nest and records come back: each kernel once, in its section and around."""
    process.gpu.set("shuffle", shuffle)
    time_of: Counter[int] = Counter()
    by_kernel: Counter[tuple[str, int]] = Counter()
    before = process.timer.state()["outside"]
    outside = 0
    for what, number in script:
        if what == "begin":
            process.begin(number)
        elif what == "end":
            if process.open_runs:
                process.end()
        elif what == "flush":
            process.timer.flush()
        else:
            process.gpu.launch(what, number)
            for run in process.open_runs:
                time_of[int(run["span"])] += number
            section = int(process.open_runs[-1]["section"]) if process.open_runs else 0xFFFF_FFFF
            by_kernel[what, section] += number
            outside += not process.open_runs
    runs = process.finish()
    assert {int(run["span"]): int(run["kernel_time_ns"]) for run in runs} == {
        int(run["span"]): time_of[int(run["span"])] for run in runs
    }
    assert all(run["state"] == TIMED for run in runs)
    assert {(k[0], k[2]): k[4] for k in process.timer.take_kernels()} == by_kernel
    assert process.timer.state()["outside"] - before == outside


@given(
    name=st.one_of(
        st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30),
        st.builds(
            "{}{}{}".format,
            st.sampled_from(["", "_Z9", "void ", "[", "cuda ", "CUDA "]),
            st.sampled_from([*semconv.NCCL_KERNEL_MARKS, *semconv.MEMORY_MARKS, "nccl", "mem"]),
            st.sampled_from(["", "_AllReduce", "(int)"]),
        ),
    )
)
def test_the_class_of_a_kernel_is_that_of_the_python_side(name: str) -> None:
    """A kernel from a file and one from CUPTI are scored alike."""
    assert NATIVE is not None
    for form in (name, name.upper()):
        result = semconv.KERNEL_CLASSES[NATIVE.kernel_class_of(form)]
        assert result == kernel_class_of(form)
