"""The answer about a stuck or lost run."""

from __future__ import annotations

import math
from typing import Final

from otel_straggler.collector.views.answer_type import (
    Json,
    as_sentence,
    command,
    cost,
    stacks_commands,
)
from otel_straggler.collector.views.hang_json import sentence
from otel_straggler.collector.views.numbers import duration, seconds
from otel_straggler.collector.views.ranks import reported, row_of
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.detect.hangs.detector import HangStatus
from otel_straggler.detect.hangs.episodes import How, Standstill
from otel_straggler.detect.hangs.states import HangKind
from otel_straggler.model.rank_names import ranks_text

_CAUSES: Final[dict[HangKind, str]] = {
    "lost": "no heartbeats",
    "left_early": "exited while others are still working",
    "never_joined": "does not join the others",
    "joined_but_stuck": "all ranks wait in the same place",
}
_ADVICE: Final[dict[HangKind, tuple[str, ...]]] = {
    "lost": (
        "Check its host: are the host, the process, and any GPU still there (dmesg, nvidia-smi)?",
        "Restart the run without that host, or let the launcher restart the rank.",
    ),
    "left_early": (
        "Read the log of the rank that exited: did it run out of data, or take another code path?",
        "Restart the run once the reason is known.",
    ),
    "never_joined": (
        "Dump its stack on its host (needs py-spy): what is it waiting for?",
        "Restart the run once the reason is known.",
    ),
    "joined_but_stuck": (
        "Check the network, the storage that all ranks share, and the GPUs (XID errors).",
        "Read the flight records of the ranks: otel-straggler hang DIR.",
    ),
}
OTHER_ADVICE: Final[dict[How, tuple[str, ...]]] = {
    "goes_on": (
        "It is probably only cut off from this collector: run otel-straggler doctor on its host.",
    ),
    "unheard": (
        "Ask the scheduler whether the job is still running.",
        "If it is, run otel-straggler doctor on one of its hosts: its data does not arrive here.",
    ),
}
"""Where not all ranks are known to wait."""


def hang_facts(view: WorldView, hang: HangStatus) -> Json:
    """The fields of an answer about a hang, except tone, kind, and headline."""
    kind = None if hang.blame is None else hang.blame.kind
    culprits = _culprits(hang)
    stands = view.standstill
    only = culprits[0] if len(culprits) == 1 else None
    is_idle = stands is not None and stands.how == "idle"
    return {
        "sentence": _sentence(view, hang),
        "scope": "rank" if only is not None else "run",
        "rank": only,
        "node": None if only is None else reported(view, only, "nodes"),
        "section": None if only is None else _open_section(view, only),
        "since_step": _step(view, culprits),
        "since_s": None if stands is None else seconds(stands.since_s),
        "cause": kind,
        "cause_text": _cause_text(hang),
        "cost": cost(view, 3600.0 * stands.n_idle if stands is not None and is_idle else None),
        "evidence": _evidence(hang),
        "is_localised": bool(culprits),
        "advice": list(OTHER_ADVICE.get(stands.how, ()) if stands is not None else ())
        or list(_ADVICE[kind or "lost"]),
        "commands": _commands(view, kind, culprits),
    }


def _evidence(hang: HangStatus) -> str:
    is_recorded = hang.findings is not None and hang.findings.has_any
    return "heartbeats and flight records" if is_recorded else "heartbeats"


def _is_alone(hang: HangStatus) -> bool:
    """True if the only rank of a world is stuck: no other rank waits."""
    blame = hang.blame
    return blame is not None and blame.kind == "joined_but_stuck" and len(hang.ranks) == 1


def _cause_text(hang: HangStatus) -> str | None:
    if hang.blame is None:
        return None
    return "its only rank makes no progress" if _is_alone(hang) else _CAUSES[hang.blame.kind]


def hang_headline(view: WorldView, hang: HangStatus, *, is_over: bool = False) -> str:
    """Who keeps the run waiting, or kept it when it last reported."""
    culprits = _culprits(hang)
    who = _who(view, culprits)
    if hang.state == "lost" and 0 < len(culprits) < len(hang.ranks):
        return f"{who} died silently; the other ranks have ended"
    if hang.state == "lost":
        return "The whole run was silent" if is_over else "The whole run is silent"
    if hang.blame is None or _is_alone(hang):
        return "The run made no progress" if is_over else "The run makes no progress"
    kind = hang.blame.kind
    if kind == "joined_but_stuck":
        if is_over:
            return "All ranks waited, and none made progress"
        return "All ranks wait, and none makes progress"
    is_one = len(culprits) == 1
    is_, does = ("is", "does") if is_one else ("are", "do")
    if is_over:
        is_, does = "was" if is_one else "were", "did"
    return {
        "lost": f"{who} {is_} silent",
        "left_early": f"{who} exited before the others",
        "never_joined": f"{who} {does} not join the others",
    }[kind]


def _who(view: WorldView, culprits: list[int]) -> str:
    node = reported(view, culprits[0], "nodes") if len(culprits) == 1 else None
    return ranks_text(culprits).capitalize() + (f" on {node}" if node else "")


def _culprits(hang: HangStatus) -> list[int]:
    culprits: list[int] = [] if hang.blame is None else hang.ranks[hang.blame.culprits].tolist()
    return culprits


def _sentence(view: WorldView, hang: HangStatus) -> str:
    parts = [sentence(hang) or as_sentence(hang_headline(view, hang))]
    if view.standstill is not None:
        parts.append(_standstill_text(view, view.standstill))
    if view.is_acknowledged:
        parts.append("It has been acknowledged: nobody will be notified.")
    return " ".join(parts)


def _standstill_text(view: WorldView, stands: Standstill) -> str:
    since_s = max(view.now_s - stands.since_s, 0.0)
    lasting = duration(since_s) if math.isfinite(since_s) else "an unknown time"
    if stands.how == "goes_on":
        return f"This has lasted {lasting}; the other ranks keep training."
    if stands.how == "unheard":
        return f"This has lasted {lasting}: the run is dead, or cut off from this collector."
    if stands.n_idle > 1:
        who = "GPUs have" if view.on_gpu else "ranks have"
        return f"{stands.n_idle:,} {who} been idle for {lasting}."
    return f"No progress for {lasting}."


def _commands(view: WorldView, kind: HangKind | None, culprits: list[int]) -> list[str]:
    if not view.is_live:
        return []
    group = ("--group", view.group) if view.group else ()
    lines = []
    if kind in ("never_joined", "joined_but_stuck", "left_early"):
        lines += stacks_commands(view, culprits[:4] if kind == "never_joined" else [], group)
    subject = f"hang:{view.group}" if view.group else "hang"
    lines.append(command("verdict", "dismiss", subject, "--reason", "WHY", view=view))
    return lines


def _open_section(view: WorldView, rank: int) -> str | None:
    row = row_of(view.heartbeats, rank)
    if view.heartbeats is None or row is None:
        return None
    return view.heartbeats.open_section[row] or None


def _step(view: WorldView, culprits: list[int]) -> int | None:
    if view.heartbeats is None:
        return None
    steps = zip(view.heartbeats.ranks.tolist(), view.heartbeats.step.tolist(), strict=True)
    wanted = set(culprits)
    return min((step for rank, step in steps if rank in wanted and step >= 0), default=None)
