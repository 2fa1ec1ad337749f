"""torch.profiler goes first. The profilers are torch's own; what they profile is the CPU."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from otel_straggler import configure, gpu_timing, section, semconv, shutdown, step
from otel_straggler.client.gpu import current_timer
from otel_straggler.client.gpu.profilers import Profilers
from otel_straggler.testing import CapturedRequests

from .scripted import torch_with_cuda

torch = pytest.importorskip(
    "torch", reason="torch is not installed: this cannot show that its profilers are yielded to"
)


class Yielding:
    """Remembers what it is told, and whether the profiler was prepared by then."""

    def __init__(self) -> None:
        self.reported: list[str] = []

    def yield_to_profiler(self) -> None:
        self.reported.append("yield")

    def profiler_has_stopped(self) -> None:
        self.reported.append("go on")


@pytest.fixture
def yielding(monkeypatch: pytest.MonkeyPatch) -> Iterator[Yielding]:
    """Told of all profilers; how torch prepares and disables is told as well."""
    result = Yielding()
    module = torch.autograd.profiler
    for name in ("_prepare_profiler", "_enable_profiler", "_disable_profiler"):
        original = getattr(module, name)

        def noted(*args: Any, name: str = name, original: Any = original, **more: Any) -> Any:
            result.reported.append(name.split("_")[1])
            return original(*args, **more)

        monkeypatch.setattr(module, name, noted)
    profilers = Profilers()
    profilers.install(result)
    yield result
    profilers.uninstall(result)


WHOLE = ["yield", "prepare", "enable", "disable", "go on"]


def profile(**more: Any) -> Any:
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **more)


def work() -> None:
    torch.ones(4).sum()


def test_it_is_yielded_before_a_profiler_prepares_and_not_before_it_has_stopped(
    yielding: Yielding,
) -> None:
    """Preparing is when Kineto takes CUPTI."""
    with profile() as profiler:
        work()
    assert yielding.reported == WHOLE
    assert profiler.key_averages()


def test_the_older_profiler_is_yielded_to_as_well(yielding: Yielding) -> None:
    """torch.autograd.profiler.profile, by itself."""
    with torch.autograd.profiler.profile(use_kineto=True) as profiler:
        work()
    assert yielding.reported == WHOLE
    assert profiler.key_averages()


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")
@pytest.mark.parametrize("keeps", [False, True])
def test_a_schedule_is_yielded_to_from_its_warm_up_on(keeps: bool, yielding: Yielding) -> None:
    """In each of its cycles, and only there."""
    course = []
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=schedule, acc_events=keeps) as profiler:
        for _ in range(9):
            work()
            course.append(len(yielding.reported))
            profiler.step()
    assert yielding.reported == WHOLE * 2
    assert course == [0, 2, 3, 3, 5, 7, 8, 8, 10]


def test_two_profilers_in_a_row_and_one_that_is_off(yielding: Yielding) -> None:
    """A profiler that is not enabled takes nothing."""
    for is_enabled in (True, False, True):
        with torch.autograd.profiler.profile(enabled=is_enabled, use_kineto=True):
            work()
    assert yielding.reported == WHOLE * 2


def test_an_error_in_the_profiled_code_ends_the_profiler(yielding: Yielding) -> None:
    """The user's exception arrives as it is."""
    with pytest.raises(ZeroDivisionError), profile():
        1 / 0  # noqa: B018
    assert yielding.reported == WHOLE


@pytest.mark.parametrize(
    ("fails", "reported"),
    [
        ("_prepare_profiler", ["yield", "go on"]),
        ("_enable_profiler", ["yield", "prepare", "go on"]),
        ("_disable_profiler", ["yield", "prepare", "enable", "go on"]),
    ],
)
def test_a_profiler_that_fails_has_stopped(
    fails: str, reported: list[str], yielding: Yielding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it fails: nobody waits for it for ever."""
    original = getattr(torch.autograd.profiler, fails)

    def failing(*args: Any, **more: Any) -> None:
        raise RuntimeError("no profiler today")

    with monkeypatch.context() as patch:
        patch.setattr(torch.autograd.profiler, fails, failing)
        with pytest.raises(RuntimeError, match="no profiler today"), profile():
            work()
    assert yielding.reported == reported
    if fails == "_disable_profiler":
        original()  # torch itself would stay in profiling


def test_a_profiler_within_another_does_not_end_the_yield(yielding: Yielding) -> None:
    """The outer one is still at work."""
    with profile():
        with profile():
            work()
        assert yielding.reported.count("go on") == 0
    assert yielding.reported.count("yield") == yielding.reported.count("go on") == 1


def test_a_profiler_that_is_given_up_is_forgotten() -> None:
    """It was prepared, and nobody has it any more."""
    profilers = Profilers()
    profilers._active.add(given_up := Yielding())  # type: ignore[arg-type]
    assert profilers.are_active
    del given_up
    gc.collect()
    assert not profilers.are_active


def test_all_is_as_before_in_the_end() -> None:
    """The methods are torch's again; what somebody else wrapped meanwhile stays wrapped."""
    indexes = [
        (torch.profiler.profiler._KinetoProfile, "prepare_trace"),
        (torch.autograd.profiler.profile, "__exit__"),
    ]
    before = [getattr(owner, name) for owner, name in indexes]
    profilers, yielding = Profilers(), Yielding()
    profilers.install(yielding)
    assert [getattr(owner, name) for owner, name in indexes] != before
    profilers.uninstall(yielding)
    assert [getattr(owner, name) for owner, name in indexes] == before
    with profile():
        work()
    assert yielding.reported == []


def test_a_mistake_of_ours_does_not_reach_the_profiler(caplog: pytest.LogCaptureFixture) -> None:
    """The profile is the user's."""

    class Broken(Yielding):
        def yield_to_profiler(self) -> None:
            raise ValueError("ours")

    profilers, broken = Profilers(), Broken()
    profilers.install(broken)
    try:
        with profile() as profiler:
            work()
    finally:
        profilers.uninstall(broken)
    assert profiler.key_averages()
    assert "GPU timing could not follow torch.profiler" in caplog.text


class Kineto:
    """What Kineto does with CUPTI, on the fake: takes its callbacks, enables kernels, disables
    them for everybody, and leaves its callbacks behind."""

    def __init__(self, gpu: Any) -> None:
        self.gpu = gpu
        self.seen = 0

    def prepare(self) -> None:
        assert self.gpu.get("kinds") == 0  # somebody else is at work still
        self.gpu.give_to_another()
        self.seen -= self.gpu.foreign_bytes()
        self.gpu.enable_kernels()

    def disable(self) -> None:
        self.gpu.disable_kernels()
        self.seen += self.gpu.foreign_bytes()


@pytest.fixture
def kineto(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> Kineto:
    """torch's profilers take the fake GPU, as they would a real one."""
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    for name in ("is_initialized", "current_device", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, getattr(torch_with_cuda().cuda, name))
    result, module = Kineto(gpu), torch.autograd.profiler
    for name, extra in (
        ("_prepare_profiler", result.prepare),
        ("_disable_profiler", result.disable),
    ):
        original = getattr(module, name)

        def both(*args: Any, original: Any = original, extra: Any = extra, **more: Any) -> Any:
            extra()
            return original(*args, **more)

        monkeypatch.setattr(module, name, both)
    return result


def basis_of(sink: CapturedRequests) -> dict[int, str]:
    """What the runs of a section were timed by, by step."""
    return {
        span.attributes[semconv.STEP]: span.attributes[semconv.TIME_BASIS]
        for span in sink.spans()
        if span.name == "forward"
    }


def test_neither_side_loses_a_record(gpu: Any, kineto: Kineto) -> None:
    """Kernels before and after the profiler are ours, those during it all its own, and what the
    tier is called meanwhile says why."""

    def train(first: int) -> None:
        for n in range(first, first + 20):
            with step(n), section("forward"):
                gpu.launch("gemm", 1_000)
            if gpu_timing().uses_cupti:
                timer.flush()  # the worker does so twice a second; steps are longer than here

    with CapturedRequests() as sink:
        session = configure(
            endpoint=sink.url, run_id="r", rank=0, gpu_timing="cupti", heartbeat_s=0.05,
            flush_s=0.05,
        )  # fmt: skip
        tiers = session._gpu
        assert tiers is not None
        assert tiers._thread is not None
        assert tiers._thread.do(lambda: None, 10)
        assert gpu_timing().uses_cupti
        timer = current_timer()
        at_start = timer.state()["events"]
        train(0)
        for cycle in (1, 2):
            before = timer.state()
            with profile():
                assert (gpu_timing().tier, gpu_timing().reason) == ("off", "kineto_active")
                train(100 * cycle)
                gpu.flush()
                sink.wait_for(lambda s, count=40 * cycle: len(basis_of(s)) >= count)
            assert kineto.seen >= 20 * 216
            kineto.seen = 0
            assert tiers._thread.do(lambda: None, 10)
            assert gpu_timing().uses_cupti
            train(100 * cycle + 50)
            timer.flush()
            after = timer.state()
            assert after["events"] - before["events"] in (20, 40)  # the first has those before it
            assert after["foreign_buffers"] == after["dropped"] == 0
        assert timer.state()["events"] - at_start == 60
        shutdown()
        basis = basis_of(sink)
    assert len(basis) == 100
    assert {basis[n] for n in basis if n >= 100 and n % 100 < 50} == {semconv.HOST_BASIS}
    # Of the last run before a profiler nobody can tell whether the GPU has come to its end.
    ours = [n for n in basis if (n < 100 or n % 100 >= 50) and n not in (19, 169)]
    assert {basis[n] for n in ours} == {semconv.CUPTI_BASIS}
