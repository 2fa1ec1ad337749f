"""Runs of sections in both forms at once: tuples of the recorder in Python, records of the ring."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from otel_straggler.client.python_recorder import PythonTimer
from otel_straggler.client.recorder import Context, Frame, Record, RecordingSession, WorkSize

NO_STEP = -(2**63)
NO_SECTION = 2**32 - 1
FAILED, STEP_SPAN = 1, 2
TIMED, TIMED_BY_EVENTS, WAITED = 2, 4, 5
_RECORD = struct.Struct("<QQQqqqqqIIIIIIQqqqII")
assert _RECORD.size == 128


@dataclass(slots=True)
class Gpu:
    """A GPU slot."""

    kernel_time_ns: int = 0
    busy_time_ns: int = 0
    nccl_time_ns: int = 0
    kernel_count: int = 0
    state: int = 0


@dataclass(slots=True)
class MadeTables:
    """Names by number, as a recorder gives them."""

    sections: Sequence[tuple[str, str]]
    phases: Sequence[str]
    sessions: Sequence[RecordingSession]


@dataclass(slots=True)
class Made:
    """The same runs as tuples and as a block."""

    tables: MadeTables
    records: list[Record] = field(default_factory=list)
    parts: list[bytes] = field(default_factory=list)

    @property
    def block(self) -> bytes:
        return b"".join(self.parts)

    def add(
        self,
        timers: Sequence[PythonTimer],
        *,
        section: int,
        span: int,
        start_ns: int,
        end_ns: int,
        session: int = 0,
        step: int | None = None,
        step_span: int = 0,
        around: tuple[int, int] | None = None,
        phase: int = 0,
        microbatch: int = -1,
        tokens: int = -1,
        failed: bool = False,
        is_step: bool = False,
        gpu: Gpu | None = None,
        waited_ns: int = 0,
    ) -> None:
        """One run; ``around`` is section and span of the one around it."""
        tables = self.tables
        context = Context(tables.sessions[session], step, step_span, tables.phases[phase])
        work = WorkSize(microbatch, tokens) if microbatch >= 0 or tokens >= 0 else None
        frame: Frame = (timers[section], span, start_ns, context, work)
        outer: Frame | None = None
        if around is not None:
            outer = (timers[around[0]], around[1], start_ns, context, None)
        error = ValueError if failed else None
        self.records.append((frame, outer, end_ns, error, waited_ns))
        slot = gpu or Gpu()
        if waited_ns > 0:
            slot = Gpu(nccl_time_ns=waited_ns, state=WAITED)
        self.parts.append(
            _RECORD.pack(
                span,
                around[1] if around else 0,
                step_span,
                NO_STEP if step is None else step,
                start_ns,
                end_ns,
                tokens,
                microbatch,
                section,
                around[0] if around else NO_SECTION,
                phase,
                session,
                7,
                (FAILED if failed else 0) | (STEP_SPAN if is_step else 0),
                len(self.parts),
                slot.kernel_time_ns,
                slot.busy_time_ns,
                slot.nccl_time_ns,
                slot.kernel_count,
                slot.state,
            )
        )


NAMES = (("step", "other"), ("forward", "compute"), ("backward", "compute"), ("größe", "wait"),
         ("forward", "data"), ("x" * 300, "eval"))  # fmt: skip
PHASES = ("", "eval", "checkpoint")


def random_runs(rng: random.Random, steps: int, runs_per_step: int) -> Made:
    """A training as a recorder sees it: steps, nested sections, failures, two sessions."""
    sessions = [RecordingSession(f"{n:016x}", 1) for n in range(2)]
    made = Made(MadeTables(NAMES, PHASES, sessions))
    timers = [PythonTimer(*name) for name in NAMES]
    span, now = 0, rng.randrange(10**15)
    for at in range(steps):
        session = 0 if at < steps // 2 else 1
        step = rng.choice([at, at, at, rng.randrange(2**40), None])
        span += 1
        step_span = span if step is not None else 0
        began, phase = now, rng.choice([0, 0, 0, 1, 2])
        hot = rng.randrange(1, len(NAMES))
        for _ in range(rng.randrange(1, 2 * runs_per_step)):
            span += 1
            start = now
            now += rng.choice([0, 1, rng.randrange(1, 600), rng.randrange(1, 10**7)])
            section = rng.choice([hot, hot, rng.randrange(1, len(NAMES))])
            around = rng.choice([None, None, (rng.randrange(1, len(NAMES)), rng.randrange(1, 99))])
            made.add(
                timers,
                section=section,
                span=span,
                start_ns=start,
                end_ns=now,
                session=session,
                step=step,
                step_span=step_span,
                around=around,
                phase=phase,
                microbatch=rng.choice([-1, -1, rng.randrange(2**20)]),
                tokens=rng.choice([-1, -1, 0, rng.randrange(2**33)]),
                failed=rng.random() < 0.03,
                waited_ns=rng.choice([0, 0, rng.randrange(now - start + 1)]),
            )
        if step is not None:
            made.add(
                timers,
                section=0,
                span=step_span,
                start_ns=began,
                end_ns=now,
                session=session,
                step=step,
                step_span=step_span,
                phase=phase,
                is_step=True,
                waited_ns=rng.choice([0, rng.randrange(now - began + 1)]),
            )
        now += rng.randrange(1, 10**8)
    return made
