"""A report as text: one table per run, worst rank first, and sentences.

All of it reads the JSON report, so that ``score``, ``top`` and the demo show the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from otel_straggler.cli.text import (
    Json,
    absent_ranks,
    digits,
    duration,
    printable,
    rank_key,
    rank_ranges,
    unit_for,
)
from otel_straggler.cli.verdict_lines import hides_waiting
from otel_straggler.semconv import LISTED_KINDS
from otel_straggler.strict_json import whole_number

MAX_SENTENCES = 10
_MAX_NAME = 24
_MAX_NODE = 20
_CELL = 11
_GPU_COLUMN = 7
_MARK, _NAMED = "<", ">"


def steps_of(window: Json) -> str:
    if window["first_step"] is None:
        return f"{(window['end_ns'] - window['start_ns']) / 1e9:.1f} s without steps"
    return f"steps {window['first_step']} to {window['last_step']}"


# --- sentences ---------------------------------------------------------------------------------


def rank_on_node(who: Json) -> str:
    return printable(f"rank {rank_key(who)}" + (f" on {who['node']}" if who["node"] else ""))


def straggler_sentences(window: Json, *, is_over: bool = False) -> list[str]:
    """One sentence for each listed rank and section, lowest score first; two kinds of score on the
    same share one. In the past tense if the run ``is_over``."""
    result: dict[tuple[str, str | None], list[Json]] = {}
    for straggler in window["stragglers"]:
        result.setdefault((rank_key(straggler), straggler["section"]), []).append(straggler)
    return [_sentence(window, entries, is_over=is_over) for entries in result.values()]


def _sentence(window: Json, entries: list[Json], *, is_over: bool) -> str:
    first = entries[0]
    kinds = {entry["kind_of_score"].partition("_")[2]: entry["score"] for entry in entries}
    is_gpu = first["section"] is None
    take, takes = ("took", "took") if is_over else ("take", "takes")
    what = f"its GPU kernels {take}" if is_gpu else f"{_section_name(first)} {takes}"
    reported = []
    for kind, reference in (("relative", "the fastest rank"), ("individual", "its own best")):
        if kind in kinds:
            reported.append(f"{1 / kinds[kind]:.2f}x {reference}")
            if not is_gpu:
                own_s = window["section_medians_s"][first["section"]][rank_key(first)]
                reported[-1] += f" ({duration(own_s)} against {duration(own_s * kinds[kind])})"
    return f"{rank_on_node(first)}: {what} {' and '.join(reported)}"


def _section_name(who: Json) -> str:
    return printable(who["section"], _MAX_NAME * 2)


def excess_sentence(window: Json) -> str:
    """Where most time is lost; empty if no rank is slower than its peers."""
    excess = window.get("largest_excess")
    if not excess:
        return ""
    section = _section_name(excess)
    own, peers = duration(excess["own_s"]), duration(excess["role_median_s"])
    return (
        f"most time lost: {rank_on_node(excess)} in {section}, {duration(excess['excess_s'])}"
        f" of own time a step over the median of its peers ({own} against {peers})"
    )


def missing_sentence(window: Json) -> str:
    """Ranks that were expected, or that the numbering implies; empty if none is missing."""
    if window["missing_ranks"]:
        named = window["missing_ranks"][:1000]
        more = window["missing_count"] - len(named)
        tail = f" and {more} more" if more > 0 else ""
        expected = window["world_size"]
        return f"no data from rank {rank_ranges(named)}{tail} ({expected} ranks expected)"
    view = {rank for key in window["ranks"] if (rank := whole_number(key)) is not None}
    gaps, more = absent_ranks(view)
    if not gaps or len(view) < 2:
        return ""
    tail = f" and {more:,} more" if more else ""
    return f"no data from rank {rank_ranges(gaps)}{tail}, to judge by the numbers of the others"


# --- the table ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoreTable:
    """Ranks x sections of one window, as wide as the terminal allows; at most ``max_ranks`` rows,
    the worst. Ranks that are ``named`` in the lines around it are marked, and come first."""

    window: Json
    max_ranks: int
    named: frozenset[str] = frozenset()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns, left_out = self._columns(options.max_width)
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
        table.add_column("rank", justify="right", no_wrap=True, min_width=4)
        table.add_column("host", no_wrap=True, max_width=_MAX_NODE, overflow="ellipsis")
        medians = self.window["section_medians_s"]
        known = {n: [m for m in medians[n].values() if m is not None] for n in columns}
        units = {name: unit_for(max(known[name], default=1.0)) for name in columns}
        for name in columns:
            kind = self.window["sections"][name]
            head = Text(printable(name, _MAX_NAME))
            head.append(f"\n{kind}, {units[name][1]}", style="dim not bold")
            table.add_column(head, justify="right", no_wrap=True, min_width=_CELL)
        if self._has_gpu:
            table.add_column("GPU", justify="right", no_wrap=True)
        shown = worst_first(self.window, self.named)[: self.max_ranks]
        for key in shown:
            cells = [self._cell(key, name, units[name][0]) for name in columns]
            gpu = [self._gpu_cell(key)] if self._has_gpu else []
            node = printable(self.window["ranks"][key]["node"], _MAX_NODE)
            table.add_row(self._rank_cell(key), Text(node), *cells, *gpu)
        yield from (Text(""), table, Text(""))
        yield from self._footnotes(len(shown), left_out)

    def _columns(self, width: int) -> tuple[list[str], list[str]]:
        """Sections that fit, in the order of the step, and those left out; the worst ones fit
        first."""
        nodes = (len(rank["node"]) for rank in self.window["ranks"].values())
        room = width - 6 - min(_MAX_NODE, max(nodes, default=0)) - _GPU_COLUMN * self._has_gpu
        names = list(self.window["sections"])
        chosen: set[str] = set()
        for name in sorted(names, key=self._lowest):
            room -= max(_CELL, min(len(name), _MAX_NAME)) + 1
            if room < 0 and chosen:
                break
            chosen.add(name)
        return [n for n in names if n in chosen], [n for n in names if n not in chosen]

    @cached_property
    def _listed(self) -> frozenset[tuple[str, str | None]]:
        return _listed(self.window)

    @cached_property
    def _has_gpu(self) -> bool:
        return any(v is not None for v in self.window["gpu_relative_scores"].values())

    def _lowest(self, name: str) -> float:
        is_listed = self.window["sections"][name] in LISTED_KINDS
        scores = self.window["section_relative_scores"][name].values()
        return min((s for s in scores if s is not None), default=1.0) + (0.0 if is_listed else 1.0)

    def _rank_cell(self, key: str) -> Text:
        return Text(f"{_NAMED} {key}", style="bold red") if key in self.named else Text(key)

    def _cell(self, key: str, name: str, scale: float) -> Text:
        median_s = self.window["section_medians_s"][name].get(key)
        score = self.window["section_relative_scores"][name].get(key)
        if median_s is None:
            return Text("no data", style="dim")
        text = Text(f"{digits(median_s / scale)} ")
        if self.window["sections"][name] not in LISTED_KINDS:
            return text.append(_score(score), style="dim").append(" ")
        if (key, name) in self._listed:
            return text.append(_score(score) + _MARK, style="bold red")
        return text.append(_score(score)).append(" ")

    def _gpu_cell(self, key: str) -> Text:
        is_listed = (key, None) in self._listed
        score = _score(self.window["gpu_relative_scores"].get(key))
        return Text(score + _MARK, style="bold red") if is_listed else Text(score + " ")

    def _footnotes(self, shown: int, left_out: Sequence[str]) -> Iterator[Text]:
        if self.named:
            yield Text(f"{_NAMED} before a rank: named here", style="dim")
        if _waits_in_sections(self.window):
            text = "durations and their scores, waiting in collectives included; verdicts compare "
            yield Text(f"{text}own time", style="dim")
        more = len(self.window["ranks"]) - shown
        if more > 0:
            yield Text(f"{more:,} more ranks, none of them slower than these", style="dim")
        if left_out:
            names = ", ".join(printable(name, _MAX_NAME) for name in left_out[:8])
            tail = ", ..." if len(left_out) > 8 else ""
            yield Text(f"{len(left_out)} sections without room: {names}{tail}", style="dim")


def _waits_in_sections(window: Json) -> bool:
    """Whether own time is known to be another than the duration. Older reports do not say it."""
    own = window.get("section_own_s")
    return own is not None and own != window["section_step_s"]


def _score(score: float | None) -> str:
    return "  - " if score is None else f"{score:.2f}"


def _listed(window: Json) -> frozenset[tuple[str, str | None]]:
    return frozenset((rank_key(s), s["section"]) for s in window["stragglers"])


def worst_first(window: Json, named: frozenset[str] = frozenset()) -> list[str]:
    """Ranks that are ``named``, then those that are listed, then by their lowest score that can
    list them, then by number."""
    lowest = dict.fromkeys(window["ranks"], 2.0)
    columns = [
        window[table][name]
        for table in ("section_relative_scores", "section_individual_scores")
        for name, kind in window["sections"].items()
        if kind in LISTED_KINDS
    ]
    for column in (*columns, window["gpu_relative_scores"], window["gpu_individual_scores"]):
        for key, score in column.items():
            if score is not None and score < lowest[key]:
                lowest[key] = score
    listed = {key for key, _ in _listed(window)}
    index = {key: i for i, key in enumerate(lowest)}
    return sorted(
        lowest,
        key=lambda key: (key not in named, key not in listed, round(lowest[key], 2), index[key]),
    )


# --- one run -----------------------------------------------------------------------------------


def run_lines(run: Json, window: Json) -> Iterator[Text]:
    """Sentences about the scores of a window."""
    stragglers = straggler_sentences(window)
    yield from first_lines(stragglers, MAX_SENTENCES, "bold")
    if (
        not stragglers
        and not window.get("by_chance")
        and (run.get("verdicts") or hides_waiting(run))
    ):
        yield Text("every score is at or above the threshold", style="dim")
    elif not stragglers and window.get("by_chance"):
        yield Text("no straggler: no score is low in nearly every step", style="green")
    elif not stragglers:
        yield Text("no straggler: every score is at or above the threshold", style="green")
    if excess := excess_sentence(window):
        yield Text(excess, style="" if stragglers else "dim")
    if missing := missing_sentence(window):
        yield Text(missing, style="bold yellow")
    for clash in run.get("clashes", ())[:MAX_SENTENCES]:
        yield Text(f"clash: {rank_on_node(clash)} is not the only process that claims this rank; "
                   "one is scored, the others are left out", style="bold yellow")  # fmt: skip


def first_lines(stragglers: Sequence[str], maximum: int, style: str) -> Iterator[Text]:
    for sentence in stragglers[:maximum]:
        yield Text(sentence, style=style)
    if len(stragglers) > maximum:
        more = len(stragglers) - maximum
        yield Text(f"and {more:,} more ranks and sections under the threshold")


def run_title(run_id: str, window: Json) -> Text:
    nodes = {rank["node"] for rank in window["ranks"].values() if rank["node"]}
    where = f" on {len(nodes):,} host{'s' * (len(nodes) != 1)}" if nodes else ""
    count = len(window["ranks"])
    attempt = f", attempt {window['attempt']}" if window["attempt"] else ""
    group = f", group {printable(window['group'])}" if window["group"] else ""
    title = Text(f"run {printable(run_id)}", style="bold")
    reported = f": {count:,} rank{'s' * (count != 1)}{where}, {steps_of(window)}{attempt}{group}"
    return title.append(reported, style="not bold")


def windows_lines(windows: Sequence[Json]) -> Iterator[Text]:
    """How often each rank was listed, over all windows."""
    if len(windows) < 2:
        return
    view: dict[tuple[str, str | None], list[tuple[float, Json, Json]]] = {}
    for window in windows:
        best: dict[tuple[str, str | None], tuple[float, Json, Json]] = {}
        for straggler in window["stragglers"]:
            entry = (straggler["score"], straggler, window)
            best.setdefault((rank_key(straggler), straggler["section"]), entry)
        for subject, entry in best.items():
            view.setdefault(subject, []).append(entry)
    yield Text(f"{len(windows):,} windows; the table shows the newest", style="dim")
    ordered = sorted(view.values(), key=lambda entries: (-len(entries), entries[0][0]))
    for entries in ordered[:MAX_SENTENCES]:
        score, straggler, window = min(entries, key=lambda entry: entry[0])
        what = printable(straggler["section"] or "GPU kernels", _MAX_NAME * 2)
        yield Text(
            f"{rank_on_node(straggler)}: {what} under the threshold in {len(entries)} of"
            f" {len(windows)} windows, worst {1 / score:.2f}x in {steps_of(window)}"
        )
    if len(ordered) > MAX_SENTENCES:
        yield Text(f"and {len(ordered) - MAX_SENTENCES:,} more ranks and sections")
