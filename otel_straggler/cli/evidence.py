"""Diagnostics that processes left in a folder: stacks and ring files."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from otel_straggler.cli.text import printable
from otel_straggler.client.diagnostics.processes import index_of_pids, is_stopped, started_ticks
from otel_straggler.client.ring_file import OpenRun, RingFileError, RingState, read_ring_file
from otel_straggler.collector.views.hang_json import ranks_text
from otel_straggler.detect.hangs.stacks import Cluster, Clusters, cluster
from otel_straggler.errors import InputError
from otel_straggler.model.diagnostics import StackFrame
from otel_straggler.recordings.diagnostics_files import RankStacks, read_stacks_folder
from otel_straggler.semconv import STEP_SPAN

Life = Literal["dead", "alive", "stopped", "elsewhere"]
MAX_RINGS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RingFile:
    """The ring file of one process.

    Attributes:
        status: of the process; "elsewhere": it ran on another machine and cannot be checked.
        now_ns: end of its open sections on its clock: now for a living process, else its last
            write.
    """

    path: Path
    state: RingState
    life: Life
    now_ns: int

    @property
    def run(self) -> str:
        return self.state.identity.run_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Diagnostics of one run.

    Attributes:
        run: its id; None if unknown.
        rings: those with the least progress first.
        remarks: one for each file that is damaged.
    """

    run: str | None
    stacks: tuple[RankStacks, ...]
    rings: tuple[RingFile, ...]
    remarks: tuple[str, ...]


def gather(folder: Path, run: str | None = None) -> Evidence:
    """Read a folder.

    Args:
        run: id of a run; by default that of the newest file.

    Raises:
        InputError: the folder cannot be read.
    """
    try:
        stacks, remarks = read_stacks_folder(folder)
        rings, more = _rings(sorted(folder.glob("*.ring"))[:MAX_RINGS])
    except OSError as error:
        raise InputError(f"{folder}: it cannot be read ({error.strerror or error}).") from error
    remarks += more
    runs = _runs(stacks, rings)
    if run is None and runs:
        run = next(iter(runs))
    left = [f"run {name}" for name in runs if name != run]
    if left:
        remarks.append(f"Left out: {', '.join(left[:20])}. Name one with --run.")
    return Evidence(
        run=run,
        stacks=tuple(one for one in stacks if _run_of(one) == run),
        rings=tuple(sorted((r for r in rings if r.run in {run, ""}), key=_progress)),
        remarks=tuple(remarks),
    )


def life_of(state: RingState) -> Life:
    identity = state.identity
    if not identity.boot or identity.boot != index_of_pids():
        return "elsewhere"
    if started_ticks(state.pid) != identity.started:
        return "dead"
    return "stopped" if is_stopped(state.pid) else "alive"


def _rings(paths: Iterable[Path]) -> tuple[list[RingFile], list[str]]:
    result: list[RingFile] = []
    remarks: list[str] = []
    for path in paths:
        try:
            state = read_ring_file(path)
        except RingFileError as error:
            remarks.append(f"{path}: {error}")
            continue
        except OSError as error:
            remarks.append(f"{path}: it cannot be read ({error.strerror or error})")
            continue
        life = life_of(state)
        now_ns = time.monotonic_ns() if life in {"alive", "stopped"} else state.alive_ns
        result.append(RingFile(path=path, state=state, life=life, now_ns=now_ns))
    return result, remarks


def _runs(stacks: Iterable[RankStacks], rings: Iterable[RingFile]) -> list[str]:
    """Run ids, newest first."""
    written = {**{one.path: _run_of(one) for one in stacks}, **{r.path: r.run for r in rings}}
    newest: dict[str, float] = {}
    for path, run in written.items():
        if run or path.suffix != ".ring":
            newest[run] = max(newest.get(run, 0.0), _written_at_s(path))
    return sorted(newest, key=lambda run: -newest[run])


def _written_at_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _run_of(one: RankStacks) -> str:
    return one.head.run


def _progress(ring: RingFile) -> tuple[int, int, int]:
    last_step = ring.state.last_step
    rank = ring.state.identity.rank
    return (
        -1 if last_step is None else last_step,
        ring.state.progress_ns + ring.state.wall_offset_ns,
        -1 if rank is None else rank,
    )


MAX_LINES = 20
"""Ranks that get a line each; the rest is counted."""
_LIFE = {"dead": "dead", "alive": "alive", "stopped": "stopped", "elsewhere": "another machine"}


def clusters_of(evidence: Evidence) -> Clusters:
    """Cluster ranks by their newest stacks."""
    main = ((one.rank, one.newest.main) for one in evidence.stacks if one.newest is not None)
    return cluster((rank, thread) for rank, thread in main if thread is not None)


def evidence_lines(evidence: Evidence) -> Iterator[str]:
    """Text for people, suspects first."""
    yield from _cluster_lines(clusters_of(evidence))
    yield from _silent_lines(evidence.stacks)
    for ring in evidence.rings[:MAX_LINES]:
        yield ring_line(ring)
    if len(evidence.rings) > MAX_LINES:
        yield f"{len(evidence.rings) - MAX_LINES} more ranks have got further than these."


def evidence_json(evidence: Evidence) -> dict[str, Any]:
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


def ring_line(ring: RingFile) -> str:
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


def _open(ring: RingFile, run: OpenRun) -> str:
    seconds = (ring.now_ns - run.start_ns) / 1e9
    length = f" for {seconds:.0f} s" if seconds >= 0.5 else ""
    until = "" if ring.life in {"alive", "stopped"} else " when it last wrote"
    since = _utc(ring, run.start_ns)
    return f"in section {printable(run.name)}{_of(run.step)}{length}{until}, since {since}"


def _of(step: int | None) -> str:
    return "" if step is None else f" of step {step}"


def _utc(ring: RingFile, monotonic_ns: int) -> str:
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


def _ring_json(ring: RingFile) -> dict[str, Any]:
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


def _run_json(ring: RingFile, run: OpenRun) -> dict[str, Any]:
    return {
        "name": run.name,
        "phase": run.phase,
        "step": run.step,
        "open_s": max(ring.now_ns - run.start_ns, 0) / 1e9,
        "is_stepping": run.is_stepping,
    }
