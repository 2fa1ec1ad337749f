"""The page and its data as one file that opens without a network.

Everything is written into the HTML; a policy in its head names the hashes of its script and style,
so that nothing else runs, and nothing is ever asked for. The script is ``report.js``: the modules
of ``static/js`` put together by esbuild (``make generate``), which ends no element in a string.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files
from typing import Any, Final

from otel_straggler.page import asset

DATA_ID: Final = "straggler-data"
_CHARSET: Final = '<meta charset="utf-8">'
_STYLE: Final = re.compile(r'<link rel="stylesheet" href="page/([\w-]+\.css)">')
_ICON: Final = "page/icon.svg"
_SCRIPT: Final = '<script type="module" src="page/js/main.js"></script>'
_TITLE: Final = re.compile(r"<title>[^<]*</title>")


def bundle(data: Any, *, title: str) -> str:
    """The page with ``data`` in it, as one HTML file.

    Args:
        data: of JSON's types, as docs/reference/http-api.md says; names in it may be anything.
        title: of the document.

    Raises:
        ValueError: ``data`` holds NaN.
    """
    script = (files(__package__) / "report.js").read_text(encoding="utf-8")
    icon = base64.b64encode(_content("icon.svg")).decode()
    page = _content("index.html").decode()
    styles = [_content(name).decode() for name in _STYLE.findall(page)]
    page = _STYLE.sub(lambda result: f"<style>{_content(result[1]).decode()}</style>", page)
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_policy(script, styles)}">'
    embedded = (
        f'<script type="application/json" id="{DATA_ID}">{json_in_html(data)}</script>\n'
        f'<script type="module">{script}</script>'
    )
    for part, replacement in (
        (_ICON, f"data:image/svg+xml;base64,{icon}"),
        (_CHARSET, f"{_CHARSET}\n{policy}"),
        (_SCRIPT, embedded),
    ):
        before, _, after = page.partition(part)
        page = f"{before}{replacement}{after}"
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


def _content(name: str) -> bytes:
    result = asset(name)
    assert result is not None, name
    return result.content


def _policy(script: str, styles: list[str]) -> str:
    parts = {
        "default-src": ["'none'"],
        "script-src": [_hash(script)],
        "style-src": list(map(_hash, styles)),
        "img-src": ["data:"],
        "base-uri": ["'none'"],
        "form-action": ["'none'"],
    }
    return "; ".join(" ".join((name, *values)) for name, values in parts.items())


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
