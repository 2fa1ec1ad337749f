"""``otel-straggler history``: list what a collector has stored; copy it, and put a copy back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import click

from otel_straggler.cli.text import clock, many, names_text, print_json, printable
from otel_straggler.collector.history.backup import Copied, back_up
from otel_straggler.collector.history.backup import restore as put_back
from otel_straggler.collector.history.codec import WindowSummary
from otel_straggler.collector.history.reader import HistoryReader, RunEntry, WindowEntry
from otel_straggler.errors import ConfigError
from otel_straggler.model.verdict import Verdict

NEWEST_WINDOWS = 20
MAX_NAMED = 10
_VERSION = {"schema_version": 1}


_LIST = "list"


class _ListsByDefault(click.Group):
    """``history FILE`` lists; a file named like a verb is given as ``./backup``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [_LIST, *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_ListsByDefault,
    short_help="List what a collector has stored; copy it, and put a copy back.",
    subcommand_metavar="FILE | COMMAND [ARGS]...",
)
def command() -> None:
    """List what a collector has stored, copy it while the collector runs, or put a copy back.

    With a file, or the URL of a PostgreSQL database: list. See 'history list --help'.
    """


@command.command("backup", short_help="Copy a history while collectors write it.")
@click.argument("file", metavar="FILE")
@click.argument("target", metavar="COPY", type=click.Path(path_type=Path))
def backup(file: str, target: Path) -> None:
    """Copy a history to the new file COPY, while collectors write FILE.

    COPY has everything of one moment, is checked, and can be read like FILE. Requests in a spool
    are not part of it: a collector stops for nothing, so what it keeps there goes on.
    """
    copied = back_up(file, target)
    click.echo(f"{target}: {_size_text(copied)}, as of now")


@command.command("restore", short_help="Put a copy in the place of a history.")
@click.argument("copy", metavar="COPY", type=click.Path(path_type=Path))
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
def restore(copy: Path, file: Path) -> None:
    """Put COPY in the place of FILE, whose collector is stopped.

    The FILE of before is moved aside, not deleted. COPY stays, and must be of the version that this
    package writes.
    """
    copied = put_back(copy, file, wall_s=time.time())
    click.echo(f"{file}: {_size_text(copied)}, from {copy}")
    if copied.aside is not None:
        click.echo(f"The file of before is {copied.aside}")


def _size_text(copied: Copied) -> str:
    return f"{many(copied.runs, 'run')}, {copied.size_bytes / 2**20:.1f} MiB"


@command.command(_LIST)
@click.argument("file", required=False)
@click.option("--path", metavar="FILE", help="The same as FILE.")
@click.option("--run", "run_id", metavar="ID", help="Windows and verdicts of this run.")
@click.option("--window", "window_id", type=int, metavar="N", help="Tables of a window, as JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; of a run, all windows.")
def list_stored(
    file: str | None, path: str | None, run_id: str | None, window_id: int | None, as_json: bool
) -> None:
    """List runs, or the windows and changes of verdicts of one run; 'history FILE' is the same.

    FILE is the collector's --history, a file or a PostgreSQL URL; it may be running. For a summary
    of a run and its losses: otel-straggler report --history FILE. The exit code is 2 if FILE cannot
    be read, or has no such run or window.
    """
    path = path or file
    if path is None:
        raise click.UsageError("Missing argument 'FILE'")
    with HistoryReader(path) as reader:
        if window_id is not None:
            window = reader.window(window_id)
            if window is None:
                _refuse("--window", window_id, f"a window in {path}", "Name the run with --run")
            print_json({**_VERSION, "window": _window_json(window)})
        elif run_id is None:
            _print_runs(reader.runs(), as_json)
        else:
            _print_run(reader, _run(reader, path, run_id), as_json)


def _print_runs(runs: list[RunEntry], as_json: bool) -> None:
    if as_json:
        print_json({**_VERSION, "runs": list(map(asdict, runs))})
        return
    for line in map(_run_line, runs) if runs else ["no runs"]:
        click.echo(line)


def _print_run(reader: HistoryReader, run: RunEntry, as_json: bool) -> None:
    windows, changes = reader.windows(run.run_id), reader.changes(run.run_id)
    if as_json:
        listed = {"windows": list(map(asdict, windows)), "verdicts": list(map(asdict, changes))}
        print_json({**_VERSION, "run": asdict(run), **listed})
        return
    click.echo(_run_line(run))
    for line in (*map(_change_line, changes), *_window_lines(windows)):
        click.echo(f"  {line}")


def _run_line(run: RunEntry) -> str:
    job = f" ({printable(run.job)})" if run.job else ""
    return (
        f"{printable(run.run_id)}{job}: {many(run.windows, 'window')}, "
        f"{many(run.changes, 'change')} of verdicts, {clock(run.first_seen_ns / 1e9)} to "
        f"{clock(run.last_seen_ns / 1e9)}"
    )


def _change_line(change: Verdict) -> str:
    step = "" if change.at_step is None else f" step {change.at_step}"
    text = change.sentence or f"{change.subject_id}: {change.state}"
    return f"{clock(change.at_ns / 1e9)}{step} {change.state}: {printable(text, 500)}"


def _window_lines(windows: list[WindowEntry]) -> Iterator[str]:
    if len(windows) > NEWEST_WINDOWS:
        yield f"the newest {NEWEST_WINDOWS} of {len(windows):,} windows:"
    for window in windows[-NEWEST_WINDOWS:]:
        steps = "without steps"
        if window.first_step is not None:
            steps = f"steps {window.first_step} to {window.last_step}"
        group = f" of {printable(window.group)}" if window.group else ""
        low = f"{window.stragglers:,} with a low score" if window.stragglers else "no low score"
        until = clock(window.end_ns / 1e9)
        ranks = many(window.ranks, "rank")
        yield f"window {window.id}{group}, {steps}, until {until}: {ranks}, {low}"


def _window_json(window: WindowSummary) -> dict[str, Any]:
    """Tables by section, then by rank, as in the report."""
    ranks = [str(rank) for rank in window.ranks.tolist()]
    tables = {name: getattr(window, field) for name, field in _TABLES.items()}
    columns = {name: getattr(window, name.removesuffix("_scores")) for name in _COLUMNS}
    who = zip(ranks, window.nodes, window.roles, window.devices, strict=True)
    return {
        **{name: getattr(window, name) for name in _FIELDS},
        "ranks": {r: {"node": n, "role": role, "device": d} for r, n, role, d in who},
        "sections": {section.name: section.kind for section in window.sections},
        **{
            name: {
                section.name: dict(zip(ranks, table[:, s].tolist(), strict=True))
                for s, section in enumerate(window.sections)
            }
            for name, table in tables.items()
        },
        **{name: dict(zip(ranks, each.tolist(), strict=True)) for name, each in columns.items()},
        "stragglers": [
            {"rank": rank, "section": section or None, "kind_of_score": kind, "score": score}
            for rank, section, kind, score in window.stragglers
        ],
    }


_TABLES = {
    "section_medians_s": "median_s",
    "section_step_s": "step_s",
    "section_own_s": "own_s",
    "section_relative_scores": "relative",
    "section_individual_scores": "individual",
    "section_slowdowns": "slowdown",
    "section_counts": "count",
}
_COLUMNS = ("gpu_relative_scores", "gpu_individual_scores")
_FIELDS = (
    "run_id", "job", "group", "attempt", "first_step", "last_step", "start_ns", "end_ns",
    "world_size", "closed_by",
)  # fmt: skip


def _run(reader: HistoryReader, path: str, run_id: str) -> RunEntry:
    runs = {run.run_id: run for run in reader.runs()}
    if run_id not in runs:
        known = f"one of the runs in {path}: {names_text(runs, MAX_NAMED)}"
        expected = known if runs else f"a run; {path} has none yet"
        _refuse("--run", run_id, expected, "Leave --run out")
    return runs[run_id]


def _refuse(where: str, value: object, expected: str, remedy: str) -> NoReturn:
    raise ConfigError.of(where, value, expected, f"{remedy} to list them.")
