"""Operators of a slow rank and of its peer, as lines of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from otel_straggler.cli.fitting_table import Column, FittingTable
from otel_straggler.cli.text import Json, digits, duration, printable

_MAX_PAIRS: Final = 2
_MAX_OPERATORS: Final = 6
_NAME: Final = 60
_SENTENCE: Final = 1_000


def profile_lines(pairs: Sequence[Json]) -> Iterator[RenderableType]:
    """The newest pairs: a sentence each, and the operators that differ most, a step."""
    for pair in pairs[:_MAX_PAIRS]:
        yield Text(f"profile: {printable(pair['sentence'], _SENTENCE)}", style="bold")
        if pair["operators"]:
            yield _table(pair)


def _table(pair: Json) -> FittingTable:
    columns = (
        Column("operator, a step", wraps=True),
        Column(f"rank {pair['slow_rank']}", is_number=True),
        Column(f"rank {pair['peer_rank']}", is_number=True),
        Column("ratio", is_number=True, drop_order=2),
        Column("calls", is_number=True, drop_order=1),
    )
    rows = [
        (
            printable(each["name"], _NAME),
            duration(each["slow_s"] or 0.0),
            duration(each["peer_s"] or 0.0),
            "" if each["ratio"] is None else f"{digits(each['ratio'])}x",
            f"{each['slow_calls'] or 0:g} / {each['peer_calls'] or 0:g}",
        )
        for each in pair["operators"][:_MAX_OPERATORS]
    ]
    return FittingTable(columns, rows)
