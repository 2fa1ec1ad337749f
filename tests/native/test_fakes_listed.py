"""The list of what the fakes do is whole: each function and setting of theirs, each line with a
source, and nothing that is no more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAKES = ROOT / "cuda_ext" / "fake"
if not FAKES.is_dir():
    pytest.skip("no sources here: it would show that the list is whole", allow_module_level=True)

TEXT = (FAKES / "README.md").read_text(encoding="utf-8")
SOURCES = {path.name: path.read_text(encoding="utf-8") for path in FAKES.glob("fake_*.c*")}
CHAPTERS = {part.split(",")[0]: part for part in TEXT.split("\n## ")[1:]}
NAMED = {name: set(re.findall(r"`(\w+)`", part)) for name, part in CHAPTERS.items()}
FUNCTION = re.compile(
    r"^(?:\w+(?:\(\(.*\)\))? )*?(?:const )?[\w:]+[ *]+"
    r"(fake_\w+|cu[A-Z]\w+|cupti\w+|nvml[A-Z]\w+)\(",
    re.MULTILINE,
)
WAYS = ("measured", "documented", "believed", "control")


def functions(source: str) -> set[str]:
    return set(FUNCTION.findall(source))


def settings(name: str) -> set[str]:
    """What a test may set of a fake, from where it is read."""
    source = SOURCES[name]
    if name == "fake_cupti.cpp":
        table = re.search(r"kSettings\[\] = \{(.*?)\}", source, re.DOTALL)
        assert table is not None
        return set(re.findall(r'"(\w+)"', table[1]))
    return set(re.findall(r'settings\["(\w+)"\]', source))


def rows() -> list[str]:
    lines = [line for line in TEXT.splitlines() if line.startswith("|")]
    return [line for line in lines if not line.startswith(("| behaviour", "| ---"))]


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_every_function_and_setting_of_a_fake_is_in_its_chapter(name: str) -> None:
    """What a fake gains has to say how it is known."""
    found = functions(SOURCES[name]) | settings(name)
    assert len(functions(SOURCES[name])) > 15
    assert found - NAMED[name] == set()


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_no_function_is_listed_that_is_no_more(name: str) -> None:
    """Also of a fake that was renamed: what is named is in its source."""
    listed = {each for each in NAMED[name] if re.match(r"fake_|cu[A-Z]|cupti[A-Z]|nvml[A-Z]", each)}
    assert listed - functions(SOURCES[name]) == set()


def test_settings_are_there() -> None:
    """So that the tests above look at something."""
    assert {"version", "hold", "per_thread"} <= settings("fake_cupti.cpp")
    assert {"full", "busy"} <= settings("fake_cuda_driver.cpp")


def test_every_line_says_how_it_is_known() -> None:
    """A measurement names its item, a document is named, a belief ends with what would show it."""
    assert len(rows()) > 80
    for row in rows():
        _, _, how, _ = re.split(r"(?<!\\)\|", row)
        how = how.strip()
        assert how.startswith(WAYS), row
        if how.startswith("measured"):
            assert re.search(r"\bitem \d|\bE\d|wheels", how), row
        if how.startswith("documented"):
            assert ": " in how, row
        if how.startswith("believed"):
            assert re.search(r"\bshows? it\b", how), row


@pytest.mark.parametrize("path", re.findall(r"`(tests/\S+\.py|cuda_ext/\S+)`", TEXT))
def test_files_that_are_named_are_there(path: str) -> None:
    """Stand-ins in Python as well."""
    assert (ROOT / path).exists()
