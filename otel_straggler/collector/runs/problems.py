"""Senders with implausible numbers: counted, shown while they go on, and logged now and then."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from otel_straggler.model.rank import Source
from otel_straggler.throttle import Throttle

_log = logging.getLogger(__name__)

SHOWN_S: Final = 120.0
"""A problem is shown for so long after its last report."""
MAX_SHOWN: Final = 10
_MAX_REMEMBERED: Final = 1_000
_LOG_EVERY_S: Final = 60.0
_MAX_TEXT: Final = 60

Number: TypeAlias = Literal["attempt", "world_size", "rank", "ranks", "step", "parallel", "memory"]
NUMBERS: Final[tuple[Number, ...]] = (
    "attempt", "world_size", "rank", "ranks", "step", "parallel", "memory",
)  # fmt: skip
_TEXTS: Final[dict[Number, str]] = {
    "attempt": "{who} reports attempt {value}; expected {expected}. Its telemetry is set aside "
    "until half of these ranks report the same attempt. Is the restart count "
    "(TORCHELASTIC_RESTART_COUNT) of this process another one?",
    "world_size": "{who} reports the world size {value}; expected {expected}. The size is set "
    "aside, the rest counts. Is WORLD_SIZE of this process another one?",
    "rank": "{who} reports rank {value}; expected {expected}. Its telemetry is set aside. Is its "
    "rank the global one of this job (RANK)?",
    "ranks": "{who} is beyond the {maximum} ranks that are watched of a run (scoring.max_ranks). "
    "Its telemetry is set aside. Does the job share its run id with another one?",
    "step": "{who} reports step {value}; expected {expected}. Its executions at such steps are set "
    "aside. Does it count something else, such as samples or tokens? Report optimizer steps",
    "parallel": "{who} reports place {value} in a parallel dimension; expected {expected}. The "
    "place is set aside, the rest counts. Is it the index in the dimension (set_topology)?",
    "memory": "{who} is of a run that has more than its share of the {memory_mib} MiB for all runs "
    "(scoring.memory_mib). Further ranks and section names of it are set aside, and its windows "
    "close early. Does it send very many sections or sessions?",
}


@dataclass(slots=True)
class _Problem:
    """The newest report with a wrong number of one kind in one world, and how many there were."""

    source: Source
    value: object
    expected: str
    at_s: float
    reports: int = 0


class SenderProblems:
    """Owned by the scoring thread; time is an argument. ``counts`` is by number, since the
    start."""

    def __init__(self, max_ranks: int, memory_mib: int) -> None:
        self._max_ranks = max_ranks
        self._memory_mib = memory_mib
        self._problems: dict[tuple[Number, str, str], _Problem] = {}
        self._logging = {
            number: Throttle(1.0 / _LOG_EVERY_S, now_s=lambda: 0.0) for number in NUMBERS
        }
        self.counts: Counter[str] = Counter(dict.fromkeys(NUMBERS, 0))

    def record(
        self,
        number: Number,
        source: Source,
        value: object,
        now_s: float,
        expected: str = "",
        *,
        reports: int = 1,
    ) -> None:
        """Reports were set aside, or a part of them.

        Args:
            expected: the plausible value; the limit of the settings if empty.
        """
        self.counts[number] += reports
        key = number, source.run_id, source.group
        problem = self._problems.get(key)
        if problem is None:
            if len(self._problems) >= _MAX_REMEMBERED:
                del self._problems[next(iter(self._problems))]
            expected = expected or f"below {self._max_ranks} (scoring.max_ranks)"
            problem = self._problems[key] = _Problem(source, value, expected, now_s)
        problem.source, problem.value, problem.at_s = source, value, now_s
        problem.expected = expected or problem.expected
        problem.reports += reports
        throttle = self._logging[number]
        if throttle.wait_s(now_s) == 0.0:
            throttle.spend(1.0)
            _log.warning("%s", self._text(number, problem))

    def resolve(self, run_id: str, group: str) -> None:
        """What one rank claimed is what a quorum reports now."""
        self._problems.pop(("attempt", run_id, group), None)
        self._problems.pop(("world_size", run_id, group), None)

    def drop_old(self, now_s: float) -> None:
        for key, problem in list(self._problems.items()):
            if now_s - problem.at_s >= SHOWN_S:
                del self._problems[key]

    def texts(self) -> list[str]:
        """Sentences with what to do, newest first; further problems are counted."""
        newest = sorted(self._problems.items(), key=lambda item: -item[1].at_s)
        shown = [self._text(key[0], problem) for key, problem in newest[:MAX_SHOWN]]
        more = len(newest) - len(shown)
        return [*shown, f"{more} more problems of senders like these"] if more else shown

    def _text(self, number: Number, problem: _Problem) -> str:
        source = problem.source
        text = _TEXTS[number].format(
            who=_who(source),
            value=problem.value,
            expected=problem.expected,
            maximum=self._max_ranks,
            memory_mib=self._memory_mib,
        )
        again = f" ({problem.reports:,} reports so far)" if problem.reports > 1 else ""
        return f"{text}{again}"


def _who(source: Source) -> str:
    group = f", group {source.group[:_MAX_TEXT]!r}" if source.group else ""
    node = f" on {source.node[:_MAX_TEXT]!r}" if source.node else ""
    return f"run {source.run_id[:_MAX_TEXT]!r}{group}: the process of rank {source.rank}{node}"
