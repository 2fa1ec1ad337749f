"""Saves and loads of torch.distributed.checkpoint (DCP) as sections, whoever calls it.

DCP logs the begin and end of each of its phases to a logger of its own, in the thread that runs
them; a handler there times them, and nothing is patched. In the main thread the process is in the
phase ``checkpoint`` meanwhile. What DCP's dedicated process does is not logged here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.client.imports import ImportWatch
from otel_straggler.client.recording import RECORDER
from otel_straggler.client.sections import Section, section
from otel_straggler.client.steps import Phase, phase

MODULE: Final = "torch.distributed.checkpoint.logger"
_LOG = logging.getLogger("otel_straggler")
_PHASE: Final = "checkpoint"
_OPERATIONS: Final = frozenset({"save", "async_save", "load"})
_SECTIONS: Final = {
    "local_step": "checkpoint_plan",
    "global_step": "checkpoint_plan",
    "stage_state_dict": "checkpoint_stage",
    "_stateful_to_state_dict": "checkpoint_stage",
    "write_data": "checkpoint_write",
    "finish_checkpoint": "checkpoint_commit",
    "read_data": "checkpoint_read",
}
"""By the functions of DCP that are logged."""
_MAX_BEGUN: Final = 100
"""Asynchronous saves whose end is awaited: that of one in a process is not logged here."""
_OWN_WRITERS: Final = frozenset({"CommittingWriter", "NothingWriter"})
"""Of :class:`otel_straggler.checkpoint.Manager`, which reports its saves by itself."""


@dataclass(slots=True)
class CheckpointTotals:
    """Since the watch began, of this rank.

    Attributes:
        saves, loads, failures: that have ended.
        size_bytes: written by saves into folders.
        blocking_s: that the main thread was in a save.
        save_s: from the begin of saves until they were complete.
        write_s: of that, writing the rank's own part.
        load_s: in loads.
        step: of the newest save; None if unknown.
        interval_s, mtbf_s: between saves, and between failures as expected, where a
            :class:`~otel_straggler.checkpoint.Manager` computes them; 0: none does.
    """

    saves: int = 0
    loads: int = 0
    failures: int = 0
    size_bytes: int = 0
    blocking_s: float = 0.0
    save_s: float = 0.0
    write_s: float = 0.0
    load_s: float = 0.0
    step: int | None = None
    interval_s: float = 0.0
    mtbf_s: float = 0.0


class CheckpointWatch:
    """Times DCP from ``start()`` to ``close()``; DCP is never imported from here.

    Args:
        on_change: called in the thread that saves, after the totals have changed.
    """

    def __init__(self, on_change: Callable[[], None] | None = None) -> None:
        self.totals = CheckpointTotals()
        self.on_change = on_change
        self._watch = ImportWatch(MODULE, self._attach)
        self._logger: logging.Logger | None = None
        self._handler = _PhaseHandler(self.totals, self._changed)

    def start(self) -> None:
        _WATCHES.append(self)
        self._watch.start()

    def close(self) -> None:
        """Leave DCP's logger as it was. Safe to call twice."""
        self._watch.stop()
        if self in _WATCHES:
            _WATCHES.remove(self)
        if self._logger is not None:
            self._logger.removeHandler(self._handler)
            self._logger = None

    def _attach(self) -> None:
        logger = getattr(sys.modules.get(MODULE), "_dcp_logger", None)
        if not isinstance(logger, logging.Logger):
            _LOG.info("checkpoints are not seen: this torch's DCP has no logger")
            return
        if _is_watched(logger):
            return
        self._logger = logger
        logger.addHandler(self._handler)

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()

    def add_save(self, save: CheckpointTotals) -> None:
        """Count a save that DCP's logger does not show as a whole."""
        totals = self.totals
        totals.saves += save.saves
        totals.failures += save.failures
        totals.size_bytes += save.size_bytes
        totals.blocking_s += save.blocking_s
        totals.save_s += save.save_s
        totals.write_s += save.write_s
        totals.step, totals.interval_s, totals.mtbf_s = save.step, save.interval_s, save.mtbf_s
        self._changed()


_WATCHES: Final[list[CheckpointWatch]] = []


def add_save(save: CheckpointTotals) -> None:
    """Count a save of a ``Manager`` in all watches of this process."""
    for watch in _WATCHES:
        watch.add_save(save)


class _PhaseHandler(logging.Handler):
    """Called in the thread that saves, at the begin and end of each of DCP's functions."""

    def __init__(self, totals: CheckpointTotals, changed: Callable[[], None]) -> None:
        super().__init__(logging.DEBUG)
        self._totals = totals
        self._changed = changed
        self._open = _OpenCalls()
        self._begun: deque[tuple[float, int | None]] = deque(maxlen=_MAX_BEGUN)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message: Any = record.msg
            if isinstance(message, dict):
                self._handle_message(message)
        except Exception as error:  # noqa: BLE001  the save goes on
            _LOG.debug("a checkpoint is not timed: %r", error)

    def _handle_message(self, message: dict[str, Any]) -> None:
        name, uuid = str(message.get("func_name")), message.get("uuid")
        if name not in _OPERATIONS and name not in _SECTIONS:
            return
        if message.get("event") == "start":
            timers = self._begin(name)
            self._open.calls.append((uuid, name, timers, time.monotonic()))
            is_own = message.get("storage_writer") in _OWN_WRITERS
            if name == "async_save" and not is_own:
                self._begun.append((time.monotonic(), RECORDER.progress().step))
        elif any(uuid == call[0] for call in self._open.calls):
            self._end(uuid, message, is_failure=message.get("event") == "exception")

    def _begin(self, name: str) -> contextlib.ExitStack:
        timers = contextlib.ExitStack()
        timers.enter_context(self._timer(name))
        return timers

    def _timer(self, name: str) -> Section | Phase:
        if name in _SECTIONS:
            return section(_SECTIONS[name], kind="checkpoint")
        context = RECORDER.context
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and context is not None and context.phase != _PHASE:
            return phase(_PHASE)
        return section(f"checkpoint_{name}", kind="checkpoint")

    def _end(self, uuid: Any, message: dict[str, Any], *, is_failure: bool) -> None:
        """End this call, and those in it that an exception has left: DCP does not log these."""
        while self._open.calls:
            key, name, timers, began_s = self._open.calls.pop()
            timers.close()
            if key == uuid:
                break
        duration_s = time.monotonic() - began_s
        if name == "write_data":
            self._open.write_s += duration_s
        if name in _OPERATIONS and not self._open.calls:
            write_s, self._open.write_s = self._open.write_s, 0.0
            if message.get("storage_writer") not in _OWN_WRITERS:
                self._count(name, message, duration_s, 0.0 if is_failure else write_s, is_failure)
                self._changed()

    def _count(
        self,
        name: str,
        message: dict[str, Any],
        duration_s: float,
        write_s: float,
        is_failure: bool,
    ) -> None:
        """An ``async_save`` counts once its ``save`` has ended, in whichever thread."""
        totals = self._totals
        totals.failures += is_failure
        if name == "load":
            totals.loads += 1
            totals.load_s += duration_s
            return
        is_main = threading.current_thread() is threading.main_thread()
        totals.blocking_s += duration_s if is_main else 0.0
        if name == "async_save":
            return
        began = None if is_main or not self._begun else self._begun.popleft()
        totals.saves += 1
        totals.step = RECORDER.progress().step if began is None else began[1]
        totals.save_s += duration_s if began is None else time.monotonic() - began[0]
        totals.write_s += write_s
        if not is_failure:
            rank = message.get("global_rank", "0")
            totals.size_bytes += _size_bytes(str(message.get("checkpoint_id", "")), f"__{rank}_")


class _OpenCalls(threading.local):
    def __init__(self) -> None:
        self.calls: list[tuple[Any, str, contextlib.ExitStack, float]] = []
        self.write_s = 0.0


def record_past(name: str, start_unix_s: float, end_unix_s: float) -> None:
    """Record a phase of a save that another process has gone through for this rank."""
    shift_ns = time.perf_counter_ns() - time.time_ns()
    start_ns, end_ns = int(start_unix_s * 1e9) + shift_ns, int(end_unix_s * 1e9) + shift_ns
    RECORDER.add_past(section(name, kind="checkpoint"), start_ns, max(start_ns, end_ns))


def _is_watched(logger: logging.Logger) -> bool:
    return any(isinstance(handler, _PhaseHandler) for handler in logger.handlers)


def _size_bytes(folder: str, prefix: str) -> int:
    """Of the files that this rank has written; 0 where it is no folder."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.name.startswith(prefix))
    return 0
