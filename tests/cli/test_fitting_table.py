"""Tables in a narrow terminal: what goes, what is broken, and that nothing ends in dots."""

import pytest
from rich.cells import cell_len
from rich.console import Console

from otel_straggler.cli.fitting_table import Column, FittingTable

COLUMNS = (
    Column("rank", is_number=True),
    Column("host", drop_order=2),
    Column("role", drop_order=1),
    Column("own time", is_number=True),
    Column("slowest in", wraps=True),
)
ROWS = [("5", "node-1", "default", "1.15x", "data_loading 1.50x")] * 3


def drawn(width: int, *, is_ruled: bool = True) -> list[str]:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(FittingTable(COLUMNS, ROWS, is_ruled=is_ruled))
    return capture.get().splitlines()


@pytest.mark.parametrize("is_ruled", [True, False])
@pytest.mark.parametrize("width", range(30, 81))
def test_whole_columns_go_and_no_cell_ends_in_dots(width: int, is_ruled: bool) -> None:
    """What goes is told; ranks, times and sections stay, whole words."""
    lines = drawn(width, is_ruled=is_ruled)
    text = "\n".join(lines)
    assert max(map(cell_len, lines)) <= width
    assert "…" not in text
    assert {"5", "1.15x", "data_loading", "1.50x"} <= set(text.split())
    assert ("default" in text) != ("role" in text.partition("without room: ")[2])


@pytest.mark.parametrize(
    ("width", "gone"),
    [(30, "host, role"), (45, "host, role"), (52, "role"), (80, ""), (200, "")],
)
def test_the_least_important_goes_first(width: int, gone: str) -> None:
    """And only where there is no room."""
    assert "\n".join(drawn(width)).partition("without room: ")[2] == gone
