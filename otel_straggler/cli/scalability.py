"""``otel-straggler scalability``: how a training scales, from files of several runs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from otel_straggler.cli.text import printable, report_console
from otel_straggler.errors import ConfigError, InputError, UnavailableError
from otel_straggler.recordings.trace_events import Progress as Report
from otel_straggler.scalability.inputs import ScalingInputs
from otel_straggler.scalability.output import projection_lines, report_csv, report_json, tables
from otel_straggler.scalability.plots import save_plots
from otel_straggler.scalability.runs import ScalingRun
from otel_straggler.scalability.scaling import ScalingReport, scaling_report

DEFAULT_PATHS = ("scalability-metrics", "mllogs/mlflow")
"""Where itwinai writes."""
_MAX_NAMED = 10


@click.command()
@click.argument("paths", nargs=-1)
@click.option(
    "--plot-dir", default="plots", show_default=True, help="Folder of the plots; '' for none."
)
@click.option(
    "--run-names", default="", metavar="A,B", help="Only these runs.  [default: all that are found]"
)
@click.option(
    "--plot-file-suffix", default=".png", show_default=True, help="End of the plots' file names."
)
@click.option("--csv", "csv_file", metavar="FILE", help="Write the table as CSV, too.")
@click.option("--json", "json_file", metavar="FILE", help="Write it as JSON, too; - for stdout.")
def command(
    paths: Sequence[str],
    plot_dir: str,
    run_names: str,
    plot_file_suffix: str,
    csv_file: str | None,
    json_file: str | None,
) -> None:
    """Compare runs of different sizes: epoch time, speedup, efficiency, throughput, utilization,
    energy, computation and communication.

    PATHS are files or folders: OTLP (JSON lines or protobuf), a collector's history, tables of
    sections, traces of torch.profiler, CSV files and MLflow stores of itwinai; the default is
    scalability-metrics and mllogs/mlflow. What is missing or wrong is noted and skipped. The exit
    code is 2 if nothing is left.
    """
    if json_file == csv_file == "-":
        raise ConfigError.of(
            "--csv", "-, as --json", "one of them on standard output", "Name a file for the other."
        )
    inputs = ScalingInputs(print_note, shown_progress)
    paths = paths or [path for path in DEFAULT_PATHS if Path(path).exists()] or DEFAULT_PATHS[:1]
    inputs.read(paths)
    runs = _wanted(inputs.runs(), run_names)
    if not runs:
        raise InputError.of(
            ", ".join(paths), "no run", "files of runs with steps or epochs",
            "See docs/operate/scalability.md for what is read.",
        )  # fmt: skip
    report = scaling_report(runs)
    if json_file:
        text = json.dumps(report_json(report), indent=1, allow_nan=False)
        _write(json_file, text + "\n")
    if csv_file:
        _write(csv_file, report_csv(report))
    if json_file != "-" and csv_file != "-":
        print_report(report)
    if plot_dir:
        _plot(report, plot_dir, plot_file_suffix)


def _wanted(runs: list[ScalingRun], run_names: str) -> list[ScalingRun]:
    """The named runs, with their repeats and trials; all without names."""
    wanted = {name.strip() for name in run_names.split(",")} - {""}
    if not wanted:
        return runs
    known = {run.name: {run.name, run.name.partition(" #")[0], run.name.partition("/")[0]}
             for run in runs}  # fmt: skip
    names = ", ".join(list(known)[:_MAX_NAMED]) + (", ..." if len(known) > _MAX_NAMED else "")
    result = [run for run in runs if wanted & known[run.name]]
    if runs and not result:
        remedy = "Leave it out for all of them."
        raise ConfigError.of("--run-names", run_names, f"one or more of: {names}", remedy)
    for name in sorted(wanted.difference(*known.values())):
        print_note(f"--run-names: there is no run {name}; there are: {names}")
    return result


def print_report(report: ScalingReport) -> None:
    """Tables, then what the next doubling would bring."""
    console = report_console()
    for each in tables(report):
        console.print(Text(f"\n{each.title}", style="bold"))
        shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for number, column in enumerate(each.columns):
            shown.add_column(column, justify="left" if number in (0, 2) else "right", no_wrap=True)
        for row in each.rows:
            shown.add_row(*(Text(printable(cell, 40)) for cell in row))
        console.print(shown)
    for line in projection_lines(report):
        console.print(Text(printable(line, 300)), soft_wrap=not console.is_terminal)


def _plot(report: ScalingReport, folder: str, suffix: str) -> None:
    try:
        for path in save_plots(report, folder, suffix):
            click.echo(f"saved {path}", err=True)
    except UnavailableError as error:
        print_note(f"no plots: {error}")


def _write(file: str, text: str) -> None:
    if file == "-":
        click.echo(text, nl=False)
    else:
        Path(file).write_text(text, encoding="utf-8")


def print_note(text: str) -> None:
    """A line on standard error."""
    click.echo(f"otel-straggler: note: {printable(text, 400)}", err=True)


@contextlib.contextmanager
def shown_progress(name: str, console: Console | None = None) -> Iterator[Report]:
    """A progress bar on standard error, if that is a terminal."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    columns = (TextColumn("reading {task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        shown = printable(Path(name).name, 40).replace("[", r"\[")
        task = progress.add_task(shown, total=1.0)
        yield lambda part: progress.update(task, completed=part)
