"""Writes the tables of the committed measurement into the page that explains them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.detection.report import markdown

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internals" / "detection-accuracy.md"
MEASURED = ROOT / "docs" / "measurements" / "detection-B.json"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->"


def render(*, check: bool = False) -> int:
    """Put the tables into the page; with ``check`` only say whether they are there."""
    before = PAGE.read_text()
    after = filled(before, markdown(json.loads(MEASURED.read_text())))
    if check:
        if before != after:
            print(f"{PAGE.name} is out of date: run python -m benchmarks.detection --render")
        return int(before != after)
    PAGE.write_text(after)
    print(f"{PAGE.name} written", file=sys.stderr)
    return 0


def filled(page: str, tables: str) -> str:
    """The page with ``tables`` between its marks.

    >>> filled(f"a {BEGIN}old{END} b", "new") == f"a {BEGIN}new{END} b"
    True
    """
    head, _, rest = page.partition(BEGIN)
    _, mark, tail = rest.partition(END)
    if not mark:
        raise ValueError(
            f"docs/internals/detection-accuracy.md has no {BEGIN.strip()} ... {END}: put them back"
        )
    return f"{head}{BEGIN}{tables}{END}{tail}"
