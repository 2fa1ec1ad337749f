"""Injects the faults of one rank, from threads of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from otel_straggler.inject.effects import IN_PROCESS, Effect, Surroundings
from otel_straggler.inject.faults import KINDS, Fault
from otel_straggler.inject.host_effects import OF_HOST
from otel_straggler.inject.slow_sections import SLOW

EFFECTS: Final[dict[str, Effect]] = {**IN_PROCESS, **SLOW, **OF_HOST}
"""By kind."""
_STEP_POLL_S: Final = 0.005
_MAX_WAIT_S: Final = 60.0
_STOP_S: Final = 5.0
_LOG = logging.getLogger("otel_straggler")


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One fault that was injected, or could not be.

    Attributes:
        start_ns, end_ns: Unix time; equal of a fault after which the rank may not report.
        step: of the rank at its beginning; None: it was in none.
        reason: why it could not be injected; empty if it was.
    """

    fault: Fault
    start_ns: int
    end_ns: int
    step: int | None
    reason: str = ""


class Injector:
    """Begins and ends the faults of a rank while it trains.

    Args:
        surroundings: whose plan it is.
        step: the step in which the rank is; None: in none.
        report: sends a span; it must not raise.
        now_s: monotonic seconds.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        *,
        step: Callable[[], int | None],
        report: Callable[[Injection], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._of = surroundings
        self._step = step
        self._report = report
        self._now_s = now_s
        self._started_s = now_s()
        self.pending = surroundings.plan.of_rank(surroundings.place)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._run, name="otel-straggler-inject", daemon=True)

    def start(self) -> None:
        """Nothing is started where the rank has no fault."""
        if self.pending:
            _LOG.warning(
                "fault injection is on: rank %d has %d faults, the first %s",
                self._of.place.rank, len(self.pending), self.pending[0],
            )  # fmt: skip
            self._thread.start()

    def stop(self, timeout_s: float = _STOP_S) -> None:
        """End what lasts, and inject nothing more."""
        self._stopping.set()
        for thread in [self._thread, *self._threads]:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(timeout_s)

    def take_due(self) -> list[Fault]:
        """The faults that begin now; each is returned once."""
        step, elapsed_s = self._step(), self._now_s() - self._started_s
        due = [fault for fault in self.pending if _is_due(fault, step, elapsed_s)]
        self.pending = [fault for fault in self.pending if fault not in due]
        return due

    def inject(self, fault: Fault) -> None:
        """Begin it, wait until its end, undo it, and report it."""
        rank, step, start_ns = self._of.place.rank, self._step(), time.time_ns()
        if KINDS[fault.kind].is_final:
            self._report(Injection(fault=fault, start_ns=start_ns, end_ns=start_ns + 1, step=step))
        reason = ""
        _LOG.warning("fault injection: rank %d begins %s in step %s", rank, fault, step)
        try:
            with EFFECTS[fault.kind](fault, self._of):
                self._wait_until_end(fault)
        except Exception as error:  # noqa: BLE001  training goes on without the fault
            reason = f"{error}"
            _LOG.warning("fault injection: rank %d has not %s: %s", rank, fault, error)
        else:
            _LOG.warning("fault injection: rank %d has ended %s", rank, fault)
        if not KINDS[fault.kind].is_final or reason:
            end_ns = max(time.time_ns(), start_ns + 1)
            self._report(
                Injection(fault=fault, start_ns=start_ns, end_ns=end_ns, step=step, reason=reason)
            )

    def _run(self) -> None:
        while self.pending and not self._stopping.is_set():
            for fault in self.take_due():
                thread = threading.Thread(
                    target=self.inject, args=(fault,), name="otel-straggler-fault", daemon=True
                )
                self._threads = [t for t in self._threads if t.is_alive()] + [thread]
                thread.start()
            self._stopping.wait(self._pause_s())

    def _pause_s(self) -> float:
        if any(fault.onset_step is not None for fault in self.pending):
            return _STEP_POLL_S
        elapsed_s = self._now_s() - self._started_s
        waits = (fault.onset_s - elapsed_s for fault in self.pending)
        return min(max(min(waits, default=0.0), 0.0), _MAX_WAIT_S)

    def _wait_until_end(self, fault: Fault) -> None:
        """Of a rank that was stopped the time is up once it goes on; it may run a little between
        the signal and the stop."""
        if fault.kind in _AT_ONCE:
            return
        until_s = self._now_s() + fault.lasts_s
        while (left_s := until_s - self._now_s()) > 0:
            step = self._step()
            if fault.end_step is not None and step is not None and step >= fault.end_step:
                return
            if self._stopping.wait(min(left_s, _STEP_POLL_S if fault.end_step else left_s)):
                return


_AT_ONCE: Final = frozenset({"rank_killed", "gil_locked", "exception", "xid"})
"""Over once they have begun: nothing is left to undo."""


def _is_due(fault: Fault, step: int | None, elapsed_s: float) -> bool:
    if fault.onset_step is None:
        return elapsed_s >= fault.onset_s
    if step is None or step < fault.onset_step:
        return False
    return fault.end_step is None or step < fault.end_step
