"""Who would have been called on what was recorded: telemetry, or a collector's history."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from otel_straggler.cli.score import score_recording
from otel_straggler.publish.history import HistoryReader, RunEntry
from otel_straggler.receive.collected import Recording
from otel_straggler.score.scorer import Scorer, ScoreSettings
from otel_straggler.score.verdicts.paging import Page, PageBook, decided_anew
from otel_straggler.score.verdicts.settings import VerdictSettings

ALL_PAGES = 2**31
HOUR_S = 3_600.0
WEEK_S = 7 * 24 * HOUR_S
_SQLITE = b"SQLite format 3\0"

Kind = Literal["telemetry", "history"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """One run and its pages.

    Attributes:
        began_ns, ended_ns: first and last that was recorded of it, on the senders' clocks.
        pages: in the order in which they began.
    """

    run_id: str
    began_ns: int
    ended_ns: int
    pages: tuple[Page, ...]

    @property
    def recorded_s(self) -> float:
        return (self.ended_ns - self.began_ns) / 1e9

    def gpu_hours_lost(self, page: Page) -> float:
        """Hours of all ranks lost while it lasted, at the rate that was known when it began."""
        until_ns = self.ended_ns if page.ended_ns is None else page.ended_ns
        lasted_s = max(until_ns - page.at_ns, 0) / 1e9
        return page.verdict.gpu_seconds_lost_per_hour * lasted_s / HOUR_S / HOUR_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """All runs of a file, in the order in which they were recorded."""

    kind: Kind
    runs: tuple[RecordedRun, ...]


def is_history(path: str) -> bool:
    """Whether a file is an SQLite database, by its first bytes; what cannot be read is none."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


# --- telemetry -----------------------------------------------------------------------------------


def judge_all(recording: Recording, settings: VerdictSettings) -> Scorer:
    """Judge telemetry from its start; every page is kept. Cost: as of ``otel-straggler score``."""
    patient = dataclasses.replace(settings, max_changes=ALL_PAGES)
    return score_recording(recording, ScoreSettings(max_runs=2**62, kernel_bytes=2**62), patient)[1]


def pages_of_recording(recording: Recording, scorer: Scorer) -> Recorded:
    """What :func:`judge_all` has found."""
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
                    pages=tuple(scorer.pages(run_id)),
                )
            )
    return Recorded(kind="telemetry", runs=tuple(runs))


# --- history -------------------------------------------------------------------------------------


def pages_of_history(path: str, settings: VerdictSettings) -> Recorded:
    """Decide the changes of verdicts anew that a collector has kept.

    Raises:
        ConfigError, UnavailableError, InputError: as :class:`HistoryReader` does.
    """
    with HistoryReader(path) as reader:
        runs = tuple(_run_of_history(reader, run, settings) for run in reader.runs())
    return Recorded(kind="history", runs=runs)


def _run_of_history(reader: HistoryReader, run: RunEntry, settings: VerdictSettings) -> RecordedRun:
    changes, windows = reader.changes(run.run_id), reader.windows(run.run_id)
    book = PageBook(ALL_PAGES)
    for change in changes:
        decided = decided_anew(change, settings)
        book.note(decided, step=change.at_step, at_ns=change.at_ns)
    times_ns = [change.at_ns for change in changes]
    times_ns += [at_ns for window in windows for at_ns in (window.start_ns, window.end_ns)]
    return RecordedRun(
        run_id=run.run_id,
        began_ns=min(times_ns, default=0),
        ended_ns=max(times_ns, default=0),
        pages=book.pages,
    )


def per_week(pages: int, recorded_s: float) -> float | None:
    """None if no time was recorded."""
    return pages * WEEK_S / recorded_s if recorded_s > 0.0 else None


def total_s(runs: Iterable[RecordedRun]) -> float:
    """Recorded time of all runs together."""
    return sum(run.recorded_s for run in runs)
