"""One rank of a gloo group, run as a process of its own: does what it is told, line by line.

A line of standard input is JSON, ``{"do": name, "with": {...}}``; the answer is a line of JSON on
standard output. Functions here are what tests have the ranks do.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from typing import Any

import torch.distributed as dist

from otel_straggler import section, set_topology
from otel_straggler.client.kernels import KERNELS
from otel_straggler.client.native_recorder import NO_STEP
from otel_straggler.client.native_records import NO_SECTION, RECORD
from otel_straggler.client.recorder import NO_SPAN, Context, RecordingSession
from otel_straggler.client.recording import RECORDER
from otel_straggler.client.topology import TOPOLOGY
from otel_straggler.detector import Detector, Report, Statistic
from otel_straggler.detector.reporting import ReportGenerator
from otel_straggler.errors import UsageError
from otel_straggler.model.observation import Section
from otel_straggler.native import NATIVE
from otel_straggler.report.peers import TorchPeers
from otel_straggler.report.reporter import Reporter, ReportSettings
from otel_straggler.report.statistics import times_of
from otel_straggler.report.window import ReportWindow

Json = dict[str, Any]
NOW_NS = 1_700_000_000_000_000_000


def spend(durations_s: dict[str, list[float]], kinds: dict[str, str] | None = None) -> None:
    """Record section runs of these lengths, without waiting for them."""
    for name, lengths_s in durations_s.items():
        timer = section(name, (kinds or {}).get(name, "compute"))
        for length_s in lengths_s:
            _record(timer, round(length_s * 1e9))


def _record(timer: Any, length_ns: int) -> None:
    context = RECORDER.context or Context(RecordingSession("", 0), None, NO_SPAN, "")
    if NATIVE is None:
        RECORDER.keep(((timer, -1, 0, context, None), None, length_ns, None, 0))  # type: ignore[attr-defined]
        return
    step = NO_STEP if context.step is None else context.step
    session = max(0, len(RECORDER.sessions) - 1)
    span = context.step_span
    times = step, 0, length_ns, -1, -1
    names = timer.section, NO_SECTION, 0, session, 0, 0
    NATIVE.keep(RECORD.pack(2**64 - 1, span, span, *times, *names, 0, 0, 0))


def reported(report: Report | None) -> Json | None:
    """A report as JSON."""
    if report is None:
        return None
    return {
        "gpu_relative": report.gpu_relative_perf_scores,
        "gpu_individual": report.gpu_individual_perf_scores,
        "section_relative": report.section_relative_perf_scores,
        "section_individual": report.section_individual_perf_scores,
        "nodes": report.rank_to_node,
        "sections": _named(report.local_section_summaries),
        "kernels": _named(report.local_kernel_summaries),
        "elapsed_ms": report.generate_report_elapsed_time,
        "gather": report.gather_on_rank0,
        "rank": report.rank,
        "why_no_gpu_scores": report.why_no_gpu_scores(),
        "stragglers": {
            what: sorted([s.rank, s.node] for s in result)
            if isinstance(result, set)
            else {name: sorted([s.rank, s.node] for s in ids) for name, ids in result.items()}
            for what, result in report.identify_stragglers().items()
        },
    }


def _named(summaries: Any) -> Json:
    return {
        name: {str(key): value for key, value in summary.items()}
        for name, summary in summaries.items()
    }


def windows(
    settings: Json, rows: list[Json], group: list[int] | None = None, kinds: Any = None
) -> Json:
    """Report windows of given section times (seconds) and kernel statistics (µs).

    Every row: ``sections`` {name: [seconds]}, ``kernels`` {name: [median, mean, runs]}, and
    ``now_ns``, the end of the window.
    """
    process_group = None if group is None else dist.new_group(group)
    if group is not None and dist.get_rank() not in group:
        return {"reports": [], "collectives": []}
    kernels: dict[str, dict[Statistic, float]] = {}
    now_ns = NOW_NS
    window = ReportWindow(
        ReportSettings(**settings),
        process_group,
        kernel_summaries=lambda: kernels,
        wall_ns=lambda: now_ns,
    )
    window.begin()
    reports, collectives = [], []
    for row in rows:
        spend(row.get("sections", {}), kinds)
        now_ns = row.get("now_ns", NOW_NS)
        kernels = {
            name: {Statistic.MED: med, Statistic.AVG: avg, Statistic.NUM: num}
            for name, (med, avg, num) in row.get("kernels", {}).items()
        }
        before = window.peers().collectives
        reports.append(reported(window.report()))
        collectives.append(window.peers().collectives - before)
    window.end()
    return {"reports": reports, "collectives": collectives}


class _Counted:
    """A timer that has counted what a test says; buckets come as hexadecimal text."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []

    def take_kernels(self) -> list[Any]:
        rows, self.rows = self.rows, []
        return [(*row[:-1], bytes.fromhex(row[-1])) for row in rows]


def timed(rows: list[list[list[Any]]]) -> list[Any]:
    """Reports of ``Detector`` while a timer is on; every row is what it has counted by then."""
    counted = _Counted()
    KERNELS.timer = lambda: counted
    Detector.initialize(node_name=f"node-{dist.get_rank()}")
    try:
        reports = []
        for row in rows:
            spend({"forward": [0.01] * 5})
            counted.rows = row
            reports.append(reported(Detector.generate_report()))
        return reports
    finally:
        Detector.shutdown()
        KERNELS.timer = lambda: None


def detector(options: Json, rows: list[dict[str, list[float]]], groups: Any = None) -> list[Any]:
    """The same through ``Detector``; of several groups, this rank's own is given to it."""
    made = [dist.new_group(ranks) for ranks in groups or []]
    mine = next(
        (g for g, ranks in zip(made, groups or [], strict=True) if dist.get_rank() in ranks), None
    )
    Detector.initialize(**options, process_group=mine)
    try:
        reports = []
        for row in rows:
            spend(row)
            reports.append(reported(Detector.generate_report()))
        return reports
    finally:
        Detector.shutdown()


def late_roles(role: str, length_s: float) -> Json | None:
    """A report of a rank whose role is known only after initialize()."""
    Detector.initialize()
    try:
        set_topology(role=role)
        spend({"forward": [length_s] * 5})
        return reported(Detector.generate_report())
    finally:
        Detector.shutdown()
        TOPOLOGY.reset()


def sleepers(lengths_s: dict[str, float], runs: int) -> Json | None:
    """Sections that really take their time, opened by hand, by decorator and by wrapping."""
    Detector.initialize(node_name=f"node-{dist.get_rank()}")
    try:
        for _ in range(runs):
            for name, length_s in lengths_s.items():
                with Detector.detection_section(name, profile_cuda=False):
                    time.sleep(length_s)
        return reported(Detector.generate_report())
    finally:
        Detector.shutdown()


def loop(options: Json, step_s: float, steps: int) -> list[int]:
    """At which iterations a training loop of such steps got or helped to make a report."""
    Detector.initialize(**options)
    try:
        made = []
        for step in range(1, steps + 1):
            time.sleep(step_s)
            Detector.generate_report_if_interval_elapsed()
            if Detector.is_interval_elapsed():
                made.append(step)
        return made
    finally:
        Detector.shutdown()


def broken_group() -> Json | None:
    """A report whose collective fails."""
    Detector.initialize()
    try:
        peers = TorchPeers()

        def fail(_: Any) -> Any:
            raise RuntimeError("connection reset by peer")

        peers.minimum = fail  # type: ignore[method-assign]
        window = Detector._running().window
        window._peers = peers
        spend({"a": [1.0] * 5})
        return reported(Detector.generate_report())
    finally:
        Detector.shutdown()


def forgetful(forgets: bool) -> Json:
    """Three reports; before the second, a rank may forget what was agreed."""
    window = ReportWindow(ReportSettings(), wall_ns=lambda: NOW_NS)
    window.begin()
    reports, collectives = [], []
    for number in range(3):
        if number == 1 and forgets:
            window._reporter.reset_group()
        spend({"a": [0.25 * (dist.get_rank() + 1)] * 5})
        before = window.peers().collectives
        reports.append(reported(window.report()))
        collectives.append(window.peers().collectives - before)
    window.end()
    return {"reports": reports, "collectives": collectives}


def unreadable(fails: bool) -> Json | None:
    """A report in which this rank's own samples and kernels may be broken."""

    def broken() -> Any:
        raise ZeroDivisionError

    window = ReportWindow(ReportSettings(), kernel_summaries=broken if fails else dict)
    window.begin()
    spend({"a": [0.25 * (dist.get_rank() + 1)] * 5})
    if fails:
        window._samples.take = broken  # type: ignore[method-assign]
    report = window.report()
    window.end()
    return reported(report)


def disagreeing(individual: bool, message: str) -> bool:
    """Whether a report with settings of this rank's own is refused."""
    window = ReportWindow(ReportSettings(individual=individual))
    window.begin()
    try:
        window.report()
    except UsageError as error:
        return message in str(error)
    finally:
        window.end()
    return False


def summaries(rows: list[Json]) -> list[Json | None]:
    """Our scores of statistics given as [median, mean, runs], sections in ms and kernels in µs."""
    reporter = Reporter(ReportSettings())
    answers: list[Json | None] = []
    for row in rows:
        sections, kernels = (
            {
                name: {Statistic.MED: med, Statistic.AVG: avg, Statistic.NUM: num}
                for name, (med, avg, num) in row[what].items()
            }
            for what in ("sections", "kernels")
        )
        scores = reporter.score(
            TorchPeers(),
            times_of(sections, 1e-3),
            [Section(name) for name in sections],
            times_of(kernels, 1e-6),
            NOW_NS,
        )
        if scores is None:
            answers.append(None)
            continue
        names = [section.name for section in scores.sections]
        answers.append(
            {
                "gpu_relative": dict(enumerate(scores.gpu_relative.tolist())),
                "gpu_individual": dict(enumerate(scores.gpu_individual.tolist())),
                "section_relative": {
                    name: dict(enumerate(column))
                    for name, column in zip(names, scores.section_relative.T.tolist(), strict=True)
                },
                "section_individual": {
                    name: dict(enumerate(column))
                    for name, column in zip(
                        names, scores.section_individual.T.tolist(), strict=True
                    )
                },
            }
        )
    return answers


def generated(rows: list[list[Json]], scores: Any, gather: bool) -> list[Json | None]:
    """Reports of ``ReportGenerator`` from (sections, kernels), statistics as in ``summaries``."""
    generator = ReportGenerator(scores, gather_on_rank0=gather, node_name=f"node-{dist.get_rank()}")
    return [
        reported(
            generator.generate_report(
                *[
                    {
                        name: {Statistic.MED: med, Statistic.AVG: avg, Statistic.NUM: num}
                        for name, (med, avg, num) in each.items()
                    }
                    for each in row
                ]
            )
        )
        for row in rows
    ]


def nvrx_windows(rows: list[Json]) -> list[Json | None]:
    """What NVRx's own ReportGenerator says of the same statistics; see test_against_nvrx."""
    name = "nvidia_resiliency_ext{}.straggler"
    moved = importlib.util.find_spec(name.format("")) is None  # as in 0.5
    package = name.format(".attribution" if moved else "")
    theirs = importlib.import_module(f"{package}.statistics").Statistic
    generator = importlib.import_module(f"{package}.reporting").ReportGenerator(
        ["relative_perf_scores", "individual_perf_scores"], node_name="node"
    )
    answers = []
    for row in rows:
        report = generator.generate_report(
            *[
                {
                    name: {theirs.MED: med, theirs.AVG: avg, theirs.NUM: num}
                    for name, (med, avg, num) in row[what].items()
                }
                for what in ("sections", "kernels")
            ]
        )
        answers.append(
            report
            and {
                "gpu_relative": report.gpu_relative_perf_scores,
                "gpu_individual": report.gpu_individual_perf_scores,
                "section_relative": report.section_relative_perf_scores,
                "section_individual": report.section_individual_perf_scores,
            }
        )
    return answers


def main() -> None:
    """Answer until standard input ends."""
    dist.init_process_group("gloo")
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        order = json.loads(line)
        result = globals()[order["do"]](**order["with"])
        dist.barrier()
        print(json.dumps(result), file=answers, flush=True)
    dist.destroy_process_group()
    os._exit(0)  # gloo aborts now and then while the interpreter ends (pytorch#190489)


if __name__ == "__main__":
    main()
