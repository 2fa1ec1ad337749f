"""A report of traces as one HTML file without scripts, which opens offline."""

from __future__ import annotations

from html import escape

from otel_straggler.scalability.trace_report import TraceReport, rank_row

_PARTS = (
    ("compute", "compute", "#4c78a8"),
    ("exposed_communication", "communication, exposed", "#e45756"),
    ("rest", "copies and fills", "#b8b0ac"),
    ("idle", "idle", "#dddddd"),
)
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; }
table { border-collapse: collapse; width: 100%; }
td, th { padding: .2rem .6rem; text-align: right; }
th { border-bottom: 1px solid #999; } td:first-child, th:first-child { text-align: left; }
.late td { background: #fde8e8; } svg { display: block; } .key { margin-right: 1.5rem; }
"""
_HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    "<title>Trace of {title}</title><style>{style}</style></head><body>"
)


def trace_page(report: TraceReport, title: str) -> str:
    """Names of files are text in it, never markup."""
    head = _HEAD.format(title=escape(title), style=_STYLE)
    answer = "".join(f"<p>{escape(line)}</p>" for line in report.answer)
    keys = "".join(
        f'<span class="key"><svg width="12" height="12" style="display:inline">'
        f'<rect width="12" height="12" fill="{color}"/></svg> {label}</span>'
        for _, label, color in _PARTS
    )
    columns = ("rank", "time", "idle", "compute", "communication", "exposed", "hidden", "late by",
               "times last")  # fmt: skip
    header = "".join(f"<th>{column}</th>" for column in columns)
    rows = "".join(_row(rank_row(rank, report.arrivals)) for rank in report.ranks)
    return (
        f"{head}<h1>Trace of {escape(title)}</h1>{answer}<p>{keys}</p>"
        f"<table><tr>{header}</tr>{rows}</table></body></html>\n"
    )


def _row(row: dict[str, object]) -> str:
    shares = ("idle", "compute", "communication", "exposed_communication", "overlap")
    late_s = row.get("late_by_s")
    rank = "?" if row["rank"] is None else row["rank"]
    cells = (
        f'<td title="{escape(str(row["file"]))}">{rank}</td>',
        f"<td>{_bar(row)}</td>",
        *(f"<td>{_percent(row.get(name))}</td>" for name in shares),
        f"<td>{f'{late_s * 1e3:.1f} ms' if isinstance(late_s, float) else '-'}</td>",
        f"<td>{row.get('times_last', '-')}</td>",
    )
    return f'<tr class="{"late" if row.get("is_late") else ""}">{"".join(cells)}</tr>'


def _percent(value: object) -> str:
    return f"{value:.1%}" if isinstance(value, float) else "-"


def _bar(row: dict[str, object]) -> str:
    other, exposed = row.get("other"), row.get("exposed_communication")
    if not (isinstance(other, float) and isinstance(exposed, float)):
        return "-"
    shares = {**row, "rest": max(other - exposed, 0.0)}
    at, parts = 0.0, []
    for part, _, color in _PARTS:
        width = 300.0 * float(shares[part])  # type: ignore[arg-type]
        parts.append(f'<rect x="{at:.1f}" width="{width:.1f}" height="14" fill="{color}"/>')
        at += width
    return f'<svg width="300" height="14">{"".join(parts)}</svg>'
