"""Folding in C++ and in Python: the same spans from the same runs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_straggler.record.python_recorder import PythonTimer
from otel_straggler.record.recorder import Epoch
from otel_straggler.wire.folded_spans import LONGEST_NS, write_sketch

from .made_records import NAMES, PHASES, TIMED, TIMED_BY_EVENTS, Gpu, Made, MadeTables, random_runs
from .test_native_spans import OFFSET_NS, decoded, native, packers, spans_of


@given(st.lists(st.integers(0, LONGEST_NS - 1), min_size=1, max_size=200))
def test_sketches_are_the_same(lengths_ns: list[int]) -> None:
    """Whole numbers only, so no rounding can differ."""
    assert native.sketch(lengths_ns) == write_sketch(lengths_ns)


@given(st.integers(0, 2**32), st.integers(1, 300), st.integers(1, 60), st.sampled_from([1, 2]))
def test_folded_spans_are_the_same(seed: int, budget: int, runs: int, one_in: int) -> None:
    """Which sections, which runs, in which place, under which numbers; over several batches."""
    rng = random.Random(seed)
    in_python, in_cpp = packers(budget)
    for _ in range(4):
        made = random_runs(rng, rng.randrange(1, 12), runs)
        expected = in_python.pack(made.records, OFFSET_NS, one_in)
        found = in_cpp.pack_block(made.block, made.tables, OFFSET_NS, one_in)
        assert decoded(found) == decoded(expected)
        assert in_cpp.folded_runs == in_python.folded_runs


@given(st.integers(0, 2**32))
def test_both_change_their_minds_together(seed: int) -> None:
    """Over minutes in which sections become hot and cool down; also if the clock jumps."""
    rng = random.Random(seed)
    in_python, in_cpp = packers(20)
    timers = [PythonTimer(*name) for name in NAMES]
    now = 10**15
    tables = MadeTables(NAMES, PHASES, [Epoch("0" * 16, 1)])
    for _ in range(12):
        made = Made(tables)
        for span in range(1, rng.choice([3, 10, 100])):
            now += rng.choice([10**6, 10**8, 10**10]) if rng.random() < 0.97 else -(10**11)
            section = rng.choice([1, 1, 2, 4])
            made.add(timers, section=section, span=span, start_ns=now - 9, end_ns=now,
                     step=3, step_span=10**9)  # fmt: skip
        expected = in_python.pack(made.records, OFFSET_NS)
        found = in_cpp.pack_block(made.block, tables, OFFSET_NS)
        assert decoded(found) == decoded(expected)


@given(st.lists(st.tuples(st.integers(14, 22), st.sampled_from([3, 31, 35])), max_size=4))
@settings(max_examples=40)
def test_both_let_go_in_the_same_second(stretches: list[tuple[int, int]]) -> None:
    """At rates around the budget, where a hair decides: 20, and 16 to be let go."""
    in_python, in_cpp = packers(20)
    timers = [PythonTimer(*name) for name in NAMES]
    tables = MadeTables(NAMES, PHASES, [Epoch("0" * 16, 1)])
    now = 10**15
    for rate, seconds in [(60, 2), *stretches]:
        for _ in range(seconds):
            made = Made(tables)
            for span in range(1, rate + 1):
                now += 10**9 // rate + 1
                made.add(timers, section=1 + span % 2, span=span, start_ns=now - 9, end_ns=now,
                         step=3, step_span=10**9)  # fmt: skip
            expected = in_python.pack(made.records, OFFSET_NS)
            found = in_cpp.pack_block(made.block, tables, OFFSET_NS)
            assert decoded(found) == decoded(expected)


def hot(runs: int, **told: Any) -> Made:
    made = Made(MadeTables(NAMES, PHASES, [Epoch("0" * 16, 1)]))
    timers = [PythonTimer(*name) for name in NAMES]
    for span in range(1, runs + 1):
        made.add(timers, section=1, span=span, start_ns=10**9, end_ns=10**9 + span, step=1,
                 step_span=10**6, **told)  # fmt: skip
    return made


def test_a_span_stands_for_4096_runs_at_most() -> None:
    """What a collector reads has a limit."""
    for packer in packers(10):
        made = hot(10_000)
        found = (
            packer.pack_block(made.block, made.tables, OFFSET_NS)
            if hasattr(packer, "pack_block")
            else packer.pack(made.records, OFFSET_NS)
        )
        counts = [
            next(a.value.int_value for a in span.attributes if a.key == "straggler.fold.count")
            for span in spans_of(found)
        ]
        assert counts == [4096, 4096, 10_000 - 8192]


def test_gpu_time_of_folded_runs_is_summed() -> None:
    """Runs that were timed otherwise, or not at all, are spans of their own."""
    _, in_cpp = packers(10)
    made = hot(100, gpu=Gpu(5, 6, 7, 8, TIMED))
    made.parts += hot(50).parts + hot(20, gpu=Gpu(-1, 6, -1, 0, TIMED_BY_EVENTS)).parts
    spans = spans_of(in_cpp.pack_block(made.block, made.tables, OFFSET_NS))
    found = [{a.key: a.value.int_value for a in span.attributes} for span in spans]
    assert [f["straggler.fold.count"] for f in found] == [100, 50, 20]
    assert found[0]["straggler.gpu.kernel_time_ns"] == 500
    assert found[0]["straggler.gpu.kernel_count"] == 800
    assert "straggler.gpu.kernel_count" not in found[1]
    assert {k: v for k, v in found[2].items() if ".gpu." in k} == {
        "straggler.gpu.busy_time_ns": 120
    }


def test_the_spans_of_the_fold_tests_are_folded() -> None:
    """A check that folds nothing would show nothing."""
    rng = random.Random(0)
    _, in_cpp = packers(20)
    for _ in range(5):
        made = random_runs(rng, 6, 50)
        in_cpp.pack_block(made.block, made.tables, OFFSET_NS)
    counts = in_cpp.counts
    assert counts["folded_runs"] > 50
    assert pytest.approx(counts["spans"], rel=0.9) == 500
