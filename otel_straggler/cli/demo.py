"""``otel-straggler demo``: a rank fails in a training run, and an alert arrives."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import sys
import tempfile
import threading
import time
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from otel_straggler.cli.text import printable, report_console
from otel_straggler.demo.demo import RUN_ID, Arrival, Demo, began_at_s
from otel_straggler.demo.training import FAULTS, SECTIONS, TEXT, Fault, node_of

Json = dict[str, Any]
_COLOUR = {"critical": "red", "warning": "yellow"}
_WIDEST = 100
_SHORT = (
    "Timeouts and waits are short here. With the defaults a lost rank is reported within about a "
    "minute;\ndocs/operate/alerts.md explains every delay."
)


@click.command()
@click.option("--fault", type=click.Choice(FAULTS), default="slow", show_default=True)
@click.option(
    "--section", type=click.Choice(SECTIONS), help="Where a slow rank is slow.  [default: either]"
)
@click.option(
    "--train",
    type=click.Path(exists=True, dir_okay=False),
    metavar="SCRIPT",
    help="Real training: what each rank runs, such as examples/demo/train.py.",
)
@click.option("--ranks", type=click.IntRange(4, 64), default=4, show_default=True)
@click.option(
    "--seconds", type=click.FloatRange(0, 3600), default=3.0, show_default=True,
    help="Of training before the fault.",
)  # fmt: skip
@click.option("--rank", type=click.IntRange(0), help="The rank that fails.  [default: any]")
@click.option(
    "--keep", is_flag=True, help="Keep all running, with the page, until Ctrl-C or Enter."
)
@click.option("--seed", type=int, help="Of the random choices.")
@click.option("--json", "as_json", is_flag=True, help="Print the outcome as JSON, and no more.")
def command(
    fault: Fault,
    section: str | None,
    train: str | None,
    ranks: int,
    seconds: float,
    rank: int | None,
    keep: bool,
    seed: int | None,
    as_json: bool,
) -> int:
    """Let a rank fail, and see the alert arrive.

    Starts a collector and ranks, in processes of their own, and makes one of them slow, stuck
    (it does not join a collective) or lost (killed). Alerts go to an Alertmanager if one is on
    PATH, else from the collector to the demo's own webhook. Times are shorter than by default.
    Torch is needed for --train only: GPU work is replaced by sleeping.

    The exit code is 0 if the right rank was named, 1 if not.
    """
    if rank is not None and rank >= ranks:
        raise click.UsageError(f"--rank: got {rank}; expected less than --ranks, which is {ranks}")
    if train is not None and fault == "lost":
        raise click.UsageError("--fault lost: got --train, whose ranks all end with one of them")
    chance = random.Random(seed)
    any_rank, any_section = chance.randrange(ranks), chance.choice(SECTIONS)
    chosen = any_rank if rank is None else rank
    slow_in = section or any_section
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    show = Shown(Console(quiet=True) if as_json else report_console())
    with (
        tempfile.TemporaryDirectory(prefix="straggler-demo-") as folder,
        closing(Demo(ranks, Path(folder), slow_in, [train] if train else ())) as demo,
    ):
        with show.waiting("starting"):
            demo.start()
        show.setup(demo, ranks)
        with show.waiting(f"{ranks} ranks train"):
            demo.wait_until_trained(seconds)
        show.print(f"{ranks} ranks train in lockstep: step {demo.step}.")
        demo.inject(fault, chosen)
        show.print(
            f"Rank {chosen} on {node_of(chosen)} {TEXT[fault].format(section=slow_in)}.", "bold"
        )
        show.print("The collector does not know.")
        with show.waiting("waiting for the alert"):
            arrival = demo.wait_for_alert(chosen)
        show.arrival(arrival, demo.alertmanager is not None)
        if as_json:
            click.echo(json.dumps(outcome_json(fault, chosen, slow_in, arrival, demo)))
        if keep:
            with contextlib.suppress(KeyboardInterrupt, EOFError):
                show.print(f"{demo.collector.url}/ stays until Ctrl-C or Enter.", "bold")
                _wait_for_enter()
    return 0 if arrival.is_right else 1


def _wait_for_enter() -> None:
    """Wait forever where there is no keyboard."""
    if sys.stdin.isatty():
        input()
    else:
        threading.Event().wait()


def outcome_json(fault: Fault, rank: int, section: str, arrival: Arrival, demo: Demo) -> Json:
    return {
        "fault": fault,
        "planted": {
            "rank": rank,
            "node": node_of(rank),
            "run_id": RUN_ID,
            **({"section": section} if fault == "slow" else {}),
        },
        "right": arrival.is_right,
        "delay_s": round(arrival.delay_s, 2),
        "way": "alertmanager" if demo.alertmanager is not None else "webhook",
        "alerts": [
            {key: alert[key] for key in ("labels", "annotations", "startsAt")}
            for alert in arrival.alerts
        ],
    }


class Shown:
    """Progress for people; each line starts with the seconds since the start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began_s = time.monotonic()

    def print(self, text: str, style: str = "") -> None:
        line = Text(f"{time.monotonic() - self._began_s:5.1f} s  ", style="dim")
        self._console.print(line.append(text, style=style or "not dim"))

    def waiting(self, what: str) -> AbstractContextManager[object]:
        return self._console.status(f"{what} ...") if self._console.is_terminal else nullcontext()

    def setup(self, demo: Demo, ranks: int) -> None:
        where = (
            f"a real Alertmanager at {demo.alertmanager.url}"
            if demo.alertmanager is not None
            else "a webhook of the demo (no Alertmanager is on PATH)"
        )
        self.print(f"A collector at {demo.collector.url} watches {ranks} ranks;")
        self.print(f"it sends alerts to {where}.")
        self.print(f"Watch it on the live page: {demo.collector.url}/", "bold")

    def arrival(self, arrival: Arrival, has_alertmanager: bool) -> None:
        """Print the notification that the person on call would get."""
        first = arrival.alerts[0]
        way = "through Alertmanager" if has_alertmanager else "from the collector"
        self.print(f"A notification arrives, {arrival.delay_s:.1f} s after the fault, {way}:")
        severity = first["labels"].get("severity", "")
        colour = _COLOUR.get(severity, "blue")
        body: list[RenderableType] = [_message(first)]
        if further := arrival.alerts[1:]:
            body.append(Text("\nwith it: " + "; ".join(_line(alert) for alert in further)))
        title = f"[bold {colour}]{first['labels']['alertname']}[/] ({severity})"
        panel = Panel(Group(*body), title=title, border_style=colour, padding=(1, 2))
        panel.title_align, panel.width = "left", min(self._console.width, _WIDEST)
        self._console.print(panel)
        end = "The right rank was named." if arrival.is_right else "The right rank was NOT named."
        self._console.print(Text(end, style="green" if arrival.is_right else "bold red"))
        self._console.print(Text(_SHORT, style="dim"))


def _message(alert: Json) -> Table:
    labels, notes = alert["labels"], alert["annotations"]
    rank = f"rank {labels['rank']}" if "rank" in labels else "the run as a whole"
    node = f" on {labels['node']}" if "node" in labels else ""
    began = datetime.fromtimestamp(began_at_s(alert), timezone.utc).astimezone()
    table = Table.grid(padding=(0, 2))
    for name, value in (
        ("what", notes.get("summary", "")),
        ("why", notes.get("description", "")),
        ("who", f"{rank}{node}, run {labels.get('run_id', '')}"),
        ("since", f"{began:%H:%M:%S}"),
        ("runbook", notes.get("runbook_url", "")),
    ):
        if value:
            table.add_row(Text(name, style="dim"), Text(printable(value, 500)))
    return table


def _line(alert: Json) -> str:
    return printable(
        f"{alert['labels']['alertname']}: {alert['annotations'].get('summary', '')}", 200
    )
