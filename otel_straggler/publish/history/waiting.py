"""What waits to be written: bounded, and taken as a whole."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np

from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import Verdict
from otel_straggler.publish.history.rows import Summary

MOST_CHANGES: Final = 10_000
MOST_SUMMARIES: Final = 1_000


@dataclass(slots=True, kw_only=True)
class Batch:
    """What one transaction writes."""

    windows: list[WindowScores] = field(default_factory=list)
    changes: list[Verdict] = field(default_factory=list)
    states: dict[str, Any] = field(default_factory=dict)
    summaries: dict[tuple[str, str], Summary] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.windows) + len(self.changes) + len(self.states) + len(self.summaries)


class Waiting:
    """Between the thread that scores and the one that writes. A newer state of a key, or summary of
    a run, takes the place of the one that waits; what is beyond a limit is not taken."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._batch = Batch()
        self._bytes = 0
        self._state_bytes: dict[str, int] = {}
        self._is_closed = False
        self._is_idle = True
        self._changed = threading.Condition()

    def put(
        self,
        windows: Sequence[WindowScores],
        changes: Sequence[Verdict],
        states: Mapping[str, Any],
        summaries: Sequence[Summary] = (),
    ) -> int:
        """Never waits for a disk; returns how many things found no room."""
        refused = 0
        with self._changed:
            for window in windows:
                n_bytes = _bytes_of_window(window)
                if self._has_room(n_bytes):
                    self._batch.windows.append(window)
                    self._bytes += n_bytes
                else:
                    refused += 1
            for key, state in states.items():
                refused += not self._take_state(key, state)
            refused += self._take_changes(self._batch.changes, changes)
            refused += sum(not self._take_summary(summary) for summary in summaries)
            self._changed.notify_all()
        return refused

    def take(self, timeout_s: float) -> Batch | None:
        """All that waits, maybe nothing after the time-out; None once closed and empty."""
        with self._changed:
            self._is_idle = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._batch) or self._is_closed, timeout_s)
            if self._is_closed and not len(self._batch):
                return None
            taken, self._batch = self._batch, Batch()
            self._bytes = 0
            self._state_bytes.clear()
            self._is_idle = not len(taken)
            return taken

    def __len__(self) -> int:
        """Things that nobody has taken yet."""
        with self._changed:
            return len(self._batch)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Whether all that was put has been taken, and the writer has come back for more."""
        with self._changed:
            return self._changed.wait_for(lambda: self._is_idle and not len(self._batch), timeout_s)

    def _has_room(self, n_bytes: int) -> bool:
        return self._bytes == 0 or self._bytes + n_bytes <= self._most_bytes

    def _take_state(self, key: str, state: Any) -> bool:
        self._bytes -= self._state_bytes.pop(key, 0)
        self._batch.states.pop(key, None)
        n_bytes = _bytes_of(state)
        if not self._has_room(n_bytes):
            return False
        self._batch.states[key] = state
        self._state_bytes[key] = n_bytes
        self._bytes += n_bytes
        return True

    def _take_summary(self, summary: Summary) -> bool:
        key, waiting = (summary.run_id, summary.group), self._batch.summaries
        if key not in waiting and len(waiting) >= MOST_SUMMARIES:
            return False
        waiting[key] = summary
        return True

    @staticmethod
    def _take_changes(into: list[Verdict], changes: Sequence[Verdict]) -> int:
        room = max(0, MOST_CHANGES - len(into))
        into.extend(changes[:room])
        return max(0, len(changes) - room)


def _bytes_of_window(window: WindowScores) -> int:
    return _bytes_of([getattr(window, f.name) for f in fields(window)]) + 200 * len(window.sources)


def _bytes_of(value: Any) -> int:
    """Of the arrays, and a little for everything else."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    children: Iterable[Any] = ()
    if isinstance(value, dict):
        children = value.values()
    elif isinstance(value, list) and value and isinstance(value[0], dict | list | np.ndarray):
        children = value
    return 64 + sum(map(_bytes_of, children))
