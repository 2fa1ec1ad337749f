"""Numbers for names."""

from __future__ import annotations

import pytest

from otel_straggler.client import native_records
from otel_straggler.client.native_records import SECTIONS, Names


def test_a_name_that_varies_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """From some number on, new names have one number, and old ones keep theirs."""
    monkeypatch.setattr(native_records, "MAX_NAMES", 3)
    published: list[tuple[int, int, bytes]] = []
    numbers: Names[tuple[str, str]] = Names(
        SECTIONS, ("<other>", "other"), lambda *entry: published.append(entry)
    )
    result = [numbers.number_of((f"step {n}", "compute")) for n in range(10)]
    assert result == [0, 1, 2, 3, 3, 3, 3, 3, 3, 3]
    assert numbers.number_of(("step 1", "compute")) == 1
    assert numbers.all[3] == ("<other>", "other")
    assert published[0] == (SECTIONS, 0, b"compute\0step 0")
    assert len(published) == 4


def test_a_reserved_number_is_nobodys() -> None:
    """A user's section may be called like the step."""
    numbers: Names[str] = Names(SECTIONS, "<other>", lambda *_: None)
    assert numbers.add("step") == 0
    assert numbers.number_of("step") == 1
    assert numbers.number_of("\ud800") == 2
