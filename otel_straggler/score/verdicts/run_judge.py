"""The run as a whole, and its groups of peers, against their own past: uniform slowdown, a slow
link, and slowness that the times at hand cannot localise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from otel_straggler.model.gpu_times import CUPTI, EVENTS
from otel_straggler.model.observation import Floats
from otel_straggler.model.verdict import Evidence, Verdict
from otel_straggler.score.verdicts.cases import Cases, Now
from otel_straggler.score.verdicts.clocks import Timed
from otel_straggler.score.verdicts.excess import Excesses, local_sections
from otel_straggler.score.verdicts.findings import Flags
from otel_straggler.score.verdicts.grouping import median_of_rows
from otel_straggler.score.verdicts.memory import Memory
from otel_straggler.score.verdicts.own_past import LEAST_RISES, OwnPast, Rises
from otel_straggler.score.verdicts.peers import describe_peers
from otel_straggler.score.verdicts.risen import OnlySome, in_words, only_some
from otel_straggler.score.verdicts.step_numbers import StepNumbers
from otel_straggler.score.verdicts.subjects import role_subject, run_subject
from otel_straggler.score.verdicts.waits import Synchronising
from otel_straggler.score.verdicts.world import World

HIDING_SHARE = 0.4
"""Where even the last to arrive spends so much of the step in waiting sections, the measured
sections do not hold the work: the GPU works on while the host waits."""
CLEAR_RISE = 0.015
"""A rise that is over is below it."""
_LOCAL, _WAIT, _STEP = 0, 1, 2


class RunJudge:
    """Follows the groups of peers of one world."""

    def __init__(self, cases: Cases) -> None:
        self._cases = cases
        self.past: OwnPast | None = None
        self._past_of_ranks: OwnPast | None = None

    def reset(self) -> None:
        """The groups are others now; what they took before says nothing."""
        self.past = None
        self._past_of_ranks = None

    def evaluate(
        self,
        excess: Excesses,
        world: World,
        waiting: Synchronising,
        counts: Flags,
        steps: StepNumbers,
        now: Now,
        memory: Memory,
        tokens: Floats,
        accused: Flags,
    ) -> list[Verdict]:
        """The changes of state that the newest block brings.

        Args:
            tokens: (T, R) of its steps.
            accused: (R,) who is called slow, or suspected, or on a host that is.
        """
        hidden = _hides(excess, waiting)
        local = _local(excess, world, waiting)
        more = memory.more_work(tokens, excess.peers_s, world, local)
        quantities = _quantities(excess)
        # What more tokens take longer is no slowdown; where work is hidden, all may be tokens.
        quantities[..., _LOCAL] -= more.local
        quantities[..., _STEP] -= more.most if hidden else 0.0
        if self.past is None or self.past.shape != quantities.shape[1:]:
            self.past = OwnPast(quantities.shape[1:])
            self.past.seed(memory.group_reference(world, now.at_ns))
        rises = self.past.take(np.where(counts[:, None, None], quantities, np.nan))
        of_ranks = self._rises_of_ranks(excess, world, counts, more.local)
        self._world, self._now = world, now
        self._began = steps[len(steps) - 20] if len(steps) else None
        self._step_s = float(median_of_rows(excess.step_s.reshape(-1, 1))[0])
        of_run = median_of_rows(rises.rise)
        least = median_of_rows(rises.least)
        self._evidence = _evidence(excess.timed)
        blamed = bool(self._cases.open_subjects("rank") or self._cases.open_subjects("host"))
        rises_of_run = of_run >= least
        is_slower = bool(rises_of_run[_LOCAL]) and not hidden
        some = None if hidden else only_some(of_ranks, float(of_run[_LOCAL]))
        cannot_tell = bool(rises_of_run[_STEP]) and hidden and not blamed
        changes = [
            self._uniform(float(of_run[_LOCAL]), found=is_slower and some is None, some=some),
            self._unknown(float(of_run[_STEP]), waiting, found=cannot_tell, is_all=is_slower)
            if some is None
            else self._of_some(float(of_run[_LOCAL]), some, accused, is_slower=is_slower),
        ]
        is_longer = bool(of_run[_STEP] >= 0.5 * least[_STEP])
        free = is_longer and not (hidden or blamed)
        # What groups lose in their own work, others wait for: that is no link.
        most = np.fmax.reduce(rises.rise[:, _LOCAL], initial=-np.inf)
        free = free and not most > 0.5 * of_run[_STEP]
        changes += self._links(rises, of_run, least, free=free)
        return [change for change in changes if change is not None]

    def _rises_of_ranks(self, excess: Excesses, world: World, counts: Flags, more: Floats) -> Rises:
        """(R, 1) of each rank's own work over its own past; ``more`` (G,) as for the groups."""
        if self._past_of_ranks is None or self._past_of_ranks.shape[0] != world.n_ranks:
            self._past_of_ranks = OwnPast((world.n_ranks, 1), LEAST_RISES[:1])
        with np.errstate(divide="ignore", invalid="ignore"):
            own = np.log(excess.local_s) - more[world.peers.code]
        usable = np.isfinite(own) & counts[:, None]
        return self._past_of_ranks.take(np.where(usable, own, np.nan)[..., None])

    def _uniform(self, rise: float, *, found: bool, some: OnlySome | None) -> Verdict | None:
        draft = self._draft("uniform_slowdown", rise)
        return self._take(draft, found=found, is_over=some is not None)

    def _of_some(
        self, rise: float, some: OnlySome, accused: Flags, *, is_slower: bool
    ) -> Verdict | None:
        """Not all ranks are slower, but so many, or of so few, that their peers cannot tell. Who is
        called slow by peers needs no word of the run."""
        is_told = bool(accused[some.slower].all())
        detail = in_words(some, self._world.sources)
        draft = replace(self._draft("unknown", rise), detail=detail)
        return self._take(draft, found=is_slower and not is_told, is_over=is_told)

    def _unknown(
        self, rise: float, waiting: Synchronising, *, found: bool, is_all: bool
    ) -> Verdict | None:
        draft = self._draft("unknown", rise, is_localised=False, evidence_is_shared=True)
        if waiting.inside:
            draft = replace(draft, detail=f"with work and waiting of all ranks in {waiting.inside}")
        return self._take(draft, found=found, confirmable=False, is_over=is_all)

    def _links(
        self, rises: Rises, of_run: Floats, least: Floats, *, free: bool
    ) -> list[Verdict | None]:
        """Waiting that grew for everybody, also for those who come last, is the network's."""
        beyond = rises.rise[:, _WAIT] - of_run[_WAIT]
        at_run = free and bool(of_run[_WAIT] >= least[_WAIT])
        changes = [self._take(self._draft("link", float(of_run[_WAIT])), found=at_run)]
        if not free and not self._cases.open_subjects("role"):
            return changes
        for group in range(len(beyond)):
            found = free and bool(beyond[group] >= least[_WAIT])
            draft = self._draft("link", float(beyond[group]), group=group)
            changes.append(self._take(draft, found=found))
        return changes

    def _take(
        self, draft: Verdict, *, found: bool, confirmable: bool = True, is_over: bool = False
    ) -> Verdict | None:
        state = self._cases.standing(draft.subject_id).state
        if not found and state in ("ok", "recovered"):
            return None
        clear = is_over or math.log(draft.slowdown) < CLEAR_RISE
        return self._cases.take(
            draft,
            flagged=found,
            sure=False,
            clear=clear,
            floor=0.0,
            now=self._now,
            confirmable=confirmable,
        )

    def _draft(
        self,
        cause: str,
        rise: float,
        *,
        group: int | None = None,
        is_localised: bool = True,
        evidence_is_shared: bool = False,
    ) -> Verdict:
        source = self._world.sources[0]
        role = "" if group is None else describe_peers(self._world.peers.keys[group])  # type: ignore[arg-type]
        n_ranks = max(self._world.expected, self._world.n_ranks)
        rise = max(rise, 0.0) if math.isfinite(rise) else 0.0
        return Verdict(
            run_id=source.run_id,
            group=source.group,
            attempt=source.attempt,
            subject_id=run_subject(source.group, cause)  # type: ignore[arg-type]
            if group is None
            else role_subject(source.group, role, cause),  # type: ignore[arg-type]
            scope="run" if group is None else "role",
            role=role,
            cause=cause,  # type: ignore[arg-type]
            state="suspect",
            evidence="synchronised" if evidence_is_shared else self._evidence,
            slowdown=math.exp(rise),
            since_step=self._began,
            confidence=0.5,
            gpu_seconds_lost_per_hour=(1.0 - math.exp(-rise)) * n_ranks * 3600.0,
            own_s=self._step_s,
            peers_s=self._step_s * math.exp(-rise),
            is_localised=is_localised,
            on_gpu=self._world.on_gpu,
        )


def _quantities(excess: Excesses) -> Floats:
    """(T, G, 3): log local work, log of 1 + the least wait / local work, log step."""
    local_s = excess.peers_local_s
    with np.errstate(divide="ignore", invalid="ignore"):
        waited = np.log1p(excess.least_wait_s / local_s)
        logs = np.log(local_s), waited, np.log(excess.peers_step_s)
    stacked = np.array(logs).transpose(1, 2, 0)
    return np.where(np.isfinite(stacked), stacked, np.nan)


def _local(excess: Excesses, world: World, waiting: Synchronising) -> Flags:
    timed = excess.timed
    return local_sections(world, waiting) if timed is None else np.asarray(timed.local.any(axis=0))


def _hides(excess: Excesses, waiting: Synchronising) -> bool:
    """Whether waiting sections hold work, so that a slow rank looks like its victims."""
    timed = excess.timed
    if (waiting.behaves or waiting.inside) if timed is None else timed.is_hidden:
        return True
    if timed is not None and timed.by_kernels.all():
        return False  # who waits is seen in kernels, whatever the host does meanwhile
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = excess.least_wait_s / excess.peers_step_s
    share = median_of_rows(parts.reshape(-1, 1))
    return bool(share[0] >= HIDING_SHARE)


def _evidence(timed: Timed | None) -> Evidence:
    """What the work of all groups is measured with; the host's clock where they differ."""
    if timed is None:
        return "host"
    for name, code in (("cupti", CUPTI), ("events", EVENTS)):
        if (timed.basis == code).any(axis=1).all():
            return name  # type: ignore[return-value]
    return "host"
