"""One panel: asked, transformed, drawn, and put into its box with what is to be known of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from otel_straggler.dashboards.preview.chosen import filled
from otel_straggler.dashboards.preview.drawn import Drawn, Look
from otel_straggler.dashboards.preview.overrides import configure
from otel_straggler.dashboards.preview.panels import KINDS
from otel_straggler.dashboards.preview.queries import Answer, Asking, answer
from otel_straggler.dashboards.preview.transformations import transform


@dataclass(frozen=True, slots=True)
class Box:
    """A panel that was drawn, or why it was not.

    Attributes:
        state: ``drawn``, ``empty``, ``failed`` or ``unknown`` (a kind of panel).
        said: what went wrong, and what differs from Grafana.
    """

    page: str
    panel: int
    title: str
    kind: str
    state: str
    n_series: int
    n_points: int
    said: tuple[str, ...]
    html: str
    figure: dict[str, Any] | None


def box(page: str, panel: Mapping[str, Any], asking: Asking, look: Look, width_px: float) -> Box:
    """Never raises for what a panel has in it: what cannot be drawn is told in its place."""
    kind = str(panel["type"])
    title = filled(str(panel.get("title") or ""), look.chosen, {}, is_query=False)
    asked = answer(panel, asking, width_px)
    drawn, notes = _drawn(panel, asked, look)
    if kind not in KINDS:
        state = "unknown"
        notes.insert(0, f"Panels of kind {kind} are not drawn here.")
    elif asked.errors:
        state = "failed"
    else:
        state = "drawn" if drawn.n_points else "empty"
    said = (*asked.errors, *notes)
    made = Box(
        page, int(panel.get("id") or 0), title, kind, state,
        drawn.n_series, drawn.n_points, said, "", drawn.figure,
    )  # fmt: skip
    return _with_html(made, panel, asked, drawn)


def _drawn(panel: Mapping[str, Any], asked: Answer, look: Look) -> tuple[Drawn, list[str]]:
    notes = []
    if panel.get("repeat"):
        notes.append(f"Repeated for each value of {panel['repeat']} in Grafana; here it is once.")
    frames, unknown = transform(asked.frames, panel.get("transformations") or ())
    notes += [f"Transformation {name} is not known here and was not done." for name in unknown]
    config = panel.get("fieldConfig") or {}
    notes += [f"{name} is not known here." for name in configure(frames, config)]
    draw = KINDS.get(str(panel["type"]))
    drawn = draw(frames, panel, look) if draw else Drawn()
    return drawn, notes + drawn.notes


def _with_html(made: Box, panel: Mapping[str, Any], asked: Answer, drawn: Drawn) -> Box:
    place = panel["gridPos"]
    style = (
        f"grid-column: {place['x'] + 1} / span {place['w']}; "
        f"grid-row: {place['y'] + 1} / span {place['h']}"
    )
    said = str(((panel.get("fieldConfig") or {}).get("defaults") or {}).get("noValue") or "No data")
    body = drawn.html if drawn.n_points else _nothing(made, asked, said)
    errors = [f'<p class="error">{escape(text)}</p>' for text in asked.errors if drawn.n_points]
    name = f"{made.page}-{made.panel}"
    html = (
        f'<article class="panel" id="panel-{escape(name, quote=True)}" '
        f'data-page="{escape(made.page, quote=True)}" data-panel="{made.panel}" '
        f'data-kind="{escape(made.kind, quote=True)}" data-state="{made.state}" '
        f'data-series="{made.n_series}" data-points="{made.n_points}" style="{style}">'
        f"<header><h3>{escape(made.title)}</h3>{_details(made, panel, asked)}</header>"
        f'<div class="body">{"".join(errors)}{body}</div></article>'
    )
    return Box(
        made.page, made.panel, made.title, made.kind, made.state,
        made.n_series, made.n_points, made.said, html, made.figure,
    )  # fmt: skip


def _nothing(made: Box, asked: Answer, said: str) -> str:
    """Why the panel is empty, in the page's words if it has some, and what it asked."""
    heading = {"failed": "The query failed", "unknown": "Not drawn here"}.get(made.state, said)
    lines = [f"<p>{escape(text)}</p>" for text in made.said]
    queries = "".join(f"<code>{escape(text)}</code>" for text in asked.asked)
    return f'<div class="nothing"><strong>{escape(heading)}</strong>{"".join(lines)}{queries}</div>'


def _details(made: Box, panel: Mapping[str, Any], asked: Answer) -> str:
    """The description, the queries as sent, and how the panel differs from the page's."""
    parts = [f"<p>{escape(str(panel.get('description') or 'This panel has no description.'))}</p>"]
    parts += [f'<p class="note">{escape(text)}</p>' for text in made.said]
    parts += [f"<code>{escape(text)}</code>" for text in asked.asked]
    for step in panel.get("transformations") or ():
        told = f"{step['id']} {json.dumps(step.get('options') or {}, ensure_ascii=False)}"
        parts.append(f"<code>{escape(told)}</code>")
    parts.append(f"<p>{escape(_counts(made))}</p>")
    mark = "!" if made.said else "i"
    return (
        f'<details><summary aria-label="about this panel" class="{_mark_class(made.said)}">{mark}'
        f"</summary><div>{''.join(parts)}</div></details>"
    )


def _mark_class(said: Sequence[str]) -> str:
    return "warn" if said else "info"


def _counts(made: Box) -> str:
    return f"{made.kind}, panel {made.panel}: {made.n_series} series, {made.n_points} points"
