"""The run and its groups of peers against their own past: uniform slowdown, a slow link, and
slowness that cannot be localized."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace

import numpy as np

from otel_straggler.detect.scores.medians import median_of, median_of_rows
from otel_straggler.detect.verdicts.clocks import ClockedBlock
from otel_straggler.detect.verdicts.excess import Excesses, local_sections
from otel_straggler.detect.verdicts.hidden import reason
from otel_straggler.detect.verdicts.log import EvaluationTime, VerdictLog
from otel_straggler.detect.verdicts.memory import Memory, StepNumbers
from otel_straggler.detect.verdicts.noise import INDEPENDENT, MIN_SIGMA, NoiseScales
from otel_straggler.detect.verdicts.onsets import REMEMBERED_BLOCKS, StepBegins, onset_of
from otel_straggler.detect.verdicts.significance import SIGMA_OF_MAD, confidence_of
from otel_straggler.detect.verdicts.waits import WaitDetector
from otel_straggler.detect.verdicts.world import World, describe_peers, draft_of, run_subject
from otel_straggler.model.causes import Cause
from otel_straggler.model.observation import (
    BASIS_NAMES,
    COLLECTIVE,
    CUPTI,
    DDP,
    EVENTS,
    Bools,
    Floats,
)
from otel_straggler.model.rank import Source
from otel_straggler.model.verdict import CALLED_SLOW, Evidence, Verdict

HIDING_SHARE = 0.4
"""If even the last to arrive spends this part of the step waiting, the measured sections do not
hold the work: the GPU works while the host waits."""
CLEAR_RISE = 0.015
"""A rise is over below it."""
_LOCAL, _WAIT, _STEP = 0, 1, 2
_OF_CAUSE: dict[Cause, int] = {"uniform_slowdown": _LOCAL, "link": _WAIT}


class RunVerdictEngine:
    """Evaluates the groups of peers of one world."""

    def __init__(self, log: VerdictLog, min_share: float) -> None:
        """``min_share``: what costs less than this part of the step is no verdict."""
        self._log = log
        self._min_share = min_share
        self.reset()

    def reset(self) -> None:
        self.past: OwnPast | None = None
        self._past_of_ranks: OwnPast | None = None
        self._levels: deque[tuple[int, Floats]] = deque(maxlen=REMEMBERED_BLOCKS)

    def evaluate(
        self,
        excess: Excesses,
        world: World,
        waiting: WaitDetector,
        counts: Bools,
        steps: StepNumbers,
        begins: StepBegins,
        now: EvaluationTime,
        memory: Memory,
        tokens: Floats,
        accused: Bools,
    ) -> list[Verdict]:
        """Changes of state from the newest block, with (T, R) tokens. ``accused`` (R,) are ranks
        that are slow or suspected, or on such a host."""
        hidden, unseen = _hides(excess, waiting), waiting.is_unseen
        local = _local(excess, world, waiting)
        more, max_more = memory.more_work(tokens, excess.peers_s, world, local)
        quantities = _quantities(excess)
        # What more tokens take longer is no slowdown; where work is hidden, all may be tokens.
        quantities[..., _LOCAL] -= more
        quantities[..., _STEP] -= max_more if hidden or unseen else 0.0
        if self.past is None or self.past.shape != quantities.shape[1:]:
            self.past = OwnPast(quantities.shape[1:])
            self.past.seed(memory.group_reference(world, now.at_ns))
        rises = self.past.observe(np.where(counts[:, None, None], quantities, np.nan))
        of_ranks = self._rises_of_ranks(excess, world, counts, more)
        self._world, self._now = world, now
        self._steps, self._begins = steps, begins
        self._error = rises.error
        if counts.any():
            level = median_of_rows(median_of_rows(quantities[counts]))
            self._levels.append((len(begins) - len(quantities), level))
        self._step_s = float(median_of_rows(excess.step_s.reshape(-1, 1))[0])
        self._parts = _parts_of_step(excess)
        of_run = median_of_rows(rises.rise)
        minimum = median_of_rows(rises.minimum)
        self._evidence = evidence_of(excess.timed)
        blamed = bool(self._log.open_subjects("rank") or self._log.open_subjects("host"))
        rises_of_run = of_run >= minimum
        is_slower = bool(rises_of_run[_LOCAL]) and not hidden
        is_slower = is_slower and self._costs(float(of_run[_LOCAL]), _LOCAL)
        is_all = is_slower and _is_of_all(of_ranks.rise[:, 0], float(of_run[_LOCAL]))
        some = None if hidden else only_some(of_ranks, float(of_run[_LOCAL]))
        cannot_report = bool(rises_of_run[_STEP]) and (hidden or unseen) and not blamed
        changes = [
            self._record(
                self._draft("uniform_slowdown", float(of_run[_LOCAL]), _LOCAL),
                is_present=is_all and some is None and not unseen,
                is_over=is_slower and not (is_all and some is None),
            ),
            self._unknown(
                float(of_run[_STEP]),
                waiting,
                is_present=cannot_report,
                is_all=is_all and self._is_uniform(),
            )
            if some is None
            else self._of_some(float(of_run[_LOCAL]), some, accused, of_ranks.beyond[:, 0]),
        ]
        is_longer = bool(of_run[_STEP] >= 0.5 * minimum[_STEP])
        free = is_longer and not (hidden or blamed)
        # What groups lose in their own work, others wait for: that is no link.
        maximum = np.fmax.reduce(rises.rise[:, _LOCAL], initial=-np.inf) * self._parts[_LOCAL]
        free = free and not maximum > 0.5 * of_run[_STEP]
        changes += self._links(rises, of_run, minimum, free=free)
        return [change for change in changes if change is not None]

    def _is_uniform(self) -> bool:
        subject = run_subject(self._world.sources[0].group, "uniform_slowdown")
        return self._log.state_of(subject).state in CALLED_SLOW

    def _rises_of_ranks(self, excess: Excesses, world: World, counts: Bools, more: Floats) -> Rises:
        """(R, 1) of each rank's own work; ``more`` (G,) as for the groups."""
        if self._past_of_ranks is None or self._past_of_ranks.shape[0] != world.n_ranks:
            self._past_of_ranks = OwnPast((world.n_ranks, 1), MIN_RISES[:1])
        with np.errstate(divide="ignore", invalid="ignore"):
            own = np.log(excess.local_s) - more[world.peers.code]
        usable = np.isfinite(own) & counts[:, None]
        return self._past_of_ranks.observe(np.where(usable, own, np.nan)[..., None])

    def _of_some(
        self, rise: float, some: tuple[Bools, Bools], accused: Bools, beyond: Bools
    ) -> Verdict | None:
        """Slower ranks that peers cannot show; over once all of them are accused. ``beyond`` (R,):
        by their own past."""
        is_reported = bool(accused[some[0]].all())
        detail = in_text(*some, self._world.sources)
        draft = replace(self._draft("unknown", rise, _LOCAL), detail=detail)
        is_slower = rise >= MIN_RISES[_LOCAL] and bool(beyond[some[0]].any())
        is_slower = is_slower and self._costs(rise, _LOCAL)
        return self._record(draft, is_present=is_slower and not is_reported, is_over=is_reported)

    def _unknown(
        self, rise: float, waiting: WaitDetector, *, is_present: bool, is_all: bool
    ) -> Verdict | None:
        draft = self._draft("unknown", rise, _STEP, is_localised=False)
        draft = replace(draft, detail=reason(waiting))
        return self._record(draft, is_present=is_present, confirmable=False, is_over=is_all)

    def _links(
        self, rises: Rises, of_run: Floats, minimum: Floats, *, free: bool
    ) -> list[Verdict | None]:
        """Waiting that grew for everybody, also for the last to arrive, is the network's."""
        beyond = rises.rise[:, _WAIT] - of_run[_WAIT]
        rise = float(of_run[_WAIT])
        at_run = free and rise >= minimum[_WAIT] and self._costs(rise, _WAIT)
        changes = [self._record(self._draft("link", rise, _WAIT), is_present=bool(at_run))]
        if not free and not self._log.open_subjects("role"):
            return changes
        for group in range(len(beyond)):
            rise = float(beyond[group])
            result = free and rise >= minimum[_WAIT] and self._costs(rise, _WAIT)
            draft = self._draft("link", rise, _WAIT, group=group)
            changes.append(self._record(draft, is_present=bool(result)))
        return changes

    def _record(
        self, draft: Verdict, *, is_present: bool, confirmable: bool = True, is_over: bool = False
    ) -> Verdict | None:
        part = float(self._parts[_OF_CAUSE.get(draft.cause, _STEP)])
        clear = is_over or math.log(draft.slowdown) < max(CLEAR_RISE * part, 0.5 * self._min_share)
        return self._log.record(
            draft, flagged=is_present, clear=clear, now=self._now, confirmable=confirmable
        )

    def _lost(self, rise: float, quantity: int) -> float:
        """Part of the whole step that a rise of a quantity costs."""
        rise = max(rise, 0.0) if math.isfinite(rise) else 0.0
        return (1.0 - math.exp(-rise)) * float(self._parts[quantity])

    def _costs(self, rise: float, quantity: int) -> bool:
        """Whether it is enough for a verdict."""
        return self._lost(rise, quantity) >= self._min_share

    def _draft(
        self,
        cause: Cause,
        rise: float,
        quantity: int,
        *,
        group: int | None = None,
        is_localised: bool = True,
    ) -> Verdict:
        """Of a rise of a quantity of the run, or of a group of it."""
        source = self._world.sources[0]
        role = "" if group is None else describe_peers(self._world.peers.keys[group])  # type: ignore[arg-type]
        n_ranks = max(self._world.expected, self._world.n_ranks)
        lost = self._lost(rise, quantity)
        rise = max(rise, 0.0) if math.isfinite(rise) else 0.0
        began = self._onset(quantity)
        return draft_of(
            source,
            cause,
            role,
            evidence=self._evidence if is_localised else "synchronised",
            slowdown=1.0 / (1.0 - lost),
            since_step=self._steps[began] if len(self._steps) else None,
            since_ns=self._begins.at_ns(0, began),
            confidence=confidence_of(rise / max(float(self._error[quantity]), MIN_SIGMA), SIGMAS),
            gpu_seconds_lost_per_hour=lost * n_ranks * 3600.0,
            own_s=self._step_s,
            peers_s=self._step_s * (1.0 - lost),
            is_localised=is_localised,
            on_gpu=self._world.on_gpu,
        )

    def _onset(self, column: int) -> int:
        """Index of the step at which the quantity rose."""
        assert self.past is not None
        levels = np.array([level[column] for _, level in self._levels])
        normal = float(median_of_rows(self.past.reference)[column])
        at = onset_of(levels, normal, float(self._error[column]))
        return self._levels[at][0] if self._levels else 0


def _parts_of_step(excess: Excesses) -> Floats:
    """(3,) part of the usual step that each of the quantities is; all of it if unknown. That of
    waiting is a part of the work and the waiting."""
    with np.errstate(divide="ignore", invalid="ignore"):
        local = excess.peers_local_s / excess.peers_step_s
        both = (excess.peers_local_s + excess.min_wait_s) / excess.peers_step_s
    parts = np.array([*(median_of_rows(of.reshape(-1, 1))[0] for of in (local, both)), 1.0])
    return np.where(np.isfinite(parts), np.clip(parts, 1e-9, 1.0 - 1e-9), 1.0 - 1e-9)


def _quantities(excess: Excesses) -> Floats:
    """(T, G, 3): log local work, log of 1 + the shortest wait / local work, log step."""
    local_s = excess.peers_local_s
    with np.errstate(divide="ignore", invalid="ignore"):
        waited = np.log1p(excess.min_wait_s / local_s)
        logs = np.log(local_s), waited, np.log(excess.peers_step_s)
    stacked = np.array(logs).transpose(1, 2, 0)
    return np.where(np.isfinite(stacked), stacked, np.nan)


def _local(excess: Excesses, world: World, waiting: WaitDetector) -> Bools:
    timed = excess.timed
    return local_sections(world, waiting) if timed is None else np.asarray(timed.local.any(axis=0))


def _hides(excess: Excesses, waiting: WaitDetector) -> bool:
    """Whether waiting sections hold work, so that a slow rank looks like its victims."""
    timed = excess.timed
    if (waiting.behaves or waiting.inside) if timed is None else timed.is_hidden:
        return True
    if timed is not None and timed.all_by_kernels():
        return False
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = excess.min_wait_s / excess.peers_step_s
    share = median_of_rows(parts.reshape(-1, 1))
    return bool(share[0] >= HIDING_SHARE)


def evidence_of(timed: ClockedBlock | None) -> Evidence:
    """Basis of the work of all groups; the host's clock where they differ."""
    if timed is None:
        return "host"
    for code in (CUPTI, DDP, EVENTS, COLLECTIVE):
        if (timed.basis == code).any(axis=1).all():
            return BASIS_NAMES[code]
    return "host"


MIN_RISES = np.array([0.05, 0.03, 0.05])
"""Of local work, of waiting (a part of the work), and of the step; logarithms."""
MIN_PAST_BLOCKS = 8
"""Blocks (40 steps) before there is a past, ..."""
MAX_PAST_BLOCKS = 400
"""... and after which older ones fade."""
NEWEST_PAST_BLOCKS = 4
"""Blocks (20 steps) whose median is compared with it."""
SIGMAS = 4.0
"""Standard errors that a rise needs."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rises:
    """(G, C) rise of the newest 20 steps, its minimum, who is beyond; (C,) standard error."""

    rise: Floats
    minimum: Floats
    beyond: Bools
    error: Floats


class OwnPast:
    """G groups (or ranks) and C quantities, logarithms, against their own past: the mean of its
    blocks, frozen during a rise. Alone it never pages: a longer sequence or a colder data center
    looks the same."""

    def __init__(self, shape: tuple[int, int], min_rises: Floats = MIN_RISES) -> None:
        self.shape = shape
        self._min_rises = min_rises
        self.reference = np.full(shape, np.nan)
        self.blocks = np.zeros(shape, np.int64)
        self._sigma = np.full(shape[1], np.nan)
        self._noise = NoiseScales(shape, n_fitted=0.0)
        self._newest: list[Floats] = []
        self._n_blocks = 0

    def seed(self, reference: Floats) -> None:
        """Continue from (G, C) normal values; NaN if unknown."""
        known = np.isfinite(reference)
        self.reference = np.where(known, reference, self.reference)
        self.blocks = np.where(known, MIN_PAST_BLOCKS, self.blocks)

    def observe(self, values: Floats) -> Rises:
        """The next block, (T, G, C); NaN if unknown."""
        block = median_of_rows(values)
        if self._newest:
            moved = np.abs(block - self._newest[-1])
            sigma = SIGMA_OF_MAD / math.sqrt(2.0) * median_of_rows(moved)
            old = self._sigma
            mixed = np.where(np.isnan(old), sigma, old + 0.125 * (sigma - old))
            self._sigma = np.where(np.isnan(sigma), old, mixed)
        self._newest = [*self._newest[-(NEWEST_PAST_BLOCKS - 1) :], block]
        self._n_blocks += 1
        rises = self._rises()
        self._learn(block, rises)
        return rises

    def _rises(self) -> Rises:
        newest = median_of_rows(np.array(self._newest))
        rise = np.where(self.blocks >= MIN_PAST_BLOCKS, newest - self.reference, np.nan)
        sigma = np.where(np.isnan(self._sigma), 1.0, self._sigma)
        self._noise.evaluate(sigma / INDEPENDENT[0])
        short = math.sqrt(NEWEST_PAST_BLOCKS / len(self._newest))
        error = np.sqrt(self._noise.variance[1]) * short
        minimum = np.empty(self.shape)
        minimum[:] = np.maximum(self._min_rises, SIGMAS * error)
        with np.errstate(invalid="ignore"):
            return Rises(rise=rise, minimum=minimum, beyond=rise >= minimum, error=error)

    def _learn(self, block: Floats, rises: Rises) -> None:
        is_past = self.blocks >= MIN_PAST_BLOCKS
        with np.errstate(invalid="ignore"):
            rising = (rises.rise >= 0.5 * rises.minimum) | (block - self.reference >= rises.minimum)
        # Until the noise is known nobody can tell whether a past that was given still holds.
        learns = np.isfinite(block) & ~(is_past & (rising | np.isnan(self._sigma)))
        self._learn_noise(np.where(learns & is_past, block - self.reference, np.nan), rises)
        self.blocks = np.minimum(self.blocks + learns, MAX_PAST_BLOCKS)
        known = np.where(np.isnan(self.reference), block, self.reference)
        moved = known + (block - known) / np.maximum(self.blocks, 1)
        self.reference = np.where(learns, moved, self.reference)

    def _learn_noise(self, apart: Floats, rises: Rises) -> None:
        """From blocks as far as they are not part of a rise."""
        self._noise.add(0, apart)
        if self._n_blocks % NEWEST_PAST_BLOCKS == 0:
            self._noise.add(1, np.where(np.isfinite(apart), rises.rise, np.nan))


NOT_ALL = 0.1
"""A slowdown is not of all if this part of the ranks is surely as fast as before."""
SURE_SIGMAS = 2.0
MAX_NAMED = 4


def only_some(ranks: Rises, rise: float) -> tuple[Bools, Bools] | None:
    """(R,) ranks that surely are slower, and that surely are not, by their own past (R, 1); None if
    it may be all, or if they do not fit the rise of the run."""
    own, error = ranks.rise[:, 0], SURE_SIGMAS * float(ranks.error[0])
    if not rise > 0.0 or np.isnan(own).any():
        return None
    slower, same = own - error >= 0.5 * rise, own + error < 0.5 * rise
    fits = abs(median_of(own) - rise) <= 0.25 * rise + error
    is_some = fits and slower.any() and same.mean() >= NOT_ALL
    return (slower, same) if is_some else None


def _is_of_all(own: Floats, rise: float) -> bool:
    """Whether nearly all ranks (R,) have at least half of the rise; unknown ones do."""
    return float((own < 0.5 * rise).mean()) <= NOT_ALL


def in_text(is_slower: Bools, is_same: Bools, sources: list[Source]) -> str:
    """How many ranks, and which, if one side is few.

    >>> sources = [Source(run_id="r", rank=rank) for rank in range(8)]
    >>> in_text(np.arange(8) < 2, np.arange(8) >= 2, sources)
    '2 of its 8 ranks take longer than before (0, 1), the others do not'
    >>> in_text(np.arange(8) > 0, np.arange(8) == 0, sources)
    '7 of its 8 ranks take longer than before, the others do not (0)'
    >>> in_text(np.arange(8) > 4, np.arange(8) < 4, sources)
    'at least 4 of its 8 ranks take no longer than before'
    """
    slower, same = (
        sorted(sources[row].rank for row in np.flatnonzero(side).tolist())
        for side in (is_slower, is_same)
    )
    if len(slower) + len(same) < len(sources):
        takes = "takes" if len(same) == 1 else "take"
        return f"at least {len(same):,} of its {len(sources):,} ranks {takes} no longer than before"
    takes = "takes" if len(slower) == 1 else "take"
    text = f"{len(slower):,} of its {len(sources):,} ranks {takes} longer than before"
    if len(slower) <= MAX_NAMED:
        return f"{text}{_numbers(slower)}, the others do not"
    return f"{text}, the others do not{_numbers(same)}"


def _numbers(ranks: list[int]) -> str:
    return f" ({', '.join(map(str, ranks))})" if len(ranks) <= MAX_NAMED else ""
