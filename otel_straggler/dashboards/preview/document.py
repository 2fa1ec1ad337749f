"""One HTML file with all in it: style, script, chart library, figures."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from importlib.resources import files
from typing import Any, Final

from otel_straggler.dashboards.preview.boxes import Box
from otel_straggler.dashboards.preview.colours import Palette
from otel_straggler.dashboards.preview.drawn import Look
from otel_straggler.dashboards.preview.pages import Page
from otel_straggler.dashboards.preview.prometheus import without_password
from otel_straggler.errors import UnavailableError, describe

_HIDDEN: Final = 2
"""How Grafana says that a variable is for queries only."""
NOT_GRAFANA: Final = (
    "This is a preview, not Grafana: drawn by otel-straggler from the JSON of the pages, with the "
    "answers of one Prometheus at one moment. Details of look differ; nothing here is live."
)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A page with what was drawn of it; ``pieces`` are its rows and panels in reading order."""

    page: Page
    look: Look
    boxes: Sequence[Box]
    pieces: Sequence[str]
    problems: Sequence[str]


def document(sheets: Sequence[Sheet], url: str, at_s: float, palette: Palette) -> str:
    """All sheets, one below the other, in one file that asks nobody for anything."""
    figures = {
        f"panel-{box.page}-{box.panel}": box.figure
        for sheet in sheets
        for box in sheet.boxes
        if box.figure
    }
    library, own = chart_library(), _static("preview.js")
    data = _as_json({"figures": figures, "text": palette.text, "grid": palette.grid})
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in (library, own))
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en" data-theme="{palette.theme}">\n<head>\n'
        f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Preview of {len(sheets)} pages</title>\n<style>{_static('preview.css')}</style>\n"
        f"</head>\n<body>\n{_heading(sheets, url, at_s)}\n<main>\n"
        f"{''.join(_sheet(sheet) for sheet in sheets)}</main>\n"
        f'<script type="application/json" id="drawing">{data}</script>\n'
        f"<script>{library}</script>\n<script>{own}</script>\n</body>\n</html>\n"
    )


def chart_library() -> str:
    """The script of plotly.js as the Python package carries it: nothing is fetched.

    Raises:
        UnavailableError: the package is not installed.
    """
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UnavailableError(
            describe(
                where="dashboards preview",
                value="no module plotly",
                expected="the chart library",
                remedy="Run: pip install 'otel-straggler[preview]'",
            )
        ) from error
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def _heading(sheets: Sequence[Sheet], url: str, at_s: float) -> str:
    links = "".join(
        f'<a href="#{escape(s.page.uid, quote=True)}">{escape(s.page.title)}</a>' for s in sheets
    )
    span = sheets[0].look.span
    moments = [datetime.fromtimestamp(t).astimezone() for t in (span.from_s, span.to_s, at_s)]
    begin, end, drawn = (f"{moment:%Y-%m-%d %H:%M:%S}" for moment in moments)
    zone = f"{moments[0]:%Z}"
    return (
        f'<header class="top"><p class="honest">{escape(NOT_GRAFANA)}</p>'
        f"<p>{escape(without_password(url))}, {begin} to {end} {escape(zone)}, drawn {drawn}</p>"
        f'<nav aria-label="pages">{links}</nav></header>'
    )


def _sheet(sheet: Sheet) -> str:
    uid = escape(sheet.page.uid, quote=True)
    hidden = {str(one["name"]) for one in sheet.page.variables if one.get("hide") == _HIDDEN}
    chips = "".join(
        f"<li><span>{escape(one.label or one.name)}</span> {escape(one.shown())}</li>"
        for one in sheet.look.chosen.values()
        if one.name not in hidden
    )
    chips += f"<li><span>annotations</span> {len(sheet.look.events)}</li>"
    problems = "".join(f'<p class="error">{escape(text)}</p>' for text in sheet.problems)
    return (
        f'<section class="page" id="{uid}" data-page="{escape(sheet.page.name, quote=True)}">'
        f'<h1>{escape(sheet.page.title)}</h1><ul class="variables">{chips}</ul>{problems}'
        f'<div class="grid">{"".join(sheet.pieces)}</div></section>\n'
    )


def row_heading(down: int, title: str) -> str:
    """Of a row, ``down`` units of the grid below the top."""
    style = f"grid-column: 1 / span 24; grid-row: {down + 1}"
    return f'<h2 class="row" style="{style}">{escape(title)}</h2>'


def _static(name: str) -> str:
    return (files("otel_straggler.dashboards.preview") / "static" / name).read_text("utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _as_json(held: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(held, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
