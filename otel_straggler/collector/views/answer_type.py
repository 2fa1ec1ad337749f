"""The shape of an answer: every field is always there, null where it does not apply."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, Final, Literal, TypeAlias

from otel_straggler.collector.views.numbers import number
from otel_straggler.collector.views.ranks import reported, row_of
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.detect.verdicts.losses import HOUR_S
from otel_straggler.model.verdict import WorldSummary

Json: TypeAlias = dict[str, Any]
Tone = Literal["good", "watch", "bad", "unknown", "ended"]
AnswerKind = Literal[
    "straggler", "hang", "imbalance", "uniform", "healthy", "waiting", "ended", "no_data"
]
TONES: Final[tuple[Tone, ...]] = ("bad", "watch", "unknown", "good", "ended")
"""In the order of the list of runs."""
ON_ITS_HOST: Final = "otel-straggler hang stacks"
"""A suggested command that asks no collector: it runs on the host of a rank."""
_FIELDS: Final = (
    "tone", "kind", "headline", "sentence", "scope", "rank", "node", "section", "since_step",
    "since_s", "cause", "cause_text", "cost", "peers", "evidence", "confidence", "is_localised",
    "advice", "commands",
)  # fmt: skip


def answer(view: WorldView, tone: Tone, kind: AnswerKind, headline: str, **more: Any) -> Json:
    """An answer; ``more`` fills other fields."""
    fields: Json = dict.fromkeys(_FIELDS)
    fields |= {"tone": tone, "kind": kind, "headline": headline, "sentence": f"{headline}."}
    fields |= {"cost": cost(view, None), "advice": [], "commands": []}
    unknown = more.keys() - fields.keys()
    assert not unknown, unknown
    return fields | more


def cost(view: WorldView, per_hour: float | None) -> Json:
    """Seconds of all ranks that are lost, per hour now and since the start."""
    return {
        "gpu_seconds_lost_per_hour": number(per_hour),
        "gpu_seconds_lost": None if view.world is None else number(view.world.gpu_seconds_lost),
    }


def run_cost_per_hour(view: WorldView, world: WorldSummary) -> float:
    """Seconds of all ranks that the run loses now, per hour; NaN if unknown."""
    return world.waste * HOUR_S * (world.n_ranks or max(view.expected, 1))


def command(*text: str, view: WorldView) -> str:
    return shlex.join(["otel-straggler", *text, "--run", view.run_id])


def stacks_commands(view: WorldView, ranks: Sequence[int], group: Sequence[str]) -> list[str]:
    """How to get stacks of ranks (none named: of all). On their hosts nothing has to be enabled
    before; through the collector, commands have to be."""
    known = [(rank, pid) for rank in ranks if (pid := pid_of(view, rank))]
    lines = [
        f"{ON_ITS_HOST} --pid {pid}  # on {shlex.quote(node)}"
        if (node := reported(view, rank, "nodes"))
        else f"{ON_ITS_HOST} --pid {pid}"
        for rank, pid in known
    ] or [f"{ON_ITS_HOST} --pid PID"]
    if view.takes_commands:
        named = [word for rank in ranks for word in ("--rank", str(rank))]
        lines.append(command("hang", "ask", "dump_stacks", *named, *group, view=view))
    return lines


def pid_of(view: WorldView, rank: int) -> int | None:
    """The process of a rank, where it has reported it and is not over."""
    heartbeats, row = view.heartbeats, row_of(view.heartbeats, rank)
    if heartbeats is None or row is None or heartbeats.pids is None or heartbeats.outcomes[row]:
        return None
    return heartbeats.pids[row] or None


def as_sentence(text: str) -> str:
    """Capitalize and add a full stop."""
    text = text.strip()
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")


def lower(text: str) -> str:
    return text[0].lower() + text[1:]
