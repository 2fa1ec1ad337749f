"""``otel-straggler trace``: traces of torch.profiler of several ranks, compared."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.table import Table
from rich.text import Text

from otel_straggler.cli.scalability import print_note, shown_progress
from otel_straggler.cli.score import (
    print_run,
    report_what_is_left_out,
    run_reports,
    score_recording,
    score_settings,
    sentences,
)
from otel_straggler.cli.text import duration, printable, report_console
from otel_straggler.collector.views.report_json import report_json as scores_json
from otel_straggler.detect.scores.settings import ScoreSettings, VerdictSettings
from otel_straggler.errors import InputError, StragglerError
from otel_straggler.model.observation import ObservationBatch, merge_batches
from otel_straggler.recordings.columns import TableRules
from otel_straggler.recordings.files import (
    SNIFFED_BYTES,
    Recording,
    open_input,
    run_name,
    sniff,
    unzipped,
)
from otel_straggler.recordings.kineto import as_one_step, rows_of_trace
from otel_straggler.recordings.trace_events import KinetoTrace
from otel_straggler.scalability.gpu_traces import RankTrace, rank_trace
from otel_straggler.scalability.inputs import files_below, read_kineto_traces
from otel_straggler.scalability.trace_page import trace_page
from otel_straggler.scalability.trace_report import (
    KernelScore,
    TraceReport,
    rank_row,
    report_json,
    steady_sections,
    trace_report,
)

Json = dict[str, Any]
MAX_SENTENCES = 5
_MIN_SHARE = 0.02
"""Of the time of a rank's compute kernels, below which a kernel is not worth a sentence."""
_SHARES = ("idle", "compute", "other", "communication", "exposed_communication", "overlap")


@click.command()
@click.argument("path")
@click.option("--html", metavar="FILE", help="Write the report as one HTML file, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(path: str, html: str | None, as_json: bool) -> None:
    """Compare the ranks of a profiled job: idle, compute, communication and its overlap, which
    ranks arrive late at collectives, and the scores of their sections and kernels.

    PATH is a folder with a trace of torch.profiler per rank, also gzipped, or one trace, also of
    several ranks merged. What is no trace is noted and skipped. Nobody is named from fewer than 10
    collectives or 3 whole steps. The exit code is 0 whether or not a rank is late, 2 if there is no
    trace.
    """
    if not Path(path).exists():
        raise InputError.of(
            path, "no such file or folder", "traces of torch.profiler", "Is it right?"
        )
    name = run_name(str(Path(path).absolute()))
    traces = _Traces(name)
    for file in files_below(path, print_note):
        traces.read(str(file))
    if not traces.ranks:
        raise InputError.of(
            path, "no trace", "traces of torch.profiler (Chrome's JSON, one file per rank)",
            "Write them with torch.profiler.tensorboard_trace_handler().",
        )  # fmt: skip
    report = trace_report(traces.ranks, traces.rows)
    run = _scores(traces, path) if report.is_enough else None
    texts = [line.plain for line in sentences(run)] if run else []
    texts += kernel_sentences(report.kernels)
    if html:
        page = trace_page(report, Path(path).absolute().name, run, texts)
        Path(html).write_text(page, encoding="utf-8")
    if as_json:
        click.echo(json.dumps({**report_json(report), "scores": run}, indent=1, allow_nan=False))
    else:
        _print(report, name, run)


class _Traces:
    """Reads files: one trace of each rank, and those whose rank is unknown."""

    def __init__(self, run_id: str) -> None:
        self.ranks: list[RankTrace] = []
        self._known: dict[int, str] = {}
        self._batches: list[ObservationBatch] = []
        self.rules = TableRules(run_id=run_id)

    @property
    def rows(self) -> ObservationBatch:
        return merge_batches(self._batches)

    def read(self, name: str) -> None:
        """What cannot be read is noted and skipped."""
        try:
            with open_input(name) as packed, unzipped(packed, name) as plain:
                form = sniff(plain.peek(SNIFFED_BYTES)[:SNIFFED_BYTES], name)
                if form != "kineto":
                    print_note(f"{name}: no trace of torch.profiler but {form}; skipped")
                    return
                with shown_progress(name) as progress:
                    traces = read_kineto_traces(plain, name, print_note, progress)
        except (StragglerError, OSError, EOFError, zlib.error) as error:
            print_note(f"{name}: skipped: {error}")
            return
        for trace in traces:
            self._add(trace, name)

    def _add(self, trace: KinetoTrace, name: str) -> None:
        rank = rank_trace(trace, name)
        if rank.rank in self._known:
            known = self._known[rank.rank]
            print_note(f"{rank.name}: rank {rank.rank} is that of {known}, too; skipped")
            return
        self.ranks.append(rank)
        if rank.rank is None:
            print_note(f"{rank.name}: neither the trace nor the file name says which rank it is")
            return
        self._known[rank.rank] = rank.name
        as_one_step(trace)
        if trace.steps:
            self._batches.append(rows_of_trace(trace, name, print_note, self.rules))


def _scores(traces: _Traces, path: str) -> Json | None:
    """Scores and verdicts as of a recorded run; None where fewer than two ranks can be scored."""
    rows = traces.rows
    if len(rows.sources) < 2:
        return None
    recording = Recording(batch=rows, form="kineto", not_scored=dict(traces.rules.skipped))
    verdicts = VerdictSettings()
    windows, scorer = score_recording(recording, score_settings(), verdicts)
    report_what_is_left_out(recording, scorer, verdicts, path)
    runs: Json = scores_json(run_reports(windows, recording, scorer))["runs"]
    run: Json | None = next(iter(runs.values()), None)
    return run and _steady(run, steady_sections(rows))


def _steady(run: Json, steady: frozenset[tuple[int, str]]) -> Json:
    """The run, whose windows name sections only where a rank is slow in them in nearly every step.
    Kernels of a GPU vary little, and stay."""

    def is_steady(each: Json) -> bool:
        return each["section"] is None or (each["rank"], each["section"]) in steady

    windows = []
    for window in run["windows"]:
        excess = window["largest_excess"]
        stragglers = [each for each in window["stragglers"] if is_steady(each)]
        kept = excess if excess and is_steady(excess) else None
        by_chance = len(window["stragglers"]) - len(stragglers)
        changed = {"stragglers": stragglers, "largest_excess": kept, "by_chance": by_chance}
        windows.append({**window, **changed})
    return {**run, "windows": windows}


def kernel_sentences(kernels: tuple[KernelScore, ...]) -> Iterator[str]:
    """Kernels under the threshold of scores that are a part of the time worth a sentence."""
    slow = [k for k in kernels if k.score < ScoreSettings().threshold and k.share >= _MIN_SHARE]
    for each in slow[:MAX_SENTENCES]:
        kernel = printable(each.name.removeprefix("void "), 100)
        yield (
            f"rank {each.rank}: kernel {kernel} takes {1.0 / each.score:.2f}x the fastest rank "
            f"({duration(each.median_s)} against {duration(each.fastest_s)})"
        )


def _print(report: TraceReport, name: str, run: Json | None) -> None:
    console = report_console()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("rank", "steps", *_SHARES, "late by", "waited", "last"):
        table.add_column(_HEADS.get(column, column), justify="right", no_wrap=True)
    for each in report.ranks:
        row = rank_row(each, report.arrivals)
        late_s, waited_s = row.get("late_by_s"), row.get("waited_s")
        table.add_row(
            "?" if each.rank is None else str(each.rank) + (" <" if row.get("is_late") else ""),
            str(each.steps),
            *("-" if (value := row.get(name)) is None else f"{value:.1%}" for name in _SHARES),
            "-" if late_s is None else f"{late_s * 1e3:.1f} ms",
            "-" if waited_s is None else f"{waited_s * 1e3:.1f} ms",
            str(row.get("times_last", "-")),
        )
    console.print(table)
    for line in report.answer:
        console.print(Text(printable(line, 400)), soft_wrap=not console.is_terminal)
    if run is not None:
        console.print()
        print_run(console, name, run)
    for line in kernel_sentences(report.kernels):
        console.print(Text(line, style="bold"), soft_wrap=not console.is_terminal)


_HEADS = {"exposed_communication": "exposed", "overlap": "hidden part"}
