"""What processes have left in a folder: their stacks, and the files of their rings."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from otel_straggler.errors import InputError
from otel_straggler.receive.stacks_files import RankStacks, read_stacks_folder
from otel_straggler.record.evidence.processes import is_stopped, started_ticks
from otel_straggler.record.evidence.ring import place_of_pids
from otel_straggler.record.ring_file import RingFileError, read_ring_file
from otel_straggler.record.ring_state import RingState

Life = Literal["dead", "alive", "stopped", "elsewhere"]
MOST_RINGS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RingFound:
    """The file of one process.

    Attributes:
        life: of the process; "elsewhere": it ran on another machine, where nobody looked.
        now_ns: until when its open sections have lasted, on its clock: for a living one now, else
            when it last wrote.
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
    """All that was found of one run.

    Attributes:
        run: whose; None if nobody says.
        rings: those with the least progress first.
        remarks: a sentence for every file that is damaged.
    """

    run: str | None
    stacks: tuple[RankStacks, ...]
    rings: tuple[RingFound, ...]
    remarks: tuple[str, ...]


def gather(folder: Path, run: str | None = None) -> Evidence:
    """Read what is there.

    Args:
        run: whose; the one of the newest file if left out.

    Raises:
        InputError: the folder cannot be read.
    """
    try:
        stacks, remarks = read_stacks_folder(folder)
        rings, more = _rings(sorted(folder.glob("*.ring"))[:MOST_RINGS])
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
    """Whether the process that wrote a ring lives."""
    identity = state.identity
    if not identity.boot or identity.boot != place_of_pids():
        return "elsewhere"
    if started_ticks(state.pid) != identity.started:
        return "dead"
    return "stopped" if is_stopped(state.pid) else "alive"


def _rings(paths: Iterable[Path]) -> tuple[list[RingFound], list[str]]:
    found: list[RingFound] = []
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
        found.append(RingFound(path=path, state=state, life=life, now_ns=now_ns))
    return found, remarks


def _runs(stacks: Iterable[RankStacks], rings: Iterable[RingFound]) -> list[str]:
    """Newest first."""
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


def _progress(ring: RingFound) -> tuple[int, int, int]:
    last_step = ring.state.last_step
    rank = ring.state.identity.rank
    return (
        -1 if last_step is None else last_step,
        ring.state.progress_ns + ring.state.wall_offset_ns,
        -1 if rank is None else rank,
    )
