"""Identifiers speak as the field does: words that were retired do not come back."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

from .pages import ROOT

RETIRED = {
    "dearest": "costliest",
    "fate": "outcome",
    "fates": "outcomes",
    "judge": "engine",
    "least": "min",
    "letting": "eviction",
    "most": "max",
    "signs": "heartbeats",
    "told": "reported",
    "turned": "rejected",
    "wish": "requested",
}
"""By what is said instead; docs/start/glossary.md has the words of this project."""
ROOMS = ("alerts", "client", "dashboards", "demo", "model", "otlp", "semconv")


def retired_names(text: str) -> list[str]:
    """Names with a retired word in them, in the order in which they stand."""
    names = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.NAME
    ]
    return [name for name in names if RETIRED.keys() & text_of(name)]


def text_of(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


@pytest.mark.parametrize("room", ROOMS)
def test_no_name_has_a_retired_word(room: str) -> None:
    """In the rooms where all names were gone through."""
    result = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((ROOT / "otel_straggler" / room).rglob("*.py"))
        for name in retired_names(path.read_text(encoding="utf-8"))
    }
    assert not result


def test_a_retired_word_is_seen_in_any_kind_of_name() -> None:
    """Constants, classes and functions alike."""
    text = "MOST_ROWS = 1\nclass RankSigns: ...\ndef told_by(rank): ...\nmaximum = almost = 0\n"
    assert retired_names(text) == ["MOST_ROWS", "RankSigns", "told_by"]


def test_the_rooms_are_there() -> None:
    """A room that moved must not escape."""
    assert all((Path(ROOT) / "otel_straggler" / room / "__init__.py").exists() for room in ROOMS)
