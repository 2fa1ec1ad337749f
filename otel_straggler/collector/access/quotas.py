"""Limits of grants: runs, ranks, spans, bytes and series of a sender."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from otel_straggler.collector.access.refusals import SHOWN_S
from otel_straggler.collector.access.roles import Principal
from otel_straggler.collector.metrics.series_shares import share_of_each
from otel_straggler.throttle import Throttle

_log = logging.getLogger(__name__)

_BURST_S: Final = 10.0
"""Of spans or bytes that may come at once, as after an outage."""
_RECENT_S: Final = 10.0
"""A run that was admitted is among the known ones by then."""
RANK_SILENT_S: Final = 120.0
"""A rank that has not ended counts until it was silent for so long: twice the longest interval of
its reports."""
Rank: TypeAlias = tuple[str, str, int]
"""Run, group and rank."""

LIMITS: Final[Mapping[str, str]] = {
    "max_runs": "{who} has {used} runs; its grant allows {limit}",
    "max_ranks": "{who} has {used} ranks that report; its grant allows {limit}",
    "spans_per_s": "{who} sends more than {limit} spans a second",
    "bytes_per_s": "{who} sends more than {limit} bytes a second",
    "max_series": "{who} has {used} series; its grant allows {limit}, the rest is folded",
}
"""Limits of a grant, each a field of `Principal`, and what is said where one is exceeded."""


class QuotaError(Exception):
    """Raised for a request beyond a ``limit``; ``retry_after_s``: None if it is refused for
    good."""

    def __init__(self, message: str, limit: str, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.limit, self.retry_after_s = limit, retry_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What a request brings; names are asked for only where a limit needs them.

    Attributes:
        run_ids, ranks: that send in it.
        ended: ranks that report their end.
        spans, body_bytes: how many; bytes after decompression.
    """

    run_ids: Callable[[], set[str]] = set
    ranks: Callable[[], set[Rank]] = set
    ended: Callable[[], set[Rank]] = set
    spans: int = 0
    body_bytes: int = 0


class Quotas:
    """What senders have used. Thread-safe; a sender is its grant's name.

    Args:
        known_runs: names of all runs that are known now.
        principals: all that have a grant.
    """

    def __init__(
        self,
        known_runs: Callable[[], Collection[str]],
        monotonic_s: Callable[[], float] = time.monotonic,
        principals: Callable[[], Iterable[Principal]] = tuple,
    ) -> None:
        self._known_runs = known_runs
        self._principals = principals
        self._now_s = monotonic_s
        self._lock = threading.Lock()
        self._recent: dict[str, dict[str, float]] = {}
        self._ranks: dict[str, dict[Rank, float]] = {}
        self._rates: dict[tuple[str, str, float], Throttle] = {}
        self._refused: Counter[str] = Counter(dict.fromkeys(LIMITS, 0))
        self._problems: dict[tuple[str, str], tuple[float, str, str]] = {}

    def spend(self, sender: Principal, usage: Usage) -> None:
        """Record a request.

        Raises:
            QuotaError: it is beyond a limit; then only its runs and ranks are recorded.
        """
        if sender.max_runs:
            self._admit_runs(sender, usage.run_ids())
        if sender.max_ranks:
            self._admit_ranks(sender, usage)
        rates = (
            ("spans_per_s", sender.spans_per_s, usage.spans),
            ("bytes_per_s", sender.bytes_per_s, usage.body_bytes),
        )
        limited = [each for each in rates if each[1] and each[2]]
        if limited:
            self._pace(sender, limited)

    def series_shares(self, needs: Mapping[str, int], share: int) -> dict[str, int]:
        """The most series of each run, where one may have ``share``, and all runs of a grant with
        ``max_series`` no more than that.

        Args:
            needs: series of each run if nothing were folded.
        """
        shares = dict.fromkeys(needs, share)
        for who in self._principals():
            own = {run_id: need for run_id, need in needs.items() if who.covers(run_id)}
            if not who.max_series or not own:
                continue
            of_each = share_of_each(tuple(own.values()), who.max_series)
            shares |= {run_id: min(shares[run_id], of_each) for run_id in own}
            if (used := sum(own.values())) > who.max_series:
                self._refuse(who, "max_series", used)
        return shares

    def counts(self) -> dict[str, int]:
        """Refusals by limit: of requests, and for ``max_series`` of pages of metrics."""
        with self._lock:
            return dict(self._refused)

    def problems(self, prefix: str = "") -> tuple[str, ...]:
        """Grants whose limits were exceeded in the last two minutes, of those for runs whose names
        begin so."""
        with self._lock:
            oldest_s = self._now_s() - SHOWN_S
            self._problems = {k: v for k, v in self._problems.items() if v[0] >= oldest_s}
            return tuple(text for _, text, of in self._problems.values() if of.startswith(prefix))

    def _refuse(self, who: Principal, limit: str, used: int = 0) -> str:
        """Count and show a refusal; what to say of it."""
        value = getattr(who, limit)
        text = LIMITS[limit].format(who=who.name, used=used, limit=f"{value:,g}") + f" ({limit})"
        with self._lock:
            self._refused[limit] += 1
            is_new = (who.name, limit) not in self._problems
            self._problems[who.name, limit] = self._now_s(), text, who.runs
        if is_new:
            _log.warning("%s", text)
        return text

    def _admit_runs(self, sender: Principal, run_ids: set[str]) -> None:
        known = self._known_runs()
        new = {run_id for run_id in run_ids if run_id not in known}
        if not new:
            return
        now_s = self._now_s()
        own = {run_id for run_id in known if sender.covers(run_id)}
        with self._lock:
            recent = self._recent.setdefault(sender.name, {})
            for run_id in [each for each, at in recent.items() if now_s - at > _RECENT_S]:
                del recent[run_id]
            used = own | recent.keys()
            is_within = len(used | new) <= sender.max_runs
            if is_within:
                recent.update(dict.fromkeys(new, now_s))
        if not is_within:
            raise QuotaError(self._refuse(sender, "max_runs", len(used)), "max_runs")

    def _admit_ranks(self, sender: Principal, usage: Usage) -> None:
        now_s, ranks = self._now_s(), usage.ranks()
        with self._lock:
            known = self._ranks.setdefault(sender.name, {})
            if len(known.keys() | ranks) > sender.max_ranks:
                silent = [rank for rank, at in known.items() if now_s - at >= RANK_SILENT_S]
                for rank in silent:
                    del known[rank]
            is_within = len(known.keys() | ranks) <= sender.max_ranks
            used = len(known)
            if is_within:
                known.update(dict.fromkeys(ranks, now_s))
                for rank in usage.ended():
                    known.pop(rank, None)
        if not is_within:
            raise QuotaError(self._refuse(sender, "max_ranks", used), "max_ranks")

    def _pace(self, sender: Principal, spent: Iterable[tuple[str, float, int]]) -> None:
        """Spend of all rates, or of none."""
        with self._lock:
            rates = [(limit, self._rate(sender, limit, per_s), n) for limit, per_s, n in spent]
            waits_s = [(rate.wait_s(), limit) for limit, rate, _ in rates]
            wait_s, limit = max(waits_s)
            if wait_s <= 0.0:
                for _, rate, n in rates:
                    rate.spend(float(n))
        if wait_s > 0.0:
            raise QuotaError(self._refuse(sender, limit), limit, math.ceil(wait_s))

    def _rate(self, sender: Principal, limit: str, per_s: float) -> Throttle:
        key = sender.name, limit, per_s
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = Throttle(per_s, _BURST_S * per_s, now_s=self._now_s)
        return rate
