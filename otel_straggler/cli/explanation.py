"""A verdict with the numbers it rests on, as text and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from otel_straggler.cli.fitting_table import Column, FittingTable
from otel_straggler.cli.liveness_lines import is_over, text_of
from otel_straggler.cli.text import Json, clock, printable
from otel_straggler.cli.verdict_lines import action_of, cause_of, step_of, subject
from otel_straggler.detect.verdicts.world import describe_peers, peer_key
from otel_straggler.model.rank import Source
from otel_straggler.model.verdict import hours_text

DECIDED = {"dismiss": "dismissed", "mute": "muted", "restore": "restored"}
MAX_PEERS = 16
"""Peers listed one by one: the fastest and the slowest."""
_PEER_COLUMNS = (
    Column(""),
    Column("rank", is_number=True),
    Column("host", drop_order=1),
    Column("time", is_number=True),
    Column("of the peers' median", is_number=True),
)
_EVIDENCE = {
    "host": "the host's clock",
    "events": "CUDA events",
    "cupti": "GPU kernels",
    "collective": "the host's clock, without waiting in collectives",
    "synchronised": "a section that contains waiting: culprit and victims look alike",
}


@dataclass(frozen=True, slots=True)
class PeerTime:
    """Seconds per step of one rank in the newest window."""

    rank: str
    node: str
    seconds: float
    is_subject: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """A verdict and what it rests on.

    Attributes:
        verdict: the newest on the subject; of the report.
        changes: all changes of its state.
        decisions: of people on the subject.
        window: the newest of its group; None if there is none.
        peers: description of its peers.
        times: of the subject and its peers in that window, slowest first.
        sentence: in the past tense if the run is over.
    """

    run_id: str
    verdict: Json
    changes: Sequence[Json]
    decisions: Sequence[Json]
    window: Json | None
    peers: str
    times: Sequence[PeerTime]
    sentence: str = ""
    is_over: bool = False

    def as_json(self) -> dict[str, Any]:
        window = self.window or {}
        return {
            "run_id": self.run_id,
            "verdict": dict(self.verdict),
            "changes": list(self.changes),
            "decisions": list(self.decisions),
            "peers": self.peers,
            "first_step": window.get("first_step"),
            "last_step": window.get("last_step"),
            "times": list(map(asdict, self.times)),
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(printable(self.sentence, 600) or subject(self.verdict), style="bold")
        facts = Table.grid(padding=(0, 2))
        for name, value in self._facts():
            facts.add_row(Text(name, style="dim"), Text(value, overflow="fold"))
        yield facts
        yield from self._peer_lines()
        yield Text("Changes of state", style="bold")
        for change in self.changes:
            yield Text(
                f"  {clock(change['at_ns'] / 1e9)}  {step_of(change):>12}  {change['state']}"
            )
        for decision in self.decisions:
            yield Text(f"  {clock(decision['at_ns'] / 1e9)}  {decision_text(decision)}")

    def _facts(self) -> Iterator[tuple[str, str]]:
        verdict = self.verdict
        yield "subject", f"{verdict['subject_id']}, run {printable(self.run_id)}"
        yield "state", verdict["state"] + self._calls()
        section = printable(verdict["section"] or "the whole step", 100)
        if verdict["own_s"] is not None and verdict["peers_s"] is not None:
            own, peers = _ms(verdict["own_s"]), f"{_ms(verdict['peers_s'])}, the median of "
            yield "compared", f"{own} a step with {peers}{verdict['n_peers']} peers, in {section}"
        else:
            yield "compared", f"with {verdict['n_peers']} peers, in {section}"
        if verdict["slowdown"] is not None:
            yield "slowdown", f"{verdict['slowdown']:.3f}x"
        since = verdict["since_step"]
        if since is not None:
            began = {"became": "as fast as its peers before", "born": "since monitoring began"}
            yield "since", f"step {since:,}, {began.get(verdict['began'], 'without a known past')}"
        evidence = str(verdict["evidence"])
        yield "measured by", _EVIDENCE.get(evidence, evidence)
        yield "confidence", f"{verdict['confidence'] or 0:.2f}"
        lost_hours = (verdict["gpu_seconds_lost_per_hour"] or 0.0) / 3600
        hours = hours_text(on_gpu=bool(verdict.get("on_gpu")))
        yield "cost" if self.is_over else "costs", f"{lost_hours:.3g} {hours} per hour"
        action = action_of(verdict)
        yield "cause", cause_of(verdict) + (f"; do: {action}" if action else "")

    def _calls(self) -> str:
        if self.is_over:
            return ", when the run ended"
        return ", pages" if self.verdict["pages"] else ", does not page"

    def _peer_lines(self) -> Iterator[RenderableType]:
        if not self.times or self.window is None:
            yield Text("No window of these peers is stored any more.", style="dim")
            return
        steps = "" if self.window["first_step"] is None else _steps(self.window)
        section = printable(self.verdict["section"] or "all sections but those that wait", 100)
        yield Text(f"Newest window{steps}, {self.peers}, median per step in {section}", "bold")
        middle = statistics.median(t.seconds for t in self.times if not t.is_subject or self._only)
        rows = [
            (
                ">" if time.is_subject else "",
                time.rank,
                printable(time.node, 60),
                _ms(time.seconds),
                f"{time.seconds / middle:.3f}x" if middle else "",
            )
            for time in _shown(self.times)
        ]
        yield FittingTable(_PEER_COLUMNS, rows, is_ruled=False)
        since, last = self.verdict["since_step"], self.window["last_step"]
        is_before = since is not None and last is not None and last < since
        if is_before and not self.is_over:
            yield Text("  It ends before the change began: try again in a minute.", style="yellow")
        left_out = len(self.times) - len(_shown(self.times))
        if left_out:
            yield Text(f"  and {left_out:,} between them", style="dim")

    @property
    def _only(self) -> bool:
        """All listed ranks belong to the subject."""
        return all(time.is_subject for time in self.times)


def explanation(run_id: str, run: Json, verdict: Json) -> Explanation:
    """Explain a verdict of a run of the report."""
    subject_id = verdict["subject_id"]
    of_group = [each for each in run.get("windows", ()) if each["group"] == verdict["group"]]
    window = of_group[-1] if of_group else None
    peers, times = _peer_times(window, verdict) if window else ("", [])
    return Explanation(
        run_id=run_id,
        verdict=verdict,
        changes=[each for each in run["verdicts"] if each["subject_id"] == subject_id],
        decisions=[d for d in run.get("decisions", ()) if d["subject_id"] == subject_id],
        window=window,
        peers=peers,
        times=times,
        sentence=text_of(run, verdict),
        is_over=is_over(run, verdict["group"]),
    )


def _peer_times(window: Json, verdict: Json) -> tuple[str, list[PeerTime]]:
    seconds = _seconds(window, verdict["section"])
    own = [key for key, reported in window["ranks"].items() if _is_subject(key, reported, verdict)]
    keys = {peer_key(_source(window["ranks"][key])) for key in own}
    times = [
        PeerTime(key, reported["node"], seconds[key], key in own)
        for key, reported in window["ranks"].items()
        if seconds.get(key) is not None and (not own or peer_key(_source(reported)) in keys)
    ]
    text = "; ".join(sorted(describe_peers(key) for key in keys)) or "all ranks"
    return f"peers: {text}", sorted(times, key=lambda time: -time.seconds)


def _seconds(window: Json, section: str | None) -> dict[str, float]:
    """By rank: seconds in a section, or in all of the rank's own work."""
    tables = window["section_step_s"]
    if section in tables:
        return {key: value for key, value in tables[section].items() if value is not None}
    total: dict[str, float] = {}
    for name, kind in window["sections"].items():
        if kind != "wait":
            for key, value in tables[name].items():
                total[key] = total.get(key, 0.0) + (value or 0.0)
    return total


def _is_subject(key: str, reported: Json, verdict: Json) -> bool:
    if verdict["scope"] == "rank":
        return key.rpartition("/")[2] == str(verdict["rank"])
    return bool(verdict["scope"] == "host" and reported["node"] == verdict["node"])


def _source(reported: Json) -> Source:
    parallel = tuple(sorted(reported.get("parallel", {}).items()))
    return Source(run_id="", rank=0, role=reported["role"], parallel=parallel)


def _shown(times: Sequence[PeerTime]) -> list[PeerTime]:
    """The subject, and the slowest and fastest of the others."""
    if len(times) <= MAX_PEERS:
        return list(times)
    others = [time for time in times if not time.is_subject]
    kept = {id(time) for time in (*others[: MAX_PEERS // 2], *others[-MAX_PEERS // 2 :])}
    return [time for time in times if time.is_subject or id(time) in kept]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.4g} ms"


def _steps(window: Json) -> str:
    return f" (steps {window['first_step']:,} to {window['last_step']:,})"


def decision_text(decision: Json) -> str:
    who = f" by {printable(decision['by'], 60)}" if decision["by"] else ""
    until = f" until {clock(decision['until_ns'] / 1e9)}" if decision["until_ns"] else ""
    over = "" if decision["is_in_force"] or decision["action"] == "restore" else " (over)"
    what = DECIDED.get(decision["action"], decision["action"])
    return f"{what}{until}{who}{over}: {printable(decision['reason'], 300)}"
