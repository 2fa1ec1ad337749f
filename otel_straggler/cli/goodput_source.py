"""Where goodput is read from: recordings, event logs, a collector's history."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import numpy as np

from otel_straggler.cli.score import name_of, print_note, score_recording, shown_progress
from otel_straggler.collector.history.codec import WindowSummary
from otel_straggler.collector.history.postgres import is_postgres
from otel_straggler.collector.history.reader import HistoryReader, RunEntry, WindowEntry
from otel_straggler.collector.history.run_views import FromHistory
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.losses import attributed
from otel_straggler.errors import ConfigError, InputError
from otel_straggler.goodput.account import StragglerLoss
from otel_straggler.goodput.activities import ATTEMPT, STEP, Activities, Activity, joined
from otel_straggler.goodput.clocks import on_one_clock
from otel_straggler.goodput.job_events import JobEvent, activities_of_events, parse_event_lines
from otel_straggler.goodput.launches import activities_of_launches, events_by_run
from otel_straggler.goodput.observations import activities_of, is_activity
from otel_straggler.goodput.straggler_losses import straggler_losses
from otel_straggler.launcher.events import parse_event
from otel_straggler.model.launch_event import LaunchEvent
from otel_straggler.model.observation import NO_STEP
from otel_straggler.otlp.decode_spans import SpanDecoder
from otel_straggler.recordings.files import (
    Recording,
    RecordingReader,
    input_files,
    is_directory,
    open_input,
)
from otel_straggler.recordings.otlp import Decoders

_SQLITE: Final = b"SQLite format 3\0"
_EVENT_MARK: Final = b'"event_type"'
_LAUNCH_MARK: Final = b'"name": "straggler.'
_SNIFFED_BYTES: Final = 4_096
_LINES_AT_ONCE: Final = 10_000
_MIN_PEERS: Final = 2
_BLOCKS_STEPS: Final = (5, 20, 100)
_MAX_BLOCKS: Final = 1_000
"""Of a long recording, verdicts are evaluated as often: every 20 or 100 steps instead of five."""
_MAX_ROWS: Final = 2_000_000
"""Of windows and ranks of a history together; of more ranks, evenly spaced ones are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInput:
    """One group of one run; ``events``: its event log, where it was read from one; ``launches``:
    what its launchers reported."""

    run_id: str
    group: str
    activities: Activities
    stragglers: Sequence[StragglerLoss] = ()
    events: Sequence[JobEvent] = ()
    launches: Sequence[LaunchEvent] = ()


def read_runs(source: str, run_id: str | None, history: str | None) -> list[RunInput]:
    """Read all runs of a source; of a history the newest, or ``run_id``.

    Args:
        source: a file or directory, ``-`` for standard input, a history; or, with ``history``, the
            name of a run in that; empty for the newest.

    Raises:
        ConfigError: there is no such run.
        InputError, UnavailableError: the source cannot be read.
    """
    if history is not None or _is_history(source):
        return _history_runs(history or source, source if history else run_id)
    with _without_collections():
        content = _read_files(source)
        runs = [*_event_runs(content.events), *_recorded_runs(content)]
    if run_id is not None and all(run.run_id != run_id for run in runs):
        names = ", ".join(dict.fromkeys(run.run_id for run in runs))
        raise ConfigError.of("--run", run_id, f"one of: {names}", "Leave it out for all of them.")
    return [run for run in runs if run_id in (None, run.run_id)]


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """A million events have no cycles; looking for some takes longer than reading them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _is_history(source: str) -> bool:
    if is_postgres(source):
        return True
    path = Path(source)
    if source == "-" or not path.is_file():
        return False
    with open_input(source) as file:
        return file.read(len(_SQLITE)) == _SQLITE


# --- files ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Content:
    """What the files of a source hold."""

    events: list[JobEvent] = field(default_factory=list)
    launches: list[LaunchEvent] = field(default_factory=list)
    recording: Recording | None = None


def _read_files(source: str) -> _Content:
    decoders = Decoders(SpanDecoder(with_activities=True))
    is_folder = source != "-" and is_directory(source)
    reader = RecordingReader(
        name_of(source), is_directory=is_folder, note=print_note, decoders=decoders
    )
    content = _Content()
    has_recordings = False
    for path in input_files(source, print_note):
        file, name = open_input(path), name_of(path)
        first_line = _first_line(file)
        with shown_progress(file, name) as lines:
            if _EVENT_MARK in first_line:
                content.events += _events_in(lines, name)
            elif first_line.startswith(b"{" + _LAUNCH_MARK):
                content.launches += (parse_event(line) for line in lines if line.strip())
            else:
                has_recordings = True
                reader.read(lines, name)
    if has_recordings:
        content.recording = reader.recording()
        content.launches += content.recording.launches
    return content


def _first_line(file: BinaryIO) -> bytes:
    """Empty if it is no JSON object."""
    peek: Callable[[int], bytes] = cast("Any", file).peek
    line = peek(_SNIFFED_BYTES)[:_SNIFFED_BYTES].lstrip().partition(b"\n")[0]
    return line if line.startswith(b"{") else b""


def _events_in(lines: BinaryIO, name: str) -> Iterator[JobEvent]:
    others, number = 0, 1
    while batch := list(islice(lines, _LINES_AT_ONCE)):
        events, n_others = parse_event_lines(batch, name, number)
        others += n_others
        yield from events
        number += len(batch)
    if others:
        print_note(f"{name}: {others:,} events of other types are left out")


def _event_runs(events: Sequence[JobEvent]) -> Iterator[RunInput]:
    """A run for each job."""
    by_job: dict[str, list[JobEvent]] = {}
    for event in events:
        by_job.setdefault(event.job_name, []).append(event)
    for job, its_own in by_job.items():
        activities = activities_of_events(its_own)
        yield RunInput(run_id=job, group="", activities=activities, events=its_own)


def _recorded_runs(content: _Content) -> Iterator[RunInput]:
    """A run for each group of ranks; launches alone say nothing of steps."""
    launches = events_by_run(content.launches)
    recording = content.recording
    if recording is None:
        for run_id, its_own in launches.items():
            activities = activities_of_launches(its_own)
            yield RunInput(run_id=run_id, group="", activities=activities, launches=its_own)
        return
    batch, clocks = on_one_clock(recording.batch)
    for text in clocks:
        print_note(text)
    scored = batch.take(~is_activity(batch))
    scorer = _scored(replace(recording, batch=scored)) if len(scored) else None
    present = [batch.sources[code] for code in np.unique(batch.source).tolist()]
    for run_id, group in dict.fromkeys((source.run_id, source.group) for source in present):
        activities = activities_of(batch, run_id, group)
        changes = scorer.verdicts(run_id).changes if scorer else ()
        its_launches = launches.get(run_id, [])
        yield RunInput(
            run_id=run_id,
            group=group,
            activities=joined([activities, activities_of_launches(its_launches)]),
            stragglers=straggler_losses(changes, activities, group),
            launches=its_launches,
        )


def _scored(recording: Recording) -> Scorer | None:
    """Verdicts of a recording; None without peers."""
    if len({source.rank for source in recording.batch.sources}) < _MIN_PEERS:
        return None
    settings = ScoreSettings(window_steps=None, max_runs=2**62, kernel_bytes=2**62)
    steps = recording.batch.step
    n_steps = (
        int(steps.max() - steps[steps != NO_STEP].min()) + 1 if (steps != NO_STEP).any() else 0
    )
    blocks = (size for size in _BLOCKS_STEPS if n_steps <= size * _MAX_BLOCKS)
    verdicts = VerdictSettings(block_steps=next(blocks, _BLOCKS_STEPS[-1]))
    return score_recording(recording, settings, verdicts)[1]


# --- history -------------------------------------------------------------------------------------


def _history_runs(history: str, run_id: str | None) -> list[RunInput]:
    with HistoryReader(history) as reader:
        runs = reader.runs()
        run = next((run for run in reversed(runs) if run_id in (None, "", run.run_id)), None)
        if run is None:
            names = ", ".join(each.run_id for each in runs[-10:]) or "a run; there is none yet"
            raise ConfigError.of("RUN", run_id, f"one of: {names}", "Leave it out for the newest.")
        return list(_stored_groups(reader, run))


def _stored_groups(reader: HistoryReader, run: RunEntry) -> Iterator[RunInput]:
    by_group: dict[str, list[WindowEntry]] = {}
    for entry in reader.windows(run.run_id):
        if entry.first_step is not None and entry.end_ns > entry.start_ns:
            by_group.setdefault(entry.group, []).append(entry)
    if not by_group:
        value = f"{run.run_id} without a window of steps"
        remedy = "A run needs 20 steps; the windows of an old run may have been dropped."
        raise InputError.of("history", value, "windows with steps", remedy)
    views = FromHistory(reader).worlds(run.run_id)
    changes = attributed(views[0].run_verdicts).changes if views else ()
    of_views = (view.goodput.launches for view in views if view.goodput is not None)
    launches = events_by_run(event for each in of_views for event in each).get(run.run_id, [])
    for group, entries in by_group.items():
        activities = _stored_activities(reader, entries)
        yield RunInput(
            run_id=run.run_id,
            group=group,
            activities=joined([activities, activities_of_launches(launches)]),
            stragglers=straggler_losses(changes, activities, group),
            launches=launches,
        )


def _stored_activities(reader: HistoryReader, entries: Sequence[WindowEntry]) -> Activities:
    max_ranks = max(entry.ranks for entry in entries)
    every = max(1, -(-max_ranks * len(entries) // _MAX_ROWS))
    if every > 1:
        print_note(f"history: every {every}th of {max_ranks:,} ranks is read")
    windows = (reader.window(entry.id) for entry in entries)
    return joined([_window_rows(window, every) for window in windows if window is not None])


def _window_rows(window: WindowSummary, every: int) -> Activities:
    """The steps of a window as one row a rank, and its sections that are badput at its start."""
    assert window.first_step is not None
    rows = []
    for at, rank in enumerate(window.ranks.tolist()):
        if rank % every:
            continue
        who = {"rank": rank, "attempt": window.attempt}
        span = (window.start_ns, window.end_ns)
        rows.append(Activity(ATTEMPT, *span, **who))
        rows.append(Activity(STEP, *span, **who, step=window.first_step, steps=window.n_steps))
        since_ns = window.start_ns
        for section, seconds in _badput_of(window, at):
            end_ns = min(since_ns + round(seconds * 1e9), window.end_ns)
            rows.append(Activity(section, since_ns, end_ns, **who))
            since_ns = end_ns
    return Activities.of(rows)


def _badput_of(window: WindowSummary, rank: int) -> Iterator[tuple[str, float]]:
    for number, section in enumerate(window.sections):
        seconds = float(window.median_s[rank, number] * window.count[rank, number])
        if section.kind in {"data", "checkpoint", "eval"} and seconds > 0.0 and not section.parent:
            is_load = section.kind == "checkpoint" and "load" in section.name
            yield "checkpoint_load" if is_load else section.kind, seconds
