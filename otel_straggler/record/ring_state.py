"""What a process is in, or was in when it died, as its ring tells."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRun:
    """A section that has begun and not ended. Times are ``CLOCK_MONOTONIC`` of its machine.

    Attributes:
        name, kind, phase: empty where they are not told.
        step: None outside of one.
        tid: of its thread, in the system.
        depth: how many sections are open in that thread; from 33 on, the 32nd is told.
        is_stepping: its thread is the one that counts steps.
    """

    name: str
    kind: str
    phase: str
    step: int | None
    start_ns: int
    tid: int
    depth: int
    is_stepping: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """A section, or a step, that has ended. Times are ``CLOCK_MONOTONIC``.

    Attributes:
        name: of a step: ``step``.
        step: None outside of one.
    """

    name: str
    step: int | None
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RingIdentity:
    """Who has written the file, by its own word.

    Attributes:
        run_id, group, rank, node: empty and None if not told.
        started: of the process, in ticks since the boot; empty if not told.
        boot: where its clock ran and its number is known: boot and container; empty if not told.
    """

    run_id: str = ""
    group: str = ""
    rank: int | None = None
    node: str = ""
    started: str = ""
    boot: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingState:
    """What a process has left behind, or is doing now.

    Attributes:
        pid: as the process knows itself.
        session_id: of the telemetry that it sends.
        is_recording: between ``configure()`` and ``shutdown()``.
        step: the open step; last_step: the last that has begun. None: none.
        progress_ns: when a step last began, or a section ended in the thread that counts steps.
        wall_offset_ns: Unix time minus ``CLOCK_MONOTONIC`` when the process began to record.
        pending, dropped: ended runs that nobody has taken, and that were lost.
        open_runs: the innermost of each thread, the longest open first.
        alive_ns: when it last did anything that is told here.
        ended_runs: the last that have ended, newest first.
        identity: who it is; empty if that is not told.
    """

    pid: int
    session_id: str
    is_recording: bool
    step: int | None
    last_step: int | None
    phase: str
    progress_ns: int
    wall_offset_ns: int
    pending: int
    dropped: int
    open_runs: tuple[OpenRun, ...]
    alive_ns: int = 0
    ended_runs: tuple[EndedRun, ...] = ()
    identity: RingIdentity = RingIdentity()

    @property
    def open_section(self) -> OpenRun | None:
        """By the rules of a heartbeat: of the stepping thread; without one of the main thread,
        else the one that has been open for longest."""
        stepping = [run for run in self.open_runs if run.is_stepping]
        if stepping or self.last_step is not None:
            return stepping[0] if stepping else None
        main = [run for run in self.open_runs if run.tid == self.pid]
        return next(iter(main or self.open_runs), None)
