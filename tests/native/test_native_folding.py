"""The span budget: which sections are folded, when, and what a folded span holds."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.client.python_recorder import PythonTimer
from otel_straggler.client.recorder import RecordingSession

from .made_records import NAMES, PHASES, TIMED, TIMED_BY_EVENTS, Gpu, Made, MadeTables, random_runs
from .test_native_spans import OFFSET_NS, packers, spans_of

SECOND_NS = 10**9
TIMERS = [PythonTimer(*name) for name in NAMES]
TABLES = MadeTables(NAMES, PHASES, [RecordingSession("0" * 16, 1)])
HOT, WARM, COOL = "größe", "backward", "forward"
NUMBERS = {HOT: 3, WARM: 2, COOL: 1}


class Rank:
    """A rank with a budget, whose sections run at given rates, ten steps a second."""

    def __init__(self, budget: int) -> None:
        self._packer = packers(budget)[1]
        self._second = 0
        self._span = 0

    def seconds(self, count: int, rates: dict[str, int]) -> list[set[str]]:
        """Names of the sections that were folded in each of so many seconds."""
        return [self._folded(self._runs(rates)) for _ in range(count)]

    def _runs(self, rates: dict[str, int]) -> Iterable[tuple[str, int, int]]:
        self._second += 1
        for tick in range(10):
            step, now_ns = self._second * 10 + tick, self._second * SECOND_NS + tick * 10**8
            for name, rate in rates.items():
                for _ in range(rate // 10):
                    yield name, step, now_ns

    def _folded(self, runs: Iterable[tuple[str, int, int]]) -> set[str]:
        made = Made(TABLES)
        for name, step, end_ns in runs:
            self._span += 1
            made.add(TIMERS, section=NUMBERS[name], span=self._span, start_ns=end_ns - 9,
                     end_ns=end_ns, step=step, step_span=2**40 + step)  # fmt: skip
        spans = spans_of(self._packer.pack_block(made.block, TABLES, OFFSET_NS))
        return {span.name for span in spans if fold_of(span)}


def fold_of(span: Any) -> int:
    """How many runs a folded span stands for; 0 if it is none."""
    return next((a.value.int_value for a in span.attributes if a.key == "straggler.fold.count"), 0)


def test_under_the_budget_nothing_is_folded() -> None:
    """The usual case: some ten sections in some steps a second."""
    assert Rank(200).seconds(60, {COOL: 100, WARM: 90}) == [set()] * 60


def test_without_a_budget_nothing_is_ever_folded() -> None:
    """``span_budget=0``."""
    assert Rank(0).seconds(5, {HOT: 5_000}) == [set()] * 5


def test_the_section_that_saves_most_is_folded_at_once() -> None:
    """In the first second already, before it is sent; and no more sections than needed."""
    folded = Rank(200).seconds(10, {HOT: 2_000, WARM: 300, COOL: 100})
    assert folded[0] >= {HOT}
    assert folded[-1] == {HOT, WARM}
    assert Rank(200).seconds(10, {HOT: 2_000, COOL: 100})[-1] == {HOT}


def test_a_section_that_runs_once_a_step_is_left_alone() -> None:
    """A span for each step is what folding would make of it."""
    assert Rank(15).seconds(10, {HOT: 10, WARM: 10, COOL: 10})[-1] == set()


def test_a_rate_around_the_budget_does_not_flap() -> None:
    """Once folded it stays so, until it would have fitted for 30 s in a row."""
    rank = Rank(200)
    result = [rank.seconds(1, {HOT: 240 if second % 2 else 170})[0] for second in range(300)]
    assert result == [set(), *([{HOT}] * 299)]


def test_a_section_that_has_cooled_down_is_sent_run_by_run_again() -> None:
    """After half a minute in which all would have fitted."""
    rank = Rank(200)
    rank.seconds(5, {HOT: 2_000})
    folded = rank.seconds(60, {HOT: 100})
    assert folded[20] == {HOT}
    assert folded[-1] == set()


@given(st.lists(st.tuples(st.sampled_from([HOT, WARM, COOL]), st.integers(0, 3),
                          st.integers(-(2**62), 2**62))))  # fmt: skip
def test_any_clock_is_survived(runs: list[tuple[str, int, int]]) -> None:
    """Times that jump are judged somehow, and no run is lost."""
    packer = packers(3)[1]
    made = Made(TABLES)
    for span, (name, step, end_ns) in enumerate(runs, 1):
        made.add(TIMERS, section=NUMBERS[name], span=span, start_ns=end_ns - 9, end_ns=end_ns,
                 step=step, step_span=10**9)  # fmt: skip
    spans = spans_of(packer.pack_block(made.block, TABLES, OFFSET_NS))
    assert sum(fold_of(span) or 1 for span in spans) == len(runs)


def hot(runs: int, **reported: Any) -> Made:
    made = Made(TABLES)
    for span in range(1, runs + 1):
        made.add(TIMERS, section=1, span=span, start_ns=10**9, end_ns=10**9 + span, step=1,
                 step_span=10**6, **reported)  # fmt: skip
    return made


def test_a_span_stands_for_4096_runs_at_most() -> None:
    """What a collector reads has a limit."""
    made = hot(10_000)
    spans = spans_of(packers(10)[1].pack_block(made.block, made.tables, OFFSET_NS))
    assert list(map(fold_of, spans)) == [4096, 4096, 10_000 - 8192]


def test_gpu_time_of_folded_runs_is_summed() -> None:
    """Runs that were timed otherwise, or not at all, are spans of their own."""
    _, in_cpp = packers(10)
    made = hot(100, gpu=Gpu(5, 6, 7, 8, TIMED))
    made.parts += hot(50).parts + hot(20, gpu=Gpu(-1, 6, -1, 0, TIMED_BY_EVENTS)).parts
    spans = spans_of(in_cpp.pack_block(made.block, made.tables, OFFSET_NS))
    result = [{a.key: a.value.int_value for a in span.attributes} for span in spans]
    assert [f["straggler.fold.count"] for f in result] == [100, 50, 20]
    assert result[0]["straggler.gpu.kernel_time_ns"] == 500
    assert result[0]["straggler.gpu.kernel_count"] == 800
    assert "straggler.gpu.kernel_count" not in result[1]
    assert {k: v for k, v in result[2].items() if ".gpu." in k} == {
        "straggler.gpu.busy_time_ns": 120
    }


def test_waits_of_folded_runs_are_summed() -> None:
    """Runs that did not wait are folded with those that did."""
    _, in_cpp = packers(10)
    made = hot(30)
    made.parts += hot(20, waited_ns=1).parts
    [span] = spans_of(in_cpp.pack_block(made.block, made.tables, OFFSET_NS))
    result = {a.key: a.value.int_value or a.value.string_value for a in span.attributes}
    assert result["straggler.fold.count"] == 50
    assert result["straggler.collective.wait_time_ns"] == 20
    assert result["straggler.time_basis"] == "collective"


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
