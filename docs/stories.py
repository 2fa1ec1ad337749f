"""The four simulated runs of docs/start/four-faults.md, for screenshots and tests.

Each is an ``otel-straggler simulate`` command with a pipeline x data layout of 32 ranks.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

LAYOUT = "pp4,dp8"
WHO = 13
"""The rank that is slow, or hangs: stage 1, data rank 5."""
COLLECTOR: dict[str, Any] = {
    "scoring": {"window_steps": 10, "grace_seconds": 0.5},
    "liveness": {"min_timeout_seconds": 10.0},
}
"""Settings of the collector: short windows, and hangs are detected within seconds."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """One run.

    Attributes:
        name: its run id, and the name of its screenshot.
        options: the fault, as options of ``otel-straggler simulate``.
        says: text that the answer contains.
        pattern: ``pattern`` of the matrix.
        hot: (stage, data rank) of the hot workers; None: any.
        silent: (stage, data rank) of the silent or stuck workers.
        hangs: the run hangs and keeps sending heartbeats.
    """

    name: str
    options: tuple[str, ...]
    says: str
    pattern: str
    hot: frozenset[tuple[int, int]] | None
    silent: frozenset[tuple[int, int]] = frozenset()
    hangs: bool = False

    def arguments(self, steps: int) -> list[str]:
        """Arguments of ``simulate``: ``steps`` immediately, then real time."""
        onset = (
            word.replace("STEP", str(steps if self.hangs else steps // 4)) for word in self.options
        )
        speed = ["--speed", "1", "--quick-until-step", str(steps), "--steps", str(steps + 1200)]
        hold = ["--hold-s", "3600"] if self.hangs else []
        return ["--layout", LAYOUT, *onset, *speed, *hold, "--run-id", self.name]


STORIES = (
    Story(
        name="bad-gpu",
        options=("--fault", f"compute:1.3@rank{WHO}:stepSTEP", "--report-hardware"),
        says="slow GPU",
        pattern="hot_cell",
        hot=frozenset({(1, 5)}),
    ),
    Story(
        name="last-stage",
        options=("--stage-factor", "1.3"),
        says="pipeline stages of unequal work",
        pattern="hot_row",
        hot=frozenset((3, data) for data in range(8)),
    ),
    Story(
        name="sequences",
        options=("--sequence-cv", "0.6"),
        says="sequences of unequal length",
        pattern="spread",
        hot=None,
    ),
    Story(
        name="hung-rank",
        options=("--fault", f"hang_never_joined@rank{WHO}:stepSTEP"),
        says=f"Rank {WHO}",
        pattern="silent",
        hot=frozenset(),
        silent=frozenset({(1, 5)}),
        hangs=True,
    ),
)


@contextlib.contextmanager
def running(arguments: Sequence[str], endpoint: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``otel-straggler simulate --send endpoint`` until the block ends."""
    command = [sys.executable, "-m", "otel_straggler.cli", "simulate", *arguments]
    with subprocess.Popen(  # noqa: S603  our own command
        [*command, "--send", endpoint], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            yield process
        finally:
            process.kill()
