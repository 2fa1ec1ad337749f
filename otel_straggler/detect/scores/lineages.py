"""Which windows are of the same work, so that a rank may be compared with its own past: those of a
run's attempts, and of restarts of one job under another name, as long as their sections cost about
the same. A small configuration, tried before the real one, is no past of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from otel_straggler.detect.scores.medians import median_of_peers
from otel_straggler.errors import InputError
from otel_straggler.model.observation import Floats, Section
from otel_straggler.model.rank import Source
from otel_straggler.semconv import LISTED_KINDS

SAME_COST: Final = 1.2
"""Costs of one work differ by less than this factor from start to start."""
STABLE_COST: Final = 1.1
"""And from window to window once it is warm."""
_MAX_UNSTABLE: Final = 5
"""Windows after which an attempt counts as warm anyway."""
_MIN_SHARE: Final = 0.05
"""Sections that cost less of a step do not count."""
_MAX_PER_JOB: Final = 64
_MAX_LINEAGES: Final = 1_000
_MAX_ATTEMPTS: Final = 4_096

Costs = Mapping[str, float]
_Attempt = tuple[str, str, str]
"""Run, group, and which attempt of it."""


@dataclass(slots=True)
class _Lineage:
    name: str
    costs: Costs
    used_at_ns: int


@dataclass(slots=True)
class _Start:
    """An attempt whose lineage is not known yet: its last costs, after so many windows."""

    costs: Costs = field(default_factory=dict)
    n_windows: int = 0


class Lineages:
    """Lineages by job and group, and of each attempt the one to which it belongs.

    Until an attempt is known to be of an earlier lineage it has its own, with its name. It is known
    by what its sections cost: at once where that is what they cost before, else in its first window
    that is like the one before it, when it is warm.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], list[_Lineage]] = {}
        self._starts: dict[_Attempt, _Start] = {}
        self._settled: dict[_Attempt, str] = {}
        self._has_grown = False

    def follow(self, source: Source, part: str, costs: Costs, now_ns: int) -> tuple[str, str]:
        """The lineage of a window, and the one that it had until now; the same if it stays.

        Args:
            source: any of the window.
            part: tells apart windows of one attempt that are not compared: by time and by step.
            costs: see :func:`costs_of`.
            now_ns: end of the window, the sender's clock.
        """
        attempt = source.run_id, source.group, f"{source.attempt}{part}"
        lineages = self._known.setdefault((source.job, source.group), [])
        name = self._settled.get(attempt, "\0".join(attempt))
        own = next((each for each in lineages if each.name == name), None)
        if own is None:
            own = _Lineage(name, costs, now_ns)
            lineages.append(own)
            self._has_grown = True
        own.used_at_ns = max(own.used_at_ns, now_ns)
        if attempt in self._settled:
            return name, name
        start = self._starts.setdefault(attempt, _Start())
        start.n_windows += 1
        match = _closest((each for each in lineages if each is not own), source.run_id, costs)
        if match is not None:
            lineages.remove(own)
            match.used_at_ns = max(match.used_at_ns, now_ns)
            for other, its in self._settled.items():
                if its == name:
                    self._settled[other] = match.name
            self._settle(attempt, match.name)
            return match.name, name
        own.costs = costs
        if _ratio(costs, start.costs) < STABLE_COST or start.n_windows >= _MAX_UNSTABLE:
            self._settle(attempt, name)
        start.costs = costs
        return name, name

    def _settle(self, attempt: _Attempt, name: str) -> None:
        self._starts.pop(attempt, None)
        self._settled[attempt] = name
        for held in (self._settled, self._starts):
            while len(held) > _MAX_ATTEMPTS:
                del held[next(iter(held))]

    def drain_dropped(self, *, is_full: bool = False) -> list[str]:
        """Lineages that have not been used for longest, of a job with more than 64, or of very
        many, or a quarter of all if memory ``is_full``; they are dropped."""
        if not self._has_grown:
            return []
        self._has_grown = False
        every = [each for lineages in self._known.values() for each in lineages]
        every.sort(key=lambda each: each.used_at_ns)
        over = max(len(every) - _MAX_LINEAGES, len(every) // 4 if is_full else 0)
        names = {each.name for each in every[:over]}
        for lineages in self._known.values():
            lineages.sort(key=lambda each: each.used_at_ns)
            names.update(each.name for each in lineages[:-_MAX_PER_JOB])
        if names:
            self._known = {
                key: [each for each in lineages if each.name not in names]
                for key, lineages in self._known.items()
            }
            self._settled = {a: name for a, name in self._settled.items() if name not in names}
        return sorted(names)

    # --- over restarts -----------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """In JSON's types."""
        return {
            "known": [
                [*key, each.name, each.used_at_ns, dict(each.costs)]
                for key, lineages in self._known.items()
                for each in lineages
            ],
            "settled": [[*attempt, name] for attempt, name in self._settled.items()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Raises: InputError without a change if it is no such state."""
        try:
            known: dict[tuple[str, str], list[_Lineage]] = {}
            for job, group, name, used_at_ns, costs in state["known"]:
                its = {str(key): float(cost) for key, cost in costs.items()}
                lineage = _Lineage(str(name), its, int(used_at_ns))
                known.setdefault((str(job), str(group)), []).append(lineage)
            settled = {(str(r), str(g), str(a)): str(name) for r, g, a, name in state["settled"]}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            value = f"{type(error).__name__}: {error}"
            expected = "what Lineages.state() gives"
            where, remedy = "state of lineages of runs", "Start without it."
            raise InputError.of(where, value, expected, remedy) from None
        self._known, self._settled, self._starts = known, settled, {}


def costs_of(sources: Sequence[Source], sections: Sequence[Section], step_s: Floats) -> Costs:
    """Typical seconds per step of each section that may be listed, by role: the median over its
    ranks, so that a slow one changes nothing. Loading of data, which depends on others, counts only
    where there is nothing else.

    Args:
        step_s: (R, S) seconds per step; NaN where a rank ran nothing.
    """
    by_kind: dict[bool, dict[str, float]] = {True: {}, False: {}}
    roles = [source.role for source in sources]
    names = list(dict.fromkeys(roles))
    typical_s = median_of_peers(step_s, np.array([names.index(role) for role in roles]))
    for role in names:
        costs = typical_s[roles.index(role)].tolist()
        for section, cost in zip(sections, costs, strict=True):
            if section.kind in LISTED_KINDS and cost == cost:  # no NaN
                by_kind[section.kind == "data"][f"{role}\0{section.name}"] = cost
    return by_kind[False] or by_kind[True]


def _closest(lineages: Iterable[_Lineage], run_id: str, costs: Costs) -> _Lineage | None:
    """The lineage of the same work, of the same run if it has one; None if there is none."""
    same = [(_ratio(costs, each.costs), each) for each in lineages]
    same = [(ratio, each) for ratio, each in same if ratio < SAME_COST]
    is_other = f"{run_id}\0"
    return min(
        same,
        key=lambda pair: (not pair[1].name.startswith(is_other), pair[0]),
        default=(0.0, None),
    )[1]


def _ratio(one: Costs, other: Costs) -> float:
    """By what factor a section that counts costs more or less at most; infinite if less than half
    of the costs can be compared."""
    total, other_total = sum(one.values()), sum(other.values())
    common = one.keys() & other.keys()
    if 2 * sum(one[k] for k in common) < total or 2 * sum(other[k] for k in common) < other_total:
        return float("inf")
    counted = [
        max(one[k] / other[k], other[k] / one[k])
        for k in common
        if one[k] > 0
        and other[k] > 0
        and (one[k] >= _MIN_SHARE * total or other[k] >= _MIN_SHARE * other_total)
    ]
    return max(counted, default=float("inf"))
