"""The goodput of runs as one HTML file: a stacked time line, tables, and no script."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final

Json = Mapping[str, Any]

_COLORS: Final = {
    "productive": "#2e8b57",
    "slow_steps": "#c5b400",
    "stragglers": "#f07f13",
    "redone": "#c02942",
    "hang": "#7a0f1f",
    "restart": "#5a5f66",
    "reinitialization": "#7d6bb0",
    "start_up": "#9e8fd0",
    "initialization": "#b7a6e6",
    "preparation": "#d2c6f2",
    "data": "#1f77b4",
    "checkpoint": "#17a2a8",
    "checkpoint_load": "#6fcacb",
    "eval": "#8bbf3f",
    "scheduling": "#a3a9b0",
    "replica_down": "#3b3f45",
    "scale_up": "#c9a27b",
    "shutdown": "#c3c8ce",
    "other": "#dcdfe3",
    "excluded": "#f3f3f0",
}
_CUSTOM_COLORS: Final = ("#e377c2", "#b5457f", "#f2a7cf", "#8c3a6b")
_WIDTH, _HEIGHT, _RANK_HEIGHT = 960, 240, 14
_MAX_RANKS: Final = 64
"""With least goodput; a page of thousands says no more."""
_STYLE: Final = """
:root { color-scheme: light dark; --text: #1c2127; --muted: #57606a; --line: #d5dae0; --bg: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e8ebef; --muted: #a3adb8; --line: #363d47; --bg: #14181d; }
}
body { font: 15px/1.45 system-ui, sans-serif; color: var(--text); background: var(--bg);
  max-width: 1000px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.headline { font-size: 1.6rem; font-weight: 600; margin: .3rem 0; }
.muted { color: var(--muted); }
svg { width: 100%; height: auto; display: block; shape-rendering: crispEdges;
  border: 1px solid var(--line); }
svg text { fill: var(--muted); font: 11px system-ui, sans-serif; }
.rolling { fill: none; shape-rendering: auto; stroke: var(--text); stroke-width: 1.5; }
.attempt { stroke: var(--text); stroke-dasharray: 3 3; }
table { border-collapse: collapse; margin: 1rem 0; width: 100%; }
th, td { text-align: left; padding: .2rem .6rem .2rem 0; border-bottom: 1px solid var(--line); }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.key { width: 12px; height: 12px; display: inline-block; border: 1px solid var(--line); }
"""


def goodput_page(runs: Sequence[Json]) -> str:
    """One page of all runs.

    Args:
        runs: as ``otel_straggler.goodput.report.account_json`` makes them.
    """
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    body = "\n".join(part for run in runs for part in _run(run))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Goodput - otel-straggler</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _run(run: Json) -> Iterator[str]:
    name = f"{run['run_id']}/{run['group']}" if run["group"] else run["run_id"]
    colors = _colors(run)
    yield f"<h1>{html.escape(name)}</h1>"
    yield f'<p class="headline">Goodput {_percent(run["goodput"])}</p>'
    yield (
        f'<p class="muted">{_hours(run["wall_s"])} from {_clock(run["start_s"])} to '
        f"{_clock(run['end_s'])}, {_many(len(run['ranks']), 'rank')}, "
        f"{_many(len(run['attempts']), 'attempt')}, "
        f"{_many(run['steps']['disruptions'], 'disruption')}</p>"
    )
    yield _timeline(run, colors)
    yield from _categories(run, colors)
    yield from _ranks(run, colors)


def _colors(run: Json) -> dict[str, str]:
    custom = [name for name in run["categories"] if name not in _COLORS]
    others = {name: _CUSTOM_COLORS[at % len(_CUSTOM_COLORS)] for at, name in enumerate(custom)}
    return {**_COLORS, **others}


def _timeline(run: Json, colors: Mapping[str, str]) -> str:
    """Bins side by side, categories one above the other; attempts as lines, rolling goodput on
    top."""
    edges = run["timeline"]["edges_s"]
    shares = run["timeline"]["share"]
    start_s, length_s = edges[0], max(edges[-1] - edges[0], 1e-9)
    x = [(edge - start_s) / length_s * _WIDTH for edge in edges]
    filled = [0.0] * (len(edges) - 1)
    parts = []
    for name in sorted(shares, key=lambda each: list(colors).index(each)):
        parts.append(f'<g fill="{colors[name]}"><title>{html.escape(name)}</title>')
        for at, share in enumerate(shares[name]):
            if share > 0.0:
                top = _HEIGHT * (1.0 - filled[at] - share)
                parts.append(
                    f'<rect x="{x[at]:.2f}" y="{top:.2f}" width="{x[at + 1] - x[at] + 0.2:.2f}" '
                    f'height="{_HEIGHT * share:.2f}"/>'
                )
                filled[at] += share
        parts.append("</g>")
    for at_s in run["attempts"][1:]:
        place = (at_s - start_s) / length_s * _WIDTH
        parts.append(
            f'<line class="attempt" x1="{place:.1f}" x2="{place:.1f}" y1="0" y2="{_HEIGHT}"/>'
        )
    parts += [_rolling(rolling, start_s, length_s) for rolling in run["rolling"][:1]]
    for at in range(5):
        place = _WIDTH * at / 4
        anchor = ("start", "middle", "middle", "middle", "end")[at]
        parts.append(
            f'<text x="{place:.0f}" y="{_HEIGHT + 14}" text-anchor="{anchor}">'
            f"{_hours(length_s * at / 4)}</text>"
        )
    label = "Share of all ranks by category over time"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT + 20}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _rolling(rolling: Json, start_s: float, length_s: float) -> str:
    points = " ".join(
        f"{(end_s - start_s) / length_s * _WIDTH:.1f},{_HEIGHT * (1.0 - goodput):.1f}"
        for end_s, goodput in zip(rolling["end_s"], rolling["goodput"], strict=True)
        if goodput is not None
    )
    title = f"goodput of the {_hours(rolling['window_s'])} before"
    return f'<polyline class="rolling" points="{points}"><title>{title}</title></polyline>'


def _categories(run: Json, colors: Mapping[str, str]) -> Iterator[str]:
    entries = run["categories"]
    names = [name for name in entries if entries[name]["seconds"]]
    names.sort(key=lambda name: (name != "productive", -entries[name]["seconds"]))
    yield '<table><thead><tr><th>Category</th><th class="number">Time</th>'
    yield '<th class="number">Share</th><th>What it is</th></tr></thead>'
    for name in names:
        entry = entries[name]
        yield (
            f"<tr><td>{_key(colors[name])} {html.escape(name)}</td>"
            f'<td class="number">{_hours(entry["seconds"])}</td>'
            f'<td class="number">{_percent(entry["share"])}</td>'
            f"<td>{html.escape(entry['meaning'])}</td></tr>"
        )
    together = _hours(run["elapsed_s"])
    yield f'<tr><td>together</td><td class="number">{together}</td><td></td><td></td></tr></table>'


def _key(color: str) -> str:
    return (
        '<svg class="key" viewBox="0 0 1 1" aria-hidden="true">'
        f'<rect width="1" height="1" fill="{color}"/></svg>'
    )


def _ranks(run: Json, colors: Mapping[str, str]) -> Iterator[str]:
    """A bar for each rank, those with least goodput first."""
    known = [rank for rank in run["ranks"] if rank["goodput"] is not None]
    if len(known) < 2:
        return
    shown = sorted(known, key=lambda rank: rank["goodput"])[:_MAX_RANKS]
    more = f", the {len(shown)} with least goodput" if len(known) > len(shown) else ""
    yield f"<h2>Ranks{more}</h2>"
    height = _RANK_HEIGHT * len(shown)
    yield f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="Categories by rank">'
    for at, rank in enumerate(shown):
        yield from _rank_bar(rank, at * _RANK_HEIGHT, colors)
    yield "</svg>"


def _rank_bar(rank: Json, y: int, colors: Mapping[str, str]) -> Iterator[str]:
    whole_ns = sum(rank["time_ns"].values()) or 1
    left, room = 110.0, _WIDTH - 110.0
    yield f'<text x="0" y="{y + 11}">rank {rank["rank"]}: {_percent(rank["goodput"])}</text>'
    for name in sorted(rank["time_ns"], key=lambda each: list(colors).index(each)):
        width = rank["time_ns"][name] / whole_ns * room
        yield (
            f'<rect x="{left:.2f}" y="{y + 1}" width="{width:.2f}" height="{_RANK_HEIGHT - 2}" '
            f'fill="{colors[name]}"><title>{html.escape(name)}</title></rect>'
        )
        left += width


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f} %"


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _hours(seconds: float) -> str:
    if 0 < seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def _clock(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"
