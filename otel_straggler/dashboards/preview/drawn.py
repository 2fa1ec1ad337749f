"""What a panel is drawn with, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from html import escape
from typing import Any

from otel_straggler.dashboards.preview.chosen import Chosen, filled
from otel_straggler.dashboards.preview.colours import Palette
from otel_straggler.dashboards.preview.frames import Field
from otel_straggler.dashboards.preview.ranges import TimeRange


@dataclass(frozen=True, slots=True)
class Event:
    """An annotation: from when to when, in seconds since the epoch, and what it says."""

    begin_s: float
    end_s: float
    text: str
    colour: str


@dataclass(frozen=True, slots=True)
class Look:
    """What is the same for all panels of a page; ``uids`` are the pages that are drawn."""

    palette: Palette
    span: TimeRange
    chosen: Mapping[str, Chosen]
    uids: frozenset[str]
    events: tuple[Event, ...] = ()


@dataclass(slots=True)
class Drawn:
    """``html`` is the body of the panel; ``figure`` what the chart library is to draw in it.

    Attributes:
        n_series: lines, bars, rows or cells, by the kind of panel.
        n_points: values that are shown; none means that there is no data.
        notes: what differs from Grafana here.
    """

    html: str = ""
    figure: dict[str, Any] | None = None
    n_series: int = 0
    n_points: int = 0
    notes: list[str] = field(default_factory=list)


def local(at_s: float) -> str:
    """A time for the chart library, in the zone of this machine."""
    return datetime.fromtimestamp(at_s).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def linked(text: str, one: Field, look: Look, row: Mapping[str, Any]) -> str:
    """The text as HTML; a link where the field has one and its page is drawn too."""
    links = one.config.get("links") or ()
    inside = escape(text)
    if not links or not text:
        return inside
    more = {f"__field.labels.{name}": value for name, value in one.labels.items()}
    more |= {f"__data.fields.{name}": str(value) for name, value in row.items()}
    more |= {"__url_time_range": f"from={look.span.raw[0]}&to={look.span.raw[1]}"}
    title = filled(str(links[0].get("title") or ""), look.chosen, more, is_query=False)
    url = filled(str(links[0].get("url") or ""), look.chosen, more, is_query=False)
    uid = page_of(url)
    hint = escape(f"{title}: in Grafana {url}", quote=True)
    if uid in look.uids:
        return f'<a href="#{escape(uid, quote=True)}" title="{hint}">{inside}</a>'
    return f'<span title="{hint}">{inside}</span>'


def page_of(url: str) -> str:
    """
    >>> page_of("/d/otel-straggler-run?var-run_id=a")
    'otel-straggler-run'
    """
    return url.removeprefix("/d/").split("?")[0].split("/")[0] if url.startswith("/d/") else ""
