"""A hang with the numbers it rests on, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from otel_straggler.cli.explanation import decision_text
from otel_straggler.cli.fitting_table import Column, FittingTable
from otel_straggler.cli.liveness_lines import earlier_line, state_in_text
from otel_straggler.cli.text import Json, clock, digits, many, printable
from otel_straggler.collector.views.numbers import duration
from otel_straggler.model.verdict import hang_subject, hours_text

_MAX_RANKS: Final = 8
_SENTENCE: Final = 600
_COLUMNS: Final = (
    Column("rank", is_number=True),
    Column("host", drop_order=1),
    Column("state"),
    Column("heartbeat", is_number=True, drop_order=2),
    Column("progress", is_number=True),
    Column("step", is_number=True),
    Column("open section"),
)


@dataclass(frozen=True, slots=True)
class HangExplanation:
    """Of the group that a view of ``/v1/run`` shows; it hangs, or has hung before."""

    run_view: Json

    @property
    def _hang(self) -> Json:
        hang: Json = self.run_view["hangs"][0]
        return hang

    @property
    def _hangs_now(self) -> bool:
        return bool(self.run_view["answer"]["kind"] == "hang")

    def as_json(self) -> dict[str, Any]:
        run = self.run_view["run"]
        return {
            "run_id": run["run_id"],
            "subject_id": hang_subject(run["group"]),
            "hangs": self._hangs_now,
            "hang": self._hang,
            "answer": self.run_view["answer"],
            "ranks": list(self._ranks()),
            "decisions": list(self._decisions()),
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        answer, run = self.run_view["answer"], self.run_view["run"]
        yield Text(printable(answer["headline"], _SENTENCE), style="bold")
        facts = Table.grid(padding=(0, 2))
        for name, value in self._facts():
            facts.add_row(
                Text(name, style="dim"), Text(printable(value, _SENTENCE), overflow="fold")
            )
        yield facts
        rows = [
            (
                str(rank["rank"]), printable(rank["node"] or "", 60), state_in_text(rank["state"]),
                _ago(rank["heartbeat_age_s"]), _ago(rank["progress_age_s"]),
                "-" if rank["step"] is None else f"{rank['step']:,}",
                printable(rank["open_section"] or "none", 60),
            )
            for rank in self._ranks()
        ]  # fmt: skip
        if rows:
            yield Text("Ranks that are waited for, now", style="bold")
            yield FittingTable(_COLUMNS, rows, is_ruled=False)
        for command in answer["commands"] if self._hangs_now else ():
            yield Text(f"  {printable(command, _SENTENCE)}")
        hours = hours_text(on_gpu=run["on_gpu"])
        for earlier in self._hang.get("earlier", ()):
            yield Text(earlier_line(earlier, hours), style="yellow")
        for decision in self._decisions():
            yield Text(f"  {clock(decision['at_ns'] / 1e9)}  {decision_text(decision)}")

    def _facts(self) -> Iterator[tuple[str, str]]:
        hang, answer, run = self._hang, self.run_view["answer"], self.run_view["run"]
        yield "subject", f"{hang_subject(run['group']).rstrip(':')}, run {run['run_id']}"
        known = ", acknowledged" if hang["acknowledged"] else ""
        yield "state", f"{state_in_text(hang['state'])} since {clock(hang['since_s'])}{known}"
        if not self._hangs_now:
            return
        yield "reason", hang["sentence"] or "unknown"
        if hang["victims"]:
            yield "waiting", self._victims(hang)
        yield "measured by", answer["evidence"] or "heartbeats"
        hourly_s = answer["cost"]["gpu_seconds_lost_per_hour"]
        if hourly_s is not None:
            yield "costs", f"{digits(hourly_s / 3600)} {hours_text(on_gpu=run['on_gpu'])} per hour"
        for advice in answer["advice"]:
            yield "do", advice

    def _victims(self, hang: Json) -> str:
        """How many, and where most of them stand."""
        culprits = set(hang["culprits"])
        others = [rank for rank in self._all() if rank["rank"] not in culprits]
        text = many(hang["victims"], "rank")
        if not others:
            return text
        places = Counter((rank["step"], rank["open_section"]) for rank in others)
        (step, section), count = places.most_common(1)[0]
        where = f"at step {step:,}" if step is not None else "before the first step"
        return f"{text}; {count:,} of {len(others):,} {where}" + (
            f" in {section}" if section else ""
        )

    def _ranks(self) -> Iterator[Json]:
        """Those that are waited for."""
        wanted = self._hang["culprits"][:_MAX_RANKS] if self._hangs_now else []
        return (rank for rank in self._all() if rank["rank"] in wanted)

    def _all(self) -> Iterator[Json]:
        of = self.run_view["ranks"]
        for at, rank in enumerate(of["rank"]):
            section = of["open_section"][at]
            yield {
                "rank": rank,
                "node": of["nodes"][of["node"][at]] or None,
                "state": of["states"][of["state"][at]],
                "pid": of["pid"][at] if "pid" in of else None,
                "heartbeat_age_s": of["heartbeat_age_s"][at],
                "progress_age_s": of["progress_age_s"][at],
                "step": of["step"][at],
                "open_section": None if section is None else of["open_sections"][section],
            }

    def _decisions(self) -> Iterator[Json]:
        subject = hang_subject(self.run_view["run"]["group"])
        return (d for d in self.run_view["decisions"] if d["subject_id"] == subject)


def _ago(age_s: float | None) -> str:
    return "never" if age_s is None else f"{duration(age_s)} ago"
