"""Names, pages and messages use the terms of the field: retired words do not come back."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

from .pages import PAGES, ROOT, text_of

RETIRED = {
    "dearest": "costliest",
    "fate": "outcome",
    "fates": "outcomes",
    "heard": "received",
    "judge": "engine",
    "judged": "verdicts",
    "least": "min",
    "letting": "eviction",
    "most": "max",
    "picture": "view",
    "pictures": "views",
    "signs": "heartbeats",
    "tell": "report",
    "told": "reported",
    "turned": "rejected",
    "wish": "requested",
}
"""Words in names, with their replacements; docs/start/glossary.md has the terms."""
PHRASES = {
    r"anew": "again",
    r"as long as it is known": "since monitoring began",
    r"beside": "alongside, next to",
    r"(call|tell|told|page)(s|ed)? (some|no)body": "page, notify",
    r"called at night": "paged",
    r"(some|no)body (has|is|was|gets) (called|paged|told|notified)": "page, notify",
    r"dear(est)?": "costly, costliest",
    r"(nothing|not) gets? on": "no progress",
    r"heard of": "reported, last seen",
    r"let(ting)? go": "evict",
    r"nobody follows": "no rank is reporting",
    r"signs of life": "heartbeats",
    r"smallest that shows": "detection limit",
    r"told": "reported",
    r"turn(s|ed)? away": "reject",
}
"""Phrases in pages and messages, with their replacements."""
PLAIN = {"at_least", "most_common", "tell"}
"""Names that are plain English, or the standard library's."""
PACKAGE = ROOT / "otel_straggler"
MODULES = sorted(PACKAGE.rglob("*.py"))


HAND_WRITTEN = [page for page in PAGES if not text_of(page).startswith("<!-- Made by ")]
STATIC = ROOT / "otel_straggler" / "page" / "static"
_JAVASCRIPT = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`""", re.DOTALL
)


def retired_phrases(text: str) -> list[str]:
    """Retired phrases, in the order of the text."""
    found = re.finditer(rf"\b(?:{'|'.join(PHRASES)})\b", text, re.IGNORECASE)
    return [match[0] for match in found]


def messages(script: str) -> str:
    """All string literals of a JavaScript module, without comments and ``${...}``."""
    literals = (each[1] or each[2] or "" for each in _JAVASCRIPT.finditer(script))
    return "\n".join(re.sub(r"\$\{[^}]*\}", "", literal) for literal in literals)


def retired_names(text: str) -> list[str]:
    """Names with a retired word in them, in the order of the text."""
    names = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.NAME
    ]
    return [name for name in names if name not in PLAIN and RETIRED.keys() & words_of(name)]


def texts_of(code: str) -> list[str]:
    """All string literals and comments of a Python module."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return [token.string for token in tokens if token.type in (tokenize.STRING, tokenize.COMMENT)]


def words_of(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def test_no_name_has_a_retired_word() -> None:
    """In no module of the package."""
    names = {str(path.relative_to(ROOT)): retired_names(text_of(path)) for path in MODULES}
    assert len(names) > 100
    assert {path: each for path, each in names.items() if each} == {}


def test_no_docstring_or_message_has_a_retired_phrase() -> None:
    """Nor a comment of the package."""
    phrases = {
        str(path.relative_to(ROOT)): retired_phrases("\n".join(texts_of(text_of(path))))
        for path in MODULES
    }
    assert {path: each for path, each in phrases.items() if each} == {}


def test_a_retired_word_is_seen_in_any_kind_of_name() -> None:
    """Constants, classes and functions alike."""
    text = "MOST_ROWS = 1\nclass RankSigns: ...\ndef told_by(rank): ...\nmaximum = almost = 0\n"
    assert retired_names(text) == ["MOST_ROWS", "RankSigns", "told_by"]


@pytest.mark.parametrize("page", HAND_WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_a_retired_phrase(page: Path) -> None:
    """Except generated pages, whose text is in the code."""
    assert not retired_phrases(text_of(page))


def test_the_live_page_has_no_retired_phrase() -> None:
    """Neither its HTML nor the messages in its scripts."""
    texts = {"index.html": text_of(STATIC / "index.html")}
    texts |= {path.name: messages(text_of(path)) for path in sorted(STATIC.glob("js/*.js"))}
    result = {name: retired_phrases(text) for name, text in texts.items()}
    assert len(result) > 10
    assert {name: phrases for name, phrases in result.items() if phrases} == {}


def test_a_retired_phrase_is_found_in_messages_only() -> None:
    """Comments and expressions of a script are not messages; parts of words are not phrases."""
    script = '// nobody told\nconst a = "Last heard of", b = `turned away: ${told}`; /* anew */\n'
    assert retired_phrases(messages(script)) == ["heard of", "turned away"]
    assert retired_phrases("Nobody is paged. Get one; a deadline; untold; besides.") == [
        "Nobody is paged"
    ]
