"""``otel-straggler score``: scores of a recorded run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import BinaryIO, cast

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from otel_straggler.cli.report_table import ScoreTable, run_lines, run_title, windows_lines
from otel_straggler.cli.text import printable, report_console
from otel_straggler.cli.verdict_lines import history_lines, run_line, verdict_lines, without_victims
from otel_straggler.collector.views.report_json import (
    Json,
    RunReport,
    dump_report,
    report_json,
    window_json,
)
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.errors import ConfigError
from otel_straggler.model.scores import WindowScores
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.recordings.files import (
    FORMATS,
    STDIN,
    Decoders,
    Format,
    Recording,
    open_input,
    read_recording,
)

ALL_RANKS = 64
"""Up to this many ranks, all are shown."""
WORST_RANKS = 20
ROWS_AT_ONCE = 65_536
SHOW_PROGRESS_BYTES = 8_000_000
CONFIG = click.option(
    "--config",
    metavar="FILE",
    help="Settings of the collector; attributes, spans and verdicts are used.",
)


@click.command()
@click.argument("file", default="-")
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", *FORMATS]),
    default="auto",
    show_default=True,
    help="Format of FILE; auto detects it.",
)
@click.option(
    "--window-steps", type=int,
    help="Steps of a window, and fewer of long ones, as in a collector.  [default: one for all]",
)  # fmt: skip
@click.option(
    "--threshold", type=float, default=ScoreSettings().threshold, show_default=True,
    help="A score below it lists the rank as a straggler.",
)  # fmt: skip
@CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, all windows.")
def command(
    file: str,
    form: str,
    window_steps: int | None,
    threshold: float,
    config: str | None,
    as_json: bool,
) -> None:
    """Score a recorded run: CSV, OTLP-JSON lines or OTLP protobuf, also gzipped.

    FILE is a path, or - for standard input (the default). The exit code is 0 whether or not a
    straggler is found, 2 if FILE cannot be read or scored.
    """
    settings = _settings(window_steps, threshold)
    chosen = None if form == "auto" else cast("Format", form)
    decoders, verdicts = configured(config)
    recording = read_input(file, decoders, chosen)
    windows, scorer = score_recording(recording, settings, verdicts)
    report_what_is_left_out(recording, scorer, file)
    report = report_json(_runs(windows, recording, scorer))
    if as_json:
        click.echo(dump_report(report))
    else:
        _print(report)


def _settings(window_steps: int | None, threshold: float) -> ScoreSettings:
    if not 0.0 < threshold <= 1.0:
        raise ConfigError.of(
            "--threshold", threshold, "a number above 0 and at most 1", "The default is 0.75."
        )
    if window_steps is not None and window_steps < 1:
        remedy = "Leave it out to score the whole file as one window."
        raise ConfigError.of("--window-steps", window_steps, "at least 1", remedy)
    return ScoreSettings(
        window_steps=window_steps, threshold=threshold, max_runs=2**62, kernel_bytes=2**62
    )


def configured(config: str | None) -> tuple[Decoders, VerdictSettings]:
    """Settings for recordings from a collector's settings file; None: the defaults."""
    if config is None:
        return Decoders(), VerdictSettings()
    from otel_straggler.collector.settings_file import load_settings

    settings = load_settings(config, {})
    aliases = settings.attributes.aliases()
    decoders = Decoders(SpanDecoder(aliases, settings.spans.names()), MetricDecoder(aliases))
    return decoders, settings.verdicts


def read_input(file: str, decoders: Decoders, form: Format | None = None) -> Recording:
    """Read a path, or standard input for ``-``; with a progress bar if it takes long."""
    name = _name(file)
    if name == STDIN and sys.stdin.isatty():
        _print_note("reading standard input until Ctrl-D; to score a file, name it")
    with _shown_progress(open_input(file), name) as content:
        return read_recording(content, name, form, _print_note, decoders)


def _name(file: str) -> str:
    return STDIN if file == "-" else file


def score_recording(
    recording: Recording, settings: ScoreSettings, verdicts: VerdictSettings | None = None
) -> tuple[list[WindowScores], Scorer]:
    """Score all rows in order of their starts; ties keep the order of the file."""
    rows = recording.batch.take(np.argsort(recording.batch.start_ns, kind="stable"))
    scorer = Scorer(settings, verdicts)
    for kernels in recording.kernels:
        scorer.observe_kernels(kernels)
    at_once = ROWS_AT_ONCE if settings.window_steps else len(rows)
    for first in range(0, len(rows), at_once):
        part = rows.take(np.arange(first, min(first + at_once, len(rows))))
        scorer.observe(part, int(part.start_ns[-1]))
    return scorer.close_all(), scorer


def _runs(
    windows: list[WindowScores], recording: Recording, scorer: Scorer
) -> dict[str, RunReport]:
    by_run: dict[str, list[Json]] = {}
    for window in sorted(windows, key=lambda w: w.start_ns):
        by_run.setdefault(window.run_id, []).append(window_json(window))
    return {
        run_id: RunReport(
            windows=result,
            run_verdicts=scorer.verdicts(run_id),
            clashes=[s for s in recording.clashes if s.run_id == run_id],
            counts=recording.not_scored,
        )
        for run_id, result in by_run.items()
    }


def _print(report: Json) -> None:
    console = report_console()
    for number, (run_id, run) in enumerate(report["runs"].items()):
        if number:
            console.print()
        newest, victims = without_victims(run, run["windows"][-1])
        console.print(run_title(run_id, newest))
        count = len(newest["ranks"])
        console.print(ScoreTable(newest, count if count <= ALL_RANKS else WORST_RANKS))
        run_verdicts = (*verdict_lines(run), *run_line(run))
        scores = (*run_lines(run, newest), *victims, *windows_lines(run["windows"]))
        for line in (*run_verdicts, *scores, *history_lines(run)):
            console.print(line, soft_wrap=not console.is_terminal)


# --- standard error ----------------------------------------------------------------------------


def _print_note(text: str) -> None:
    click.echo(f"otel-straggler: note: {printable(text, 400)}", err=True)


def report_what_is_left_out(recording: Recording, scorer: Scorer, file: str) -> None:
    name = _name(file)
    if recording.not_scored:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in recording.not_scored.items())
        _print_note(f"{name}: spans left out: {reasons}")
    if recording.skipped:
        _print_note(f"{name}: {recording.skipped:,} requests of metrics or logs skipped")
    counts = scorer.counts
    reported = (
        (counts.duplicates, "spans were delivered twice and count once"),
        (counts.superseded, "rows left out: a newer process claims the same rank"),
        (counts.late, "rows came after their window was closed"),
    )
    for count, what in reported:
        if count:
            _print_note(f"{name}: {count:,} {what}")


@contextlib.contextmanager
def _shown_progress(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """A progress bar on standard error for large files, on a terminal."""
    size = _size(file)
    if not sys.stderr.isatty() or size < SHOW_PROGRESS_BYTES:
        with file:
            yield file
        return
    columns = (TextColumn("reading {task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        shown = Text(printable(name, 40)).plain.replace("[", r"\[")
        with progress.wrap_file(file, total=size, description=shown) as watched:
            yield watched


def _size(file: BinaryIO) -> int:
    try:
        return file.seek(0, 2) - file.seek(0) if file.seekable() else 0
    except OSError:
        return 0
