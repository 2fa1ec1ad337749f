"""``otel-straggler report``: one run, to read, to send, to keep."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, Final

import click

from otel_straggler.cli.exchange import DEFAULT_COLLECTOR
from otel_straggler.cli.output_file import STDOUT, write_file
from otel_straggler.cli.report_lines import report_lines
from otel_straggler.cli.report_source import LiveRunViews, RunViews, StoredRunViews, choose_run
from otel_straggler.cli.text import printable, report_console
from otel_straggler.collector.history.reader import HistoryReader
from otel_straggler.errors import ConfigError, InputError


@click.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@click.option("--collector", metavar="URL", help=f"Ask this one.  [default: {DEFAULT_COLLECTOR}]")
@click.option(
    "--history",
    metavar="FILE",
    help="Read a collector's history instead: a file or a PostgreSQL URL.",
)
@click.option(
    "--group", metavar="NAME", help="Of several worlds.  [default: the one that lost most]"
)
@click.option("--html", metavar="OUT", help="Write the page with this run in it; - for stdout.")
@click.option("--json", "as_json", is_flag=True, help="Print the run as JSON.")
def command(
    run_id: str | None,
    collector: str | None,
    history: str | None,
    group: str | None,
    html: str | None,
    as_json: bool,
) -> None:
    """Show RUN as it is or as it ended: which ranks are slow, since when, why, what it costs.

    RUN defaults to the one that needs attention most, of a history to the newest. With --html it
    becomes one file with the collector's live page, which needs no network. The exit code is 0
    whether or not a rank is slow, 2 if there is no such run.
    """
    if as_json and html == STDOUT:
        raise ConfigError.of("--json", "--html -", "one output", "Leave one of the two out.")
    with opened(collector, history) as run_views:
        chosen = choose_run(run_views, run_id)
        run_view = run_views.run_view(chosen["run_id"], group)
        if html is not None:
            from otel_straggler.page.bundle import bundle

            data = report_data(run_views, chosen, run_view)
            write_file(html, bundle(data, title=f"{chosen['run_id']} - otel-straggler"))
            _print_note(data["left_out"], html)
        if as_json:
            click.echo(json.dumps(run_view, allow_nan=False, separators=(",", ":")))
        elif html is None:
            console = report_console()
            for line in report_lines(run_view):
                console.print(line, soft_wrap=not console.is_terminal)


@contextlib.contextmanager
def opened(collector: str | None, history: str | None) -> Iterator[RunViews]:
    """Where views of runs come from.

    Raises:
        ConfigError: both are named, or the file is none.
    """
    if history is None:
        yield LiveRunViews(collector or DEFAULT_COLLECTOR)
        return
    if collector is not None:
        raise ConfigError.of(
            "--history", collector, "a collector or a history", "Leave one of the two out."
        )
    with HistoryReader(history) as reader:
        yield StoredRunViews(reader, history)


def _print_note(left_out: dict[str, object], html: str) -> None:
    """Print to standard error what was left out."""
    sections, ranks = left_out["sections"], left_out["ranks"]
    reported = []
    if isinstance(sections, list) and sections:
        names = ", ".join(printable(str(name), 40) for name in sections[:8])
        reported.append(f"the timelines of {len(sections)} sections ({names})")
    if ranks:
        reported.append(f"the details of {ranks:,} rank{'s' * (ranks != 1)}")
    if reported:
        where = "the page" if html == STDOUT else printable(html)
        click.echo(f"otel-straggler: note: {where} is without {' and '.join(reported)}", err=True)


Json = dict[str, Any]
MAX_TIMELINE_BYTES: Final = 12 * 1024 * 1024
"""Of all sections together, as stored in the file."""
WORST_RANKS: Final = 50
MAX_FLAGGED: Final = 50
RANK_COLUMNS: Final = 120
"""Windows in the history of one rank; timelines have more."""


def report_data(run_views: RunViews, chosen: Json, run_view: Json) -> Json:
    """Content of ``straggler-data``; ``left_out`` counts what did not fit.

    Args:
        chosen: entry of the run in ``/v1/runs``.
        run_view: of the run and group.
    """
    run_id, group = run_view["run"]["run_id"], run_view["run"]["group"]
    timelines, sections = _timelines(run_views, run_view, run_id, group)
    ranks = {}
    for rank in ranks_of_interest(run_view):
        try:
            ranks[str(rank)] = _shortened(run_views.rank(run_id, group, rank))
        except InputError:  # it has left the run meanwhile
            continue
    return {
        "runs": {**run_views.runs(), "runs": [chosen]},
        "run": run_view,
        "timelines": timelines,
        "ranks": ranks,
        "left_out": {"sections": sections, "ranks": len(run_view["ranks"]["rank"]) - len(ranks)},
    }


def ranks_of_interest(run_view: Json) -> list[int]:
    """Ranks that verdicts and the answer name, then the slowest of the newest window."""
    flagged = list(dict.fromkeys(_flagged(run_view)))[:MAX_FLAGGED]
    ranks, slowdowns = run_view["ranks"]["rank"], run_view["slowdowns"]["overall"]
    known = set(ranks)
    worst = sorted(
        (rank for rank in zip(ranks, slowdowns, strict=True) if rank[1] is not None),
        key=lambda reported: -reported[1],
    )
    chosen = [*flagged, *(rank for rank, _ in worst[:WORST_RANKS])]
    return [rank for rank in dict.fromkeys(chosen) if rank in known]


def _flagged(run_view: Json) -> Iterator[int]:
    if run_view["answer"]["rank"] is not None:
        yield run_view["answer"]["rank"]
    for hang in run_view["hangs"]:
        yield from hang["culprits"]
    for verdict in run_view["verdicts"]:
        if verdict["stands"] and verdict["rank"] is not None:
            yield verdict["rank"]


def _timelines(
    run_views: RunViews, run_view: Json, run_id: str, group: str
) -> tuple[dict[str, Json], list[str]]:
    """Timelines by section, all sections together first; and the sections that did not fit."""
    if not run_view["timeline"]["n_columns"]:
        return {}, []
    timelines: dict[str, Json] = {}
    left_out: list[str] = []
    room = MAX_TIMELINE_BYTES
    for section in ("", *_costliest_first(run_view)):
        # All are of one size: what does not fit is not asked for.
        size = max((len(each["values"]) for each in timelines.values()), default=0)
        if size > room:
            left_out.append(section)
            continue
        timelines[section] = run_views.timeline(run_id, group, section)
        room -= len(timelines[section]["values"])
    return timelines, left_out


def _costliest_first(run_view: Json) -> list[str]:
    """Sections with a slow verdict, then the others in order."""
    called = [verdict["section"] for verdict in run_view["verdicts"] if verdict["stands"]]
    names = [section["name"] for section in run_view["sections"]]
    return [name for name in dict.fromkeys([*called, *names]) if name in names]


def _shortened(rank: Json) -> Json:
    history = rank["history"]
    return rank | {
        "history": {
            **history,
            "columns": history["columns"][-RANK_COLUMNS:],
            "slowdowns": [row[-RANK_COLUMNS:] for row in history["slowdowns"]],
        }
    }
