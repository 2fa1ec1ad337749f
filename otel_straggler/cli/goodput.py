"""``otel-straggler goodput``: where the time of a run went."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import click
from rich.table import Table

from otel_straggler.cli.exchange import DEFAULT_COLLECTOR
from otel_straggler.cli.goodput_collected import collected_goodput
from otel_straggler.cli.goodput_source import RunInput, read_runs
from otel_straggler.cli.output_file import STDOUT, write_file
from otel_straggler.cli.text import clock, duration, many, printable, report_console
from otel_straggler.collector.history.postgres import is_postgres
from otel_straggler.errors import ConfigError, InputError, StragglerError
from otel_straggler.goodput.account import Account, account
from otel_straggler.goodput.activities import Activities, Activity, joined
from otel_straggler.goodput.checkpoint_formula import checkpoint_goodput
from otel_straggler.goodput.job_events import event_line, events_of_activities
from otel_straggler.goodput.report import account_json
from otel_straggler.semconv import EXCLUDED, PRODUCTIVE

SCHEMA_VERSION: Final = 1
_WINDOWS_S: Final = (3600.0, 86_400.0)
_WORST_RANKS: Final = 5
_MAX_DISRUPTIONS: Final = 5
_ALIKE: Final = 0.01
"""Ranks whose goodput differs by less are not listed."""


@click.command()
@click.argument("source", metavar="[RUN|FILE]", required=False)
@click.option(
    "--collector",
    metavar="URL",
    help=f"RUN is one that this collector knows.  [default: {DEFAULT_COLLECTOR}]",
)
@click.option(
    "--history", metavar="FILE", help="RUN is in this history: a file or a PostgreSQL URL."
)
@click.option("--run", "run_id", metavar="ID", help="Of several runs in FILE, this one.")
@click.option(
    "--reference-step-time",
    "reference_s",
    type=float,
    metavar="S",
    help="Seconds of an ideal step; what steps take longer is badput (slow_steps).",
)
@click.option(
    "--exclude",
    "excluded",
    multiple=True,
    metavar="FROM/TO",
    help="Time that does not count, such as maintenance: ISO 8601 or seconds since 1970; "
    "repeatable.",
)
@click.option(
    "--window",
    "windows_s",
    type=float,
    multiple=True,
    metavar="S",
    help="Length of a rolling window in seconds; repeatable.  [default: 3600, 86400]",
)
@click.option("--json", "json_file", metavar="OUT", help="Write all numbers; - for stdout.")
@click.option("--html", "html_file", metavar="OUT", help="Write a page; - for stdout.")
@click.option(
    "--events",
    "events_file",
    metavar="OUT",
    help="Write the run as an event log of resiliency.goodput_measure; - for stdout.",
)
def command(
    source: str | None,
    collector: str | None,
    history: str | None,
    run_id: str | None,
    reference_s: float | None,
    excluded: Sequence[str],
    windows_s: Sequence[float],
    json_file: str | None,
    html_file: str | None,
    events_file: str | None,
) -> None:
    """Show how much of the time of a run was productive, and where the rest went.

    FILE is a recording (as for score), an event log of resiliency.goodput_measure, a directory with
    either, or a collector's history; - is standard input (the default, unless that is a terminal).
    What is no file is a RUN that a collector knows, or that is in --history: by default the one
    that needs attention most, of a history the newest. The categories add up to the time of the run
    exactly. The exit code is 2 if the source cannot be read.
    """
    outputs = (json_file, html_file, events_file)
    if outputs.count(STDOUT) > 1:
        raise ConfigError.of("-", "several outputs", "one of them on stdout", "Name files.")
    _check_positive("--reference-step-time", () if reference_s is None else (reference_s,))
    _check_positive("--window", windows_s)
    exclusions = Activities.of(_exclusion(text) for text in excluded)
    if collector is not None or (history is None and _is_run(source)):
        unusable = {"--history": history, "--reference-step-time": reference_s, "--run": run_id,
                    "--exclude": excluded, "--window": windows_s, "--html": html_file,
                    "--events": events_file}  # fmt: skip
        _check_collected({name: value for name, value in unusable.items() if value})
        _write_collected(collector or DEFAULT_COLLECTOR, source, json_file)
        return
    source = source or "-"
    accounts = [
        (run, _account(run, exclusions, reference_s))
        for run in read_runs("" if history and source == "-" else source, run_id, history)
    ]
    report = [_json(run, result, windows_s or _WINDOWS_S, reference_s) for run, result in accounts]
    if json_file is not None:
        document = {"schema_version": SCHEMA_VERSION, "runs": report}
        text = json.dumps(document, allow_nan=False, separators=(",", ":"))
        write_file(json_file, f"{text}\n")
    if html_file is not None:
        from otel_straggler.page.goodput_page import goodput_page

        write_file(html_file, goodput_page(report))
    if events_file is not None:
        write_file(events_file, "".join(_event_lines(accounts)))
    if STDOUT not in outputs:
        _print(report)


def _is_run(source: str | None) -> bool:
    """Whether a collector is asked: the source is no file, and nothing is piped in."""
    if source is None:
        return sys.stdin.isatty()
    return source != STDOUT and not is_postgres(source) and not Path(source).exists()


def _check_collected(unusable: Mapping[str, object]) -> None:
    for option, value in unusable.items():
        remedy = "Read the run from its --history, or from a recording, or leave the option out."
        shown = value if isinstance(value, str | float) else "given"
        raise ConfigError.of(option, shown, "a run that is not read from a collector", remedy)


def _write_collected(collector: str, run_id: str | None, json_file: str | None) -> None:
    try:
        report = collected_goodput(collector, run_id)
    except StragglerError as error:
        if run_id is None:
            raise
        raise type(error)(f"there is no file {printable(run_id)}, and as a run: {error}") from error
    if json_file is not None:
        document = {"schema_version": SCHEMA_VERSION, "runs": report}
        text = json.dumps(document, allow_nan=False, separators=(",", ":"))
        write_file(json_file, f"{text}\n")
    if json_file != STDOUT:
        _print(report)


def _check_positive(option: str, values: Sequence[float]) -> None:
    for value in values:
        if not 0.0 < value < 1e9:
            raise ConfigError.of(option, value, "seconds, above 0", "Give a number, such as 1.5.")


def _exclusion(text: str) -> Activity:
    start, _, end = text.partition("/")
    try:
        start_ns, end_ns = _at_ns(start), _at_ns(end)
    except (ValueError, OverflowError):
        start_ns = end_ns = 0
    if end_ns <= start_ns:
        example = "2026-11-24T10:00:00+00:00/2026-11-24T11:00:00+00:00"
        raise ConfigError.of("--exclude", text, f"two times, as {example}", "The later one last.")
    return Activity(EXCLUDED, start_ns, end_ns)


def _at_ns(text: str) -> int:
    """A time without a zone is taken for UTC."""
    try:
        return round(float(text) * 1e9)
    except ValueError:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
        at = at if at.tzinfo is not None else at.replace(tzinfo=timezone.utc)
        return round(at.timestamp() * 1e6) * 1000


def _account(run: RunInput, exclusions: Activities, reference_s: float | None) -> Account:
    result = account(
        joined([run.activities, exclusions]),
        reference_step_s=reference_s,
        stragglers=run.stragglers,
    )
    if result is None:
        raise InputError.of(
            run.run_id or "run", "nothing with a length", "steps or events", "Is it a whole run?"
        )
    return result


def _json(
    run: RunInput, result: Account, windows_s: Sequence[float], reference_s: float | None
) -> dict[str, Any]:
    checkpoints = None
    if run.events and reference_s is not None:
        checkpoints = checkpoint_goodput(run.events, reference_s)
    return account_json(
        result,
        run_id=run.run_id,
        group=run.group,
        windows_s=windows_s,
        checkpoints=checkpoints,
        launches=run.launches,
    )


def _event_lines(accounts: Sequence[tuple[RunInput, Account]]) -> Iterator[str]:
    for run, _ in accounts:
        events = run.events or events_of_activities(run.activities, run.run_id)
        yield from (f"{event_line(event)}\n" for event in events)


# --- terminal ------------------------------------------------------------------------------------


def _print(report: Sequence[dict[str, Any]]) -> None:
    console = report_console()
    for number, run in enumerate(report):
        if number:
            console.print()
        console.print(_title(run), soft_wrap=True)
        console.print(_table(run))
        for line in _lines(run):
            console.print(line, soft_wrap=True)


def _title(run: dict[str, Any]) -> str:
    name = f"{run['run_id']}/{run['group']}" if run["group"] else run["run_id"]
    is_collected = run["ranks"] is None
    n_ranks = run["n_ranks"] if is_collected else len(run["ranks"])
    n_attempts = run["n_attempts"] if is_collected else len(run["attempts"])
    ranks, attempts = many(n_ranks, "rank"), many(n_attempts, "attempt")
    return (
        f"{printable(name)}: goodput {_percent(run['goodput'])} of {_hours(run['wall_s'])}, "
        f"{ranks}, {attempts}, {clock(run['start_s'])} to {clock(run['end_s'])}"
    )


def _table(run: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("category")
    table.add_column("time", justify="right")
    table.add_column("share", justify="right")
    table.add_column("what it is")
    categories = run["categories"]
    badput = sorted(set(categories) - {PRODUCTIVE}, key=lambda name: -categories[name]["seconds"])
    for name in (PRODUCTIVE, *badput):
        entry = categories[name]
        if entry["seconds"] or name == PRODUCTIVE:
            cells = (_hours(entry["seconds"]), _percent(entry["share"]), entry["meaning"])
            table.add_row(printable(name, 40), *cells)
    table.add_row("together", _hours(run["elapsed_s"]), "", "")
    return table


def _lines(run: dict[str, Any]) -> Iterator[str]:
    if run["steps"] is None:
        yield from _rolling_lines(run)
        yield _COLLECTED if run["is_over"] else f"so far. {_COLLECTED}"
        return
    steps = run["steps"]
    if steps["productive"]:
        yield (
            f"{many(steps['productive'], 'step')} count, {steps['redone']:,} were done again; "
            f"{many(steps['disruptions'], 'disruption')}, {_hours(run['recovery_s'])} of recovery"
        )
    yield from map(_disruption_line, run["disruptions"][:_MAX_DISRUPTIONS])
    if len(run["disruptions"]) > _MAX_DISRUPTIONS:
        yield f"and {many(len(run['disruptions']) - _MAX_DISRUPTIONS, 'disruption')} more (--json)"
    if steps["slowdown"] is not None:
        yield (
            f"a step takes {duration(steps['mean_s'])}, {steps['slowdown']:.3f}x the ideal step "
            f"of {duration(steps['ideal_s'])}"
        )
    yield from _rolling_lines(run)
    yield from _rank_lines(run)
    if run["checkpoints"] is not None:
        checkpoints = run["checkpoints"]
        yield (
            f"from checkpoints alone: {_percent(checkpoints['goodput'])}, steps "
            f"{checkpoints['min_loaded_step']} to {checkpoints['max_saved_step']}"
        )


_COLLECTED: Final = (
    "By steps and by rank: name a recording, or the collector's history with --history."
)


def _rolling_lines(run: dict[str, Any]) -> Iterator[str]:
    for rolling in run["rolling"]:
        if rolling["goodput"][-1] is not None:
            yield f"last {_hours(rolling['window_s'])}: {_percent(rolling['goodput'][-1])}"


def _disruption_line(its: dict[str, Any]) -> str:
    lost_s = its["recovery_s"] + its["redone_s"]
    why = f" ({printable(its['text'], 120)})" if its["text"] else ""
    parts = (
        f"{_hours(its['recovery_s'])} of recovery, {_hours(its['redone_s'])} of steps done again"
    )
    return f"attempt {its['attempt']} ended{why}: {_hours(lost_s)} lost, {parts}"


def _rank_lines(run: dict[str, Any]) -> Iterator[str]:
    known = [rank for rank in run["ranks"] if rank["goodput"] is not None]
    known.sort(key=lambda rank: rank["goodput"])
    if len(known) > 1 and known[-1]["goodput"] - known[0]["goodput"] >= _ALIKE:
        worst = known[:_WORST_RANKS]
        each = ", ".join(f"{rank['rank']}: {_percent(rank['goodput'])}" for rank in worst)
        best = known[-1]
        yield f"ranks with least goodput {each}; most: {best['rank']}: {_percent(best['goodput'])}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f} %"


def _hours(seconds: float) -> str:
    """
    >>> _hours(12_000), _hours(90), _hours(0.25)
    ('3 h 20 min', '1 min 30 s', '250 ms')
    >>> _hours(3_600)
    '1 h'
    """
    if seconds < 60:
        return duration(seconds) if seconds else "0 s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
