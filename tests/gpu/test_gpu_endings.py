"""How a process ends whose kernels are timed: in order, by a signal, forked, with a hung GPU."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.client.gpu.owner import GpuTiming
from otel_straggler.client.gpu.reasons import Refusal
from otel_straggler.native import NATIVE
from otel_straggler.testing import CapturedRequests

from .scripted import Rig

pytestmark = pytest.mark.skipif(
    NATIVE is None, reason="the extension was not built: it would show how timing ends"
)
HEAD = """
import ctypes, os, signal, sys, time
from types import SimpleNamespace
import otel_straggler as o
url, path, said = sys.argv[1:]
fake = ctypes.CDLL(path)  # the driver, by the name that the loader knows it by
fake.fake_launch.argtypes = (ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32)
fake.fake_get.restype = ctypes.c_uint64
def synchronize(device):
    open(said, "a").write(f"synchronize {device}\\n")
cuda = SimpleNamespace(is_initialized=lambda: True, current_device=lambda: 5,
                       synchronize=synchronize)
sys.modules["torch"] = SimpleNamespace(cuda=cuda, version=SimpleNamespace(cuda="13.0"))
os.environ["OTEL_STRAGGLER_CUPTI"] = path
def begin(**more):
    o.configure(**{"endpoint": url, "run_id": "r", "rank": 0, "world_size": 1, "flush_s": 0.1,
                   "gpu_timing": "cupti", "gpu_overhead": 0, **more})
    while not o.gpu_timing().uses_cupti:
        time.sleep(0.01)
def train(first=0):
    for n in range(first, first + 3):
        with o.step(n), o.section("forward"):
            fake.fake_launch(b"gemm", 1000, 0, 7)
def ready():
    print("ready", flush=True)
"""


@pytest.fixture(scope="module")
def driver(build_fake: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Known to the loader by the driver's name, so that product code finds it loaded."""
    return str(build_fake(tmp_path_factory.mktemp("driver"), "libcuda.so.1"))


@pytest.fixture
def sink() -> Iterator[CapturedRequests]:
    with CapturedRequests() as captured:
        yield captured


@pytest.fixture
def start(driver: str, sink: CapturedRequests, tmp_path: Any) -> Iterator[Any]:
    """Run a program with the fake GPU in a process of its own."""
    children: list[subprocess.Popen[str]] = []

    def start(body: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", HEAD + textwrap.dedent(body), sink.url, driver,
             str(tmp_path / "said")],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.communicate()


def ended(child: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Code, output, and errors but for the line at the start."""
    out, err = child.communicate(timeout=60)
    lines = [line for line in err.splitlines(keepends=True) if "watch it at" not in line]
    return child.returncode, out, "".join(lines)


def outcome(sink: CapturedRequests) -> Any:
    return sink.points(semconv.RANK_FINISHED)[-1].attributes[semconv.OUTCOME]


@pytest.mark.parametrize("last", ["o.shutdown()", "", "sys.exit(0)"])
def test_a_process_that_ends_well_waits_for_its_gpu(
    last: str, start: Any, sink: CapturedRequests, tmp_path: Any
) -> None:
    """On the device that it trains on; then every run has its numbers, and CUPTI is given back."""
    code, _, err = ended(start(f"begin(); train()\n{last}"))
    assert (code, err) == (0, "")
    assert (tmp_path / "said").read_text() == "synchronize 5\n"
    forward = [s for s in sink.spans() if s.name == "forward"]
    assert [s.attributes[semconv.GPU_KERNEL_TIME] for s in forward] == [1000] * 3
    assert {s.attributes[semconv.TIME_BASIS] for s in forward} == {semconv.CUPTI_BASIS}


def test_cupti_is_given_back_and_never_finalized(start: Any) -> None:
    """Another profiler of the process may live on."""
    body = """
    begin(); train(); o.shutdown()
    print(fake.fake_get(b"kinds"), fake.fake_get(b"traced_calls"), fake.fake_get(b"cuptiFinalize"))
    """
    code, out, err = ended(start(body))
    assert (code, out.strip(), err) == (0, "0 0 0", "")


def test_a_process_that_fails_does_not_wait(
    start: Any, sink: CapturedRequests, tmp_path: Any
) -> None:
    """After an error of CUDA the wait would fail, or hang."""
    code, _, err = ended(start("begin(); train(); raise ValueError('mine')"))
    assert code == 1
    assert "ValueError: mine" in err
    assert not (tmp_path / "said").exists()


@pytest.mark.parametrize("how", ["o.shutdown()", "pass"])
def test_a_gpu_that_hangs_does_not_hold_the_process(
    how: str, start: Any, sink: CapturedRequests
) -> None:
    """It ends within its deadline, and its outcome arrives."""
    body = f"""
    cuda.synchronize = lambda device: time.sleep(1000)
    begin(exit_deadline_s=8); train()
    fake.fake_set(b"hold", ctypes.c_uint64(1))
    train(3)
    {how}
    """
    child = start(body)
    code, _, err = ended(child)
    assert code == 0
    assert "the GPU has not ended its work within 4.0 s; its last times are missing" in err
    assert outcome(sink) in {"ok", "unknown"}
    assert [s.name for s in sink.spans()].count("forward") >= 3


def test_sigterm_sends_what_is_known_within_its_deadline(
    start: Any, sink: CapturedRequests, tmp_path: Any
) -> None:
    """Without waiting for the GPU; the process ends as by SIGTERM."""
    body = """
    begin(exit_deadline_s=8); train()
    fake.fake_set(b"hold", ctypes.c_uint64(1))
    with o.section("waits"):
        ready()
        time.sleep(1000)
    """
    child = start(body)
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGTERM)
    code, _, _ = ended(child)
    assert code == -signal.SIGTERM
    assert outcome(sink) == "preempted"
    assert not (tmp_path / "said").exists()


def test_a_forked_child_leaves_the_gpu_alone(start: Any, sink: CapturedRequests) -> None:
    """It says why, calls nothing, and ends; its parent goes on."""
    body = """
    import warnings; warnings.simplefilter("ignore")
    begin(); train()
    calls = [b"cuptiActivityFlushAll", b"cuptiActivityDisable", b"cuptiActivityEnable"]
    child = os.fork()
    if child == 0:
        before = [fake.fake_get(call) for call in calls]
        train()
        told = o.gpu_timing()
        again = o.set_gpu_timing("cupti")
        same = [fake.fake_get(call) for call in calls] == before
        os._exit(0 if (told.tier, told.reason, again) == ("off", "forked", told) and same else 3)
    assert os.waitpid(child, 0)[1] == 0
    assert o.gpu_timing().uses_cupti
    train(3)
    """
    code, _, err = ended(start(body))
    assert (code, err) == (0, "")


def test_the_last_wait_is_bounded_where_a_call_hangs() -> None:
    """Of the driver, or of CUPTI; and a process that has ended asks for nothing more."""
    rig = Rig()
    rig.gpu.hangs_s = 30
    timing: GpuTiming = rig.begin("cupti")
    timing._begin()
    before = time.monotonic()
    assert timing.settle(0.2, is_well=True) is False
    assert timing.settle(0.2, is_well=False) is False
    timing.close(0.2)
    assert time.monotonic() - before < 20
    assert timing.settle(10, is_well=True) is False
    assert timing.described() == ("off", "not_configured")
    timing.set("cupti")
    assert timing.described() == ("off", "not_configured")


def test_it_is_known_whether_everything_is_there() -> None:
    """Only after the GPU was waited for."""
    rig = Rig()
    timing = rig.begin("cupti")
    timing._begin()
    assert timing.settle(10, is_well=True) is True
    assert timing.settle(10, is_well=False) is False
    assert rig.gpu.synchronized == [3]
    assert rig.cupti.calls[1:] == ["flush"] * 4
    timing.close(10)
    assert rig.cupti.calls[5:] == ["stop", "end"]


def test_nothing_is_waited_for_where_nothing_was_timed() -> None:
    """A process without a GPU ends as before."""
    rig = Rig()
    rig.gpu.refusal = Refusal("no_torch")
    timing = rig.begin("cupti")
    assert timing.settle(10, is_well=True) is False
    timing.close(10)
    assert rig.cupti.calls == []
