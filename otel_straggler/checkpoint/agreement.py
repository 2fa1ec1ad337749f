"""Which step to save, agreed through the store while the training goes on.

A thread of each rank answers a request with a promise: "I will not go past the next step before
this is decided". The step is the highest promised, so every rank still has it ahead. Ranks that do
not answer in time take no part. No collective, and no wait unless a rank gets to its promised step
before the others have answered.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_straggler.checkpoint import plain
from otel_straggler.checkpoint.store import StoreAddress

_LOG = logging.getLogger("otel_straggler")
_IDLE_POLL_S: Final = 0.25
"""A request is noticed within this time; some steps of it are promised, so that nobody waits."""
_BUSY_POLL_S: Final = 0.01
_MAX_AHEAD: Final = 1_000
_CONNECT_S: Final = 30.0
_Request = tuple[str, float, tuple[int, ...]]
_Answer = tuple[int, bool]
_Decided = tuple[int, tuple[int, ...], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the ranks have agreed on.

    Attributes:
        number: of the request.
        step: the first call with this step or a later one saves.
        ranks: who takes part, in order.
        is_end: a rank ends after it, so the training does.
        deadline_unix_s: until when an emergency save has to be committed; 0: none.
    """

    number: int
    step: int
    ranks: tuple[int, ...]
    reason: str
    is_end: bool
    deadline_unix_s: float


class Agreement:
    """This rank's part.

    Args:
        answer_s: a rank that has not answered for so long is taken for dead.
    """

    def __init__(self, address: StoreAddress, rank: int, world_size: int, answer_s: float) -> None:
        self._address = address
        self._rank = rank
        self._world_size = world_size
        self._answer_s = answer_s
        self._changed = threading.Condition()
        self._step = -1
        self._stride = 1
        self._reached_at_s = 0.0
        self._step_s = 0.0
        self._promised: int | None = None
        self._is_ending = False
        self._requested: tuple[str, float, tuple[int, ...]] | None = None
        self._decision: Decision | None = None
        self._is_closed = False
        self.why_broken = ""
        self._thread = threading.Thread(
            target=self._run, name="otel-straggler-checkpoint-agreement", daemon=True
        )
        self._thread.start()

    def request(
        self,
        reason: str,
        deadline_unix_s: float = 0.0,
        *,
        is_end: bool = False,
        without: tuple[int, ...] = (),
    ) -> None:
        """Ask for a save at the next common step. Safe in a signal handler's thread.

        Args:
            without: ranks that are stuck in a step: this thread of theirs would answer.
        """
        self._is_ending |= is_end
        self._requested = (reason, deadline_unix_s, without)

    def reach(self, step: int) -> Decision | None:
        """Enter ``step``, done by this rank; the decision if it is the step to save.

        Waits while this rank is at the step that it has promised not to pass.
        """
        with self._changed:
            self._measure(step)
            while self._is_held() and self._changed.wait(self._answer_s * 4):
                pass
            decision = self._decision
            if decision is None or step < decision.step:
                return None
            self._decision = None
            self._promised = None
            return decision if self._rank in decision.ranks else None

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(10 * _IDLE_POLL_S)

    def _measure(self, step: int) -> None:
        now_s = time.monotonic()
        if self._step >= 0:
            self._stride = max(1, step - self._step)
            self._step_s = now_s - self._reached_at_s
        self._step, self._reached_at_s = step, now_s

    def _promise(self) -> int:
        """A step that no rank reaches before it has noticed the request, by this rank's pace."""
        ahead = 1 if self._step_s <= 0.0 else 1 + math.ceil(2.0 * _IDLE_POLL_S / self._step_s)
        return self._step + self._stride * min(ahead, _MAX_AHEAD)

    def _is_held(self) -> bool:
        is_open = self._promised is not None and self._decision is None and not self.why_broken
        return is_open and not self._is_closed and self._step >= (self._promised or 0)

    def _run(self) -> None:
        number = 0
        try:
            store = self._address.connect(_CONNECT_S)
            while not self._is_closed:
                if self._next_request(store, number):
                    self._decide(store, number)
                    number += 1
        except Exception as error:  # noqa: BLE001  the store is gone: with it the training, mostly
            self._break(str(error))

    def _break(self, why: str) -> None:
        with self._changed:
            self.why_broken = why
            self._changed.notify_all()
        if not self._is_closed:
            _LOG.warning("checkpoints: ranks cannot agree on steps any more: %s", why)

    def _next_request(self, store: Any, number: int) -> bool:
        """Wait for a request, or make it; False after a while without."""
        key, requested = f"request/{number}", self._requested
        if requested is not None:
            self._requested = None
            store.compare_set(key, "", json.dumps(requested))
            return True
        if _is_there(store, key):
            return True
        time.sleep(_IDLE_POLL_S)
        return False

    def _decide(self, store: Any, number: int) -> None:
        reason, deadline_unix_s, without = plain.decode(store.get(f"request/{number}"), _Request)
        if self._rank in without:
            return
        with self._changed:
            while self._decision is not None and not self._is_closed:
                self._changed.wait(_IDLE_POLL_S)  # of the request before
            self._promised = self._promise()
            answer = json.dumps([self._promised, self._is_ending])
        store.set(f"answer/{number}/{self._rank}", answer)
        answers = self._answers(store, number, without)
        proposed = (
            max(step for step, _ in answers.values()),
            sorted(answers),
            any(is_end for _, is_end in answers.values()),
        )
        store.compare_set(f"decision/{number}", "", json.dumps(proposed))
        step, ranks, is_end = plain.decode(store.get(f"decision/{number}"), _Decided)
        decision = Decision(
            number=number,
            step=step,
            ranks=ranks,
            reason=reason,
            is_end=is_end,
            deadline_unix_s=deadline_unix_s,
        )
        with self._changed:
            self._decision = decision
            self._changed.notify_all()

    def _answers(
        self, store: Any, number: int, without: Sequence[int]
    ) -> dict[int, tuple[int, bool]]:
        """Of the ranks that live."""
        until_s = time.monotonic() + self._answer_s
        answers: dict[int, tuple[int, bool]] = {}
        for rank in sorted({*range(self._world_size)}.difference(without)):
            key = f"answer/{number}/{rank}"
            while not _is_there(store, key) and time.monotonic() < until_s:
                time.sleep(_BUSY_POLL_S)
            if _is_there(store, key):
                answers[rank] = plain.decode(store.get(key), _Answer)
        return answers


def _is_there(store: Any, key: str) -> bool:
    return bool(store.check([key]))
