"""Everywhere at once: a run or group that is over, or for which there is no room, is let go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from otel_straggler.collector.crowding import Crowding
from otel_straggler.collector.forgetting import Forgetting, least_missed
from otel_straggler.collector.liveness import Liveness, World
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import hang_subject
from otel_straggler.score.scorer import Scorer

HungOf = Callable[[str], Collection[str]]
"""The subjects of a run that hang, whether or not somebody acknowledged that."""


class KnowsRuns(Protocol):
    """Keeps something by run and group."""

    def forget(self, run_ids: tuple[str, ...], /) -> None: ...

    def forget_group(self, run_id: str, group: str, /) -> None: ...


class LettingGo:
    """One thread owns it; time is an argument.

    Args:
        crowding: who is let in; told who is left.
        forgetting: which runs go, and when.
        scorer: gives the windows that were open.
        liveness: which runs there are, and when they were heard of.
        others: that keep something of a run.
        max_groups: the most of a run that are kept.
        hung: who hangs.
        needs_somebody: whether a run hangs and nobody has acknowledged that.
        show: takes windows, while their run is still known.
    """

    def __init__(
        self,
        crowding: Crowding,
        forgetting: Forgetting,
        scorer: Scorer,
        liveness: Liveness,
        others: Collection[KnowsRuns],
        *,
        max_groups: int,
        hung: HungOf,
        needs_somebody: Callable[[str], bool],
        show: Callable[[list[WindowScores], float], None],
    ) -> None:
        self._crowding = crowding
        self._forgetting = forgetting
        self._scorer = scorer
        self._liveness = liveness
        self._others = (liveness, *others)
        self._max_groups = max_groups
        self._hung = hung
        self._needs_somebody = needs_somebody
        self._show = show

    def look(self, now_s: float) -> None:
        """Let go what goes now. Cost: O(runs), and of those that go what they keep."""
        runs = {run_id: self._liveness.worlds(run_id) for run_id in self._liveness.runs()}
        self._crowding.keep_only(runs, now_s)
        for run_id, worlds in runs.items():
            if len(worlds) > self._max_groups:
                self._bound_groups(run_id, worlds, now_s)
        heard, ended = self._liveness.heard(), self._liveness.has_ended
        gone = self._forgetting.gone(heard, self._needs_somebody, now_s, ended)
        for run_id in gone:
            self._show(self._scorer.evict(run_id), now_s)
        for each in self._others:
            each.forget(gone)

    def _bound_groups(self, run_id: str, worlds: Mapping[str, World], now_s: float) -> None:
        """Of more groups of a run than are kept those go that nobody misses."""
        hung = self._hung(run_id)
        for group in least_missed(
            {group: world.touched_at_s for group, world in worlds.items()},
            self._max_groups,
            lambda group: hang_subject(group) in hung,
            lambda group: worlds[group].finished_at_s is not None,
            now_s,
        ):
            self._show(self._scorer.evict(run_id, group), now_s)
            for each in self._others:
                each.forget_group(run_id, group)
