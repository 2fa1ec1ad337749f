"""Requests that were refused because of who sent them: how many, for which reason, and the newest,
for people at the page."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from otel_straggler.collector.access.roles import Principal

REASONS: Final[Mapping[str, str]] = {
    "no_credential": "it came without a credential",
    "unknown_credential": "no grant has its token, its certificate or its user",
    "role": "the role of its grant does not allow it",
    "run": "its grant does not cover the run that it names",
    "host": "its Host is no name of this collector (metrics.allowed_hosts)",
    "origin": "a web page of another origin sent it",
    "commands_token": "it came without the token of commands (commands.token), or a wrong one",
}
SHOWN_S: Final = 120.0
"""A refusal is shown as a problem for so long."""
_MAX_REMEMBERED: Final = 1_000
_MAX_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class _Refused:
    """The newest refusal of its kind."""

    who: Principal
    what: str
    reason: str
    run_id: str

    @property
    def text(self) -> str:
        who = self.who.name or "somebody without a known credential"
        of_run = f" of run {self.run_id[:100]!r}" if self.run_id else ""
        return f"{who} was refused {self.what}{of_run}: {REASONS[self.reason]} ({self.reason})"

    def is_for(self, prefix: str) -> bool:
        """Whether a reader of the runs with this prefix may know of it: it is about one of these,
        or a sender of theirs sent it."""
        is_own = self.who.role == "ingest" and bool(self.who.runs)
        is_about = bool(self.run_id) and self.run_id.startswith(prefix)
        return not prefix or is_about or (is_own and self.who.runs.startswith(prefix))


class Refusals:
    """Thread-safe."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = monotonic_s
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._newest: dict[tuple[str, str, str], tuple[float, _Refused]] = {}

    def record(self, who: Principal, what: str, reason: str, run_id: str = "") -> None:
        refused = _Refused(who, what, reason, run_id)
        key = who.name, reason, run_id
        with self._lock:
            self._counts[reason] += 1
            before = self._newest.pop(key, None)
            while len(self._newest) >= _MAX_REMEMBERED:
                del self._newest[next(iter(self._newest))]
            # What is said changes no more often than it is forgotten: pages are made from it.
            self._newest[key] = self._now_s(), refused if before is None else before[1]

    def counts(self) -> dict[str, int]:
        """So far, by reason: all of :data:`REASONS`."""
        with self._lock:
            return {reason: self._counts[reason] for reason in REASONS}

    def problems(self, prefix: str = "") -> tuple[str, ...]:
        """What a reader of the runs whose names begin so may know of the refusals of the last two
        minutes: the newest ten, by who was refused, why, and of which run."""
        with self._lock:
            oldest_s = self._now_s() - SHOWN_S
            self._newest = {k: v for k, v in self._newest.items() if v[0] >= oldest_s}
            shown = [refused.text for _, refused in self._newest.values() if refused.is_for(prefix)]
        left_out = len(shown) - _MAX_SHOWN
        more = (f"{left_out:,} others were refused something in the last two minutes",)
        return (*shown[-_MAX_SHOWN:], *(more if left_out > 0 else ()))
