"""``otel-straggler trace``: traces of torch.profiler of several ranks, compared."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import click
from rich import box
from rich.table import Table
from rich.text import Text

from otel_straggler.cli.scalability import print_note, shown_progress
from otel_straggler.cli.text import printable, report_console
from otel_straggler.errors import InputError, StragglerError
from otel_straggler.recordings.files import SNIFFED_BYTES, open_input, sniff, unzipped
from otel_straggler.scalability.gpu_traces import RankTrace
from otel_straggler.scalability.inputs import files_below, read_rank_trace
from otel_straggler.scalability.trace_page import trace_page
from otel_straggler.scalability.trace_report import (
    TraceReport,
    rank_row,
    report_json,
    trace_report,
)

_SHARES = ("idle", "compute", "other", "communication", "exposed_communication", "overlap")


@click.command()
@click.argument("path")
@click.option("--html", metavar="FILE", help="Write the report as one HTML file, too.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(path: str, html: str | None, as_json: bool) -> None:
    """Compare the ranks of a profiled job: idle, compute, communication and its overlap, and which
    ranks arrive late at collectives.

    PATH is a folder with a trace of torch.profiler per rank, also gzipped, or one trace. What is no
    trace is noted and skipped. The exit code is 0 whether or not a rank is late, 2 if there is no
    trace.
    """
    if not Path(path).exists():
        raise InputError.of(
            path, "no such file or folder", "traces of torch.profiler", "Is it right?"
        )
    traces = _one_for_each_rank(_read(path))
    if not traces:
        raise InputError.of(
            path, "no trace", "traces of torch.profiler (Chrome's JSON, one file per rank)",
            "Write them with torch.profiler.tensorboard_trace_handler().",
        )  # fmt: skip
    report = trace_report(traces)
    if html:
        Path(html).write_text(trace_page(report, Path(path).absolute().name), encoding="utf-8")
    if as_json:
        click.echo(json.dumps(report_json(report), indent=1, allow_nan=False))
    else:
        _print(report)


def _read(path: str) -> list[RankTrace]:
    traces = []
    for file in files_below(path, print_note):
        name = str(file)
        try:
            with open_input(name) as packed, unzipped(packed, name) as plain:
                form = sniff(plain.peek(SNIFFED_BYTES)[:SNIFFED_BYTES], name)
                if form != "kineto":
                    print_note(f"{name}: no trace of torch.profiler but {form}; skipped")
                    continue
                with shown_progress(name) as progress:
                    traces.append(read_rank_trace(plain, name, print_note, progress))
        except (StragglerError, OSError, EOFError, zlib.error) as error:
            print_note(f"{name}: skipped: {error}")
    return traces


def _one_for_each_rank(traces: list[RankTrace]) -> list[RankTrace]:
    """The first trace of each rank, and all whose rank is unknown."""
    result: list[RankTrace] = []
    known: dict[int, str] = {}
    for each in traces:
        if each.rank in known:
            print_note(f"{each.name}: rank {each.rank} is that of {known[each.rank]}, too; skipped")
            continue
        if each.rank is None:
            print_note(f"{each.name}: neither the trace nor the file name says which rank it is")
        else:
            known[each.rank] = each.name
        result.append(each)
    return result


def _print(report: TraceReport) -> None:
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


_HEADS = {"exposed_communication": "exposed", "overlap": "hidden part"}
