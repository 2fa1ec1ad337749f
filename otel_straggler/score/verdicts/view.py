"""Findings of one track with their prices: who is beyond what counts, and who is clear again."""

from __future__ import annotations

import numpy as np

from otel_straggler.model.observation import Floats, Ints
from otel_straggler.model.verdict import Verdict
from otel_straggler.score.verdicts.candidates import (
    NEWEST_STEPS,
    Candidate,
    Found,
    Prices,
    candidate,
    material,
)
from otel_straggler.score.verdicts.findings import Flags
from otel_straggler.score.verdicts.settings import VerdictSettings
from otel_straggler.score.verdicts.track import Track
from otel_straggler.score.verdicts.world import World


class View:
    """Findings of one track with their prices."""

    def __init__(
        self,
        track: Track,
        least: Floats,
        told: Prices,
        world: World,
        settings: VerdictSettings,
        *,
        only_known: bool,
    ) -> None:
        self.track = track
        self.findings = track.evaluate(least)
        self.prices = told
        self._world = world
        beyond, verified = material(self.findings, told, settings.least_share)
        if only_known:  # who no longer tells its GPU time keeps the verdict that it has
            known = np.isfinite(self.findings.recent)
            beyond, verified = beyond & known, verified & known
        self._found = Found(track=track, findings=self.findings, beyond=beyond, verified=verified)

    def candidates(self) -> list[Candidate]:
        rows = np.flatnonzero((self._found.beyond | self._found.verified).any(axis=1)).tolist()
        sections = self._world.sections
        return [candidate(row, self._found, self.prices, sections) for row in rows]

    def only_in(self, row: int, shared: Flags) -> bool:
        """Whether no section but these is slow; where none is by itself, by the largest."""
        flagged = (self._found.beyond[row] | self._found.verified[row])[1:-1]
        if flagged.any():
            return not (flagged & ~shared).any()
        recent = np.nan_to_num(self.findings.recent[row, 1:-1], nan=-np.inf)
        lost = recent * self.prices.columns_s[row, 1:-1]
        return bool(shared[int(np.argmax(lost))])

    def worst_of(self, rows: Ints, one: Candidate) -> Floats:
        """(rows,) excess of the local work or lateness since ``one`` began."""
        steps = max(self.track.steps - one.since + 1, 5) if one.since > 0 else NEWEST_STEPS
        since = self.track.since(rows, steps)[:, [0, -1]]
        return np.asarray(np.fmax.reduce(since, axis=1))

    def is_clear(self, row: int, verdict: Verdict, floor: float) -> bool:
        """Whether the newest 20 steps are as those of the peers, with a margin for chance."""
        names = [section.name for section in self._world.sections]
        columns = [0, len(names) + 1]
        if verdict.section in names:
            columns.append(names.index(verdict.section) + 1)
        recent = self.findings.recent[row, columns]
        error = self.findings.recent_error[columns]
        known = np.isfinite(recent)
        if not known.any():
            return False
        return bool((recent[known] + error[known] <= np.maximum(0.5 * floor, error[known])).all())
