"""Liveness of a run: shown before all scores, since a hung run has none."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

from rich.text import Text

from otel_straggler.cli.text import Json, clock, digits, printable
from otel_straggler.collector.views.numbers import duration
from otel_straggler.detect.verdicts.sentences import sentence
from otel_straggler.model.causes import CAUSES
from otel_straggler.model.verdict import Verdict, hours_text

_SENTENCE = 600
_WORTH_TELLING_H = 0.001
"""Hours of all ranks."""
_STANDS = ("stuck", "partly_lost", "lost", "forgotten")


def liveness_lines(run: Json) -> Iterator[Text]:
    """A line for each world that hangs or has ended: since when, and which ranks it waits for."""
    for world in run.get("liveness", ()):
        group = f" (group {printable(world['group'])})" if world["group"] else ""
        since = clock(world["since_s"])
        if world["state"] in ENDED:
            yield Text(f"the run{group} has ended at {since}: {world['state']}", style="bold")
        elif world["state"] in _STANDS or world["sentence"]:
            known = ", acknowledged" if world["acknowledged"] else ""
            state = state_in_text(world["state"])
            why = printable(world["sentence"] or "unknown reason.", _SENTENCE)
            yield Text(f"{state} since {since}{known}{group}: {why}", style="bold red")
        reported = run["run"]["worlds"].get(world["group"], {})
        yield from _longest_earlier(world, hours_text(on_gpu=reported.get("on_gpu", False)))


def earlier_line(hang: Json, hours: str) -> str:
    """One earlier hang: when, for how long, why, what it cost, how it ended.

    Args:
        hours: unit of the cost, such as "GPU hours".
    """
    lasted = "" if hang["duration_s"] is None else f" for {duration(hang['duration_s'])}"
    at_least = "" if hang["is_end_seen"] else " at least"
    why = printable(hang["sentence"], _SENTENCE)
    then = printable(hang["then"], _SENTENCE)
    lost = lost_text(hang, hours)
    return f"hung from {clock(hang['since_s'])}{lasted}{at_least}: {why}{lost} Then {then}."


def lost_text(hang: Json, hours: str) -> str:
    """A sentence after another; empty if next to nothing was lost."""
    lost_h = (hang["gpu_seconds_lost"] or 0.0) / 3600
    return f" {digits(lost_h)} {hours} were lost." if lost_h >= _WORTH_TELLING_H else ""


def _longest_earlier(world: Json, hours: str) -> Iterator[Text]:
    earlier = world.get("earlier", ())
    if earlier:
        longest = max(earlier, key=lambda hang: hang["duration_s"] or 0.0)
        more = len(earlier) - 1 + world.get("earlier_left_out", 0)
        others = f" {more:,} shorter: otel-straggler report." if more else ""
        yield Text(f"{earlier_line(longest, hours)}{others}", style="yellow")


def stands_still(run: Json) -> bool:
    """Whether a world of the run hangs."""
    return any(world["hung"] for world in run.get("liveness", ()))


def state_in_text(state: str) -> str:
    """
    >>> state_in_text("partly_lost")
    'partly lost'
    """
    return printable(state.replace("_", " "))


ENDED: Final = frozenset({"finished", "cancelled", "preempted", "failed", "ended"})
_FIELDS: Final = tuple(field.name for field in dataclasses.fields(Verdict))


def is_over(run: Json, group: str) -> bool:
    """Whether a world of the run has ended, as reported by its ranks.

    >>> is_over({"liveness": [{"group": "", "state": "finished"}]}, "")
    True
    """
    return any(
        world["group"] == group and world["state"] in ENDED for world in run.get("liveness", ())
    )


def text_of(run: Json, verdict: Json) -> str:
    """The sentence of a verdict; in the past tense if the run has ended or was restarted since."""
    line = str(verdict["sentence"] or "")
    is_past = is_over(run, verdict["group"]) or verdict["attempt"] < _attempt(run, verdict["group"])
    if not line or not is_past or verdict["cause"] not in CAUSES:
        return line
    reported = {name: verdict[name] for name in _FIELDS if verdict.get(name) is not None}
    return sentence(Verdict(**{"run_id": "", **reported}), is_over=True)


def _attempt(run: Json, group: str) -> int:
    """The attempt of the newest verdicts; 0 if there is none."""
    world = run["run"]["worlds"].get(group)
    return 0 if world is None else int(world["attempt"])
