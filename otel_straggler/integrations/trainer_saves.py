"""What the callbacks of trainers share that save with ``checkpoint.Manager``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otel_straggler.checkpoint import Manager


class JsonState:
    """Numbers of a trainer as one text: DCP restores it whatever keys it has.

    Args:
        read, write: the numbers, as JSON has them.
    """

    def __init__(self, read: Callable[[], Any], write: Callable[[Any], object]) -> None:
        self._read, self._write = read, write

    def state_dict(self) -> dict[str, str]:
        return {"json": json.dumps(self._read())}

    def load_state_dict(self, state: dict[str, str]) -> None:
        self._write(json.loads(state["json"]))


class TrainerSaves:
    """The manager of one training, from ``begin()`` to ``close()``.

    Args:
        folder, options: of :class:`~otel_straggler.checkpoint.Manager`.
    """

    def __init__(self, folder: str | Path, options: dict[str, Any]) -> None:
        self._folder, self._options = folder, options
        self._manager: Manager | None = None
        self._state: Callable[[], dict[str, Any]] = dict
        self._step = -1

    def begin(self, state: Callable[[], dict[str, Any]], step: int) -> int | None:
        """Restore the newest complete checkpoint; its step, or None where there is none."""
        from otel_straggler.checkpoint import Manager

        self.close(is_clean=False)  # of a training whose end was not seen
        self._manager, self._state = Manager(self._folder, **self._options), state
        restored = self._manager.restore(state())
        self._step = step if restored is None else restored
        return restored

    def end_step(self, step: int) -> bool:
        """Save if it is time; whether the training should stop."""
        if self._manager is None or step <= self._step:
            return False
        self._step = step
        self._manager.step(step, self._state)
        return self._manager.should_stop

    def close(self, *, is_clean: bool) -> None:
        """Wait for a running save. Safe to call twice."""
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.close(is_clean=is_clean)
