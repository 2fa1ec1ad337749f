"""A table for narrow terminals: it drops whole columns instead of cutting cells."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from otel_straggler.errors import ConfigError

_RULED, _BARE = 3, 2
"""Characters between two columns, with a rule under the names and without."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        drop_order: order in which columns are dropped if there is no room: 1 before 2, 0 never.
        wraps: cells may wrap at spaces once nothing more can be dropped.
    """

    name: str
    is_number: bool = False
    drop_order: int = 0
    wraps: bool = False


@dataclass(frozen=True, slots=True)
class FittingTable:
    """Rows of plain text under columns, as wide as the terminal allows.

    Attributes:
        is_ruled: a rule under the names, and blank lines around the table.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    is_ruled: bool = True

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = list(range(len(self.columns)))
        could_go = sorted(
            (at for at in shown if self.columns[at].drop_order),
            key=lambda at: self.columns[at].drop_order,
        )
        gone = []
        while could_go and self._width(shown) > options.max_width:
            gone.append(could_go.pop(0))
            shown.remove(gone[-1])
        yield self._table(shown, is_narrow=self._width(shown) > options.max_width)
        if gone:
            names = ", ".join(self.columns[at].name for at in sorted(gone))
            yield Text(f"without room: {names}", style="dim")

    def _width(self, shown: Sequence[int]) -> int:
        cells = [[self.columns[at].name, *(row[at] for row in self.rows)] for at in shown]
        widest = [max(cell_len(cell) for cell in column) for column in cells]
        between = _RULED if self.is_ruled else _BARE
        return sum(widest) + between * (len(shown) - 1) + 2 * self.is_ruled

    def _table(self, shown: Sequence[int], *, is_narrow: bool) -> Table:
        table = Table(box=box.SIMPLE_HEAD if self.is_ruled else None, pad_edge=False)
        for column in (self.columns[at] for at in shown):
            wraps = is_narrow and column.wraps
            table.add_column(
                column.name.replace(" ", "\n") if is_narrow else column.name,
                justify="right" if column.is_number else "left",
                no_wrap=not wraps,
                overflow="fold" if wraps else "ellipsis",
            )
        for row in self.rows:
            table.add_row(*(Text(row[at]) for at in shown))
        return table


_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def seconds_of(length: str, where: str) -> float:
    """Seconds of a length such as 90m or 8h; above 0.

    Raises:
        ConfigError: it is no length of time; ``where`` names the option.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", length.strip(), re.ASCII)
    seconds = 0.0 if match is None else float(match[1]) * _SECONDS[match[2]]
    if not 0 < seconds < math.inf:
        raise ConfigError.of(where, length, "a number and s, m, h or d", "For example 8h.")
    return seconds
