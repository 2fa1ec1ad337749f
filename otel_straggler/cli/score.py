"""``otel-straggler score``: scores of a recorded run."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, cast

import click
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from otel_straggler.cli.report_table import ScoreTable, run_lines, run_title, windows_lines
from otel_straggler.cli.text import duration, many, printable, report_console
from otel_straggler.cli.verdict_lines import (
    history_lines,
    named_ranks,
    run_line,
    verdict_lines,
    without_victims,
)
from otel_straggler.collector.views.report_json import (
    Json,
    RunReport,
    dump_report,
    report_json,
    window_json,
)
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.blocks import FIRST_STEP
from otel_straggler.errors import ConfigError
from otel_straggler.model.observation import NO_KERNEL, NO_STEP, ObservationBatch
from otel_straggler.model.scores import WindowScores
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.recordings.columns import SKIPPED_ROWS, parse_mapping
from otel_straggler.recordings.files import (
    FORMATS,
    STDIN,
    Format,
    Recording,
    RecordingReader,
    input_files,
    is_directory,
    open_input,
)
from otel_straggler.recordings.otlp import Decoders

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
COLUMNS = click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME=COLUMN",
    help="Name of a column of CSV or Parquet, such as section=op or duration_ms=took; repeatable.",
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
@COLUMNS
@CONFIG
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, all windows.")
def command(
    file: str,
    form: str,
    window_steps: int | None,
    threshold: float,
    columns: Sequence[str],
    config: str | None,
    as_json: bool,
) -> None:
    """Score a recorded run: CSV, Parquet, OTLP-JSON lines, OTLP protobuf or traces of
    torch.profiler, also gzipped.

    FILE is a file, a directory with the files of one run, or - for standard input (the default).
    The exit code is 0 whether or not a straggler is found, 2 if FILE cannot be read or scored.
    """
    settings = score_settings(window_steps, threshold)
    chosen = None if form == "auto" else cast("Format", form)
    decoders, verdicts = configured(config)
    recording = read_input(file, decoders, chosen, columns)
    windows, scorer = score_recording(recording, settings, verdicts)
    report_what_is_left_out(recording, scorer, verdicts, file)
    report = report_json(run_reports(windows, recording, scorer))
    if as_json:
        click.echo(dump_report(report))
    else:
        _print(report)


def score_settings(
    window_steps: int | None = None, threshold: float = ScoreSettings().threshold
) -> ScoreSettings:
    """Of a recording: without limits; one window for all, unless it has ``window_steps``."""
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
    names = settings.spans.names()
    decoders = Decoders(SpanDecoder(aliases, names), MetricDecoder(aliases), names)
    return decoders, settings.verdicts


def read_input(
    file: str, decoders: Decoders, form: Format | None = None, columns: Sequence[str] = ()
) -> Recording:
    """Read a file, a directory, or standard input for ``-``; with a progress bar if it takes
    long."""
    mapping = parse_mapping(columns)
    name = name_of(file)
    if name == STDIN and sys.stdin.isatty():
        print_note("reading standard input until Ctrl-D; to score a file, name it")
    reader = RecordingReader(
        name,
        is_directory=name != STDIN and is_directory(file),
        form=form,
        note=_once(print_note),
        decoders=decoders,
        columns=mapping,
    )
    for path in input_files(file, print_note):
        with shown_progress(open_input(path), name_of(path)) as content:
            reader.read(content, name_of(path))
    return reader.recording()


def _once(note: Callable[[str], None]) -> Callable[[str], None]:
    """Notes that differ only in the file are printed for the first one."""
    printed: set[str] = set()

    def print_new(text: str) -> None:
        what = text.partition(": ")[2]
        if what not in printed:
            printed.add(what)
            note(text)

    return print_new


def name_of(file: str) -> str:
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


def run_reports(
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
        print_run(console, run_id, run)


def print_run(console: Console, run_id: str, run: Json) -> None:
    """The scores of the newest window, and what they mean."""
    newest = run["windows"][-1]
    console.print(run_title(run_id, newest))
    count = len(newest["ranks"])
    shown = count if count <= ALL_RANKS else WORST_RANKS
    window = without_victims(run, newest)[0]
    console.print(ScoreTable(window, shown, named_ranks(run, newest)))
    for line in sentences(run):
        console.print(line, soft_wrap=not console.is_terminal)


def sentences(run: Json) -> Iterator[Text]:
    """Verdicts, and what the scores of the newest window say."""
    newest, victims = without_victims(run, run["windows"][-1])
    yield from verdict_lines(run)
    yield from run_line(run)
    yield from run_lines(run, newest)
    yield from victims
    yield from windows_lines(run["windows"])
    yield from history_lines(run)


# --- standard error ----------------------------------------------------------------------------


def print_note(text: str) -> None:
    click.echo(f"otel-straggler: note: {printable(text, 400)}", err=True)


def report_what_is_left_out(
    recording: Recording, scorer: Scorer, settings: VerdictSettings, file: str
) -> None:
    name = name_of(file)
    spans = {k: n for k, n in recording.not_scored.items() if k not in SKIPPED_ROWS}
    for reason, count in recording.not_scored.items():
        if reason in SKIPPED_ROWS:
            print_note(f"{name}: skipped {many(count, 'row')} {SKIPPED_ROWS[reason]}")
    if spans:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in spans.items())
        print_note(f"{name}: spans left out: {reasons}")
    if recording.skipped:
        print_note(f"{name}: {recording.skipped:,} requests of metrics or logs skipped")
    counts = scorer.counts
    reported = (
        (counts.duplicates, "spans were delivered twice and count once"),
        (counts.superseded, "rows left out: a newer process claims the same rank"),
        (counts.late, "rows came after their window was closed"),
    )
    for count, what in reported:
        if count:
            print_note(f"{name}: {count:,} {what}")
    for text in _too_short(recording.batch, settings):
        print_note(f"{name}: {text}")


def _too_short(batch: ObservationBatch, settings: VerdictSettings) -> Iterator[str]:
    """Runs without peers, or with fewer steps than the shortest comparison of verdicts has."""
    needed, warm_up = settings.windows_steps[0], settings.warm_up_steps
    for run_id in dict.fromkeys(source.run_id for source in batch.sources):
        of_run = np.array([source.run_id == run_id for source in batch.sources])
        its_own = of_run[batch.source] & (batch.kernel == NO_KERNEL)
        if not its_own.any():
            continue
        ranks = {batch.sources[code].rank for code in np.unique(batch.source[its_own]).tolist()}
        if len(ranks) == 1:
            yield f"run {run_id} has one rank: score it together with its peers"
            continue
        steps = np.unique(batch.step[its_own & (batch.step != NO_STEP)])
        if len(steps) == 0:
            yield from _too_brief(batch.take(its_own), settings, run_id)
        elif len(steps) < needed:
            first = f", or {needed + warm_up} if the first {warm_up} are slower"
            more = first if steps[0] <= FIRST_STEP and warm_up else ""
            yield (
                f"run {run_id} has {many(len(steps), 'step')}; verdicts need about {needed}{more}: "
                "only large slowdowns can show"
            )


def _too_brief(batch: ObservationBatch, settings: VerdictSettings, run_id: str) -> Iterator[str]:
    """Without steps, blocks of time count."""
    needed_s = settings.windows_steps[0] * settings.block_s
    lasted_s = float((batch.start_ns / 1e9 + batch.duration_s).max() - batch.start_ns.min() / 1e9)
    if lasted_s < needed_s:
        yield (
            f"run {run_id} has no steps and lasts {duration(lasted_s)}; verdicts need about "
            f"{duration(needed_s)}: only large slowdowns can show"
        )


@contextlib.contextmanager
def shown_progress(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
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
