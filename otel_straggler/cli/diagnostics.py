"""Diagnostics that ranks left in a folder: flight records, stacks, ring files; as text and JSON."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from otel_straggler.cli.text import absent_ranks, clock, printable
from otel_straggler.client.diagnostics.processes import is_stopped, pid_scope, started_ticks
from otel_straggler.client.ring_file import OpenRun, RingFileError, RingState, read_ring_file
from otel_straggler.detect.hangs.stacks import Cluster, Clusters, cluster
from otel_straggler.errors import InputError
from otel_straggler.model.diagnostics import StackFrame
from otel_straggler.model.rank_names import ranks_text
from otel_straggler.recordings.diagnostics_files import RankStacks, read_stacks_folder
from otel_straggler.semconv import STEP_SPAN

Json = dict[str, Any]
Status = Literal["dead", "alive", "stopped", "elsewhere"]
MAX_RINGS = 10_000
MAX_LINES = 20
"""Ranks that get a line each; the rest is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingFile:
    """The ring file of one process.

    Attributes:
        status: of the process; "elsewhere": it ran on another machine and cannot be checked.
        now_ns: end of its open sections on its clock: now if it is alive, else its last write.
    """

    path: Path
    state: RingState
    status: Status
    now_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostics:
    """Stacks and rings of one run.

    Attributes:
        run: its id; None if unknown.
        rings: those with the least progress first.
        remarks: one for each file that is damaged.
    """

    run: str | None
    stacks: tuple[RankStacks, ...]
    rings: tuple[RingFile, ...]
    remarks: tuple[str, ...]


def read_diagnostics(folder: Path, run: str | None = None) -> Diagnostics:
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
        run = runs[0]
    left = [f"run {name}" for name in runs if name != run]
    if left:
        remarks.append(f"Left out: {', '.join(left[:20])}. Name one with --run.")
    of_run = [ring for ring in rings if ring.state.identity.run_id in {run, ""}]
    return Diagnostics(
        run=run,
        stacks=tuple(each for each in stacks if each.head.run == run),
        rings=tuple(sorted(of_run, key=_progress)),
        remarks=tuple(remarks),
    )


def _rings(paths: Iterable[Path]) -> tuple[list[RingFile], list[str]]:
    result: list[RingFile] = []
    remarks: list[str] = []
    for path in paths:
        try:
            state = read_ring_file(path)
        except RingFileError as error:
            remarks.append(f"{path}: {error}")
        except OSError as error:
            remarks.append(f"{path}: it cannot be read ({error.strerror or error})")
        else:
            status = _status(state)
            now_ns = time.monotonic_ns() if status in {"alive", "stopped"} else state.alive_ns
            result.append(RingFile(path=path, state=state, status=status, now_ns=now_ns))
    return result, remarks


def _status(state: RingState) -> Status:
    identity = state.identity
    if not identity.boot or identity.boot != pid_scope():
        return "elsewhere"
    if started_ticks(state.pid) != identity.started:
        return "dead"
    return "stopped" if is_stopped(state.pid) else "alive"


def _runs(stacks: Iterable[RankStacks], rings: Iterable[RingFile]) -> list[str]:
    """Run ids, newest first."""
    files = {each.path: each.head.run for each in stacks}
    files |= {r.path: r.state.identity.run_id for r in rings if r.state.identity.run_id}
    newest: dict[str, float] = {}
    for path, run in files.items():
        try:
            written_at_s = path.stat().st_mtime
        except OSError:
            written_at_s = 0.0
        newest[run] = max(newest.get(run, 0.0), written_at_s)
    return sorted(newest, key=lambda run: -newest[run])


def _progress(ring: RingFile) -> tuple[int, int, int]:
    state, rank = ring.state, ring.state.identity.rank
    progress_ns = state.progress_ns + state.wall_offset_ns
    last_step = -1 if state.last_step is None else state.last_step
    return last_step, progress_ns, -1 if rank is None else rank


# --- stacks and rings ----------------------------------------------------------------------------


def diagnostics_lines(diagnostics: Diagnostics) -> Iterator[str]:
    """Text for people, suspects first."""
    yield from _cluster_lines(_clusters(diagnostics))
    yield from _silent_lines(diagnostics.stacks)
    yield from map(_ring_line, diagnostics.rings[:MAX_LINES])
    if len(diagnostics.rings) > MAX_LINES:
        yield f"{len(diagnostics.rings) - MAX_LINES} more ranks have got further than these."


def diagnostics_json(diagnostics: Diagnostics) -> Json:
    clusters = _clusters(diagnostics)
    dominant = clusters.dominant
    return {
        "run": diagnostics.run,
        "stacks": {
            "dominant": None if dominant is None else _cluster_json(dominant),
            "suspects": list(map(_cluster_json, clusters.suspects)),
            "others": list(map(_cluster_json, clusters.others)),
            "ranks": list(map(_stacks_json, diagnostics.stacks)),
        },
        "rings": list(map(_ring_json, diagnostics.rings)),
        "evidence_sentences": list(diagnostics_lines(diagnostics)),
    }


def _clusters(diagnostics: Diagnostics) -> Clusters:
    """Ranks by their newest stacks."""
    main = ((one.rank, one.newest.main) for one in diagnostics.stacks if one.newest is not None)
    return cluster((rank, thread) for rank, thread in main if thread is not None)


def _cluster_lines(clusters: Clusters) -> Iterator[str]:
    dominant = clusters.dominant
    if dominant is None:
        for one in clusters.others:
            yield f"{_who(one)} in {_where(one)}; most others are elsewhere."
        return
    for one in clusters.suspects:
        yield (
            f"{_who(one)} not where the others are: in {_where(one)}. "
            f"{_who(dominant)} in {_where(dominant)}."
        )
    if not clusters.suspects:
        together = "" if len(dominant.ranks) == 1 else "; nobody is elsewhere"
        yield f"{_who(dominant)} in {_where(dominant)}{together}."


def _silent_lines(stacks: tuple[RankStacks, ...]) -> Iterator[str]:
    silent = [one.rank for one in stacks if one.is_silent]
    if silent:
        yield (
            f"No stacks of {ranks_text(silent)}, although asked for: killed or stopped meanwhile, "
            "or it holds the GIL. That is a finding, not a gap."
        )
    if all(one.newest is None for one in stacks):
        return
    unasked = [one.rank for one in stacks if one.newest is None and not one.is_silent]
    if unasked:
        yield f"No stacks of {ranks_text(unasked)}: not asked, and not stuck by its own clock."
    absent, more = absent_ranks(one.rank for one in stacks)
    if absent:
        tail = f" and {more:,} more" if more else ""
        yield f"No file of {ranks_text(absent)}{tail}: it ended in order, or writes elsewhere."


def _ring_line(ring: RingFile) -> str:
    state, identity = ring.state, ring.state.identity
    who = f"process {state.pid}" if identity.rank is None else f"rank {identity.rank}"
    group = f" of {printable(identity.group)}" if identity.group else ""
    node = f"{printable(identity.node)}, " if identity.node else ""
    status = "another machine" if ring.status == "elsewhere" else ring.status
    before = ""
    if state.ended_runs:
        ended = state.ended_runs[0]
        is_step = ended.name == STEP_SPAN
        name = f"step {ended.step}" if is_step else printable(ended.name) + _of(ended.step)
        length_s = max(ended.end_ns - ended.start_ns, 0) / 1e9
        before = f"; before that {name} ({length_s:.3g} s)"
    return f"{who}{group} ({node}{status}): {_activity(ring)}{before}."


def _activity(ring: RingFile) -> str:
    state, execution = ring.state, ring.state.open_section
    if not state.is_recording:
        return "not recording when it last wrote"
    if execution is None:
        step = state.last_step if state.step is None else state.step
        at = "before its first step" if step is None else f"between two sections, at step {step}"
        return f"in no section: {at}, since {_time(ring, state.progress_ns)}"
    seconds = (ring.now_ns - execution.start_ns) / 1e9
    length = f" for {seconds:.0f} s" if seconds >= 0.5 else ""
    until = "" if ring.status in {"alive", "stopped"} else " when it last wrote"
    section = printable(execution.name) + _of(execution.step)
    return f"in section {section}{length}{until}, since {_time(ring, execution.start_ns)}"


def _of(step: int | None) -> str:
    return "" if step is None else f" of step {step}"


def _time(ring: RingFile, monotonic_ns: int) -> str:
    text = clock((monotonic_ns + ring.state.wall_offset_ns) / 1e9)
    return text.partition(" ")[2] if text.endswith("UTC") else "a time that makes no sense"


def _who(one: Cluster) -> str:
    text = ranks_text(list(one.ranks))
    return f"{text[0].upper()}{text[1:]} {'is' if len(one.ranks) == 1 else 'are'}"


def _where(one: Cluster) -> str:
    if one.own is None or one.own == one.innermost:
        return frame_text(one.innermost)
    return f"{frame_text(one.own)}, there in {frame_text(one.innermost)}"


def frame_text(frame: StackFrame | None) -> str:
    """Function, file and line."""
    if frame is None:
        return "no function of Python"
    file = frame.file.replace("\\", "/").rpartition("/")[2]
    line = f", line {frame.line}" if frame.line else ""
    return f"{printable(frame.function)} ({printable(file)}{line})"


def _cluster_json(one: Cluster) -> Json:
    frames = {"own": one.own, "innermost": one.innermost}
    return {
        "ranks": list(one.ranks),
        **{
            name: None
            if frame is None
            else {"function": frame.function, "file": frame.file, "line": frame.line or None}
            for name, frame in frames.items()
        },
    }


def _stacks_json(one: RankStacks) -> Json:
    head = one.head
    return {
        "rank": one.rank,
        "node": head.node,
        "file": str(one.path),
        "was_asked": one.was_asked,
        "is_silent": one.is_silent,
        **{name: getattr(head, name) for name in ("at", "why", "by")},
        **{name: getattr(head, name) or None for name in ("step", "section", "since")},
    }


def _ring_json(ring: RingFile) -> Json:
    state, identity = ring.state, ring.state.identity
    return {
        "file": str(ring.path),
        "rank": identity.rank,
        "group": identity.group,
        "node": identity.node,
        "pid": state.pid,
        "status": ring.status,
        "step": state.step,
        "last_step": state.last_step,
        "open_section": state.open_section and _execution_json(ring, state.open_section),
        "open_sections": [_execution_json(ring, each) for each in state.open_runs],
        "ended": [
            {"name": run.name, "step": run.step, "seconds": (run.end_ns - run.start_ns) / 1e9}
            for run in state.ended_runs
        ],
        "sentence": _ring_line(ring),
    }


def _execution_json(ring: RingFile, execution: OpenRun) -> Json:
    names = ("name", "phase", "step", "is_stepping")
    open_s = max(ring.now_ns - execution.start_ns, 0) / 1e9
    return {**{name: getattr(execution, name) for name in names}, "open_s": open_s}
