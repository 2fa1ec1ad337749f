"""Limits of a grant: how many runs, and how many spans a second."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection
from typing import Final

from otel_straggler.collector.access.roles import Principal
from otel_straggler.throttle import Throttle

_BURST_S: Final = 10.0
"""Of spans that may come at once, as after an outage."""
_RECENT_S: Final = 10.0
"""A run that was admitted is among the known ones by then."""


class QuotaError(Exception):
    """Raised for a request beyond a grant's limit; ``retry_after_s``: None if it is refused."""

    def __init__(self, message: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Quotas:
    """What senders have used. Thread-safe; a sender is its grant's name.

    Args:
        known_runs: names of all runs that are known now.
    """

    def __init__(
        self,
        known_runs: Callable[[], Collection[str]],
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._known_runs = known_runs
        self._now_s = monotonic_s
        self._lock = threading.Lock()
        self._recent: dict[str, dict[str, float]] = {}
        self._rates: dict[tuple[str, float], Throttle] = {}

    def spend(self, sender: Principal, run_ids: Callable[[], set[str]], spans: int) -> None:
        """Record a request.

        Raises:
            QuotaError: it is beyond a limit.
        """
        if sender.max_runs:
            self._admit(sender, run_ids())
        if sender.spans_per_s and spans:
            self._pace(sender, spans)

    def _admit(self, sender: Principal, run_ids: set[str]) -> None:
        known = self._known_runs()
        new = {run_id for run_id in run_ids if run_id not in known}
        if not new:
            return
        now_s = self._now_s()
        with self._lock:
            recent = self._recent.setdefault(sender.name, {})
            for run_id in [each for each, at in recent.items() if now_s - at > _RECENT_S]:
                del recent[run_id]
            own = {run_id for run_id in known if sender.may_send(run_id)}
            if len(own | recent.keys() | new) > sender.max_runs:
                msg = f"{sender.name} has {len(own)} runs; its grant allows {sender.max_runs}"
                raise QuotaError(msg)
            recent.update(dict.fromkeys(new, now_s))

    def _pace(self, sender: Principal, spans: int) -> None:
        with self._lock:
            rate = self._rates.get((sender.name, sender.spans_per_s))
            if rate is None:
                burst = _BURST_S * sender.spans_per_s
                rate = Throttle(sender.spans_per_s, burst, now_s=self._now_s)
                self._rates[sender.name, sender.spans_per_s] = rate
            wait_s = rate.wait_s()
            if wait_s > 0.0:
                msg = f"{sender.name} sends more than {sender.spans_per_s:g} spans a second"
                raise QuotaError(msg, math.ceil(wait_s))
            rate.spend(float(spans))
