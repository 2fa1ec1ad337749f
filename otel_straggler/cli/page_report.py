"""Notifications that settings would have sent, as JSON and as text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from otel_straggler.cli.report_table import digits, printable
from otel_straggler.cli.score import score_recording
from otel_straggler.collector.history.reader import HistoryReader, RunEntry
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.log import Notification, NotificationLog, decided_anew
from otel_straggler.model.causes import CAUSES, cause_text
from otel_straggler.model.verdict import Verdict, hours_text
from otel_straggler.recordings.files import Recording

Json = dict[str, Any]

HOUR_S = 3_600.0
FORMAT_VERSION = 1
NEWEST_PAGES = 20
DAY_S = 24 * HOUR_S
OF_THE_TIME_OF_RECORDING = (
    "Who is confirmed was decided when this was recorded, under the settings of that time "
    "(min_slowdown, windows_steps and the like); here page_slowdown and page_loss are applied to "
    "the numbers that were kept: of every change of state, and of the moment of a call."
)


# --- JSON ----------------------------------------------------------------------------------------


def pages_json(recorded: Recorded, settings: VerdictSettings) -> Json:
    """All runs; unknown values are null."""
    return {
        "schema_version": FORMAT_VERSION,
        "source": recorded.kind,
        "note": OF_THE_TIME_OF_RECORDING if recorded.kind == "history" else None,
        "settings": dataclasses.asdict(settings),
        "runs": {run.run_id: _run_json(run) for run in recorded.runs},
        "total": _sums([*recorded.runs]),
    }


def _run_json(run: RecordedRun) -> Json:
    return {**_sums([run]), "pages": [_page_json(page, run) for page in run.pages]}


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


def _page_json(page: Notification, run: RecordedRun) -> Json:
    verdict = page.verdict
    return {
        "at_ns": page.at_ns,
        "step": page.at_step,
        "ended_ns": page.ended_ns,
        "subject_id": verdict.subject_id,
        "scope": verdict.scope,
        "cause": verdict.cause,
        "slowdown": _nullable(verdict.slowdown),
        "gpu_seconds_lost_per_hour": _nullable(verdict.gpu_seconds_lost_per_hour),
        "gpu_hours_lost": _nullable(run.gpu_hours_lost(page)),
        "sentence": verdict.sentence,
    }


def _known_sum(values: Sequence[float]) -> float:
    return sum(value for value in values if math.isfinite(value))


def _nullable(value: float) -> float | None:
    return value if math.isfinite(value) else None


# --- for people ----------------------------------------------------------------------------------


def print_pages(recorded: Recorded, settings: VerdictSettings, name: str, console: Console) -> None:
    """A table per run, and a total if there are several."""
    if not recorded.runs:
        _say(console, f"no runs in {printable(name, 200)}: nobody would have been called")
        return
    for run in recorded.runs:
        _print_part(console, f"run {printable(run.run_id)}", [run])
        _print_newest(console, run)
    if len(recorded.runs) > 1:
        _print_part(console, f"all {len(recorded.runs):,} runs", recorded.runs)
    _say(
        console,
        f"settings: page_slowdown {settings.page_slowdown:g}, page_loss {settings.page_loss:g}",
    )
    if recorded.kind == "history":
        _say(console, OF_THE_TIME_OF_RECORDING)


def _print_part(console: Console, title: str, runs: Sequence[RecordedRun]) -> None:
    recorded_s = total_s(runs)
    count = sum(len(run.pages) for run in runs)
    how_many = _many(count, "page") if count else "no pages"
    _say(console, f"{title}, {_length(recorded_s)} recorded: {how_many}")
    if count:
        console.print(_table(runs))
    if recorded_s < DAY_S:
        _say(console, "A weekly rate from less than a day is a guess.")


def _table(runs: Sequence[RecordedRun]) -> Table:
    recorded_s = total_s(runs)
    table = Table(box=None, pad_edge=False)
    for name in ("cause", "scope"):
        table.add_column(name)
    pages = [page for run in runs for page in run.pages]
    hours = hours_text(on_gpu=all(page.verdict.is_on_gpu for page in pages))
    for name in ("pages", "per week", f"{hours} lost"):
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
    return (
        f"{len(lost_hours):,}",
        "?" if rate is None else _short(rate),
        _short(_known_sum(lost_hours)),
    )


def _print_newest(console: Console, run: RecordedRun) -> None:
    if len(run.pages) > NEWEST_PAGES:
        _say(console, f"the newest {NEWEST_PAGES} of {len(run.pages):,} pages:")
    for page in run.pages[-NEWEST_PAGES:]:
        _say(console, f"  {_page_line(page)}")


def _page_line(page: Notification) -> str:
    step = "" if page.at_step is None else f" step {page.at_step:,}"
    return f"{_time(page.at_ns)}{step}: {_text(page.verdict)}"


def _text(verdict: Verdict) -> str:
    why = cause_text(verdict.cause, on_gpu=verdict.is_on_gpu)
    return printable(verdict.sentence or f"{verdict.subject_id}: {why}", 500)


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, soft_wrap=not console.is_terminal)


def _length(seconds: float) -> str:
    """``3.20 days``."""
    units: Iterator[tuple[float, str]] = iter(((DAY_S, "days"), (HOUR_S, "hours"), (60.0, "min")))
    scale, unit = next(((s, name) for s, name in units if seconds >= s), (1.0, "s"))
    return f"{digits(seconds / scale)} {unit}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 99.95 else digits(value)


def _time(at_ns: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ns / 1e9, timezone.utc):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):  # a sender's clock may say anything
        return f"{at_ns} ns"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


ALL_PAGES = 2**31
WEEK_S = 7 * 24 * HOUR_S
_SQLITE = b"SQLite format 3\0"

Kind = Literal["telemetry", "history"]


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

    @property
    def recorded_s(self) -> float:
        return (self.ended_ns - self.began_ns) / 1e9

    def gpu_hours_lost(self, page: Notification) -> float:
        """Hours of all ranks lost while it lasted, at the rate known when it began."""
        until_ns = self.ended_ns if page.ended_ns is None else page.ended_ns
        lasted_s = max(until_ns - page.at_ns, 0) / 1e9
        return page.verdict.gpu_seconds_lost_per_hour * lasted_s / HOUR_S / HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """All runs of a file, in the order of the file."""

    kind: Kind
    runs: tuple[RecordedRun, ...]


def is_history(path: str) -> bool:
    """Whether a file is an SQLite database; False if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


# --- telemetry -----------------------------------------------------------------------------------


def judge_all(recording: Recording, settings: VerdictSettings) -> Scorer:
    """Score telemetry from its start and keep every notification."""
    patient = dataclasses.replace(settings, max_changes=ALL_PAGES)
    return score_recording(recording, ScoreSettings(max_runs=2**62, kernel_bytes=2**62), patient)[1]


def pages_of_recording(recording: Recording, scorer: Scorer) -> Recorded:
    """Notifications of a recording that :func:`judge_all` has scored."""
    batch = recording.batch
    ends_ns = batch.start_ns + (batch.duration_s * 1e9).astype(np.int64)
    runs = []
    for run_id in dict.fromkeys(source.run_id for source in batch.sources):
        its_own = np.array([source.run_id == run_id for source in batch.sources])[batch.source]
        if its_own.any():
            runs.append(
                RecordedRun(
                    run_id=run_id,
                    began_ns=int(batch.start_ns[its_own].min()),
                    ended_ns=int(ends_ns[its_own].max()),
                    pages=tuple(scorer.notifications(run_id)),
                )
            )
    return Recorded(kind="telemetry", runs=tuple(runs))


# --- history -------------------------------------------------------------------------------------


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
    book = NotificationLog(ALL_PAGES)
    for change in changes:
        decided = decided_anew(change, settings)
        book.record(decided, step=change.at_step, at_ns=change.at_ns)
    times_ns = [change.at_ns for change in changes]
    times_ns += [at_ns for window in windows for at_ns in (window.start_ns, window.end_ns)]
    return RecordedRun(
        run_id=run.run_id,
        began_ns=min(times_ns, default=0),
        ended_ns=max(times_ns, default=0),
        pages=book.notifications,
    )


def per_week(pages: int, recorded_s: float) -> float | None:
    """None if nothing was recorded."""
    return pages * WEEK_S / recorded_s if recorded_s > 0.0 else None


def total_s(runs: Iterable[RecordedRun]) -> float:
    return sum(run.recorded_s for run in runs)
