"""Who is named in alerts, and who is counted: more than five subjects with one cause are one alert,
which names the worst five. Pure.

Where a hundred ranks are about as slow, the worst five are others in each window. So one that is
named stays named while it is slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import nsmallest
from typing import Final

from otel_straggler.alerts.rule import MAX_SINGLE, Crowd, RunStatus, Score, SectionSpeed
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.model.alert import Severity
from otel_straggler.model.rank_names import ranks_text
from otel_straggler.model.verdict import CALLED_SLOW, Verdict

SCORE_LOW: Final = "StragglerScoreLow"
RANK_DEGRADED: Final = "StragglerRankDegraded"
GPU_SLOW: Final = "StragglerGpuSlow"
RUN_DEGRADED: Final = "StragglerRunDegraded"
RANK_STRAGGLING: Final = "StragglerRankStraggling"
HOST_SLOW: Final = "StragglerHostSlow"
WRITER_SLOW: Final = "StragglerCheckpointWriterSlow"
SEVERITY: Final[Mapping[str, Severity]] = {
    SCORE_LOW: "info",
    RANK_DEGRADED: "warning",
    GPU_SLOW: "warning",
}
_Key = tuple[str, Severity, str]


def low_scores(run: RunStatus, settings: AlertSettings) -> dict[str, tuple[Score, ...]]:
    """Scores below the threshold of an alert, by its name, lowest first."""
    scores = run.scores
    of_alert = {
        SCORE_LOW: (scores.section_relative, settings.relative_threshold),
        RANK_DEGRADED: (scores.section_individual, settings.individual_threshold),
        GPU_SLOW: (scores.gpu_relative, settings.gpu_threshold),
    }
    return {
        alert: tuple(score for score in its if score.value < threshold)
        for alert, (its, threshold) in of_alert.items()
    }


def slowest_section(run: RunStatus, settings: AlertSettings) -> SectionSpeed | None:
    """The section in which most ranks are furthest behind their own best; None if in none."""
    threshold = settings.individual_threshold
    low = (speed for speed in run.scores.speeds if speed.is_low(threshold))
    return min(low, key=lambda speed: (speed.median, speed.section), default=None)


class Naming:
    """The subjects of one group of a run that its alerts name. One thread owns it."""

    def __init__(self) -> None:
        self._named: dict[_Key, frozenset[str]] = {}

    def named(self, run: RunStatus, settings: AlertSettings) -> RunStatus:
        """The same with ``degraded`` and ``crowds``. Cost: O(what is slow)."""
        low = low_scores(run, settings)
        crowds = [*self._of_scores(run, low), *self._of_verdicts(run.verdicts)]
        known = {(each.alert, each.severity, each.cause) for each in crowds}
        self._named = {key: names for key, names in self._named.items() if key in known}
        degraded = low[RANK_DEGRADED]
        few = degraded if len(degraded) <= MAX_SINGLE else ()
        return replace(run, degraded=few, crowds=tuple(crowds))

    def _of_scores(self, run: RunStatus, low: Mapping[str, tuple[Score, ...]]) -> Iterator[Crowd]:
        known = {
            SCORE_LOW: run.scores.section_relative,
            RANK_DEGRADED: run.scores.section_individual,
            GPU_SLOW: run.scores.gpu_relative,
        }
        for alert, its in low.items():
            if len(its) > MAX_SINGLE:
                key = alert, SEVERITY[alert], ""
                worst = {str(score.rank): score.value for score in its}
                kept = (str(score.rank) for score in known[alert])
                names = self._sticky(key, worst, kept)
                yield _crowd(key, len(its), ranks_text([*map(int, names)]))

    def _of_verdicts(self, verdicts: Iterable[Verdict]) -> Iterator[Crowd]:
        by_key: dict[_Key, dict[str, float]] = {}
        for verdict in verdicts:
            key = key_of(verdict)
            if key is not None:
                name = verdict.node if verdict.scope == "host" else str(verdict.rank)
                subjects = by_key.setdefault(key, {})
                subjects[name] = min(
                    -verdict.gpu_seconds_lost_per_hour, subjects.get(name, float("inf"))
                )
        for key, subjects in by_key.items():
            if len(subjects) > MAX_SINGLE:
                names = self._sticky(key, subjects, subjects)
                is_host = key[0] == HOST_SLOW
                text = ", ".join(names) if is_host else ranks_text([*map(int, names)])
                yield _crowd(key, len(subjects), text)

    def _sticky(self, key: _Key, worst: Mapping[str, float], kept: Iterable[str]) -> list[str]:
        """Five names, in order: those of before that may be ``kept``, then the lowest."""
        stay = self._named.get(key, frozenset()).intersection(kept)
        new = [name for name in worst if name not in stay]
        chosen = nsmallest(MAX_SINGLE - len(stay), new, key=lambda name: (worst[name], name))
        self._named[key] = stay.union(chosen)
        return sorted(self._named[key], key=lambda name: (len(name), name))


def key_of(verdict: Verdict) -> _Key | None:
    """Name and severity of the alert that a verdict makes, and its cause if that varies; None if it
    makes none."""
    if verdict.state not in CALLED_SLOW or verdict.scope not in ("rank", "host"):
        return None
    if verdict.cause == "checkpoint":
        return (WRITER_SLOW, "warning", "") if verdict.scope == "rank" else None
    severity: Severity = "critical" if verdict.pages else "warning"
    return HOST_SLOW if verdict.scope == "host" else RANK_STRAGGLING, severity, verdict.cause


def _crowd(key: _Key, count: int, worst: str) -> Crowd:
    alert, severity, cause = key
    return Crowd(alert=alert, severity=severity, cause=cause, count=count, worst=worst)
