"""Whether a run gets on, as ``top`` says it before all scores: a run that hangs has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from rich.text import Text

from otel_straggler.cli.report_table import printable
from otel_straggler.cli.run_over import ENDED

Json = Mapping[str, Any]

_SENTENCE = 600
_STANDS = ("stuck", "partly_lost", "lost", "forgotten")


def liveness_lines(run: Json) -> Iterator[Text]:
    """For each world that does not get on, or has ended: since when, and for whom it waits."""
    for world in run.get("liveness", ()):
        group = f" (group {printable(world['group'])})" if world["group"] else ""
        since = clock(world["since_s"])
        if world["state"] in ENDED:
            yield Text(f"the run{group} has ended at {since}: {world['state']}", style="bold")
        elif world["state"] in _STANDS or world["sentence"]:
            known = ", acknowledged" if world["acknowledged"] else ""
            state = state_in_words(world["state"])
            why = printable(world["sentence"] or "nobody says why.", _SENTENCE)
            yield Text(f"{state} since {since}{known}{group}: {why}", style="bold red")


def stands_still(run: Json) -> bool:
    """Whether a world of the run hangs."""
    return any(world["hung"] for world in run.get("liveness", ()))


def state_in_words(state: str) -> str:
    """
    >>> state_in_words("partly_lost")
    'partly lost'
    """
    return printable(state.replace("_", " "))


def clock(at_s: float | None) -> str:
    """Seconds since 1970 as people read them; UTC, as all times here are."""
    if at_s is None:
        return "an unknown time"
    try:
        return f"{datetime.fromtimestamp(at_s, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):  # a sender's clock may say anything
        return f"{at_s:.0f} s"
