"""One rank as its agent sees it: the process that connected, and its beats."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from otel_straggler.agent.beats import BeatReader
from otel_straggler.client.diagnostics.processes import ProcessHandle, is_stacks_signal
from otel_straggler.detect.hangs.rank_timeouts import (
    HeartbeatTimeouts,
    Overdue,
    RankBeats,
    SectionTimeouts,
    overdue,
)

if TYPE_CHECKING:
    from otel_straggler.agent.connections import Connection
    from otel_straggler.agent.episodes import Episode


@dataclass(slots=True)
class WatchedRank:
    """A rank that is watched until it says that it has ended, or its process has. A lost connection
    changes nothing.

    Attributes:
        connection: to it; None while it has none.
        run_id: by its own word; empty: unknown.
        stacks_path, stacks_signal: where it writes stacks, and on which signal; empty and 0: not.
        episode: while a timeout is exceeded.
    """

    rank: int
    local_rank: int
    attempt: int
    process: ProcessHandle
    reader: BeatReader
    sections: Sequence[str]
    heartbeat: HeartbeatTimeouts
    section: SectionTimeouts
    connection: Connection | None = None
    run_id: str = ""
    stacks_path: str = ""
    stacks_signal: int = 0
    episode: Episode | None = field(default=None, repr=False)

    def overdue(self) -> tuple[list[Overdue], RankBeats]:
        """Timeouts that it exceeds now.

        Raises:
            ProtocolError: its page makes no sense.
        """
        beats = self.reader.beats()
        return overdue(beats, self.heartbeat, self.section, time.monotonic()), beats

    @property
    def can_write_by_signal(self) -> bool:
        number = self.stacks_signal
        return bool(number) and is_stacks_signal(number) and self.process.handles(number)

    def close(self) -> None:
        self.process.close()
        self.reader.close()

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.process.pid})"
