"""What code written against NVRx relies on besides the calls themselves: modules, attributes, names
that are no text, arguments by position, plain values."""

from __future__ import annotations

import asyncio
import copy
import json
import math
import pickle
import threading
from typing import Any

import pytest

from otel_straggler import detector as straggler
from otel_straggler.client.recording import FORM
from otel_straggler.detector import CallableId, Detector, Report, Statistic, reporting
from otel_straggler.detector.interval_tracker import ReportIntervalTracker
from otel_straggler.errors import ConfigError
from otel_straggler.report.peers import Peers

RELATIVE, INDIVIDUAL = "relative_perf_scores", "individual_perf_scores"
native_only = pytest.mark.skipif(
    FORM != "native", reason="the extension was not built: it counts executions that are not timed"
)


def run(name: Any, times: int = 1, **options: Any) -> None:
    for _ in range(times):
        with Detector.detection_section(name, **options):
            pass


def counts(report: Report | None) -> dict[Any, float]:
    assert report is not None
    return {name: each[Statistic.NUM] for name, each in report.local_section_summaries.items()}


# --- modules and attributes ------------------------------------------------------------------


def test_the_modules_that_the_documentation_names_exist() -> None:
    """Also as attributes of the package, as after one import of it."""
    assert straggler.straggler.Detector is Detector
    assert straggler.straggler.CallableId is CallableId
    assert straggler.reporting.Report is Report
    assert straggler.reporting.StragglerId is straggler.StragglerId
    assert straggler.reporting.ReportGenerator is reporting.ReportGenerator
    assert straggler.statistics.Statistic is Statistic
    assert straggler.interval_tracker.ReportIntervalTracker is ReportIntervalTracker


def test_the_attributes_that_the_documentation_names_exist() -> None:
    """While the detector runs; afterwards nothing of it is left."""
    Detector.initialize(report_time_interval=5.0, profiling_interval=3, gather_on_rank0=False)
    assert Detector.initialized
    assert Detector.scores_to_compute == [RELATIVE, INDIVIDUAL]
    assert (Detector.gather_on_rank0, Detector.profiling_interval) == (False, 3)
    assert Detector.report_time_interval == 5.0
    assert Detector.reporter is not None
    assert Detector.reporter.gather_on_rank0 is False
    assert Detector.report_interval_tracker is not None
    assert Detector.report_interval_tracker.time_interval == 5.0
    assert Detector.cupti_manager is not None
    assert Detector.cupti_manager.get_results() == {}
    assert not Detector.cupti_manager.is_initialized
    assert (Detector.custom_sections, Detector.original_callables) == ({}, {})
    Detector.shutdown()
    assert Detector.cupti_manager is Detector.reporter is Detector.report_interval_tracker is None


def test_custom_sections_have_the_times_of_this_window() -> None:
    """By name, with where they were opened first; a report begins a new window."""
    Detector.initialize()
    run("forward", 3)
    run(1)
    section = Detector.custom_sections["forward"]
    assert list(Detector.custom_sections) == ["forward", 1]
    assert len(Detector.custom_sections) == 2
    assert section.name == "forward"
    assert section.location.startswith(f"{__file__}:")
    assert len(section.cpu_elapsed_times) == 3
    assert 0 < max(section.cpu_elapsed_times) < 1000
    Detector.generate_report()
    assert len(Detector.custom_sections["forward"].cpu_elapsed_times) == 0
    with pytest.raises(KeyError):
        Detector.custom_sections["backward"]


@native_only
def test_custom_sections_count_executions_that_are_not_timed_too() -> None:
    """As many entries as there were."""
    Detector.initialize(profiling_interval=2)
    run("forward", 5)
    assert Detector.custom_sections["forward"].total_entry_cnt == 5
    assert len(Detector.custom_sections["forward"].cpu_elapsed_times) == 3


class Model:
    def forward(self) -> int:
        return 7


def test_original_callables_are_what_was_replaced() -> None:
    """By the identifier that named them, until they are restored."""
    before = Model.forward
    Detector.initialize()
    wanted = CallableId(Model, "forward")
    Detector.wrap_callables([wanted])
    assert Detector.original_callables == {wanted: before}
    assert Model.forward is not before
    Detector.restore_original_callables()
    assert Detector.original_callables == {}
    assert Model.forward is before


def test_the_interval_tracker_of_the_detector_is_the_one_that_decides() -> None:
    """Its iteration, and whether a report is due."""
    Detector.initialize(report_time_interval=0)
    tracker = Detector.report_interval_tracker
    assert tracker is not None
    for n in range(tracker.INTERVAL_ESTIMATION_ITERS + 5):
        assert tracker.current_iter == n
        assert (tracker.iter_interval is not None) == (n > tracker.INTERVAL_ESTIMATION_ITERS)
        report = Detector.generate_report_if_interval_elapsed()
        assert tracker.is_interval_elapsed() == (report is not None)
        assert tracker.is_interval_elapsed() == Detector.is_interval_elapsed()


def test_a_tracker_by_itself_counts_alone() -> None:
    """Without a process group; step times are not needed after the estimate."""
    clock = iter(0.01 * n for n in range(100))
    tracker = ReportIntervalTracker(monotonic_s=lambda: next(clock))
    tracker.time_interval = 0.5
    for _ in range(17):
        assert tracker.iter_interval is None
        tracker.iter_increase()
    assert tracker.iter_interval == 50
    assert tracker.step_times == []


def test_the_interval_is_estimated_by_the_lower_median() -> None:
    """Eight iterations of 10 ms and eight of 20 ms: an iteration takes 10 ms."""
    lengths_s = [0.0, *[0.01] * 8, *[0.02] * 8]
    clock = iter([sum(lengths_s[: n + 1]) for n in range(17)])
    tracker = ReportIntervalTracker(1.0, peers=lambda: Peers(0), monotonic_s=lambda: next(clock))
    for _ in range(17):
        tracker.iter_increase()
    assert tracker.iter_interval == 100


# --- what is computed --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("all", [RELATIVE, INDIVIDUAL]),
        (RELATIVE, [RELATIVE]),
        (INDIVIDUAL, [INDIVIDUAL]),
        ({INDIVIDUAL, RELATIVE}, [RELATIVE, INDIVIDUAL]),
        ((INDIVIDUAL,), [INDIVIDUAL]),
        ([], []),
    ],
    ids=["all", "relative", "individual", "set", "tuple", "none"],  # a set prints in any order
)
def test_scores_to_compute_may_be_one_name_or_any_collection(given: Any, expected: Any) -> None:
    """A bare name, a set, a tuple."""
    Detector.initialize(scores_to_compute=given)
    run("a", 6)
    report = Detector.generate_report()
    assert report is not None
    assert Detector.scores_to_compute == expected
    assert bool(report.section_relative_perf_scores) == (RELATIVE in expected)
    assert bool(report.section_individual_perf_scores) == (INDIVIDUAL in expected)


def test_names_that_differ_are_kept_apart_and_come_back_as_given() -> None:
    """The empty name, numbers and tuples are keys like any other; so is the text of each."""
    Detector.initialize()
    names: list[Any] = ["", 1, "1", 2.5, ("layer", 3), "('layer', 3)", None.__class__]
    for times, name in enumerate(names, 1):
        run(name, times)
    report = Detector.generate_report()
    assert report is not None
    assert counts(report) == {name: times for times, name in enumerate(names, 1)}
    assert set(report.section_relative_perf_scores) == set(names)
    assert set(report.section_individual_perf_scores) == set(names)
    assert report.identify_stragglers()["straggler_sections_relative"] == {}


def test_a_name_that_cannot_be_hashed_is_reported_by_its_text() -> None:
    """NVRx raises TypeError; telemetry does not stop a training for that."""
    Detector.initialize()
    run(["a", "list"], 2)
    assert counts(Detector.generate_report()) == {"['a', 'list'] (list)": 2}


def test_the_number_of_executions_is_an_int_and_summaries_are_plain() -> None:
    """They can be copied, changed and sent to another process."""
    Detector.initialize()
    run("a", 3)
    report = Detector.generate_report()
    assert report is not None
    summary = report.local_section_summaries["a"]
    assert type(summary[Statistic.NUM]) is int
    assert type(report.local_section_summaries) is dict
    copied = report.local_section_summaries.copy()
    copied["b"] = {}
    assert list(report.local_section_summaries) == ["a"]
    assert copy.deepcopy(report).local_section_summaries == {"a": summary}
    assert pickle.loads(pickle.dumps(report)).local_section_summaries.keys() == {"a"}
    assert json.dumps({str(key): value for key, value in summary.items() if value == value})


def test_a_report_takes_its_fields_by_position() -> None:
    """In the order of NVRx."""
    scores = {0: 1.0, 1: 0.5}
    report = Report(scores, {"a": scores}, {}, {}, {0: "x", 1: "y"}, {}, {}, 1.5, False, 1)
    assert report.generate_report_elapsed_time == 1.5
    assert (report.gather_on_rank0, report.rank) == (False, 1)
    assert {s.node for s in report.identify_stragglers()["straggler_gpus_relative"]} == {"y"}


# --- sampling ----------------------------------------------------------------------------------


def test_the_profiling_interval_may_change_while_the_detector_runs() -> None:
    """For sections that are known already, for wrapped callables, and back."""
    Detector.initialize()
    Detector.wrap_callables([CallableId(Model, "forward")])
    model = Model()

    def six() -> dict[Any, float]:
        for _ in range(6):
            run("named")
            with Detector.detection_section():
                model.forward()
        return {
            "unnamed" if ":" in name else name: each
            for name, each in counts(Detector.generate_report()).items()
        }

    wrapped = f"{__name__}.Model.forward"
    assert six() == {"named": 6, "unnamed": 6, wrapped: 6}
    Detector.profiling_interval = 3
    assert Detector.profiling_interval == 3
    assert six() == {"named": 2, "unnamed": 2, wrapped: 2}
    Detector.profiling_interval = 1
    assert six() == {"named": 6, "unnamed": 6, wrapped: 6}


@pytest.mark.parametrize("wrong", [0, -1, math.nan, "2"])
def test_a_profiling_interval_that_cannot_be_is_refused(wrong: Any) -> None:
    """And the one before stays."""
    Detector.initialize(profiling_interval=2)
    with pytest.raises(ConfigError, match="at least 1"):
        Detector.profiling_interval = wrong
    assert Detector.profiling_interval == 2


def test_an_execution_inside_of_one_that_is_not_timed_has_its_own_time() -> None:
    """A section within itself: each end belongs to the newest beginning."""
    Detector.initialize(profiling_interval=2)
    again = Detector.detection_section("again")
    for _ in range(4):  # timed, not, timed, not, ...
        with again, Detector.detection_section("again"), Detector.detection_section("other"):
            pass
    assert counts(Detector.generate_report()) == {"again": 4, "other": 2}


def test_threads_share_the_turns_of_a_section() -> None:
    """Every other of all executions, whoever makes them; none ends another's."""
    Detector.initialize(profiling_interval=2)
    threads = [threading.Thread(target=run, args=("shared", 500)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts(Detector.generate_report()) == {"shared": 1000}


def test_coroutines_that_interleave_are_sampled_one_by_one() -> None:
    """Those that are not timed end none that are."""
    Detector.initialize(profiling_interval=2)

    async def work(turns: int) -> None:
        with Detector.detection_section("work"):
            for _ in range(turns):
                await asyncio.sleep(0)

    async def all_of_them() -> None:
        await asyncio.gather(*[work(turns) for turns in (3, 1, 2, 1, 4, 2)])

    asyncio.run(all_of_them())
    assert counts(Detector.generate_report()) == {"work": 3}


# --- unnamed -----------------------------------------------------------------------------------


def test_two_sections_without_a_name_in_one_line_are_one() -> None:
    """A section's name is its file and line, in whatever function it is opened."""
    Detector.initialize()
    for _ in range(3):
        with Detector.detection_section(), Detector.detection_section(profile_cuda=False):
            pass
    [(name, executions)] = counts(Detector.generate_report()).items()
    assert name.startswith(f"{__file__}:")
    assert executions == 6


def test_many_places_without_a_name_are_all_told_apart() -> None:
    """More than are kept at hand: each is found again by its line."""
    lines = "\n".join(["with section():\n    pass"] * 3000)
    code = compile(lines, "many.py", "exec")
    Detector.initialize()
    for _ in range(2):
        exec(code, {"section": Detector.detection_section})
    Detector.cupti_manager  # noqa: B018  nothing of it is needed
    result = Detector.custom_sections
    assert len(result) == 3000
    assert {len(result[f"many.py:{2 * n + 1}"].cpu_elapsed_times) for n in range(0, 999, 97)} == {2}


def test_wrong_arguments_of_a_section_are_refused() -> None:
    """As of any function with this signature."""
    Detector.initialize()
    for args, options in (
        (("a", True, 3), {}),
        (("a",), {"name": "b"}),
        (("a",), {"cuda": True}),
        (("a", True), {"profile_cuda": True}),
    ):
        with pytest.raises(TypeError):
            Detector.detection_section(*args, **options)
    with Detector.detection_section(profile_cuda=True, name="a"):
        pass
    assert counts(Detector.generate_report()) == {"a": 1}


# --- few executions ------------------------------------------------------------------------------


@pytest.mark.parametrize("executions", [1, 2, 3, 4])
def test_few_executions_a_window_give_a_real_score_or_none(ranks: Any, executions: int) -> None:
    """Three times slower than before is 1/3 as soon as there is a reference, never 1.0; before
    there is one, there is no score."""
    fast, slow = {"a": [0.01] * executions}, {"a": [0.03] * executions}
    windows = [*[fast] * 6, slow, slow]
    answers = ranks.do(
        "detector", *[{"rows": windows}] * 4, options={"scores_to_compute": INDIVIDUAL}
    )
    scores = [report["section_individual"]["a"][2] for report in answers[0]]
    assert scores[-2:] == pytest.approx([1 / 3, 1 / 3], rel=1e-3)
    without = -(-5 // executions) - 1
    assert all(math.isnan(score) for score in scores[:without])
    assert scores[without:-2] == [1.0] * (6 - without)


def test_a_slow_second_window_of_few_executions_never_scores_as_fast(ranks: Any) -> None:
    """Whatever came before is too little, or the reference."""
    for executions in (1, 2, 3, 4):
        fast, slow = [0.01] * executions, [0.03] * executions
        answers = ranks.do("detector", *[{"rows": [{"a": fast}, {"a": slow}]}] * 4, options={})
        score = answers[0][1]["section_individual"]["a"][0]
        assert math.isnan(score) or score == pytest.approx(1 / 3, rel=1e-3)


def test_one_fast_execution_of_few_is_no_reference(ranks: Any) -> None:
    """Two must confirm it; else one lucky execution would make a rank slow for ever."""
    windows = [{"a": [0.0001]}, *[{"a": [0.01]}] * 6]
    answers = ranks.do("detector", *[{"rows": windows}] * 4, options={})
    scores = [report["section_individual"]["a"][0] for report in answers[0]]
    assert scores == pytest.approx([math.nan] * 4 + [1.0] * 3, nan_ok=True)


def test_kernels_of_few_executions_have_no_own_past_either(ranks: Any) -> None:
    """Nothing that is known: no score, not 1.0."""

    def windows(*medians_us: float) -> dict[str, Any]:
        return {"rows": [{"kernels": {"gemm": [m, m, 3]}} for m in medians_us]}

    answers = ranks.do("windows", *[windows(10.0, 30.0, 30.0)] * 4, settings={})
    scores = [report["gpu_individual"][0] for report in answers[0]["reports"]]
    assert scores == pytest.approx([math.nan, 1 / 3, 1 / 3], nan_ok=True)


# --- NVRx's own tests of its report generator, as facts -------------------------------------------


def summary(*times: float) -> list[float]:
    """[median, mean, executions]"""
    return [sorted(times)[len(times) // 2], sum(times) / len(times), len(times)]


def kernels(factor: float, *names: str) -> dict[str, list[float]]:
    base = {"kernel0": (1.0, 1.0, 2.0), "kernel1": (2.0, 2.0, 3.0)}
    return {name: summary(*(factor * time for time in base[name])) for name in names or base}


def generated(ranks: Any, rows: list[list[Any]], **options: Any) -> list[Any]:
    """Reports by rank of ``ReportGenerator``; ``rows``: by window, by rank, (sections, kernels)."""
    by_rank = [{"rows": [window[rank] for window in rows]} for rank in range(4)]
    return ranks.do("generated", *by_rank, **options)  # type: ignore[no-any-return]


def test_a_generator_scores_kernels_against_their_own_best(ranks: Any) -> None:
    """As times grow the score falls; missing kernels do not matter; new ones score 1; a faster
    window is the new reference. All with three executions a window."""
    windows = [
        kernels(1.0),
        kernels(1.25),
        kernels(2.0),
        kernels(3.0),
        kernels(4.0, "kernel0"),
        kernels(5.0, "kernel1"),
        {},
        {"new": summary(1.0, 1.0, 2.0)},
        kernels(0.5),
        kernels(1.0),
    ]
    expected = [1.0, 1 / 1.25, 0.5, 1 / 3, 0.25, 0.2, math.nan, 1.0, 1.0, 0.5]
    rows = [[({}, window)] * 4 for window in windows]
    for gather in (True, False):
        answers = generated(ranks, rows, scores=[INDIVIDUAL], gather=gather)
        for rank in range(4):
            reports = answers[0 if gather else rank]
            scores = [report["gpu_individual"][rank] for report in reports]
            assert scores == pytest.approx(expected, nan_ok=True)
            assert all(report["gpu_relative"] == {} for report in reports)
        assert all(report is None for report in answers[1]) == gather


@pytest.mark.parametrize("gather", [True, False])
def test_a_generator_scores_ranks_against_the_fastest(ranks: Any, gather: bool) -> None:
    """1, 1/2, 1/3, 1/4, without NCCL's kernels; not gathered every rank knows itself and its node
    alone."""
    nccl = {"ncclDevKernel_AllReduce_Sum": summary(10.0, 20.0, 30.0)}
    row = [({}, {**kernels(rank + 1.0), **nccl}) for rank in range(4)]
    answers = generated(ranks, [row], scores=[RELATIVE], gather=gather)
    every = {rank: pytest.approx(1 / (rank + 1)) for rank in range(4)}
    nodes = {rank: f"node-{rank}" for rank in range(4)}
    for rank, [report] in enumerate(answers):
        if gather and rank:
            assert report is None
            continue
        assert report["gpu_relative"] == (every if gather else {rank: every[rank]})
        assert report["nodes"] == (nodes if gather else {rank: nodes[rank]})
        assert report["gpu_individual"] == {}
        assert "ncclDevKernel_AllReduce_Sum" not in report["kernels"]


@pytest.mark.parametrize("others", ["own kernels", "no kernels"])
def test_a_generator_compares_only_what_all_ranks_ran(ranks: Any, others: str) -> None:
    """One common kernel is enough; a rank without any leaves all ranks without a score, and a
    section that one rank lacks likewise. The detector itself leaves only that rank out."""
    some = [
        ({"s": summary(1.0)}, {"common": summary(rank + 1.0), f"own {rank}": summary(2.0)})
        for rank in range(4)
    ]
    lacking: tuple[Any, Any] = ({}, {"own": summary(9.0)} if others == "own kernels" else {})
    answers = generated(ranks, [some, [*some[:2], lacking, some[3]]], scores="all", gather=True)
    first, second = answers[0]
    assert first["gpu_relative"] == {rank: pytest.approx(1 / (rank + 1)) for rank in range(4)}
    assert first["section_relative"]["s"] == dict.fromkeys(range(4), 1.0)
    assert all(math.isnan(score) for score in second["gpu_relative"].values())
    assert all(math.isnan(score) for score in second["section_relative"]["s"].values())


def test_a_generator_alone_is_the_fastest() -> None:
    """Without a process group; the summaries come back."""
    generator = reporting.ReportGenerator([RELATIVE], gather_on_rank0=False, node_name="here")
    for factor in (1.0, 1.25):
        summaries = {
            name: {Statistic.MED: med, Statistic.AVG: avg, Statistic.NUM: num}
            for name, (med, avg, num) in kernels(factor).items()
        }
        report = generator.generate_report({}, kernel_summaries=summaries)
        assert report is not None
        assert report.gpu_relative_perf_scores == {0: 1.0}
        assert report.rank_to_node == {0: "here"}
        assert report.local_kernel_summaries == summaries


def test_the_reporter_of_the_detector_scores_given_summaries() -> None:
    """With its settings."""
    Detector.initialize(scores_to_compute=RELATIVE, node_name="here")
    assert Detector.reporter is not None
    summaries = {"s": {Statistic.MED: 1.0, Statistic.AVG: 1.0, Statistic.NUM: 9}}
    report = Detector.reporter.generate_report(summaries, {})
    assert report is not None
    assert report.section_relative_perf_scores == {"s": {0: 1.0}}
    assert report.rank_to_node == {0: "here"}


def test_not_gathered_reports_of_the_detector_name_their_own_node_only(ranks: Any) -> None:
    """A rank deals with its own results."""
    by_rank = [
        {"options": {"gather_on_rank0": False, "node_name": f"node-{rank}"}} for rank in range(4)
    ]
    answers = ranks.do("detector", *by_rank, rows=[{"a": [0.01] * 5}])
    assert [report["nodes"] for [report] in answers] == [{r: f"node-{r}"} for r in range(4)]
