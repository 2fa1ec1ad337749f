"""The page's files: all are served, they are small, and none of them does what it must not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import otel_straggler.page
from otel_straggler.page import asset, names

STATIC = Path(otel_straggler.page.__file__).parent / "static"
MAX_BYTES = 1_000_000
MARKUP = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "createContextualFragment",
)
CODE = (r"\beval\s*\(", r"\bnew\s+Function\b", r"set(?:Timeout|Interval)\s*\(\s*[\"'`]")
SCRIPTS = sorted(name for name in names() if name.endswith(".js"))
NAMESPACE = "http://www.w3.org/2000/svg"
"""Not an address to fetch: the name of SVG."""


def text_of(name: str) -> str:
    result = asset(name)
    assert result is not None
    return result.content.decode()


def test_every_file_of_the_folder_can_be_had() -> None:
    """Nothing lies there that the collector would not serve."""
    files = {path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*") if path.is_file()}
    assert set(names()) == files
    assert {"index.html", "style.css", "charts.css", "icon.svg", "js/main.js"} <= files


def test_the_page_weighs_less_than_a_megabyte() -> None:
    """All of it, before it is packed."""
    sizes = {name: len(text_of(name).encode()) for name in names()}
    assert sum(sizes.values()) < MAX_BYTES, sizes


def test_names_outside_the_folder_are_not_found() -> None:
    """However they are written."""
    for name in (
        "",
        "../__init__.py",
        "js",
        "js/",
        "/js/main.js",
        "js/../index.html",
        "JS/main.js",
    ):
        assert asset(name) is None


def test_an_etag_is_quoted_and_that_of_the_content() -> None:
    """Two files differ, one stays the same."""
    result = [asset(name) for name in names()]
    tags = {each.etag for each in result if each is not None}
    assert len(tags) == len(result)
    assert all(re.fullmatch(r'"[0-9a-f]{24}"', tag) for tag in tags)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_module_neither_writes_markup_nor_makes_code_of_text(name: str) -> None:
    """Text from the network can only become text."""
    script = text_of(name)
    assert not [word for word in MARKUP if word in script]
    assert not [pattern for pattern in CODE if re.search(pattern, script)]


@pytest.mark.parametrize("name", names())
def test_no_file_names_another_site(name: str) -> None:
    """Only the name of SVG looks like one; a comment may cite a source."""
    text = re.sub(r"^\s*(//|/?\*).*$", "", text_of(name), flags=re.MULTILINE)
    assert not re.findall(r"https?://\w\S*", text.replace(NAMESPACE, ""))
    assert not re.findall(r"[\"'(]//\w\S*", text)


def test_every_module_is_used() -> None:
    """From main.js on, all are imported by another."""
    wanted = ["main.js"]
    for name in wanted:
        result = re.findall(r'from "\./([\w-]+\.js)"', text_of(f"js/{name}"))
        wanted += [each for each in result if each not in wanted]
    assert {f"js/{name}" for name in wanted} == set(SCRIPTS)


def test_there_is_no_inline_script_or_style() -> None:
    """The policy of the page would refuse it."""
    page = text_of("index.html")
    assert "style=" not in page
    assert "<style" not in page
    assert not re.search(r"\son\w+=", page)
    assert re.findall(r"<script[^>]*>", page) == ['<script type="module" src="page/js/main.js">']
