"""The actions that wait: those that protect come first, and of those that notify some give way."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

_log = logging.getLogger(__name__)

MAX_NOTICES: Final = 10_000
"""Of them wait at a time."""


class Waiting:
    """Causes whose actions wait, by id. Every operation is O(1). Not thread-safe.

    Attributes:
        shed: notices for which there was no room, since the start.
    """

    def __init__(self, max_notices: int = MAX_NOTICES) -> None:
        self._max_notices = max_notices
        self._actions: OrderedDict[str, None] = OrderedDict()
        self._notices: OrderedDict[str, None] = OrderedDict()
        self._is_logged = False
        self.shed = 0

    def __len__(self) -> int:
        return len(self._actions) + len(self._notices)

    def add(self, cause_id: str, *, is_notice: bool) -> None:
        (self._notices if is_notice else self._actions)[cause_id] = None

    def has_room(self) -> bool:
        """Whether one more notice may wait; if not, it is counted, and of a flood one is logged."""
        if len(self._notices) < self._max_notices:
            return True
        self.shed += 1
        if not self._is_logged:
            self._is_logged = True
            _log.warning(
                "%d notifications wait, so further ones are not made (`shed` in `supervise status` "
                "and straggler_supervisor_ignored_total); other actions are",
                len(self._notices),
            )
        return False

    def first(self) -> str | None:
        """The oldest that protects, else the oldest notice."""
        return next(iter(self._actions or self._notices), None)

    def remove(self, cause_id: str) -> None:
        self._actions.pop(cause_id, None)
        self._notices.pop(cause_id, None)
        if len(self._notices) < self._max_notices // 2:
            self._is_logged = False

    def clear(self) -> None:
        self._actions.clear()
        self._notices.clear()
