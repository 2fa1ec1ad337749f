"""What each fault does to its process, and that it is undone."""

from __future__ import annotations

import errno
import resource
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.client.sections import Section
from otel_straggler.errors import UnavailableError
from otel_straggler.inject.effects import IN_PROCESS, InjectedError, Surroundings
from otel_straggler.inject.faults import KINDS, Fault, Place
from otel_straggler.inject.injector import EFFECTS
from otel_straggler.inject.plan import InjectionPlan
from otel_straggler.inject.slow_sections import SLOW


def surroundings(section_type: type[Any] = Section, **plan: str) -> Surroundings:
    return Surroundings(Place(rank=1, local_rank=1), InjectionPlan(**plan), section_type)


def effect(text: str, **plan: str) -> Any:
    fault = Fault.parse(text)
    return EFFECTS[fault.kind](fault, surroundings(**plan))


def test_every_kind_has_an_effect():
    """And no effect is of no kind."""
    assert EFFECTS.keys() == KINDS.keys()
    assert not IN_PROCESS.keys() & SLOW.keys()


def test_a_stuck_rank_waits_for_a_lock_until_its_fault_ends():
    """The main thread stands still while another thread goes on."""
    released: list[float] = []

    def fault_thread() -> None:
        with effect("rank_stuck@rank1:0s+30s"):
            time.sleep(0.2)
            released.append(time.monotonic())

    thread = threading.Thread(target=fault_thread)
    longest_s, before_s = 0.0, time.monotonic()
    thread.start()
    while thread.is_alive():
        time.sleep(0.001)
        now_s = time.monotonic()
        longest_s, before_s = max(longest_s, now_s - before_s), now_s
    assert max(longest_s, time.monotonic() - before_s) > 0.1
    assert released


def test_a_locked_gil_stops_every_thread_of_python():
    """For as long as the fault says."""
    seen = [time.monotonic()]
    is_over = threading.Event()

    def fault_thread() -> None:
        with effect("gil_locked@rank1:0s+0.2s"):
            is_over.set()

    thread = threading.Thread(target=fault_thread)
    thread.start()
    while not is_over.is_set():
        seen.append(time.monotonic())
    thread.join()
    seen.append(time.monotonic())
    assert max(b - a for a, b in pairwise(seen)) > 0.1


def test_an_exception_is_raised_in_the_main_thread():
    """Whatever it runs then."""

    def fault_thread() -> None:
        with effect("exception@rank1:0s"):
            pass

    def train() -> None:
        threading.Thread(target=fault_thread).start()
        ends_s = time.monotonic() + 20.0
        while time.monotonic() < ends_s:
            time.sleep(0.001)

    with pytest.raises(InjectedError, match="OTEL_STRAGGLER_INJECT"):
        train()


def test_a_leak_takes_memory_and_gives_it_back():
    """200 MiB a second for a moment, but at most half of what is available."""

    def resident_mib() -> float:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    before = resident_mib()
    with effect("memory_leak:400@rank1:0s"):
        ends_s = time.monotonic() + 20.0
        while resident_mib() < before + 40.0 and time.monotonic() < ends_s:
            time.sleep(0.01)
        assert resident_mib() >= before + 40.0
    assert resident_mib() < before + 30.0


def test_a_full_disk_limits_the_files_of_the_process(tmp_path: Path):
    """Nothing is written to the disk for it, and the limit is as before at the end."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with effect("disk_full:0.01@rank1:0s"):
        with (tmp_path / "checkpoint").open("wb", buffering=0) as file:
            assert file.write(bytes(20_000)) == int(0.01 * 2**20)
            with pytest.raises(OSError, match="too large") as refused:
                file.write(b"x")
        assert refused.value.errno == errno.EFBIG
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == before
    (tmp_path / "checkpoint").write_bytes(bytes(20_000))


def test_the_disk_of_the_host_is_never_filled(tmp_path: Path):
    """A folder must be on a file system of its own."""
    with (
        pytest.raises(UnavailableError, match="a file system of its own"),
        effect("disk_full:1@rank1:0s", folder=str(Path.home())),
    ):
        pytest.fail("it was filled")


def test_a_folder_on_a_disk_of_its_own_has_a_file_while_the_fault_lasts():
    """/dev/shm is memory, not the host's disk."""
    folder = Path("/dev/shm")
    if not folder.is_dir() or folder.stat().st_dev == Path("/").stat().st_dev:
        pytest.skip("/dev/shm is no file system of its own: filling a folder was not tried")
    with effect("disk_full:1@rank1:0s+20s", folder=str(folder)):
        (file,) = folder.glob("otel-straggler-disk-full-*")
        assert file.stat().st_size == 2**20
    assert not list(folder.glob("otel-straggler-disk-full-*"))


# --- slow ranks ---------------------------------------------------------------------------------


class Timer:
    """A section as the injector sees it."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind

    def __enter__(self) -> Timer:
        return self

    def __exit__(self, *_: object) -> None: ...

    def begin(self, _work: object) -> None: ...


class Sections(Timer):
    """Whose methods are inherited, as those of ``Section`` are."""


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that faults have slept, by a clock that only they and ``work`` move."""
    result: list[float] = []
    clock = [0.0]
    from otel_straggler.inject import slow_sections

    def sleep(seconds: float) -> None:
        result.append(round(seconds, 6))
        clock[0] += seconds

    class Clock:
        perf_counter = staticmethod(lambda: clock[0])

    Clock.sleep = staticmethod(sleep)  # type: ignore[attr-defined]
    monkeypatch.setattr(slow_sections, "time", Clock)
    monkeypatch.setattr(Sections, "clock", clock, raising=False)
    return result


def work(seconds: float) -> None:
    Sections.clock[0] += seconds  # type: ignore[attr-defined]


def slow(text: str) -> Any:
    fault = Fault.parse(text)
    return EFFECTS[fault.kind](fault, surroundings(Sections))


def run_step() -> None:
    for name, kind in (("load", "data"), ("forward", "compute"), ("sync", "wait")):
        with Sections(name, kind):
            work(1.0)
    backward = Sections("backward", "compute")
    backward.begin(None)
    with Sections("layer", "compute"):
        work(2.0)
    backward.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("compute:1.5@all:0s", [0.5, 1.0]),
        ("forward:3@all:0s", [2.0]),
        ("backward:1.25@all:0s", [0.5]),
        ("data:0.2@all:0s", [0.2]),
        ("late:0.3@all:0s", [0.3]),
    ],
)
def test_a_slow_rank_takes_longer_in_its_sections(
    slept: list[float], text: str, expected: list[float]
):
    """Of sections inside one another the outer one counts once; the class is as before then."""
    before = dict(vars(Sections))
    with slow(text):
        run_step()
    assert slept == expected
    assert dict(vars(Sections)) == before
    run_step()
    assert slept == expected


def test_two_slow_faults_at_once_add_up_and_end_each(slept: list[float]):
    """The first that ends takes only its own part away."""
    one, two = slow("data:0.2@all:0s"), slow("compute:2@all:0s")
    with one:
        with two:
            run_step()
        assert slept == [0.2, 1.0, 2.0]
        slept.clear()
        run_step()
    assert slept == [0.2]


def test_a_slow_fault_that_found_no_section_says_so(
    slept: list[float], caplog: pytest.LogCaptureFixture
):
    """A loop that marks nothing is not slowed silently never."""
    with slow("compute:2@all:0s"):
        pass
    assert "made nothing slower" in caplog.text
    assert slept == []


def test_the_real_section_is_as_before_after_a_slow_fault():
    """It inherits its methods from C++ or from the recorder in Python."""
    before = set(vars(Section))
    with effect("data:0.01@all:0s"), Section("load", "data"):
        pass
    assert set(vars(Section)) == before
