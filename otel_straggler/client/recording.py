"""The recorder of this process, drained once for all listeners: the exporter, the report in
process.

The exporter in C++ drains the ring itself (``hold``); listeners then get the same records. See
``Handoff`` in handoff.hpp.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from otel_straggler.client.recorder import RING_CAPACITY, Record
from otel_straggler.native import NATIVE, REASON

if TYPE_CHECKING or NATIVE is not None:
    from otel_straggler.client.native_recorder import RECORDER, STEP_TIMER, NativeRecorder
    from otel_straggler.client.native_recorder import NativeTimer as SectionTimer
else:
    from otel_straggler.client.python_recorder import RECORDER, STEP_TIMER
    from otel_straggler.client.python_recorder import PythonTimer as SectionTimer

__all__ = [
    "FORM",
    "RECORDER",
    "RECORDING",
    "STEP_TIMER",
    "WHY_PYTHON",
    "Inbox",
    "Recording",
    "SectionTimer",
]

FORM = "python" if NATIVE is None else "native"
WHY_PYTHON = REASON
"""Empty where the recorder is native."""

Listener = Callable[[Sequence[Record]], None]


class Recording:
    """Listeners to the records of this process. It records while there are any."""

    def __init__(self, recorder: NativeRecorder) -> None:
        self._recorder = recorder
        self._listeners: list[Listener] = []
        self._holders = 0
        self.is_reserved = False
        self._lock = threading.RLock()  # a section may end inside a signal handler

    def listen(self, listener: Listener) -> None:
        with self._lock:
            self.pull()
            is_first = not (self._listeners or self._holders)
            self._listeners.append(listener)
            if is_first:
                self._recorder.enable()
            if len(self._listeners) == 1:
                self._recorder.share(True)

    def unlisten(self, listener: Listener) -> None:
        """Pass on what is left; stop recording after the last listener."""
        with self._lock:
            self.pull()
            self._listeners.remove(listener)
            if not self._listeners:
                self._recorder.share(False)
            self._go_on_or_stop()

    def reserve(self) -> None:
        """Record for an exporter that comes later; records wait in the ring, if nobody listens."""
        self.hold()
        self.is_reserved = True

    def hold(self) -> None:
        """Record, with a new session id, for an exporter; or go on with what is reserved for it."""
        with self._lock:
            if self.is_reserved:
                self.is_reserved = False
                return
            self.pull()
            self._holders += 1
            self._recorder.enable()

    def release(self) -> None:
        with self._lock:
            self.is_reserved = False
            self._holders -= 1
            self._go_on_or_stop()

    def drain(self) -> Sequence[Record]:
        """What waits in the ring."""
        return self._recorder.drain()

    def pull(self) -> None:
        """Drain the ring. Cost: O(records), and what the listeners do with them."""
        with self._lock:
            records = self._recorder.drain()
            if records:
                for listener in self._listeners:
                    listener(records)

    def _go_on_or_stop(self) -> None:
        if not self._listeners and not self._holders:
            self._recorder.disable()
        elif self._recorder.context is None:
            self._recorder.enable()

    def reset_after_fork(self) -> None:
        self._listeners = []
        self._holders = 0
        self.is_reserved = False
        self._lock = threading.RLock()


class Inbox:
    """Records that wait for one reader, and how many were lost because it did not come."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._batches: list[Sequence[Record]] = []
        self.lost = 0
        was_reserved = recording.is_reserved
        recording.hold()
        if was_reserved:
            self._put(recording.drain())
        recording.listen(self._put)

    def drain(self) -> list[Sequence[Record]]:
        """All records since the last time, in batches, in order of their ends."""
        self._recording.pull()
        batches, self._batches = self._batches, []
        return batches

    def close(self) -> None:
        self._recording.unlisten(self._put)
        self._recording.release()

    def _put(self, records: Sequence[Record]) -> None:
        room = max(0, RING_CAPACITY - sum(map(len, self._batches)))
        self.lost += max(0, len(records) - room)
        if room > 0:
            self._batches.append(records if len(records) <= room else records[:room])


RECORDING = Recording(RECORDER)
