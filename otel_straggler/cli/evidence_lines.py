"""What stacks and rings say of a hang, in sentences for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from otel_straggler.cli.evidence import Evidence, RingFound
from otel_straggler.cli.report_table import printable
from otel_straggler.model.stacks import StackFrame
from otel_straggler.publish.hang_json import ranks_text
from otel_straggler.receive.stacks_files import RankStacks
from otel_straggler.record.ring_state import OpenRun
from otel_straggler.score.hangs.stacks import Cluster, Clusters, cluster
from otel_straggler.semconv import STEP_SPAN

MOST_LINES = 20
"""Ranks of which each has a line; the rest is counted."""
_LIFE = {"dead": "dead", "alive": "alive", "stopped": "stopped", "elsewhere": "another machine"}


def clusters_of(evidence: Evidence) -> Clusters:
    """By the newest stacks of each rank."""
    main = ((one.rank, one.newest.main) for one in evidence.stacks if one.newest is not None)
    return cluster((rank, thread) for rank, thread in main if thread is not None)


def evidence_lines(evidence: Evidence) -> Iterator[str]:
    """The suspects first."""
    yield from _cluster_lines(clusters_of(evidence))
    yield from _silent_lines(evidence.stacks)
    for ring in evidence.rings[:MOST_LINES]:
        yield ring_line(ring)
    if len(evidence.rings) > MOST_LINES:
        yield f"{len(evidence.rings) - MOST_LINES} more ranks have got further than these."


def evidence_json(evidence: Evidence) -> dict[str, Any]:
    """The same for programs."""
    clusters = clusters_of(evidence)
    return {
        "run": evidence.run,
        "stacks": {
            "dominant": _cluster_json(clusters.dominant),
            "suspects": [_cluster_json(one) for one in clusters.suspects],
            "others": [_cluster_json(one) for one in clusters.others],
            "ranks": [_stacks_json(one) for one in evidence.stacks],
        },
        "rings": [_ring_json(ring) for ring in evidence.rings],
        "evidence_sentences": list(evidence_lines(evidence)),
    }


def _cluster_lines(clusters: Clusters) -> Iterator[str]:
    dominant = clusters.dominant
    if dominant is None:
        for one in clusters.others:
            yield f"{_who(one)} {_is(one)} in {_where(one)}; most others are elsewhere."
        return
    for one in clusters.suspects:
        yield (
            f"{_who(one)} {_is(one)} not where the others are: in {_where(one)}. "
            f"{_who(dominant)} {_is(dominant)} in {_where(dominant)}."
        )
    if not clusters.suspects:
        together = "" if len(dominant.ranks) == 1 else "; nobody is elsewhere"
        yield f"{_who(dominant)} {_is(dominant)} in {_where(dominant)}{together}."


def _silent_lines(stacks: tuple[RankStacks, ...]) -> Iterator[str]:
    silent = [one.rank for one in stacks if one.is_silent]
    if silent:
        yield (
            f"No stacks of {ranks_text(silent)}, although asked for: killed or stopped meanwhile, "
            "or it holds the GIL. That is a finding, not a gap."
        )
    has = {one.rank for one in stacks if one.newest is not None}
    if not has:
        return
    unasked = [one.rank for one in stacks if one.newest is None and not one.is_silent]
    if unasked:
        yield f"No stacks of {ranks_text(unasked)}: not asked, and not stuck by its own clock."
    absent = sorted(set(range(max(one.rank for one in stacks))) - {one.rank for one in stacks})
    if absent:
        yield f"No file of {ranks_text(absent)}: it ended in order, or writes elsewhere."


def ring_line(ring: RingFound) -> str:
    """Where one rank was."""
    state, identity = ring.state, ring.state.identity
    who = f"process {state.pid}" if identity.rank is None else f"rank {identity.rank}"
    if identity.group:
        who = f"{who} of {printable(identity.group)}"
    node = f"{printable(identity.node)}, " if identity.node else ""
    open_run = state.open_section
    if not state.is_recording:
        doing = "not recording when it last wrote"
    elif open_run is None:
        step = state.last_step if state.step is None else state.step
        at = "before its first step" if step is None else f"between two sections, at step {step}"
        doing = f"in no section: {at}, since {_utc(ring, state.progress_ns)}"
    else:
        doing = _open(ring, open_run)
    ended = state.ended_runs[0] if state.ended_runs else None
    before = ""
    if ended is not None:
        length_s = max(ended.end_ns - ended.start_ns, 0) / 1e9
        name = f"step {ended.step}" if ended.name == STEP_SPAN else printable(ended.name)
        of = "" if ended.name == STEP_SPAN else _of(ended.step)
        before = f"; before that {name}{of} ({length_s:.3g} s)"
    return f"{who} ({node}{_LIFE[ring.life]}): {doing}{before}."


def _open(ring: RingFound, run: OpenRun) -> str:
    seconds = (ring.now_ns - run.start_ns) / 1e9
    length = f" for {seconds:.0f} s" if seconds >= 0.5 else ""
    until = "" if ring.life in {"alive", "stopped"} else " when it last wrote"
    since = _utc(ring, run.start_ns)
    return f"in section {printable(run.name)}{_of(run.step)}{length}{until}, since {since}"


def _of(step: int | None) -> str:
    return "" if step is None else f" of step {step}"


def _utc(ring: RingFound, monotonic_ns: int) -> str:
    try:
        at = datetime.fromtimestamp((monotonic_ns + ring.state.wall_offset_ns) / 1e9, timezone.utc)
    except (OverflowError, OSError, ValueError):
        return "a time that makes no sense"
    return f"{at:%H:%M:%S} UTC"


def _who(one: Cluster) -> str:
    text = ranks_text(list(one.ranks))
    return text[0].upper() + text[1:]


def _is(one: Cluster) -> str:
    return "is" if len(one.ranks) == 1 else "are"


def _where(one: Cluster) -> str:
    if one.innermost is None:
        return "no function of Python"
    if one.own is None or one.own == one.innermost:
        return _frame(one.innermost)
    return f"{_frame(one.own)}, there in {_frame(one.innermost)}"


def _frame(frame: StackFrame) -> str:
    file = frame.file.replace("\\", "/").rpartition("/")[2]
    line = f", line {frame.line}" if frame.line else ""
    return f"{printable(frame.function)} ({printable(file)}{line})"


def _cluster_json(one: Cluster | None) -> dict[str, Any] | None:
    if one is None:
        return None
    return {
        "ranks": list(one.ranks),
        "own": _frame_json(one.own),
        "innermost": _frame_json(one.innermost),
    }


def _frame_json(frame: StackFrame | None) -> dict[str, Any] | None:
    if frame is None:
        return None
    return {"function": frame.function, "file": frame.file, "line": frame.line or None}


def _stacks_json(one: RankStacks) -> dict[str, Any]:
    head = one.head
    return {
        "rank": one.rank,
        "node": head.node,
        "file": str(one.path),
        "was_asked": one.was_asked,
        "is_silent": one.is_silent,
        "at": head.at,
        "why": head.why,
        "by": head.by,
        "step": head.step or None,
        "section": head.section or None,
        "since": head.since or None,
    }


def _ring_json(ring: RingFound) -> dict[str, Any]:
    state, identity = ring.state, ring.state.identity
    open_run = state.open_section
    return {
        "file": str(ring.path),
        "rank": identity.rank,
        "group": identity.group,
        "node": identity.node,
        "pid": state.pid,
        "life": ring.life,
        "step": state.step,
        "last_step": state.last_step,
        "open_section": None if open_run is None else _run_json(ring, open_run),
        "open_sections": [_run_json(ring, run) for run in state.open_runs],
        "ended": [
            {"name": run.name, "step": run.step, "seconds": (run.end_ns - run.start_ns) / 1e9}
            for run in state.ended_runs
        ],
        "sentence": ring_line(ring),
    }


def _run_json(ring: RingFound, run: OpenRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "phase": run.phase,
        "step": run.step,
        "open_s": max(ring.now_ns - run.start_ns, 0) / 1e9,
        "is_stepping": run.is_stepping,
    }
