"""The product's own verdicts: what ``Judge`` confirms."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.detection.episodes import Episode
from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.observation import Floats
from otel_straggler.model.step_table import StepTable
from otel_straggler.model.verdict import State, Verdict

ACCUSED: tuple[State, ...] = ("confirmed", "flapping")
_WEIGHTS: dict[State, float] = {"confirmed": 10.0, "flapping": 10.0, "suspect": 2.0}


class Ours:
    """Episodes of what is confirmed. Strength of an episode = confidence x log slowdown.

    An episode begins with the newest step that was handed in, whatever the verdict says of itself.

    Attributes:
        strengths: (R,) confirmed before suspect, larger slowdowns first, then who made others
            wait most.
        unlocalised: steps at which a verdict said that it cannot localise.
        engine: the one that is measured.
    """

    has_host_scope = True

    def __init__(self) -> None:
        self.name = "otel-straggler"
        self.unlocalised: list[int] = []
        self.engine = VerdictEngine()
        self._open: dict[str, Episode] = {}
        self._current: dict[str, Verdict] = {}
        self._nodes: dict[str, frozenset[int]] = {}
        self._ranks: tuple[int, ...] = ()
        self._sources: Any = ()

    def take(self, table: StepTable) -> list[Episode]:
        """Episodes that begin with these steps."""
        if table.sources is not self._sources:
            self._learn(table)
        return self._episodes(self.engine.observe(table), int(table.steps[-1]))

    def finish(self, last_step: int) -> list[Episode]:
        """What is said when the input ends."""
        return self._episodes(self.engine.finish(), last_step)

    @property
    def strengths(self) -> Floats:
        strengths = dict.fromkeys(self._ranks, 0.0)
        summary = self.engine.summary()
        waits = summary.waits if summary else ()
        max_s = max((wait.caused_s for wait in waits), default=0.0)
        for wait in waits:
            if wait.rank in strengths and max_s > 0:
                strengths[wait.rank] += wait.caused_s / max_s
        for verdict in self._current.values():
            weight = _WEIGHTS.get(verdict.state, 0.0)
            for rank in self.accused(verdict) & strengths.keys():
                strengths[rank] += weight * max(1.0, float(np.nan_to_num(verdict.slowdown)))
        return np.array([strengths[rank] for rank in self._ranks])

    def _learn(self, table: StepTable) -> None:
        self._sources = table.sources
        self._ranks = tuple(source.rank for source in table.sources)
        nodes: dict[str, set[int]] = {}
        for source in table.sources:
            nodes.setdefault(source.node, set()).add(source.rank)
        self._nodes = {node: frozenset(ranks) for node, ranks in nodes.items()}

    def accused(self, verdict: Verdict) -> frozenset[int]:
        """Ranks that a verdict calls slow; none if it is about a role or the run."""
        if verdict.scope == "rank" and verdict.rank is not None:
            return frozenset((verdict.rank,))
        return (
            self._nodes.get(verdict.node, frozenset()) if verdict.scope == "host" else frozenset()
        )

    def _episodes(self, changes: tuple[Verdict, ...], step: int) -> list[Episode]:
        begun = []
        for verdict in changes:
            self._current[verdict.subject_id] = verdict
            if not verdict.is_localised:
                self.unlocalised.append(step)
            episode = self._open.get(verdict.subject_id)
            if verdict.state not in ACCUSED:
                if episode:
                    self._open.pop(verdict.subject_id).end_step = step
            elif episode:
                episode.strength = max(episode.strength, _strength(verdict))
            else:
                self._open[verdict.subject_id] = self._begin(verdict, step)
                begun.append(self._open[verdict.subject_id])
        return begun

    def _begin(self, verdict: Verdict, step: int) -> Episode:
        return Episode(
            scope=verdict.scope,
            ranks=self.accused(verdict),
            node=verdict.node if verdict.scope == "host" else "",
            begin_step=step,
            strength=_strength(verdict),
            section=verdict.section,
            cause=verdict.cause,
            slowdown=verdict.slowdown,
            sentence=verdict.sentence,
        )


def _strength(verdict: Verdict) -> float:
    size = float(np.log(verdict.slowdown)) if verdict.slowdown > 1 else 0.0
    return verdict.confidence * size
