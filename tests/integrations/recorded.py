"""What a training in this process records."""

from __future__ import annotations

from typing import NamedTuple

from otel_straggler.client.recording import RECORDING, Inbox


class Run(NamedTuple):
    """An execution of a section."""

    step: int | None
    phase: str
    name: str
    kind: str
    duration_ns: int


class Recorded:
    """What this process records in a ``with`` block."""

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def __enter__(self) -> Recorded:
        self._inbox = Inbox(RECORDING)
        return self

    def __exit__(self, *_: object) -> None:
        for batch in self._inbox.drain():
            for (timer, _, start_ns, context, _), _, end_ns, _, _ in batch:
                duration_ns = end_ns - start_ns
                run = Run(context.step, context.phase, timer.name, timer.kind, duration_ns)
                self.runs.append(run)
        self._inbox.close()

    def names(self, step: int | None) -> list[str]:
        """In the order of their ends."""
        return [run.name for run in self.runs if run.step == step]
