"""A report of traces as one HTML file without scripts, which opens offline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from otel_straggler.scalability.trace_report import KernelScore, TraceReport, rank_row

Json = dict[str, Any]
_PARTS = (
    ("compute", "compute", "#4c78a8"),
    ("exposed_communication", "communication, exposed", "#e45756"),
    ("rest", "copies and fills", "#b8b0ac"),
    ("idle", "idle", "#dddddd"),
)
_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem;
  max-width: 70rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; }
td, th { padding: .2rem .6rem; text-align: right; white-space: nowrap; }
th { border-bottom: 1px solid #999; } td:first-child, th:first-child { text-align: left; }
.answer { font-weight: 600; } td.name { white-space: normal; min-width: 18rem; }
.late td, td.slow { background: #fde8e8; } .key { margin-right: 1.5rem; white-space: nowrap; }
.kind { font-weight: normal; color: #666; } h2 { font-size: 1.1rem; margin-top: 2rem; }
svg.bar { display: block; width: 18rem; height: 14px; }
"""
_HEAD = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta http-equiv="Content-Security-Policy" '
    "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    "<title>Trace of {title}</title><style>{style}</style></head><body>"
)


def trace_page(
    report: TraceReport, title: str, run: Json | None = None, sentences: Sequence[str] = ()
) -> str:
    """Names of files, sections and kernels are text in it, never markup.

    Args:
        run: scores of the run, as ``score --json`` has them; sentences: what they say.
    """
    head = _HEAD.format(title=escape(title), style=_STYLE)
    keys = "".join(
        f'<span class="key"><svg width="12" height="12" style="display:inline">'
        f'<rect width="12" height="12" fill="{color}"/></svg> {label}</span>'
        for _, label, color in _PARTS
    )
    columns = ("rank", "time", "idle", "compute", "communication", "exposed", "hidden", "late by",
               "times last")  # fmt: skip
    rows = (_row(rank_row(rank, report.arrivals)) for rank in report.ranks)
    parts = [
        f'{head}<h1>Trace of {escape(title)}</h1><p class="answer">{escape(report.answer[0])}</p>',
        _paragraphs(report.answer[1:]),
        f"<p>{keys}</p>{_table(columns, rows)}",
    ]
    if run is not None:
        parts.append(f"<h2>Scores of sections</h2>{_paragraphs(sentences)}{_sections(run)}")
    if report.kernels:
        parts.append(f"<h2>Kernels in which a rank loses most time</h2>{_kernels(report.kernels)}")
    return "".join(parts) + "</body></html>\n"


def _paragraphs(texts: Iterable[str]) -> str:
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


def _table(columns: Iterable[str], rows: Iterable[str]) -> str:
    header = "".join(f"<th>{column}</th>" for column in columns)
    return f'<div class="wide"><table><tr>{header}</tr>{"".join(rows)}</table></div>'


def _row(row: Json) -> str:
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


def _bar(row: Json) -> str:
    other, exposed = row.get("other"), row.get("exposed_communication")
    if not (isinstance(other, float) and isinstance(exposed, float)):
        return "-"
    shares = {**row, "rest": max(other - exposed, 0.0)}
    at, parts = 0.0, []
    for part, _, color in _PARTS:
        width = 300.0 * float(shares[part])
        parts.append(f'<rect x="{at:.1f}" width="{width:.1f}" height="14" fill="{color}"/>')
        at += width
    bar = "".join(parts)
    return f'<svg class="bar" viewBox="0 0 300 14" preserveAspectRatio="none">{bar}</svg>'


def _sections(run: Json) -> str:
    """Median and score of each rank in each section, of the newest window."""
    window = run["windows"][-1]
    slow = {(each["rank"], each["section"]) for each in window["stragglers"]}
    columns = ["rank", *(
        f'{escape(name)}<br><span class="kind">{kind}, ms</span>'
        for name, kind in window["sections"].items()
    ), "GPU"]  # fmt: skip
    rows = []
    for key in window["ranks"]:
        rank = int(key.rpartition("/")[2])
        cells = [f"<td>{escape(key)}</td>"]
        for name in window["sections"]:
            median_s = window["section_medians_s"][name].get(key)
            score = window["section_relative_scores"][name].get(key)
            text = "-" if median_s is None else f"{median_s * 1e3:.2f} ({_score(score)})"
            cells.append(_cell(text, is_slow=(rank, name) in slow))
        gpu = window["gpu_relative_scores"].get(key)
        cells.append(_cell(_score(gpu), is_slow=(rank, None) in slow))
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return _table(columns, rows)


def _cell(text: str, *, is_slow: bool = False) -> str:
    return f'<td class="slow">{text}</td>' if is_slow else f"<td>{text}</td>"


def _score(score: float | None) -> str:
    return "-" if score is None else f"{score:.2f}"


def _kernels(kernels: Sequence[KernelScore]) -> str:
    columns = ("kernel", "rank", "score", "median", "fastest rank", "lost", "of its kernels")
    return _table(columns, (_kernel(each) for each in kernels))


def _kernel(each: KernelScore) -> str:
    times = (f"{s * 1e3:,.3f} ms" for s in (each.median_s, each.fastest_s, each.lost_s))
    short = each.name if len(each.name) <= _LONGEST_NAME else each.name[: _LONGEST_NAME - 1] + "~"
    cells = (str(each.rank), _score(each.score), *times, f"{each.share:.1%}")
    name = f'<td class="name" title="{escape(each.name)}">{escape(short)}</td>'
    return f"<tr>{name}{''.join(_cell(cell) for cell in cells)}</tr>"


_LONGEST_NAME = 100
