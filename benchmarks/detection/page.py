"""Writes the tables of committed measurements into the page that explains them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.detection.report import markdown

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "internals" / "detection-accuracy.md"
MEASURED = ROOT / "docs" / "measurements" / "detection-B.json"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->"
UNSEEN = "<!-- unseen: begin -->\n", "<!-- unseen: end -->"


def render(*, check: bool = False) -> int:
    """Put the tables into the page; with ``check`` only say whether they are there."""
    return fill((BEGIN, END), markdown(json.loads(MEASURED.read_text())), check=check)


def fill(marks: tuple[str, str], tables: str, *, check: bool) -> int:
    """Put ``tables`` between these marks of the page; 1 if ``check`` finds others there."""
    before = PAGE.read_text()
    after = filled(before, tables, marks)
    if check:
        if before != after:
            print(f"{PAGE.name} is out of date: run python -m benchmarks.detection --render")
        return int(before != after)
    PAGE.write_text(after)
    print(f"{PAGE.name} written", file=sys.stderr)
    return 0


def filled(page: str, tables: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """The page with ``tables`` between its marks.

    >>> filled(f"a {BEGIN}old{END} b", "new") == f"a {BEGIN}new{END} b"
    True
    """
    begin, end = marks
    head, _, rest = page.partition(begin)
    _, mark, tail = rest.partition(end)
    if not mark:
        raise ValueError(
            f"docs/internals/detection-accuracy.md has no {begin.strip()} ... {end}: put them back"
        )
    return f"{head}{begin}{tables}{end}{tail}"
