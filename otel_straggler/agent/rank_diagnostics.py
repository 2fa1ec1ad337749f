"""Diagnostics that a rank writes when its agent asks: stacks, and its last collective."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from otel_straggler.agent.frames import Message
from otel_straggler.client.diagnostics.flight_recorder import FlightRecorder, UnavailableError
from otel_straggler.client.diagnostics.processes import started_ticks
from otel_straggler.client.diagnostics.stacks import Alarm, StacksFile
from otel_straggler.model.diagnostics import ANNOUNCED, SUFFIX, StacksHead, file_stem
from otel_straggler.model.flight_records import FlightRecord
from otel_straggler.regular_files import create_folder

_LOG = logging.getLogger("otel_straggler")
_MAX_TEXT = 4_000


class RankDiagnostics:
    """The file of stacks of this process, and the signal on which the kernel has them written while
    somebody keeps the GIL.

    Args:
        place: step and open section, for the heads of dumps; of this moment.
    """

    def __init__(
        self, folder: Path, *, run_id: str, rank: int, node: str, place: Callable[[], Message]
    ) -> None:
        create_folder(folder)
        session = os.urandom(8).hex()
        stem = file_stem(run_id=run_id, group="agent", rank=rank, session_id=session)
        self._file = StacksFile(folder / (stem + SUFFIX))
        self._alarm = Alarm(self._file.descriptor)
        self._place = place
        self._flight = FlightRecorder(rank)
        main = threading.main_thread().ident or 0
        self._announcement = StacksHead(
            run=run_id,
            group="agent",
            rank=str(rank),
            node=node,
            pid=str(os.getpid()),
            session=session,
            started=started_ticks(os.getpid()),
            at=_now(),
            why=ANNOUNCED,
            main_thread=f"0x{main:016x}",
            signal="" if self._alarm.number is None else str(self._alarm.number),
        )
        self._file.announce(self._announcement)

    def describe(self) -> Message:
        """For the agent: the file, and the signal if there is one."""
        return {"stacks": str(self._file.path), "stacks_signal": self._alarm.number or 0}

    def answers(self, message: Message) -> Iterator[Message]:
        """First stacks, which are quick, then the last collective, which may not be."""
        place = self._place()
        head = replace(
            self._announcement,
            at=_now(),
            why=str(message.get("why", ""))[:200],
            by="faulthandler",
            step="" if place.get("step") is None else str(place["step"]),
            section=", ".join(place.get("open", ())),
        )
        try:
            self._file.dump(self._announcement, head)
            outcome = {"stacks": str(self._file.path)}
        except OSError as error:
            outcome = {"stacks_error": str(error)[:_MAX_TEXT]}
        yield {"type": "diagnosed", "part": "stacks", **place, **outcome}
        yield {
            "type": "diagnosed",
            "part": "collective",
            "collective": self._collective()[:_MAX_TEXT],
        }

    def _collective(self) -> str:
        """The oldest that is pending, else the newest; or why that is not known."""
        try:
            return describe_collective(self._flight.read())
        except UnavailableError as error:
            return f"not known: {error}"

    def close(self) -> None:
        self._alarm.close()
        self._file.close()

    def leave_to_parent(self) -> None:
        self._alarm.leave_to_parent()


def describe_collective(record: FlightRecord) -> str:
    """The call in which a rank may be: the oldest pending one, else its newest."""
    if record.pending:
        return f"{record.pending[0]}, pending"
    return f"{record.calls[-1]}, completed" if record.calls else "none launched"


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
