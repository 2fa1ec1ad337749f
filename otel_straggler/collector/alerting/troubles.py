"""What keeps a collector from its work: decided here, for /metrics and for its own alerts."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

from otel_straggler import semconv
from otel_straggler.collector.access.expiry import Expiry
from otel_straggler.collector.forwarding.forward import DROPPED, REFUSED

if TYPE_CHECKING:
    from otel_straggler.collector.access.quotas import Quotas
    from otel_straggler.collector.alerting.notifying import Notifying
    from otel_straggler.collector.forwarding.forward import Forwarder
    from otel_straggler.collector.history.writer import HistoryWriter
    from otel_straggler.collector.ingest.intake import Intake
    from otel_straggler.collector.ingest.servers import Servers
    from otel_straggler.collector.settings import CollectorSettings
    from otel_straggler.collector.worker import Worker

HOLD_S: Final = 300.0
"""A loss, or a refusal by a limit, is a trouble for so long."""
BUSY_S: Final = 60.0
"""The same for what may come in bursts, and is a trouble only if it goes on."""
_UNAVAILABLE: Final = 503
_DETAILED: Final = frozenset({"memory", "runs", "groups", "ranks", "section_names", "quotas"})

Check = Callable[[float], str]
"""A sentence if there is a trouble at this moment (monotonic), else nothing."""


@dataclass(slots=True)
class Growth:
    """Whether a count has grown in the last ``hold_s``; before the first look it was 0.

    >>> growth = Growth(60.0)
    >>> growth.seen(0, 0.0), growth.seen(2, 10.0), growth.seen(2, 69.0), growth.seen(2, 70.0)
    (False, True, True, False)
    """

    hold_s: float
    _count: float = 0.0
    _grown_at_s: float = field(default=-math.inf)

    def seen(self, count: float, now_s: float) -> bool:
        if count > self._count:
            self._grown_at_s = now_s
        self._count = count
        return now_s - self._grown_at_s < self.hold_s


class Troubles:
    """Thread-safe.

    Args:
        checks: by ``semconv.TROUBLES``.
    """

    def __init__(
        self, checks: Mapping[str, Check], monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        assert checks.keys() == semconv.TROUBLES.keys()
        self._checks = checks
        self._now_s = monotonic_s
        self._lock = threading.Lock()
        self._last: dict[str, str] = {}

    def now(self) -> dict[str, str]:
        """Troubles and a sentence about each, without a period."""
        with self._lock:
            now_s = self._now_s()
            found = {what: check(now_s) for what, check in self._checks.items()}
            self._last = {what: text.rstrip(". ") for what, text in found.items() if text}
            return self._last

    def problems(self) -> tuple[str, ...]:
        """Those of the last look that the page does not show in more detail, as sentences."""
        return tuple(f"{text}." for what, text in self._last.items() if what not in _DETAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """The parts of a collector that may be in trouble."""

    settings: CollectorSettings
    worker: Worker
    intake: Intake
    servers: Servers
    quotas: Quotas
    history: HistoryWriter
    forwarder: Forwarder | None
    notifying: Notifying
    expiries: Callable[[], Iterable[Expiry]]


def troubles_of(its: Watched) -> Troubles:
    return Troubles({**_load(its), **_limits(its), **_kept(its), **_sent(its), **_ending(its)})


def _grown(
    total: Callable[[], float], text: str | Callable[[], str], hold_s: float = HOLD_S
) -> Check:
    growth = Growth(hold_s)

    def check(now_s: float) -> str:
        if not growth.seen(total(), now_s):
            return ""
        return text if isinstance(text, str) else text()

    return check


def _load(its: Watched) -> dict[str, Check]:
    settings = its.settings

    def refused() -> int:
        http = sum(n for (_, code), n in its.servers.http_answers.items() if code == _UNAVAILABLE)
        answers = its.intake.counts().answers
        return http + sum(n for (_, answer), n in answers.items() if answer == "busy")

    seen_short = count(1)

    def times_short() -> int:
        return next(seen_short) if its.worker.is_short_of_memory else 0

    def scoring(_: float) -> str:
        is_well = its.worker.is_alive or not its.intake.is_open  # it ends before the alerts do
        return "" if is_well else "its scoring thread does not respond"

    return {
        "requests": _grown(
            refused,
            "more is received than is scored; senders are asked to send it again "
            "(receivers.max_waiting_bytes)",
            BUSY_S,
        ),
        "memory": _grown(
            times_short,
            f"its runs take more than {settings.scoring.memory_mib:,} MiB (scoring.memory_mib); "
            "the largest get no further ranks and section names",
            BUSY_S,
        ),
        "connections": _grown(
            lambda: sum(its.servers.connections_cut.values()),
            "connections are closed to make room for others",
            BUSY_S,
        ),
        "scoring": scoring,
    }


def _limits(its: Watched) -> dict[str, Check]:
    scoring = its.settings.scoring

    def rejected(*whats: str) -> Callable[[], float]:
        return lambda: sum(its.worker.counts().rejected.get(what, 0) for what in whats)

    return {
        "runs": _grown(
            rejected("run"),
            f"{scoring.max_runs:,} runs are watched (scoring.max_runs), and more are refused",
        ),
        "groups": _grown(
            rejected("group"),
            f"{scoring.max_groups:,} groups of a run are watched (scoring.max_groups), and more "
            "are refused",
        ),
        "ranks": _grown(
            rejected("rank", "ranks"),
            f"ranks beyond the {scoring.max_ranks:,} of a run that are watched "
            "(scoring.max_ranks) are set aside",
        ),
        "section_names": _grown(
            lambda: its.worker.counts().names_folded,
            f"a run has more than {scoring.max_section_names:,} section names "
            "(scoring.max_section_names); further ones are scored together",
        ),
        "quotas": _grown(
            lambda: sum(n for limit, n in its.quotas.counts().items() if limit != "max_series"),
            lambda: next(iter(its.quotas.problems()), "a limit of a grant was exceeded"),
        ),
    }


def _kept(its: Watched) -> dict[str, Check]:
    lost, unsafe = Growth(HOLD_S), Growth(HOLD_S)

    def history(now_s: float) -> str:
        counts = its.history.counts()
        if counts is None:
            return ""
        has_lost = lost.seen(sum(counts.failures.values()), now_s)
        return counts.why if has_lost or counts.is_failing else ""

    def spool(now_s: float) -> str:
        counts = its.history.counts()
        if counts is None:
            return ""
        return counts.why_spool if unsafe.seen(sum(counts.spool_failures.values()), now_s) else ""

    return {"history": history, "spool": spool}


def _sent(its: Watched) -> dict[str, Check]:
    lost = Growth(HOLD_S)

    def forwarding(now_s: float) -> str:
        forwarder = its.forwarder
        if forwarder is None:
            return ""
        counts = forwarder.counts()
        if lost.seen(counts.get(DROPPED, 0) + counts.get(REFUSED, 0), now_s):
            return f"requests to {forwarder.shown} are dropped: {forwarder.why}"
        if forwarder.is_nearly_full:
            return f"the queue to {forwarder.shown} is nearly full: {forwarder.why}"
        return ""

    return {"notifications": lambda _: its.notifying.trouble, "forwarding": forwarding}


def _ending(its: Watched) -> dict[str, Check]:
    def check(what: str) -> Check:
        def soonest(_: float) -> str:
            until_s = time.time() + its.settings.alerts.expiry_seconds
            due = [each for each in its.expiries() if each.what == what and each.at_s < until_s]
            return min(due, key=lambda each: each.at_s).text if due else ""

        return soonest

    return {what: check(what) for what in ("certificate", "grants")}
