"""``otel-straggler top``: verdicts and scores of a running collector, live."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from otel_straggler.cli.exchange import (
    DEFAULT_COLLECTOR,
    collector_url,
    fetch_report,
    known_run,
)
from otel_straggler.cli.liveness_lines import is_over, liveness_lines, stands_still
from otel_straggler.cli.report_table import (
    ScoreTable,
    excess_sentence,
    first_lines,
    missing_sentence,
    rank_on_node,
    run_title,
    straggler_sentences,
)
from otel_straggler.cli.text import names_text, printable, report_console
from otel_straggler.cli.verdict_lines import (
    called_ranks,
    hides_waiting,
    named_ranks,
    no_wait_line,
    run_line,
    verdict_lines,
    without_victims,
)
from otel_straggler.collector.views.report_json import Json
from otel_straggler.errors import ConfigError, InputError, UnavailableError
from otel_straggler.secret import without_secrets

MAX_SENTENCES = 5
MAX_VERDICTS = 5
_MAX_NAMED = 10
_PART_FOR_VERDICTS = 3
_LINES_AROUND = 9
_ROOM_WITHOUT_TERMINAL = 64


@click.command()
@click.option(
    "--collector",
    "collectors",
    multiple=True,
    default=[DEFAULT_COLLECTOR],
    show_default=True,
    help="Its --metrics address; may be repeated, for the runs of several shards.",
)
@click.option("--run", "run_id", help="Show this run.  [default: the one with the newest window]")
@click.option("--interval", default=1.0, show_default=True, help="Seconds between polls.")
@click.option("--once", is_flag=True, help="Poll once, print, and exit.")
def command(collectors: tuple[str, ...], run_id: str | None, interval: float, once: bool) -> None:
    """Watch verdicts and scores of a running collector. Ends with Ctrl-C."""
    urls = list(map(collector_url, collectors))
    collector = ", ".join(collectors)
    if not 0.1 <= interval <= 3600.0:
        raise ConfigError.of("--interval", interval, "0.1 to 3600 seconds", "Try 1.")
    console = report_console()
    if once:
        report = _fetch(urls)
        known_run(report, run_id, collector)
        console.print(View(report, run_id, collector, "; ".join(report["unreachable"])))
    elif console.is_terminal:
        with Live(Text("polling ..."), console=console, screen=True, auto_refresh=False) as live:
            for view in _views(urls, run_id, collector, interval):
                live.update(view, refresh=True)
    else:
        for view in _views(urls, run_id, collector, interval):
            console.print(view)


def _fetch(urls: Sequence[str]) -> Json:
    """One report of the runs of all collectors; of a run that several have, the entry with the
    newest window. With several, ``shard`` of a run is the address of its collector. Shards that do
    not answer are left out while another does.

    Raises:
        UnavailableError, InputError: none of them has a report.
    """
    reports: dict[str, Json] = {}
    failed = []
    for url in urls:
        try:
            reports[url] = fetch_report(url)
        except (UnavailableError, InputError) as error:
            failed.append(error)
    if not reports:
        raise failed[0]
    runs: Json = {}
    for url, report in reports.items():
        shard = without_secrets(url) if len(urls) > 1 else ""
        for run_id, run in report["runs"].items():
            if run_id not in runs or _end_ns(run) > _end_ns(runs[run_id]):
                runs[run_id] = {**run, "shard": shard}
    first = next(iter(reports.values()))
    return {**first, "runs": runs, "unreachable": list(map(str, failed))}


def _end_ns(run: Json) -> int:
    return max((int(window["end_ns"]) for window in run["windows"]), default=-1)


def _views(
    urls: Sequence[str], run_id: str | None, collector: str, interval_s: float
) -> Iterator[View]:
    """A view after each poll, forever; a collector that does not answer is shown as such."""
    report: Json | None = None
    seen_at_s = 0.0
    while True:
        trouble = ""
        try:
            report = _fetch(urls)
            trouble = "; ".join(report["unreachable"])
            seen_at_s = time.monotonic()
        except (UnavailableError, InputError) as error:
            age = f"last report {time.monotonic() - seen_at_s:.0f} s ago; " if report else ""
            trouble = f"{age}{error}"
        yield View(report, run_id, collector, trouble)
        time.sleep(interval_s)


@dataclass(frozen=True, slots=True)
class View:
    """One view of a report, as large as the terminal allows.

    Attributes:
        report: None before the first answer.
        run_id: the run to show; None for the one with the newest window.
        collector: address, for messages.
        trouble: why there is no newer report; empty if there is.
    """

    report: Json | None
    run_id: str | None
    collector: str
    trouble: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.trouble:
            text = f"no answer: {printable(self.trouble, 300)}"
            yield Text(text, style="bold white on red", no_wrap=True, overflow="ellipsis")
        if self.report is None:
            return
        runs = self.report["runs"]
        shown = self.run_id if self.run_id is not None else _newest(runs)
        alive = list(liveness_lines(runs.get(shown, {})))
        if shown is None or not runs.get(shown, {}).get("windows"):
            yield from alive or [Text(self._waiting(runs), style="yellow")]
            return
        room = console.height if console.is_terminal else _ROOM_WITHOUT_TERMINAL
        width, room_above = options.max_width, room // _PART_FOR_VERDICTS
        verdicts = _verdicts(alive, runs[shown], console, width, room_above)
        window, victims = without_victims(runs[shown], runs[shown]["windows"][-1])
        sentences = list(_sentences(runs[shown], window, victims))
        yield from verdicts
        title = run_title(shown, window)
        if shard := runs[shown].get("shard"):
            title.append(f", scored by {printable(shard)}", style="dim")
        yield title
        named = named_ranks(runs[shown], window)
        taken = _LINES_AROUND + len(verdicts) + len(sentences) + bool(named)
        yield ScoreTable(window, max(3, room - taken), named)
        yield from map(_in_one_line, sentences)
        yield from map(_in_one_line, _other_runs(runs, shown))

    def _waiting(self, runs: Json) -> str:
        if self.run_id is not None and self.run_id not in runs:
            known = names_text(runs, _MAX_NAMED) or "none"
            return (
                f"{self.collector} knows no run {printable(self.run_id)}, and waits for it; "
                f"its runs: {known}"
            )
        if self.run_id is not None:
            return f"no window of run {printable(self.run_id)} yet at {self.collector}"
        return f"no window yet at {self.collector}: waiting for ranks to finish the first steps"


def _other_runs(runs: Json, shown: str) -> Iterator[Text]:
    """The hung ones, else all."""
    others = [run for run in runs if run != shown]
    if hung := [run for run in others if stands_still(runs[run])]:
        names = ", ".join(printable(run, 30) for run in hung[:6])
        hang = "hangs" if len(hung) == 1 else "hang"
        yield Text(f"of the other runs {len(hung)} {hang}: {names} (--run)", style="bold red")
    elif others:
        count = f"{len(others)} other run{'s' * (len(others) != 1)}"
        names = ", ".join(printable(run, 30) for run in others[:6])
        yield Text(f"{count}: {names} (--run)", style="dim")


def _newest(runs: Json) -> str | None:
    """The run with the newest window; if none has one, a hung run."""
    ends = {run_id: run["windows"][-1]["end_ns"] for run_id, run in runs.items() if run["windows"]}
    hung = next((run_id for run_id, run in runs.items() if stands_still(run)), None)
    return max(ends, key=lambda run_id: ends[run_id], default=hung)


def _verdicts(first: list[Text], run: Json, console: Console, width: int, room: int) -> list[Text]:
    """Whole sentences if they fit, else the beginning of each."""
    reported = [*first, *verdict_lines(run, MAX_VERDICTS), *run_line(run)]
    wrapped = [line for text in reported for line in text.wrap(console, width)]
    return wrapped if len(wrapped) <= room else list(map(_in_one_line, reported))


def _in_one_line(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _sentences(run: Json, window: Json, victims: list[Text]) -> Iterator[Text]:
    has_ended = is_over(run, window["group"])
    stragglers = straggler_sentences(window, is_over=has_ended)
    is_called = bool(called_ranks(run, window))
    yield from first_lines(stragglers, MAX_SENTENCES, "bold red" if is_called else "yellow")
    yield from victims
    if stragglers and not is_called:
        is_called_if = (
            "was called slow for them" if has_ended else "is called slow unless they last"
        )
        yield Text(f"low scores in this window; nobody {is_called_if}", style="dim")
    if not stragglers and run.get("verdicts"):
        which, is_ = "every other" if victims else "every", "was" if has_ended else "is"
        yield Text(f"{which} score {is_} at or above the threshold", style="dim")
    elif not stragglers and hides_waiting(run):
        yield Text("no score is below the threshold", style="dim")
    elif not stragglers:
        yield Text("no straggler", style="green")
        if run["run"]["resolvable_slowdown"] is None:  # where it is known, waiting is seen
            yield from no_wait_line(window)
    elif excess := excess_sentence(window):
        yield Text(excess)
    if missing := missing_sentence(window):
        yield Text(missing, style="bold yellow")
    if clashes := run.get("clashes"):
        yield Text(f"{len(clashes)} processes claim a rank of another, first "
                   f"{rank_on_node(clashes[0])}", style="bold yellow")  # fmt: skip
