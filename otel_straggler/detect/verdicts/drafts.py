"""From a candidate to the verdict on it, without its state."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from otel_straggler.detect.scores.medians import median_of_rows
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.candidates import (
    NEWEST_STEPS,
    Candidate,
    CostedFindings,
    against_the_others,
    gpu_seconds_per_hour,
)
from otel_straggler.detect.verdicts.clocks import ClockedBlock
from otel_straggler.detect.verdicts.equal_work import extra_work, tokens_of_peers
from otel_straggler.detect.verdicts.excess import Excesses
from otel_straggler.detect.verdicts.memory import StepNumbers
from otel_straggler.detect.verdicts.notifications import would_page
from otel_straggler.detect.verdicts.onsets import StepBegins
from otel_straggler.detect.verdicts.significance import confidence_of
from otel_straggler.detect.verdicts.waits import LateArrivals
from otel_straggler.detect.verdicts.world import World
from otel_straggler.model.observation import Bools, Floats, Ints
from otel_straggler.model.verdict import Verdict
from otel_straggler.semconv import DEFAULT_ROLE

SMALL_GROUP = 5
SMALL_GROUP_CONFIDENCE = 0.8
INFERRED_CONFIDENCE = 0.6
MAX_STAGES = 16
"""A pipeline that nobody reported has at most so many stages."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drafts:
    """Makes the verdicts of one evaluation.

    Attributes:
        ranks: findings of the ranks, not of the hosts.
        steps: numbers of the observed steps; begins: when they began.
        slow: (R,) ranks that are slow themselves, or on a slow host.
        chance_s: (G,) seconds per step that peers who are not slow wait for the last of them.
        is_paging: of a subject, whether its newest verdict pages.
        tokens: (T, R); local: (S,) sections of own work.
    """

    settings: VerdictSettings
    world: World
    excess: Excesses
    ranks: CostedFindings
    arrivals: LateArrivals
    steps: StepNumbers
    begins: StepBegins
    slow: Bools
    chance_s: Floats
    is_paging: Callable[[str], bool]
    tokens: Floats
    local: Bools

    def draft(self, one: Candidate, subject: str, members: Ints) -> Verdict:
        """A verdict without its state; ``members`` is the rank, or the ranks of the host."""
        world, row, recent = self.world, int(members[0]), self.ranks.findings.recent
        group, peers = world.peers.code == world.peers.code[row], world.peers_of(members)
        min_peers = self.settings.min_peers
        one, others = against_the_others(one, recent, group, peers, self.slow, min_peers)
        source = world.sources[row]
        n_peers = _n_known(recent[:, one.column], others)
        step_s = float(median_of_rows(self.ranks.costs.step_s[:, None])[0])
        lost_s = self._waited_for(one)
        share = lost_s / step_s if step_s > 0.0 else 0.0
        n_ranks = max(world.expected, world.n_ranks)
        draft = Verdict(
            run_id=source.run_id,
            group=source.group,
            attempt=source.attempt,
            subject_id=subject,
            scope="rank",
            rank=source.rank,
            node=source.node,
            role="" if source.role == DEFAULT_ROLE else source.role,
            section="" if one.section is None else one.section.name,
            cause=one.cause,
            state="suspect",
            slowdown=math.exp(one.effect),
            since_step=self._since(one),
            since_ns=self._since_ns(one, row),
            confidence=self._confidence(one, n_peers),
            began=one.began,
            gpu_seconds_lost_per_hour=gpu_seconds_per_hour(lost_s, step_s, n_ranks),
            loss_share=share,
            adds_up=one.is_late and one.since < 0,
            n_peers=n_peers,
            own_s=one.own_s,
            peers_s=one.peers_s,
            is_inferred=world.is_inferred,
            on_gpu=source.reports_gpu,
            detail=self._details(one, row, int((peers & self.slow & ~others).sum())),
        )
        if self.excess.timed is not None:
            draft = self._by_clock(draft, one, int(world.peers.code[row]), self.excess.timed)
        is_chore = one.cause == "unknown"
        pages = would_page(draft, self.settings, is_paging=self.is_paging(subject))
        return replace(draft, pages=pages and not (is_chore or self._may_be_role(one)))

    def _waited_for(self, one: Candidate) -> float:
        """Seconds per step that the others wait for it, and would not wait for each other.

        By chance one of them is always the last, by exponential times whose mean is known: an
        excess e over their median makes the step longer by the mean of max(e - time, 0).
        """
        chance_s = float(self.chance_s[self.world.peers.code[one.row]])
        if one.stalling is not None or one.since < 0 or not chance_s > 0.0:
            return one.lost_s
        return one.lost_s + chance_s * math.expm1(-one.lost_s / chance_s)

    def with_extra_work(self, draft: Verdict, one: Candidate) -> Verdict:
        """No cause where the time lies in a section that its peers do not run."""
        if one.section is not None or one.is_late:
            return draft
        result = extra_work(self.excess, self.world, self.local, one.row, one.lost_s)
        return replace(draft, cause="unknown", evidence="host", detail=result) if result else draft

    def _may_be_role(self, one: Candidate) -> bool:
        """Whether it was always slow as far as is known, nobody reported the layout, and so many as
        are slow can be a stage with more work. Ranks that never wait for each other are no
        pipeline."""
        is_born = one.began == "born" or (one.began == "unknown" and one.since <= NEWEST_STEPS)
        if self.world.is_reported or not is_born or not np.isfinite(self.excess.waited_s).any():
            return False
        return MAX_STAGES * int(self.slow.sum()) >= self.world.n_ranks

    def _details(self, one: Candidate, row: int, n_alike: int) -> str:
        also = f"like {n_alike:,} more of its peers" if n_alike else ""
        role = "or its work is another: no rank reported its role (set_topology)"
        lateness = self.arrivals.lateness(row) if one.is_late else None
        parts = (
            self._of_work(row),
            str(lateness or ""),
            str(one.stalling or ""),
            also,
            role if self._may_be_role(one) and not (one.stalling or one.is_late) else "",
        )
        return ", ".join(filter(None, parts))

    def _of_work(self, row: int) -> str:
        times = tokens_of_peers(self.tokens, self.world.peers, row)
        if not times > 1.0:
            return ""
        return f"beyond what {times:.2f}x as many tokens as theirs explain"

    def _by_clock(self, draft: Verdict, one: Candidate, group: int, timed: ClockedBlock) -> Verdict:
        """With the basis of the times; no GPU is called slow without times if others have some."""
        if one.is_late:
            tells = timed.tells_waiting[self.world.peers.members[group, 0]]
            return replace(draft, evidence=timed.evidence_of_waiting(group) if tells else "host")
        section = one.section or one.heaviest
        if section is None:
            return draft
        column = self.world.sections.index(section)
        draft = replace(draft, evidence=timed.evidence_of(group, column))
        is_unseen = draft.cause == "slow_gpu" and draft.evidence in ("host", "collective")
        return replace(draft, cause="slow_host") if is_unseen and timed.has_gpu(group) else draft

    def _since(self, one: Candidate) -> int | None:
        if len(self.steps) == 0 or one.onset < 0:
            return None
        return self.steps[one.onset - 1]

    def _since_ns(self, one: Candidate, row: int) -> int:
        """Of the rank, or of the first one of a host; 0 if unknown."""
        return 0 if one.onset < 0 else self.begins.at_ns(row, max(one.onset - 1, 0))

    def _confidence(self, one: Candidate, n_peers: int) -> float:
        limit = self.settings.min_z if math.isnan(one.z_limit) else one.z_limit
        confidence = confidence_of(one.z, limit)
        if n_peers + 1 < SMALL_GROUP:
            confidence = min(confidence, SMALL_GROUP_CONFIDENCE)
        if self.world.is_inferred:
            confidence = min(confidence, INFERRED_CONFIDENCE)
        coverage = self.world.n_ranks / max(self.world.expected, self.world.n_ranks, 1)
        return round(confidence * min(1.0, coverage), 3)


def _n_known(recent: Floats, of: Bools) -> int:
    """Ranks with recent times; all, if none has: a longer window compares them then."""
    return int(np.isfinite(recent[of]).sum()) or int(of.sum())
