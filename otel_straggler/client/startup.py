"""The first moments of a session, in a thread of their own: which rank this is, if that is not
known yet, and the line that says where to watch.

``configure()`` may come before ``init_process_group()``. Then neither launcher nor scheduler names
the rank, and records wait in the ring, unsent, until torch.distributed is initialised, or nothing
suggests any more that it will be: a step begins without it, or ten seconds have passed. If it is
initialised after that, the session begins again under the right rank. The loop pays nothing.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from otel_straggler.client.identity import initialised_process_group
from otel_straggler.client.recording import RECORDER
from otel_straggler.client.start_line import announce
from otel_straggler.client.worker import THREAD_NAME, LogOnce
from otel_straggler.config import ClientSettings

if TYPE_CHECKING:
    from otel_straggler.client.session import Session

_HOLD_S: Final = 10.0
_POLL_S, _LATER_POLL_S = 0.05, 1.0
_ENOUGH_STEPS: Final = 20
"""Who trains so long without torch.distributed does without it."""


def may_be_initialised_later() -> bool:
    """Whether the program has imported torch, and its process group is still to come."""
    return "torch" in sys.modules and initialised_process_group() is None


class StartUp:
    """Calls ``session.begin()`` once, and prints the line.

    Args:
        resolve_again: the settings as of now; None if the first ones are final.
    """

    def __init__(
        self, session: Session, resolve_again: Callable[[], ClientSettings] | None
    ) -> None:
        self._session = session
        self._resolve_again = resolve_again
        self._is_stopping = False
        self._wake = threading.Event()
        self._is_identified = threading.Event()
        self._is_announced = False
        self._until_s = time.monotonic() + _HOLD_S
        self._log_error = LogOnce("the start could not be completed; training goes on")
        self._thread = threading.Thread(target=self._run, name=f"{THREAD_NAME}-start", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping = True
        self._wake.set()

    def identify(self, timeout_s: float) -> None:
        """Wait until a process group that is there is used; in the thread, because the store of
        torch.distributed may not answer."""
        if self._resolve_again is not None and initialised_process_group() is not None:
            self._wake.set()
            self._is_identified.wait(timeout_s)

    def _run(self) -> None:
        try:
            while not self._is_done() and not self._is_stopping:
                self._wake.wait(_LATER_POLL_S if self._session.is_sending else _POLL_S)
                self._wake.clear()
        except Exception as error:  # noqa: BLE001  telemetry never stops training
            self._log_error(error)
            self._session.begin()
        finally:
            self._is_identified.set()

    def _is_done(self) -> bool:
        again, session = self._resolve_again, self._session
        if again is not None and initialised_process_group() is not None:
            self._is_announced = session.begin(again()) and self._is_announced
            self._resolve_again = again = None
            self._is_identified.set()
        step = RECORDER.progress().step
        if not session.is_sending and (step is not None or time.monotonic() >= self._until_s):
            session.begin()
        if session.is_sending and not self._is_announced:
            self._is_announced = True
            announce(session.settings, session.gpu_timing())
        has_time = again is not None and (step or 0) < _ENOUGH_STEPS
        return self._is_announced and not has_time
