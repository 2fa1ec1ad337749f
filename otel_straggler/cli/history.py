"""``otel-straggler history``: list what a collector has stored."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, NoReturn

import click

from otel_straggler.cli.report_table import printable
from otel_straggler.collector.history.codec import WindowSummary
from otel_straggler.collector.history.reader import HistoryReader, RunEntry, WindowEntry
from otel_straggler.errors import ConfigError
from otel_straggler.model.verdict import Verdict

NEWEST_WINDOWS = 20
MAX_NAMED = 10
FORMAT_VERSION = 1


@click.command(short_help="List what a collector has kept: runs, windows, verdicts.")
@click.argument("file", required=False)
@click.option("--path", metavar="FILE", help="The same as FILE.")
@click.option("--run", "run_id", metavar="ID", help="Windows and verdicts of this run.")
@click.option("--window", "window_id", type=int, metavar="N", help="Tables of a window, as JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; of a run, all windows.")
def command(
    file: str | None, path: str | None, run_id: str | None, window_id: int | None, as_json: bool
) -> None:
    """List what a collector has kept: runs; of one run, its windows and all changes of verdicts.

    FILE is what --history named when the collector was started; it may be running. What a run was
    like, and what it lost: otel-straggler report --history FILE. The exit code is 2 if FILE cannot
    be read, or has no such run or window.
    """
    path = path or file
    if path is None:
        raise click.UsageError("Missing argument 'FILE'")
    with HistoryReader(path) as reader:
        if window_id is not None:
            _say_json({"window": _window_json(_window(reader, path, window_id))})
        elif run_id is None:
            _say_runs(reader.runs(), as_json)
        else:
            _say_run(reader, _run(reader, path, run_id), as_json)


def _say_runs(runs: list[RunEntry], as_json: bool) -> None:
    if as_json:
        _say_json({"runs": [dataclasses.asdict(run) for run in runs]})
        return
    if not runs:
        click.echo("no runs")
    for run in runs:
        click.echo(_run_line(run))


def _say_run(reader: HistoryReader, run: RunEntry, as_json: bool) -> None:
    windows, changes = reader.windows(run.run_id), reader.changes(run.run_id)
    if as_json:
        run_json: dict[str, Any] = {
            "run": dataclasses.asdict(run),
            "windows": [dataclasses.asdict(window) for window in windows],
            "verdicts": [dataclasses.asdict(change) for change in changes],
        }
        _say_json(run_json)
        return
    click.echo(_run_line(run))
    for line in (*map(_change_line, changes), *_window_lines(windows)):
        click.echo(f"  {line}")


def _run_line(run: RunEntry) -> str:
    job = f" ({printable(run.job)})" if run.job else ""
    return (
        f"{printable(run.run_id)}{job}: {_many(run.windows, 'window')}, "
        f"{_many(run.changes, 'change')} of verdicts, {_time(run.first_seen_ns)} to "
        f"{_time(run.last_seen_ns)}"
    )


def _change_line(change: Verdict) -> str:
    step = "" if change.at_step is None else f" step {change.at_step}"
    text = change.sentence or f"{change.subject_id}: {change.state}"
    return f"{_time(change.at_ns)}{step} {change.state}: {printable(text, 500)}"


def _window_lines(windows: list[WindowEntry]) -> Iterator[str]:
    if len(windows) > NEWEST_WINDOWS:
        yield f"the newest {NEWEST_WINDOWS} of {len(windows):,} windows:"
    for window in windows[-NEWEST_WINDOWS:]:
        steps = "without steps"
        if window.first_step is not None:
            steps = f"steps {window.first_step} to {window.last_step}"
        group = f" of {printable(window.group)}" if window.group else ""
        yield (
            f"window {window.id}{group}, {steps}, until {_time(window.end_ns)}: "
            f"{_many(window.ranks, 'rank')}, {_low(window.stragglers)}"
        )


def _low(ranks: int) -> str:
    return f"{ranks:,} with a low score" if ranks else "no low score"


def _window_json(window: WindowSummary) -> dict[str, Any]:
    """Tables by section, then by rank, as in the report."""
    ranks = [str(rank) for rank in window.ranks.tolist()]
    tables: dict[str, Any] = {
        "section_medians_s": window.median_s,
        "section_step_s": window.step_s,
        "section_relative_scores": window.relative,
        "section_individual_scores": window.individual,
        "section_slowdowns": window.slowdown,
        "section_counts": window.count,
    }
    columns: dict[str, Any] = {
        "gpu_relative_scores": window.gpu_relative,
        "gpu_individual_scores": window.gpu_individual,
    }
    names = ("run_id", "job", "group", "attempt", "first_step", "last_step", "start_ns", "end_ns",
             "world_size", "closed_by")  # fmt: skip
    who = zip(ranks, window.nodes, window.roles, window.devices, strict=True)
    return {
        **{name: getattr(window, name) for name in names},
        "ranks": {r: {"node": n, "role": role, "device": d} for r, n, role, d in who},
        "sections": {section.name: section.kind for section in window.sections},
        **{
            name: {
                section.name: dict(zip(ranks, table[:, s].tolist(), strict=True))
                for s, section in enumerate(window.sections)
            }
            for name, table in tables.items()
        },
        **{
            name: dict(zip(ranks, column.tolist(), strict=True)) for name, column in columns.items()
        },
        "stragglers": [
            {"rank": rank, "section": section or None, "kind_of_score": kind, "score": score}
            for rank, section, kind, score in window.stragglers
        ],
    }


def _run(reader: HistoryReader, path: str, run_id: str) -> RunEntry:
    runs = {run.run_id: run for run in reader.runs()}
    if run_id not in runs:
        _refuse("--run", run_id, _known(runs, path), "Leave --run out")
    return runs[run_id]


def _known(runs: Mapping[str, RunEntry], path: str) -> str:
    names = ", ".join(printable(run_id) for run_id in list(runs)[:MAX_NAMED])
    more = len(runs) - MAX_NAMED
    named = f"{names} and {more:,} more" if more > 0 else names
    return f"one of the runs in {path}: {named}" if runs else f"a run; {path} has none yet"


def _window(reader: HistoryReader, path: str, window_id: int) -> WindowSummary:
    window = reader.window(window_id)
    if window is None:
        _refuse("--window", window_id, f"a window in {path}", "Name the run with --run")
    return window


def _refuse(where: str, value: object, expected: str, remedy: str) -> NoReturn:
    raise ConfigError.of(where, value, expected, f"{remedy} to list them.")


def _say_json(content: dict[str, Any]) -> None:
    whole = {"schema_version": FORMAT_VERSION, **_nullable(content)}
    click.echo(json.dumps(whole, allow_nan=False, separators=(",", ":")))


def _nullable(value: Any) -> Any:
    """NaN as None, since JSON has no NaN."""
    if isinstance(value, dict):
        return {key: _nullable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_nullable(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _time(at_ns: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ns / 1e9, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):  # a sender's clock may say anything
        return f"{at_ns} ns"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
