"""``Detector`` in one process: no GPU, no process group, no endpoint."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import threading
import time
import types
from typing import Any

import pytest

from otel_straggler import detector as straggler
from otel_straggler import phase, section, step
from otel_straggler.client.recording import RECORDER
from otel_straggler.detector import CallableId, Detector, Report, Statistic, StragglerId
from otel_straggler.errors import ConfigError, UsageError
from otel_straggler.report import statistics
from otel_straggler.report.interval import ReportIntervalTracker
from otel_straggler.report.peers import Peers


def run(name: str, times: int = 1) -> None:
    for _ in range(times):
        with Detector.detection_section(name):
            pass


def counts(report: Report | None) -> dict[str, float]:
    assert report is not None
    return {name: stats[Statistic.NUM] for name, stats in report.local_section_summaries.items()}


# --- the face ----------------------------------------------------------------------------------


def test_the_names_are_those_of_the_peer() -> None:
    """A script changes its import line only."""
    assert straggler.__all__ == ["CallableId", "Detector", "Report", "Statistic", "StragglerId"]
    assert [s.name for s in Statistic] == ["MIN", "MAX", "MED", "AVG", "STD", "NUM"]
    assert (str(Statistic.MED), repr(Statistic.MED)) == ("MED", "Statistic.MED")


def test_a_rank_without_a_group_is_scored_against_its_own_past() -> None:
    """Without endpoint and process group: local scores; alone, a rank is the fastest."""
    Detector.initialize(node_name="here")
    run("forward", 6)
    report = Detector.generate_report()
    assert report is not None
    assert report.section_relative_perf_scores == {"forward": {0: 1.0}}
    assert report.section_individual_perf_scores == {"forward": {0: 1.0}}
    assert math.isnan(report.gpu_relative_perf_scores[0])
    assert report.rank_to_node == {0: "here"}
    assert report.rank == 0
    assert report.generate_report_elapsed_time > 0
    assert report.local_kernel_summaries == {}


def test_a_report_is_of_the_time_since_the_last_one() -> None:
    """And one of nothing is empty, not an error."""
    Detector.initialize()
    assert counts(Detector.generate_report()) == {}
    run("a", 3)
    assert counts(Detector.generate_report()) == {"a": 3}
    run("b")
    assert counts(Detector.generate_report()) == {"b": 1}
    assert counts(Detector.generate_report()) == {}


def test_statistics_are_in_milliseconds() -> None:
    """True median, deviation of a sample, NaN for the deviation of one run."""
    Detector.initialize()
    with Detector.detection_section("a"):
        time.sleep(0.01)
    report = Detector.generate_report()
    assert report is not None
    stats = report.local_section_summaries["a"]
    assert 10 <= stats[Statistic.MIN] == stats[Statistic.MAX] == stats[Statistic.MED] < 1000
    assert stats[Statistic.AVG] == pytest.approx(stats[Statistic.MED])
    assert math.isnan(stats[Statistic.STD])


@pytest.mark.parametrize(
    "call",
    [
        lambda: Detector.detection_section("a"),
        Detector.generate_report,
        Detector.generate_report_if_interval_elapsed,
        Detector.is_interval_elapsed,
    ],
)
def test_calls_before_initialize_are_refused(call: Any) -> None:
    """A RuntimeError, as from the peer, that says what to call."""
    with pytest.raises(RuntimeError, match=r"call Detector.initialize\(\) first"):
        call()


def test_a_second_initialize_is_refused_until_shutdown() -> None:
    """And shutdown() may be called at any time."""
    Detector.shutdown()
    Detector.initialize()
    with pytest.raises(UsageError, match=r"shutdown\(\) first"):
        Detector.initialize()
    Detector.shutdown()
    Detector.initialize()
    assert Detector.initialized


def test_detector_has_no_instances() -> None:
    """It is one per process, like the peer's."""
    with pytest.raises(RuntimeError, match="never instantiated"):
        Detector()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"scores_to_compute": "relative"}, "relative_perf_scores"),
        ({"scores_to_compute": ["best"]}, "individual_perf_scores"),
        ({"profiling_interval": 0}, "at least 1"),
        ({"report_time_interval": float("nan")}, "at least 0"),
        ({"report_from": "collectors"}, '"collector"'),
        ({"report_from": "collector", "collector": "host:9464"}, "http://127.0.0.1:9464"),
        ({"endpoint": "collector:4318"}, "http://"),
        ({"process_group": "world"}, "a group of torch.distributed"),
    ],
)
def test_wrong_arguments_are_refused_with_what_was_expected(
    options: dict[str, Any], expected: str
) -> None:
    """At initialize(), so never later; and nothing stays half begun."""
    with pytest.raises((ConfigError, UsageError)) as refusal:
        Detector.initialize(**options)
    assert expected in str(refusal.value)
    assert not Detector.initialized
    assert RECORDER.context is None


# --- sections ------------------------------------------------------------------------------------


def test_a_section_without_a_name_is_named_by_its_place() -> None:
    """File and line of the caller."""
    Detector.initialize()
    for _ in range(2):
        with Detector.detection_section():
            pass
    with Detector.detection_section():
        pass
    result = counts(Detector.generate_report())
    assert sorted(result.values()) == [1, 2]
    assert all(name.startswith(f"{__file__}:") for name in result)


def test_a_run_that_raises_is_not_scored_and_the_error_passes() -> None:
    """An aborted run says nothing about speed."""
    Detector.initialize()
    with pytest.raises(KeyError), Detector.detection_section("a"):
        raise KeyError
    run("a", 2)
    assert counts(Detector.generate_report()) == {"a": 2}


def test_sections_nest_and_come_from_many_threads() -> None:
    """Every run of every thread is counted once."""
    Detector.initialize()

    def work() -> None:
        for _ in range(500):
            with Detector.detection_section("outer"):
                run("inner")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts(Detector.generate_report()) == {"outer": 4000, "inner": 4000}


def test_plain_sections_are_in_the_report_too() -> None:
    """``otel_straggler.section`` and the detector's are one kind of thing."""
    Detector.initialize()
    with section("plain", kind="data"):
        pass
    assert counts(Detector.generate_report()) == {"plain": 1}


def test_sections_of_an_evaluation_are_apart_and_steps_are_no_sections() -> None:
    """The same name in a declared phase is another section, with the kind of the phase."""
    Detector.initialize()
    for number in range(3):
        with step(number):
            run("forward")
    with phase("eval"), step(3):
        run("forward", 2)
    report = Detector.generate_report()
    assert counts(report) == {"forward": 3, "eval/forward": 2, "eval": 1}
    assert report is not None
    assert report.section_kinds == {"forward": "compute", "eval/forward": "eval", "eval": "eval"}


def test_more_sections_than_are_kept_apart_count_as_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Names that vary fill neither the memory nor the report."""
    monkeypatch.setattr(statistics, "MAX_SECTIONS", 2)
    Detector.initialize()
    for number in range(4):
        run(f"section {number}")
    assert counts(Detector.generate_report()) == {"section 0": 1, "section 1": 1, "<other>": 2}


def test_profiling_interval_times_every_nth_run() -> None:
    """The first, the third, ...; as context manager, as decorator and for coroutines."""
    Detector.initialize(profiling_interval=2)
    run("a", 4)

    @Detector.detection_section("decorated")
    def decorated() -> int:
        return 7

    @Detector.detection_section("awaited")
    async def awaited() -> int:
        await asyncio.sleep(0)
        return 8

    assert [decorated() for _ in range(5)] == [7] * 5
    assert [asyncio.run(awaited()) for _ in range(3)] == [8] * 3
    assert counts(Detector.generate_report()) == {"a": 2, "decorated": 3, "awaited": 2}


def test_only_the_newest_runs_of_a_busy_section_are_kept() -> None:
    """8,192 of them, as with the peer; the ring is emptied on the way, so none is lost."""
    Detector.initialize()
    run("busy", 70_000)
    run("rare")
    assert counts(Detector.generate_report()) == {"busy": 8192, "rare": 1}
    assert RECORDER.dropped == 0


def test_without_a_gpu_no_device_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    """``profile_cuda=True`` needs no CUDA; a report synchronises nothing."""
    import torch

    def refuse(*_: Any) -> None:
        raise AssertionError("the device was synchronised")

    monkeypatch.setattr(torch.cuda, "synchronize", refuse)
    Detector.initialize()
    with Detector.detection_section("a", profile_cuda=True):
        pass
    assert counts(Detector.generate_report()) == {"a": 1}


# --- wrapped callables ---------------------------------------------------------------------------


class Model:
    """Methods of every kind."""

    def forward(self, x: int) -> int:
        return x + 1

    @staticmethod
    def loss(x: int) -> int:
        return x + 2

    @classmethod
    def build(cls, x: int) -> tuple[type, int]:
        return cls, x + 3

    async def fetch(self, x: int) -> int:
        await asyncio.sleep(0.02)
        return x + 4


class Child(Model):
    """Inherits them all."""


MODULE = types.ModuleType("a_module")


def _function(x: int) -> int:
    return x * 2


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    monkeypatch.setattr(MODULE, "function", _function, raising=False)
    return MODULE


def test_every_kind_of_callable_is_timed_and_restored(module: types.ModuleType) -> None:
    """Through the class and through an instance; afterwards everything is as it was."""
    model, before = Model(), dict(vars(Model))
    Detector.initialize()
    wanted = [
        CallableId(Model, "loss"),
        CallableId(Model, "build"),
        CallableId(Model, "fetch"),
        CallableId(model, "forward"),
        CallableId(module, "function"),
    ]
    Detector.wrap_callables(wanted)
    for target in (model, Model, model):
        assert target.loss(1) == 3
        assert target.build(1) == (Model, 4)
    assert model.forward(1) == 2
    assert module.function(4) == 8
    assert asyncio.run(model.fetch(1)) == 5
    names = {str(wrapped): wrapped for wrapped in wanted}
    report = Detector.generate_report()
    assert counts(report) == dict(zip(names, [3, 3, 1, 1, 1], strict=True))
    assert f"{Model.__module__}.Model.loss" in names
    assert {"Model.forward", "a_module.function"} < set(names)
    assert report is not None
    fetched = report.local_section_summaries[str(wanted[2])]
    assert fetched[Statistic.MIN] >= 20, "a coroutine's time is until it returns"
    Detector.restore_original_callables()
    assert dict(vars(Model)) == before
    assert vars(model) == {}
    assert module.function is _function
    model.forward(1), model.loss(1), Model.build(1)
    assert counts(Detector.generate_report()) == {}


def test_wrapping_twice_times_once_and_restores_the_original() -> None:
    """Also when the second call wraps something else besides."""
    before = dict(vars(Model))
    Detector.initialize()
    Detector.wrap_callables([CallableId(Model, "forward")])
    Detector.wrap_callables([CallableId(Model, "forward"), CallableId(Model, "loss")])
    assert (Model().forward(1), Model.loss(1)) == (2, 3)
    assert sorted(counts(Detector.generate_report()).values()) == [1, 1]
    Detector.restore_original_callables()
    Detector.restore_original_callables()
    assert dict(vars(Model)) == before
    assert Model().loss(1) == 3


def test_an_inherited_method_is_wrapped_where_it_was_named() -> None:
    """The parent stays as it is; afterwards the child inherits again."""
    Detector.initialize()
    Detector.wrap_callables([CallableId(Child, "forward"), CallableId(Child, "build")])
    assert Model().forward(1) == Child().forward(1) == 2
    assert Child.build(1) == (Child, 4)
    assert sorted(counts(Detector.generate_report()).values()) == [1, 1]
    Detector.shutdown()
    assert set(vars(Child)) <= {"__module__", "__doc__", "__firstlineno__", "__static_attributes__"}


def test_shutdown_restores_callables() -> None:
    """Who forgets to restore leaves no wrapper behind."""
    before = dict(vars(Model))
    Detector.initialize()
    Detector.wrap_callables([CallableId(Model, "loss")])
    Detector.shutdown()
    assert dict(vars(Model)) == before


def test_callables_may_be_wrapped_before_initialize() -> None:
    """They are timed from then on, at the interval then given."""
    Detector.wrap_callables([CallableId(Model, "forward")])
    assert Model().forward(1) == 2
    Detector.initialize(profiling_interval=2)
    assert [Model().forward(n) for n in range(4)] == [1, 2, 3, 4]
    assert list(counts(Detector.generate_report()).values()) == [2]


def test_what_cannot_be_timed_is_refused_with_the_reason() -> None:
    """A name that is not there, a value, a generator, a slot."""

    class Slotted:
        __slots__ = ()
        value = 3

        def method(self) -> None: ...

        def items(self) -> Any:
            yield 1

    Detector.initialize()
    for obj, name, printed in (
        (Slotted, "missing", "no such attribute"),
        (Slotted, "value", "something that can be called"),
        (Slotted, "items", "not a generator"),
        (Slotted(), "method", "on the class instead"),
    ):
        with pytest.raises(UsageError, match=printed):
            Detector.wrap_callables([CallableId(obj, name)])


def test_a_torch_module_can_be_wrapped_and_restored() -> None:
    """Its forward, on the object; a submodule in its place is refused with the remedy."""
    from torch import nn, ones

    layer = nn.Sequential(nn.Linear(2, 2))
    Detector.initialize()
    Detector.wrap_callables([CallableId(layer, "forward")])
    layer(ones(1, 2))
    assert counts(Detector.generate_report()) == {"Sequential.forward": 1}
    with pytest.raises(UsageError, match="'forward' of a torch module"):
        Detector.wrap_callables([CallableId(layer, "0")])
    Detector.restore_original_callables()
    assert "forward" not in vars(layer)


# --- when a report is due ------------------------------------------------------------------------


class Steps:
    """A loop with step times that are told."""

    def __init__(self, interval_s: float, minimum: int = 1) -> None:
        self.now_s = 0.0
        self.interval = ReportIntervalTracker(
            interval_s, minimum, peers=lambda: Peers(0), monotonic_s=lambda: self.now_s
        )

    def make(self, *lengths_s: float) -> list[int]:
        """At which of these iterations a report was due."""
        due = []
        for length_s in lengths_s:
            self.now_s += length_s
            self.interval.iter_increase()
            if self.interval.is_interval_elapsed():
                due.append(self.interval.current_iter)
        return due


def test_no_report_is_due_before_17_iterations() -> None:
    """Sixteen times are needed to know how long an iteration takes."""
    steps = Steps(0.5)
    assert steps.make(*[0.01] * 16) == []
    assert steps.interval.iter_interval is None
    steps.make(0.01)
    assert steps.interval.iter_interval == 50
    assert steps.make(*[0.01] * 200) == [50, 100, 150, 200]


def test_slow_first_iterations_do_not_matter() -> None:
    """Compilation and warm-up take long; the median is taken."""
    steps = Steps(0.5)
    steps.make(*[5.0] * 4, *[0.01] * 13)
    assert steps.interval.iter_interval == 50


def test_reports_are_never_more_frequent_than_profiled_runs() -> None:
    """The profiling interval is the least."""
    steps = Steps(0.001, minimum=10)
    steps.make(*[0.01] * 17)
    assert steps.interval.iter_interval == 10


def test_reports_of_the_loop_follow_the_interval() -> None:
    """None between them; is_interval_elapsed() says whether the last call made one."""
    Detector.initialize(report_time_interval=0)
    made = []
    for _ in range(20):
        run("a")
        report = Detector.generate_report_if_interval_elapsed()
        assert Detector.is_interval_elapsed() == (report is not None)
        made.append(report is not None)
    assert made == [False] * 16 + [True] * 4


# --- thresholds ----------------------------------------------------------------------------------


def test_stragglers_are_strictly_below_their_threshold() -> None:
    """Four thresholds of 0.75, each for its own kind of score; NaN is never below."""
    scores = {0: 1.0, 1: 0.75, 2: 0.7, 3: float("nan")}
    report = Report(
        gpu_relative_perf_scores=scores,
        gpu_individual_perf_scores=scores,
        section_relative_perf_scores={"a": scores, "b": {0: 1.0}},
        section_individual_perf_scores={"a": scores},
        rank_to_node={rank: f"node-{rank}" for rank in scores},
    )
    two, one = StragglerId(2, "node-2"), StragglerId(1, "node-1")
    assert report.identify_stragglers() == {
        "straggler_gpus_relative": {two},
        "straggler_gpus_individual": {two},
        "straggler_sections_relative": {"a": {two}},
        "straggler_sections_individual": {"a": {two}},
    }
    assert report.identify_stragglers(0.8, 0.9, 0.5, 0.6) == {
        "straggler_gpus_relative": {one, two},
        "straggler_gpus_individual": set(),
        "straggler_sections_relative": {"a": {one, two}},
        "straggler_sections_individual": {},
    }


# --- the process -----------------------------------------------------------------------------


def in_a_process(program: str, **env: str) -> str:
    """What a program prints."""
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **env, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    return answer.stdout.strip()


def test_without_an_endpoint_there_is_no_network_and_no_thread() -> None:
    """Nor is torch imported, if the program does not."""
    program = """
import sys, threading
opened = []
sys.addaudithook(lambda event, args: opened.append(event) if event.startswith("socket.") else None)
from otel_straggler.detector import Detector
Detector.initialize(node_name="n")
for _ in range(20):
    with Detector.detection_section("a"):
        pass
    Detector.generate_report_if_interval_elapsed()
report = Detector.generate_report()
Detector.shutdown()
print(len(report.local_section_summaries), threading.active_count(), opened, "torch" in sys.modules)
"""
    assert in_a_process(program) == "1 1 [] False"


def test_switched_off_it_does_nothing_and_breaks_nothing() -> None:
    """A script that reads the report of rank 0 still runs; others get None as ever."""
    program = """
from otel_straggler.detector import Detector
Detector.initialize()
with Detector.detection_section("a"):
    pass
report = Detector.generate_report()
print(report and (report.section_relative_perf_scores, report.gpu_relative_perf_scores))
Detector.shutdown()
"""
    for name in ("OTEL_STRAGGLER_DISABLED", "OTEL_SDK_DISABLED"):
        assert in_a_process(program, **{name: "true"}) == "({}, {})"
    assert in_a_process(program, OTEL_STRAGGLER_DISABLED="1", RANK="1") == "None"


def test_a_forked_worker_records_nothing_and_may_begin_anew() -> None:
    """Sections in a data loader's worker are nothing at all; a forked trainer initializes."""
    program = """
import os
from otel_straggler.detector import Detector
Detector.initialize()
read, write = os.pipe()
if os.fork() == 0:
    with Detector.detection_section("worker"):
        pass
    before = Detector.initialized
    Detector.initialize()
    with Detector.detection_section("own"):
        pass
    report = Detector.generate_report()
    os.write(write, f"{before} {list(report.local_section_summaries)}".encode())
    os._exit(0)
os.wait()
print(os.read(read, 100).decode(), list(Detector.generate_report().local_section_summaries))
"""
    assert in_a_process(program) == "False ['own'] []"
