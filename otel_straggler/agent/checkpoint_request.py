"""Asks the ranks of this node that go on for a checkpoint, before one that hangs is ended."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Final

from otel_straggler.regular_files import open_regular
from otel_straggler.semconv import CHECKPOINT_REQUEST_FILE, CHECKPOINT_SAVED, CHECKPOINT_SERVED

SAVE_S: Final = 10.0
"""For the save; of these, 5 until a rank that does not answer is left out."""
_LOG = logging.getLogger("otel_straggler.agent")


class CheckpointRequest:
    """One request, of a file that :class:`otel_straggler.checkpoint.Manager` looks at. Where no
    rank does, or one was asked already, it is over at once, or with that one.

    Args:
        reason: what the checkpoint says of itself.
        stuck: the rank that hangs, without which the others save.
    """

    def __init__(self, reason: str, stuck: int) -> None:
        named = os.environ.get(CHECKPOINT_REQUEST_FILE, "")
        self._path = Path(named)
        self._until_s = 0.0
        if not named or self._next_to(CHECKPOINT_SERVED) == 0.0:
            return
        self._saved_at_s = self._next_to(CHECKPOINT_SAVED)
        asked_at_s = self._changed_at_s(self._path)
        age_s = time.time() - asked_at_s
        if not 0.0 <= age_s < SAVE_S:  # or the clock was set
            self._ask(f"{reason}\n{stuck}\n")
        elif self._saved_at_s < asked_at_s:
            self._until_s = time.monotonic() + SAVE_S - age_s

    @property
    def is_over(self) -> bool:
        """Whether it was saved, or there is no more time for it."""
        if time.monotonic() >= self._until_s:
            return True
        return self._next_to(CHECKPOINT_SAVED) != self._saved_at_s

    def _ask(self, text: str) -> None:
        try:
            file = open_regular(self._path, os.O_WRONLY | os.O_CREAT)
            with os.fdopen(file, "w", encoding="utf-8") as out:
                out.truncate()
                out.write(text)
        except OSError as error:
            _LOG.warning("%s: no checkpoint is asked for: %s", self._path, error)
            return
        self._until_s = time.monotonic() + SAVE_S
        _LOG.warning("asked the ranks of this node for a checkpoint: %s", text.splitlines()[0])

    def _next_to(self, suffix: str) -> float:
        return self._changed_at_s(self._path.with_name(self._path.name + suffix))

    @staticmethod
    def _changed_at_s(path: Path) -> float:
        """Seconds since 1970; 0 if it is not there."""
        try:
            return path.lstat().st_mtime
        except OSError:
            return 0.0
