"""The answer where a run is stuck or lost."""

from __future__ import annotations

import math
from typing import Final

from otel_straggler.collector.views.answer_type import (
    Json,
    Tone,
    answer,
    as_sentence,
    command,
    cost,
    duration,
)
from otel_straggler.collector.views.first_failure import How, Standstill, standstill_of
from otel_straggler.collector.views.hang_json import ranks_text, sentence
from otel_straggler.collector.views.numbers import seconds
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.states import HangKind

HANG_TEXTS: Final[dict[HangKind, str]] = {
    "lost": "no sign of life",
    "left_early": "ended while others still work",
    "never_joined": "does not join the others",
    "joined_but_stuck": "all wait in the same place",
}
HANG_ADVICE: Final[dict[HangKind, tuple[str, ...]]] = {
    "lost": (
        "Look at its host: are it, the process and any GPU still there (dmesg, nvidia-smi)?",
        "Restart the run without that host, or let the launcher restart the rank.",
    ),
    "left_early": (
        "Read the log of the rank that has ended: did its data run out, or another branch end it?",
        "Restart the run once that is known.",
    ),
    "never_joined": (
        "Take its stack, with the command below or py-spy dump on its host: what does it wait in?",
        "Restart the run once that is known.",
    ),
    "joined_but_stuck": (
        "Look at the network, the storage that all ranks share, and GPUs (XID errors).",
        "Read the flight records of the ranks: otel-straggler hang DIR.",
    ),
}
OTHER_ADVICE: Final[dict[How, tuple[str, ...]]] = {
    "goes_on": (
        "It is probably only cut off from this collector: run otel-straggler doctor on its host.",
    ),
    "unheard": (
        "Ask the scheduler whether the job still runs.",
        "If it does, run otel-straggler doctor on one of its hosts: nothing of it arrives here.",
    ),
}
"""Where it is not known that all wait."""


def hang_answer(view: WorldView, result: HangStatus) -> Json:
    """Whom the run waits for, since when, what it costs, what to do."""
    tone: Tone = "watch" if view.is_acknowledged else "bad"
    return answer(view, tone, "hang", hang_headline(view, result), **hang_facts(view, result))


def hang_facts(view: WorldView, result: HangStatus) -> Json:
    """The fields of an answer that a hang fills, but for tone, kind and headline."""
    kind = None if result.blame is None else result.blame.kind
    culprits = _culprits(result)
    stands = standstill_of(view)
    only = culprits[0] if len(culprits) == 1 else None
    reported: Json = {
        "sentence": _sentence(view, result, stands),
        "scope": "rank" if only is not None else "run",
        "rank": only,
        "node": None if only is None else node_of(view, only),
        "section": None if only is None else _open_section(view, only),
        "since_step": _step(view, culprits),
        "since_s": None if stands is None else seconds(stands.since_s),
        "cause": kind,
        "cause_text": _cause_text(result),
        "cost": _cost(view, stands),
        "evidence": "heartbeats",
        "is_localised": bool(culprits),
        "advice": _advice(kind, stands),
        "commands": _commands(view, kind, culprits),
    }
    return reported


def _cause_text(result: HangStatus) -> str | None:
    if result.blame is None:
        return None
    is_alone = result.blame.kind == "joined_but_stuck" and len(result.ranks) == 1
    return "its only rank does not get on" if is_alone else HANG_TEXTS[result.blame.kind]


def hang_headline(view: WorldView, result: HangStatus, *, is_over: bool = False) -> str:
    """Who keeps the run waiting, or kept it when it was last heard of."""
    kind = None if result.blame is None else result.blame.kind
    culprits = _culprits(result)
    if result.state == "lost":
        return "The whole run was silent" if is_over else "The whole run is silent"
    if kind is None or (kind == "joined_but_stuck" and len(result.ranks) == 1):
        return "The run made no progress" if is_over else "The run makes no progress"
    if kind == "joined_but_stuck":
        if is_over:
            return "All ranks waited, and none got on"
        return "All ranks wait, and none gets on"
    who = ranks_text(culprits)
    who = who[0].upper() + who[1:]
    is_one = len(culprits) == 1
    node = node_of(view, culprits[0]) if is_one else None
    where = f" on {node}" if node else ""
    is_, does = ("is", "does") if is_one else ("are", "do")
    if is_over:
        is_, does = "was" if is_one else "were", "did"
    return {
        "lost": f"{who}{where} {is_} silent",
        "left_early": f"{who}{where} ended before the others",
        "never_joined": f"{who}{where} {does} not join the others",
    }[kind]


def _culprits(result: HangStatus) -> list[int]:
    culprits: list[int] = (
        [] if result.blame is None else result.ranks[result.blame.culprits].tolist()
    )
    return culprits


def _cost(view: WorldView, stands: Standstill | None) -> Json:
    """All ranks of the run while it stands still; what that has cost is in the total."""
    is_idle = stands is not None and stands.how == "idle"
    return cost(view, 3600.0 * stands.n_idle if stands is not None and is_idle else None)


def _sentence(view: WorldView, result: HangStatus, stands: Standstill | None) -> str:
    parts = [sentence(result) or as_sentence(hang_headline(view, result))]
    if stands is not None:
        parts.append(_standing(view, stands))
    if view.is_acknowledged:
        parts.append("Somebody has taken note of it: nobody is called.")
    return " ".join(parts)


def _standing(view: WorldView, stands: Standstill) -> str:
    """For how long, and how many are idle; both counted from the last progress."""
    since_s = max(view.now_s - stands.since_s, 0.0)
    lasting = duration(since_s) if math.isfinite(since_s) else "an unknown time"
    if stands.how == "goes_on":
        return f"So it has been for {lasting}, and the others go on without it."
    if stands.how == "unheard":
        return f"So it has been for {lasting}: it is dead, or cut off from this collector."
    if stands.n_idle > 1:
        who = "GPUs have" if view.on_gpu else "ranks have"
        return f"{stands.n_idle:,} {who} stood idle for {lasting}."
    return f"Nothing has got on for {lasting}."


def _advice(kind: HangKind | None, stands: Standstill | None) -> list[str]:
    if stands is not None and stands.how in OTHER_ADVICE:
        return list(OTHER_ADVICE[stands.how])
    return list(HANG_ADVICE[kind or "lost"])


def _commands(view: WorldView, kind: HangKind | None, culprits: list[int]) -> list[str]:
    if not view.is_live:
        return []
    group = ("--group", view.group) if view.group else ()
    lines = []
    if kind in ("never_joined", "joined_but_stuck", "left_early"):
        ranks = [word for rank in culprits[:4] for word in ("--rank", str(rank))]
        if kind != "never_joined":
            ranks = []
        lines.append(command("hang", "ask", "dump_stacks", *ranks, *group, view=view))
    subject = f"hang:{view.group}" if view.group else "hang"
    lines.append(command("verdict", "dismiss", subject, "--reason", "WHY", view=view))
    return lines


def node_of(view: WorldView, rank: int) -> str | None:
    """Where a rank is; None if nobody told."""
    for part in (view.heartbeats, view.table):
        if part is not None:
            for at in (part.ranks == rank).nonzero()[0].tolist():
                if part.nodes[at]:
                    return str(part.nodes[at])
    return None


def _open_section(view: WorldView, rank: int) -> str | None:
    if view.heartbeats is None:
        return None
    indexes = (view.heartbeats.ranks == rank).nonzero()[0].tolist()
    return str(view.heartbeats.open_section[indexes[0]]) or None if indexes else None


def _step(view: WorldView, culprits: list[int]) -> int | None:
    """How far those came whom the run waits for."""
    if view.heartbeats is None or not culprits:
        return None
    wanted = set(culprits)
    steps = [
        step
        for rank, step in zip(
            view.heartbeats.ranks.tolist(), view.heartbeats.step.tolist(), strict=True
        )
        if rank in wanted and step >= 0
    ]
    return min(steps) if steps else None
