"""``otel-straggler replay``: notifications that settings would have sent on recorded telemetry."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from otel_straggler.cli.score import (
    COLUMNS,
    CONFIG,
    configured,
    read_input,
    report_what_is_left_out,
    score_recording,
)
from otel_straggler.cli.text import clock, digits, many, print_json, printable, report_console
from otel_straggler.collector.history.postgres import is_postgres
from otel_straggler.collector.history.reader import HistoryReader, RunEntry
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.notifications import (
    Notification,
    NotificationLog,
    decided_anew,
)
from otel_straggler.errors import ConfigError
from otel_straggler.model.causes import CAUSES, cause_text
from otel_straggler.model.verdict import hours_text
from otel_straggler.recordings.files import Recording
from otel_straggler.regular_files import open_regular
from otel_straggler.secret import without_secrets

Json = dict[str, Any]
FORMAT_VERSION = 1
NEWEST_PAGES = 20
ALL_PAGES = 2**31
HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S
WEEK_S = 7 * DAY_S
OF_THE_TIME_OF_RECORDING = (
    "Verdicts were confirmed when this was recorded, under the settings of that time "
    "(min_slowdown, windows_steps and the like); here the three page_* limits are applied to "
    "the numbers that were stored: of every change of state, and of the moment of a notification."
)
_SQLITE = b"SQLite format 3\0"


@click.command()
@click.argument("file")
@click.option(
    "--would-have-paged",
    "question",
    flag_value="paged",
    help="Notifications that would have been sent, per week and cause.",
)
@COLUMNS
@CONFIG
@click.option("--run", "run_id", metavar="ID", help="This run only.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; all notifications.")
def command(
    file: str,
    question: str | None,
    columns: Sequence[str],
    config: str | None,
    run_id: str | None,
    as_json: bool,
) -> None:
    """Show what settings would have done on recorded telemetry.

    FILE is telemetry as for `otel-straggler score` (a file, a directory with the files of one run,
    or - for standard input), which is scored in full, or the history of a collector (its --history,
    a file or a PostgreSQL URL), in which the settings for paging are applied to the stored
    verdicts. Its content decides which.

    otel-straggler replay history.db --would-have-paged --config collector.yaml
    """
    if question is None:
        raise click.UsageError("Nothing was asked: give --would-have-paged")
    decoders, settings = configured(config)
    if file != "-" and is_history(file):
        recorded = pages_of_history(file, settings)
    else:
        recording = read_input(file, decoders, columns=columns)
        scorer = score_all(recording, settings)
        report_what_is_left_out(recording, scorer, settings, file)
        recorded = pages_of_recording(recording, scorer)
    file = without_secrets(file)
    recorded = _only(recorded, run_id, file)
    if as_json:
        print_json(pages_json(recorded, settings))
    else:
        print_pages(recorded, settings, file, report_console())


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """One run and its notifications, oldest first.

    Attributes:
        began_ns, ended_ns: first and last record, on the senders' clocks.
    """

    run_id: str
    began_ns: int
    ended_ns: int
    pages: tuple[Notification, ...]

    def gpu_hours_lost(self, page: Notification) -> float:
        """Hours of all ranks lost while it lasted, at the rate known when it began."""
        until_ns = self.ended_ns if page.ended_ns is None else page.ended_ns
        lasted_s = max(until_ns - page.at_ns, 0) / 1e9
        return page.verdict.gpu_seconds_lost_per_hour * lasted_s / HOUR_S / HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """All runs of a file, in the order of the file."""

    kind: Literal["telemetry", "history"]
    runs: tuple[RecordedRun, ...]


def is_history(path: str) -> bool:
    """Whether it is an SQLite file or a PostgreSQL URL; False if it cannot be read. A pipe stays
    untouched."""
    if is_postgres(path):
        return True
    try:
        if not Path(path).is_file():
            return False
        with os.fdopen(open_regular(path, os.O_RDONLY, follow=True), "rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def score_all(recording: Recording, settings: VerdictSettings) -> Scorer:
    """Score telemetry from its start and keep every notification."""
    patient = replace(settings, max_changes=ALL_PAGES)
    return score_recording(recording, ScoreSettings(max_runs=2**62, kernel_bytes=2**62), patient)[1]


def pages_of_recording(recording: Recording, scorer: Scorer) -> Recorded:
    """Notifications of a recording that :func:`score_all` has scored."""
    batch = recording.batch
    ends_ns = batch.start_ns + (batch.duration_s * 1e9).astype(np.int64)
    runs = []
    for run_id in dict.fromkeys(source.run_id for source in batch.sources):
        its_own = np.array([source.run_id == run_id for source in batch.sources])[batch.source]
        if its_own.any():
            began_ns, ended_ns = int(batch.start_ns[its_own].min()), int(ends_ns[its_own].max())
            pages = tuple(scorer.notifications(run_id))
            run = RecordedRun(run_id=run_id, began_ns=began_ns, ended_ns=ended_ns, pages=pages)
            runs.append(run)
    return Recorded(kind="telemetry", runs=tuple(runs))


def pages_of_history(path: str, settings: VerdictSettings) -> Recorded:
    """Apply the settings to the changes of verdicts that a collector has stored.

    Raises:
        ConfigError, UnavailableError, InputError: as :class:`HistoryReader` does.
    """
    with HistoryReader(path) as reader:
        runs = tuple(_run_of_history(reader, run, settings) for run in reader.runs())
    return Recorded(kind="history", runs=runs)


def _run_of_history(reader: HistoryReader, run: RunEntry, settings: VerdictSettings) -> RecordedRun:
    changes, windows = reader.changes(run.run_id), reader.windows(run.run_id)
    log = NotificationLog(ALL_PAGES)
    for change in changes:
        log.record(decided_anew(change, settings), step=change.at_step, at_ns=change.at_ns)
    times_ns = [change.at_ns for change in changes]
    times_ns += [at_ns for window in windows for at_ns in (window.start_ns, window.end_ns)]
    began_ns, ended_ns = min(times_ns, default=0), max(times_ns, default=0)
    pages = log.notifications
    return RecordedRun(run_id=run.run_id, began_ns=began_ns, ended_ns=ended_ns, pages=pages)


def _only(recorded: Recorded, run_id: str | None, file: str) -> Recorded:
    runs = tuple(run for run in recorded.runs if run_id in (None, run.run_id))
    if run_id is not None and not runs:
        expected = f"one of the {len(recorded.runs)} runs in {file}"
        raise ConfigError.of("--run", run_id, expected, "Leave --run out for all.")
    return replace(recorded, runs=runs)


# --- JSON ----------------------------------------------------------------------------------------


def pages_json(recorded: Recorded, settings: VerdictSettings) -> Json:
    """All runs; unknown values are null or NaN."""
    return {
        "schema_version": FORMAT_VERSION,
        "source": recorded.kind,
        "note": OF_THE_TIME_OF_RECORDING if recorded.kind == "history" else None,
        "settings": asdict(settings),
        "runs": {
            run.run_id: {**_sums([run]), "pages": [_page_json(page, run) for page in run.pages]}
            for run in recorded.runs
        },
        "total": _sums(recorded.runs),
    }


def _sums(runs: Sequence[RecordedRun]) -> Json:
    recorded_s = total_s(runs)
    by_cause: dict[str, list[float]] = {}
    for run in runs:
        for page in run.pages:
            by_cause.setdefault(page.verdict.cause, []).append(run.gpu_hours_lost(page))
    return {
        "recorded_s": recorded_s,
        "per_week": per_week(sum(map(len, by_cause.values())), recorded_s),
        "per_cause": {
            cause: {
                "pages": len(lost),
                "per_week": per_week(len(lost), recorded_s),
                "gpu_hours_lost": _known_sum(lost),
            }
            for cause, lost in sorted(by_cause.items())
        },
    }


_FIELDS = ("subject_id", "scope", "cause", "slowdown", "gpu_seconds_lost_per_hour", "sentence")


def _page_json(page: Notification, run: RecordedRun) -> Json:
    return {
        "at_ns": page.at_ns,
        "step": page.at_step,
        "ended_ns": page.ended_ns,
        "gpu_hours_lost": run.gpu_hours_lost(page),
        **{name: getattr(page.verdict, name) for name in _FIELDS},
    }


def _known_sum(values: Sequence[float]) -> float:
    return sum(filter(math.isfinite, values))


def per_week(pages: int, recorded_s: float) -> float | None:
    """None if nothing was recorded."""
    return pages * WEEK_S / recorded_s if recorded_s > 0.0 else None


def total_s(runs: Iterable[RecordedRun]) -> float:
    return sum((run.ended_ns - run.began_ns) / 1e9 for run in runs)


# --- for people ----------------------------------------------------------------------------------


def print_pages(recorded: Recorded, settings: VerdictSettings, name: str, console: Console) -> None:
    """A table per run, and a total if there are several."""
    if not recorded.runs:
        _print(console, f"no runs in {printable(name, 200)}: no notification would have been sent")
        return
    for run in recorded.runs:
        _print_part(console, f"run {printable(run.run_id)}", [run])
        _print_newest(console, run)
    if len(recorded.runs) > 1:
        _print_part(console, f"all {len(recorded.runs):,} runs", recorded.runs)
    names = ("page_slowdown", "page_loss", "page_gpu_hours")
    limits = ", ".join(f"{name} {getattr(settings, name):g}" for name in names)
    _print(console, f"settings: {limits}")
    if recorded.kind == "history":
        _print(console, OF_THE_TIME_OF_RECORDING)


def _print_part(console: Console, title: str, runs: Sequence[RecordedRun]) -> None:
    recorded_s = total_s(runs)
    count = sum(len(run.pages) for run in runs)
    how_many = many(count, "page") if count else "no pages"
    scale, unit = next((s, n) for s, n in _UNITS if recorded_s >= s or n == "s")
    _print(console, f"{title}, {digits(recorded_s / scale)} {unit} recorded: {how_many}")
    if count:
        console.print(_table(runs))
    if recorded_s < DAY_S:
        _print(console, "A weekly rate from less than a day is a guess.")


_UNITS = ((DAY_S, "days"), (HOUR_S, "hours"), (60.0, "min"), (1.0, "s"))


def _table(runs: Sequence[RecordedRun]) -> Table:
    recorded_s = total_s(runs)
    is_on_gpu = all(page.verdict.is_on_gpu for run in runs for page in run.pages)
    table = Table("cause", "scope", box=None, pad_edge=False)
    for name in ("pages", "per week", f"{hours_text(on_gpu=is_on_gpu)} lost"):
        table.add_column(name, justify="right")
    groups: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        for page in run.pages:
            key = CAUSES[page.verdict.cause].name, page.verdict.scope
            groups.setdefault(key, []).append(run.gpu_hours_lost(page))
    rows = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    for (cause, scope), lost in rows:
        table.add_row(cause, scope, *_figures(lost, recorded_s))
    if len(rows) > 1:
        table.add_row("all", "", *_figures([h for _, lost in rows for h in lost], recorded_s))
    return table


def _figures(lost_hours: Sequence[float], recorded_s: float) -> tuple[str, str, str]:
    rate = per_week(len(lost_hours), recorded_s)
    weekly = "?" if rate is None else _short(rate)
    return f"{len(lost_hours):,}", weekly, _short(_known_sum(lost_hours))


def _print_newest(console: Console, run: RecordedRun) -> None:
    if len(run.pages) > NEWEST_PAGES:
        _print(console, f"the newest {NEWEST_PAGES} of {len(run.pages):,} pages:")
    for page in run.pages[-NEWEST_PAGES:]:
        verdict, step = page.verdict, "" if page.at_step is None else f" step {page.at_step:,}"
        why = cause_text(verdict.cause, on_gpu=verdict.is_on_gpu)
        text = printable(verdict.sentence or f"{verdict.subject_id}: {why}", 500)
        _print(console, f"  {clock(page.at_ns / 1e9)}{step}: {text}")


def _print(console: Console, line: str) -> None:
    console.print(line, markup=False, soft_wrap=not console.is_terminal)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.95 else digits(value)
