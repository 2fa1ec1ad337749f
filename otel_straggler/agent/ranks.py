"""One rank as its agent sees it: a process that is surely the one that connected, and its beats."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from otel_straggler.agent.beats import BeatReader
from otel_straggler.agent.frames import ProtocolError
from otel_straggler.client.diagnostics.processes import (
    is_stacks_signal,
    is_stopped,
    open_process,
    send_signal,
    started_ticks,
    takes_signal,
)
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


class RankProcess:
    """A process by number, begin and descriptor: a signal reaches it, or nobody.

    Args:
        pid: by the kernel's word for the connection, not by the rank's.

    Raises:
        ProtocolError: there is no such process here.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.descriptor: int | None = None
        try:
            self.descriptor = open_process(pid) if pid > 0 else None
        except OSError as error:
            raise ProtocolError("process", f"process {pid} cannot be opened: {error}") from error
        self._started = started_ticks(pid) if pid > 0 else ""
        if not self._started:
            self.close()
            raise ProtocolError(
                "process",
                f"process {pid} is not visible here: ranks and agent have to share a PID namespace",
            )

    @property
    def is_alive(self) -> bool:
        return started_ticks(self.pid) == self._started

    @property
    def is_stopped(self) -> bool:
        return is_stopped(self.pid)

    def handles(self, number: int) -> bool:
        """Whether it has a handler for the signal, which would else end it."""
        return takes_signal(self.pid, number)

    def signal(self, number: int) -> None:
        """Send a signal to this very process.

        Raises:
            ProcessLookupError: it has ended; its number may be another one's now.
            OSError: it cannot be signalled.
        """
        if not self.is_alive:
            raise ProcessLookupError(f"process {self.pid} has ended")
        send_signal(self.pid, self.descriptor, number)

    def close(self) -> None:
        if self.descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self.descriptor)
            self.descriptor = None


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
    process: RankProcess
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
