"""Many runs, many threads, forks, clocks that jump: nothing is lost, nothing counted twice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from otel_straggler import section, semconv, step
from otel_straggler.client.python_export import Exporter
from otel_straggler.client.recording import FORM, RECORDER, RECORDING
from otel_straggler.testing import CapturedRequests, FakeClock

IS_FULL = os.environ.get("OTEL_STRAGGLER_TEST_DOSE") == "full"
RUNS = 10_000_000 if IS_FULL else 500_000
JUMPS = 2_000 if IS_FULL else 100
THREADS = 1_000
DAY_S = 86_400.0
LAST_S = 9_223_372_036.0
"""2262, after which nanoseconds no longer fit."""


class Count:
    """Counts what it hears, and remembers nothing."""

    def __init__(self) -> None:
        self.runs = 0

    def hear(self, records: object) -> None:
        self.runs += len(records)  # type: ignore[arg-type]


def test_every_one_of_many_sections_is_counted_once() -> None:
    """Ten million in the long dose. The ring is emptied where nobody else does it."""
    count = Count()
    RECORDING.listen(count.hear)
    RECORDER.empty_here(RECORDING.pull)
    outer, inner = section("outer"), section("inner")
    try:
        for _ in range(RUNS // 2):
            with outer, inner:
                pass
    finally:
        RECORDER.empty_here(None)
        RECORDING.unlisten(count.hear)
    assert count.runs == RUNS
    assert RECORDER.dropped == 0


def test_nothing_is_lost_unnoticed_while_threads_record_and_another_drains() -> None:
    """What a full ring has dropped and what came out of it make the whole."""
    count = Count()
    is_done = threading.Event()
    RECORDER.enable()

    def work() -> None:
        mine = section("work")
        for _ in range(RUNS // 16):
            with mine:
                pass

    def drain() -> None:
        while not is_done.wait(0.001):
            count.hear(RECORDER.drain())

    drainer = threading.Thread(target=drain)
    workers = [threading.Thread(target=work) for _ in range(4)]
    for thread in (drainer, *workers):
        thread.start()
    for thread in workers:
        thread.join()
    is_done.set()
    drainer.join()
    count.hear(RECORDER.drain())
    assert count.runs + RECORDER.dropped == 4 * (RUNS // 16)


def test_a_thousand_threads_each_have_their_own_open_section() -> None:
    """All open at once; the threads that were there before are not disturbed."""
    RECORDER.enable()
    barrier = threading.Barrier(THREADS + 1)

    def work(number: int) -> None:
        with section("outer"), section("inner"):
            barrier.wait(60)
            barrier.wait(60)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(THREADS)]
    with step(1):
        for thread in threads:
            thread.start()
        barrier.wait(60)
        assert RECORDER.open_section() is None  # of the thread that steps
        assert RECORDER.threads >= THREADS
        barrier.wait(60)
        for thread in threads:
            thread.join()
    records = RECORDER.drain()
    names = [record[0][0].name for record in records]
    assert (names.count("inner"), names.count("outer")) == (THREADS, THREADS)
    spans = {record[0][1] for record in records}
    assert len(spans) == 2 * THREADS + 1
    for record in records:
        if record[0][0].name == "inner":
            assert record[1] is not None
            assert record[1][1] in spans


FORK = """
import os
from otel_straggler import section, step
from otel_straggler.client.recording import RECORDER

made = section("made before")

@section("of the parent")
def fork():
    return os.fork()

def names():
    return [record[0][0].name for record in RECORDER.drain()]

RECORDER.enable()
step(1)
begun = made.begin_detached()
with section("open"), made:
    child = fork()
if child == 0:
    made.end_detached(begun, None)
    assert RECORDER.context is None and RECORDER.open_here() == []
    with made, section("unasked"):
        pass
    assert names() == []
    assert RECORDER.open_section() is None and RECORDER.dropped == 0
    RECORDER.enable()
    with made, section("asked"):
        grandchild = os.fork()
    if grandchild == 0:
        assert names() == []
        os._exit(0)
    assert os.waitpid(grandchild, 0)[1] == 0
    assert names() == ["asked", "made before"]
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
made.end_detached(begun, None)
RECORDER.end_step()
assert names() == ["of the parent", "made before", "open", "made before", "step"]
"""


def test_a_child_forked_inside_a_section_records_only_if_it_is_asked_to() -> None:
    """And the parent goes on as if nothing had happened."""
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_fork_children_while_others_record_do_no_harm(seed: int) -> None:
    """A fork may happen while another thread is anywhere in the recorder."""
    program = f"""
import os, threading
from otel_straggler import section
from otel_straggler.client.recording import RECORDER
RECORDER.enable()
stop = threading.Event()
def work():
    while not stop.is_set():
        with section("work"):
            pass
def drain():
    while not stop.is_set():
        RECORDER.drain()
threads = [threading.Thread(target=t) for t in (work, work, drain)]
for thread in threads:
    thread.start()
for n in range({20 + seed}):
    child = os.fork()
    if child == 0:
        RECORDER.enable()
        with section("child"):
            pass
        os._exit(0 if [r[0][0].name for r in RECORDER.drain()] == ["child"] else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("span_budget", [0, 50] if FORM == "native" else [0])
def test_runs_are_counted_once_though_the_wall_clock_jumps(
    make_exporter: Callable[..., Exporter],
    sink: CapturedRequests,
    clock: FakeClock,
    span_budget: int,
) -> None:
    """By a day back and forth, to 1970, to the last second that has a number; folded or not."""
    exporter = make_exporter(span_budget=span_budget)
    rng = random.Random(1)
    for number in range(JUMPS):
        with step(number):
            for _ in range(20):
                with section("work"):
                    pass
        now_s = clock.wall_ns() / 1e9
        jumped_s = rng.choice([now_s - DAY_S, now_s + DAY_S, 0.0, LAST_S, 1_800_000_000.0])
        clock.set_wall(min(max(0.0, jumped_s), LAST_S - 10.0))
        clock.advance(rng.choice([1.0, 1.0, 4_000.0]))
        exporter.tick(clock.monotonic_s())
    assert len([span for span in sink.spans() if span.name == "step"]) == JUMPS
    numbers: list[int] = []
    for span in sink.spans():
        if span.name == "work":
            first, count = span.attributes[semconv.SEQ], span.attributes.get(semconv.FOLD_COUNT, 1)
            numbers += range(first, first + count)
    assert sorted(numbers) == list(range(20 * JUMPS))
