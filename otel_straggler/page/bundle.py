"""The page and its data as one file that opens without a network.

Everything is written into the HTML; a policy in its head names the hashes of its script and style,
so that nothing else runs, and nothing is ever asked for.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable
from typing import Any, Final

from otel_straggler.errors import InputError, describe
from otel_straggler.page import asset
from otel_straggler.page.modules import one_script

DATA_ID: Final = "straggler-data"
Read = Callable[[str], bytes | None]
"""Gives a file of the page by its name, None if there is none."""
_CHARSET: Final = '<meta charset="utf-8">'
_STYLE: Final = re.compile(r'<link rel="stylesheet" href="/?page/([\w./-]+\.css)">')
_ICON: Final = re.compile(r'(<link rel="icon"[^>]*href=")/?page/([\w./-]+\.(svg|png))("[^>]*>)')
_SCRIPT: Final = re.compile(r'<script type="module" src="/?page/js/([\w./-]+\.js)"></script>')
_TITLE: Final = re.compile(r"<title>[^<]*</title>")
_LOADED: Final = re.compile(
    r"""\b(?:src|href)\s*=\s*(?!["']?(?:data:|#))["']?[^"'>\s]+""", re.IGNORECASE
)
_LOADED_BY_STYLE: Final = re.compile(
    r"@import|url\(\s*(?![\"']?(?:data:|#))[^)]*\)|</style|<!--", re.IGNORECASE
)
_NO_LOADER: Final = re.compile(r"<a\s[^>]*>|<style>.*?</style>", re.DOTALL)
_MEDIA_TYPES: Final = {"svg": "image/svg+xml", "png": "image/png"}


def bundle(data: Any, *, title: str, read: Read | None = None) -> str:
    """The page with ``data`` in it, as one HTML file.

    Args:
        data: of JSON's types, as docs/reference/http-api.md says; names in it may be anything.
        title: of the document.
        read: where the page's files come from; the package's own if None.

    Raises:
        InputError: a file of the page breaks a rule, or would load another.
        ValueError: ``data`` holds NaN.
    """
    read = read or _own
    page = _text(read, "index.html")
    styles: list[str] = []
    page = _STYLE.sub(lambda found: _styled(read, found.group(1), styles), page)
    page = _ICON.sub(lambda found: _pictured(read, found), page)
    found = _required(_SCRIPT.search(page), "index.html", "a script of the page")
    script = one_script(found.group(1), lambda name: _script_text(read, name))
    _check_nothing_is_loaded("index.html", page[: found.start()] + page[found.end() :])
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_policy(script, styles)}">'
    _required(_CHARSET in page or None, "index.html", f"{_CHARSET} in its head")
    embedded = (
        f'<script type="application/json" id="{DATA_ID}">{json_in_html(data)}</script>\n'
        f'<script type="module">{script}</script>'
    )
    page = page[: found.start()] + embedded + page[found.end() :]
    page = page.replace(_CHARSET, f"{_CHARSET}\n{policy}", 1)
    return _TITLE.sub(lambda _: f"<title>{html.escape(title)}</title>", page, count=1)


def json_in_html(data: Any) -> str:
    """JSON that may stand in a script element: ASCII, and no text can end the element.

    >>> json_in_html({"name": "</script>"})
    '{"name":"\\\\u003c/script\\\\u003e"}'

    Raises:
        ValueError: NaN, which is no JSON.
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _own(name: str) -> bytes | None:
    found = asset(name)
    return None if found is None else found.content


def _text(read: Read, name: str) -> str:
    content = read(name)
    if content is None:
        raise _broken(name, "no such file", "a file of the page")
    return content.decode().replace("\r\n", "\n")


def _script_text(read: Read, name: str) -> str | None:
    content = read(f"js/{name}")
    return None if content is None else content.decode().replace("\r\n", "\n")


def _styled(read: Read, name: str, styles: list[str]) -> str:
    style = _text(read, name)
    found = _LOADED_BY_STYLE.search(style)
    if found is not None:
        line = style.count("\n", 0, found.start()) + 1
        raise _broken(f"{name}, line {line}", found.group(), "a style that loads nothing")
    styles.append(style)
    return f"<style>{style}</style>"


def _pictured(read: Read, found: re.Match[str]) -> str:
    content = read(found.group(2))
    if content is None:
        raise _broken(found.group(2), "no such file", "a file of the page")
    encoded = base64.b64encode(content).decode()
    before, after = found.group(1), found.group(4)
    return f"{before}data:{_MEDIA_TYPES[found.group(3)]};base64,{encoded}{after}"


def _check_nothing_is_loaded(name: str, page: str) -> None:
    """But for links that a person follows."""
    found = _LOADED.search(_NO_LOADER.sub("", page))
    if found is not None:
        raise _broken(name, found.group(), "a page that loads only its own /page/ files")


def _policy(script: str, styles: list[str]) -> str:
    parts = {
        "default-src": ["'none'"],
        "script-src": [_hash(script)],
        "style-src": list(map(_hash, styles)) or ["'none'"],
        "img-src": ["data:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }
    return "; ".join(" ".join((name, *values)) for name, values in parts.items())


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _required(found: Any, where: str, what: str) -> Any:
    if found is None:
        raise _broken(where, "a page without it", what)
    return found


def _broken(where: str, value: str, expected: str) -> InputError:
    remedy = "docs/operate/live-page.md has the rules for the page's files."
    return InputError(describe(where=where, value=value, expected=expected, remedy=remedy))
