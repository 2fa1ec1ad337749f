"""Text for terminals: safe, short, and the same everywhere."""

from __future__ import annotations

import getpass
import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

import click
from rich.console import Console

Json = Mapping[str, Any]

_WIDTH_WITHOUT_TERMINAL = 160
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_NOT_PRINTABLE = re.compile(
    r"[^\x20-\x7e\u00a1-\ufffd]|[\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""Control characters, invisible ones and those that change the direction, lone surrogates."""


def report_console() -> Console:
    """A console as wide as the terminal; wide where there is none."""
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _WIDTH_WITHOUT_TERMINAL
    return console


def printable(text: str, maximum: int = 80) -> str:
    """Make foreign text safe for a terminal: no control characters, bounded length.

    >>> printable("a\\x1b[31mb", 20)
    'a?[31mb'
    """
    clean = _NOT_PRINTABLE.sub("?", text)
    return clean if len(clean) <= maximum else clean[: maximum - 1] + "~"


def duration(seconds: float) -> str:
    """
    >>> duration(0.0451), duration(2.5), duration(0.00000123)
    ('45.1 ms', '2.50 s', '1.23 us')
    """
    scale, unit = unit_for(seconds)
    return f"{digits(seconds / scale)} {unit}"


def unit_for(seconds: float) -> tuple[float, str]:
    """The largest unit in which ``seconds`` is at least 1."""
    return next((u for u in _UNITS if abs(seconds) >= u[0]), _UNITS[-1])


def digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def many(count: int, what: str) -> str:
    """
    >>> many(1, "page"), many(1200, "page")
    ('1 page', '1,200 pages')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def clock(at_s: float | None) -> str:
    """Seconds since 1970 as text, in UTC."""
    if at_s is None:
        return "an unknown time"
    try:
        return f"{datetime.fromtimestamp(at_s, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):  # a sender's clock may be wrong
        return f"{at_s:.0f} s"


def rank_ranges(ranks: Iterable[int]) -> str:
    """
    >>> rank_ranges([1, 2, 3, 7])
    '1-3, 7'
    """
    ranges: list[list[int]] = []
    for rank in sorted(ranks):
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)


def absent_ranks(present: Iterable[int], maximum: int = 1_000) -> tuple[list[int], int]:
    """Ranks below the highest one that are not there: the lowest, and how many more there are.
    Cost: O(ranks present + maximum), whatever their numbers.

    >>> absent_ranks([0, 2, 5]), absent_ranks([0, 2**31 - 1], 2)
    (([1, 3, 4], 0), ([1, 2], 2147483644))
    """
    known = sorted(set(present))
    absent: list[int] = []
    expected = 0
    for rank in known:
        if len(absent) < maximum:
            absent += range(expected, min(rank, expected + maximum - len(absent)))
        expected = rank + 1
    return absent, expected - len(known) - len(absent)


def rank_key(who: Json) -> str:
    """
    >>> rank_key({"rank": 3, "group": ""}), rank_key({"rank": 3, "group": "actor"})
    ('3', 'actor/3')
    """
    return f"{who['group']}/{who['rank']}" if who.get("group") else str(who["rank"])


def names_text(names: Iterable[str], maximum: int) -> str:
    """
    >>> names_text(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    listed = list(names)
    more = f" and {len(listed) - maximum:,} more" if len(listed) > maximum else ""
    return ", ".join(printable(name) for name in listed[:maximum]) + more


def user_name() -> str:
    """Empty in a container without a name for its user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def print_json(content: Any) -> None:
    """Print as JSON; NaN as null."""
    click.echo(json.dumps(_nullable(content), allow_nan=False, separators=(",", ":")))


def _nullable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _nullable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_nullable(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
