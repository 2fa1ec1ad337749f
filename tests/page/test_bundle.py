"""The page as one file: all of it is there, and nothing in it can break out."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from otel_straggler.page import asset
from otel_straggler.page.bundle import DATA_ID, bundle, json_in_html

from .in_node import node_program

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--",
    "<script>",
    "]]>",
    "\u2028\u2029",
    "\ud800",
    "\x00",
    "&lt;",
    "'\"\\",
    "</SCRIPT ",
]


class Elements(HTMLParser):
    """Every element with its attributes and text, as a browser would separate them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.result: list[tuple[str, dict[str, str | None], str]] = []
        self._is_open = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.result.append((tag, dict(attrs), ""))
        self._is_open = True

    def handle_endtag(self, tag: str) -> None:
        self._is_open = False

    def handle_data(self, data: str) -> None:
        if self._is_open:
            tag, attributes, text = self.result[-1]
            self.result[-1] = (tag, attributes, text + data)

    def of(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attributes, text) for name, attributes, text in self.result if name == tag]


def test_everything_is_in_the_file_and_nothing_is_asked_for() -> None:
    """Styles, scripts and the icon; a link that a person follows may stay."""
    page = bundle({"run": 1}, title="a run")
    elements = Elements(page)
    assert [text for _, text in elements.of("style")] == [
        content("style.css").decode(),
        content("charts.css").decode(),
    ]
    (icon,) = [attributes["href"] for attributes, _ in elements.of("link")]
    assert icon == "data:image/svg+xml;base64," + base64.b64encode(content("icon.svg")).decode()
    (data, script) = elements.of("script")
    assert data == ({"type": "application/json", "id": DATA_ID}, '{"run":1}')
    assert script[0] == {"type": "module"}
    assert "document.title" in script[1]
    assert elements.of("title")[0][1].strip() == "a run"
    loaded = [
        (tag, attributes)
        for tag, attributes, _ in elements.result
        if (tag != "a" and not (attributes.get("href") or "data:").startswith("data:"))
        or "src" in attributes
    ]  # fmt: skip
    assert loaded == []
    styles = "".join(text for _, text in elements.of("style"))
    assert not re.search(r"@import|url\((?![\"']?data:)|</style|<!--", styles, re.IGNORECASE)


def content(name: str) -> bytes:
    result = asset(name)
    assert result is not None
    return result.content


def test_the_policy_names_the_hashes_of_what_may_run() -> None:
    """Computed here from the text between the tags, as a browser does; it comes before them."""
    page = bundle({"a": HOSTILE}, title="a run")
    elements = Elements(page)
    (policy,) = [
        attributes["content"]
        for attributes, _ in elements.of("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    parts = dict(part.split(" ", 1) for part in policy.split("; "))
    (script,) = [text for attributes, text in elements.of("script") if "id" not in attributes]
    assert parts == {
        "default-src": "'none'",
        "script-src": hashed(script),
        "style-src": " ".join(hashed(text) for _, text in elements.of("style")),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert page.index("http-equiv") < page.index("<style") < page.index("<script")


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_can_end_the_element_that_holds_the_data(text: str) -> None:
    """As a value, as a key, and in the title; it is the same text again when it is read."""
    page = bundle({text: [text]}, title="a run")
    elements = Elements(page)
    assert len(elements.of("script")) == 2
    (held,) = [body for attributes, body in elements.of("script") if "id" in attributes]
    assert json.loads(held) == {text: [text]}
    assert held.isascii()
    assert not re.search("[<>&]", held)
    titled = bundle({}, title="</title><script>")
    assert len(Elements(titled).of("script")) == 2


def test_nan_is_refused() -> None:
    """It is no JSON, so the page could not read it."""
    with pytest.raises(ValueError, match="JSON"):
        json_in_html({"a": float("nan")})


def test_the_script_is_one_that_parses(tmp_path: Path) -> None:
    """A real engine reads the whole without a word; no part of it is loaded, nor ends it."""
    (script,) = [
        text for attributes, text in Elements(bundle({}, title="own")).of("script")
        if "id" not in attributes
    ]  # fmt: skip
    assert not re.search(r"</script|<!--|\bimport\s*\(", script, re.IGNORECASE)
    file = tmp_path / "page.mjs"
    file.write_text(script)
    node = node_program("whether the script is JavaScript")
    done = subprocess.run(
        [node, "--check", file], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
