"""From seconds to excesses: log time over the peers, per rank, step, and quantity.

Quantities (columns): the local work of a step, each local section, and lateness in waiting
sections.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from otel_straggler.detect.scores.medians import (
    SMALL,
    Groups,
    median_of,
    median_of_rows,
    nan_median,
)
from otel_straggler.detect.verdicts.clocks import ClockedBlock
from otel_straggler.detect.verdicts.significance import SIGMA_OF_MAD, centred
from otel_straggler.detect.verdicts.waits import WaitDetector, lateness
from otel_straggler.detect.verdicts.world import World
from otel_straggler.model.observation import Bools, Floats, Ints, Section
from otel_straggler.semconv import LISTED_KINDS

MIN_PRESENCE = 0.5
"""A section is compared if at least this part of ranks and steps has it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Excesses:
    """One block of steps. Columns: 0 local work, 1 to S sections, S + 1 lateness.

    Attributes:
        ranks: (T, R, S + 2) log excess over the peers; NaN where not compared.
        local_s: (T, R) local work; NaN if the rank lacks a section that most peers have in this
            step, and in steps that are apart.
        waited_s: (T, R) in waiting sections; NaN likewise, and if there are none.
        step_s: (T, R) the whole step, with what no section covers; where that is unknown, all
            sections.
        peers_local_s, peers_step_s: (T, G) medians of the peers.
        min_wait_s: (T, G) the shortest wait of a group.
        peers_s: (T, G, S) median of the peers; late_s: (T, R, S) seconds over it.
        shared: (S,) sections in which ranks of an inner group wait for each other, so that all take
            what the slowest takes.
        more_s: (T, R) seconds of own work that more tokens explain, which the others leave out.
        timed: by which clocks; None: all by the host's.
    """

    ranks: Floats
    local_s: Floats
    waited_s: Floats
    step_s: Floats
    peers_local_s: Floats
    peers_step_s: Floats
    min_wait_s: Floats
    peers_s: Floats
    late_s: Floats
    shared: Bools
    more_s: Floats | float = 0.0
    timed: ClockedBlock | None = None


def local_sections(world: World, waiting: WaitDetector) -> Bools:
    """(S,) sections with the rank's own work only."""
    return np.array([s.kind in LISTED_KINDS and not waiting.waits(s) for s in world.sections], bool)


def late_seconds(seconds: Floats, world: World) -> tuple[Floats, Floats]:
    """(T, G, S) median of the peers, and (T, R, S) seconds beyond it. Cost: O(T R S log widest)."""
    peers_s = medians_by_step(seconds, world.peers)
    late_s = peers_s[:, world.peers.code]
    np.subtract(seconds, late_s, out=late_s)
    return peers_s, late_s


def excesses(
    seconds: Floats,
    measured_s: Floats,
    peers_s: Floats,
    late_s: Floats,
    world: World,
    waiting: WaitDetector,
    shared: Bools,
    min_peers: int,
    timed: ClockedBlock | None = None,
    whole_s: Floats | None = None,
) -> Excesses:
    """Compare one block.

    Args:
        seconds: (T, R, S) for equal work; NaN where a rank did not run the section.
        measured_s: (T, R, S) as they were; the same where work is not reported.
        peers_s, late_s: of :func:`late_seconds`.
        shared: (S,) sections that inner groups go through together.
        min_peers: in smaller groups nobody is compared.
        timed: where some go by the GPU's clock.
        whole_s: (T, R) seconds of the steps, NaN if unknown; None: sections are all there is.
    """
    waits = np.array([waiting.waits(s) for s in world.sections], bool)
    local = local_sections(world, waiting) if timed is None else np.any(timed.local, axis=0)
    ran: Bools = np.isfinite(seconds)
    here = ran if timed is None else np.isfinite(timed.host_s)
    present: Bools = np.any(here, axis=2)
    whole = present & ~_lacks_what_peers_have(ran, present, world)
    if timed is not None:
        whole &= ~timed.apart[:, world.peers.code]
    local_s = _sum(_part(seconds, local, timed, is_local=True), whole)
    waited_s = _sum(
        _part(seconds, waits, timed, is_local=False), whole & ran[..., waits].any(axis=2)
    )
    if timed is not None and timed.tells_waiting.any():
        waiting_s = np.where(whole, timed.waited_s, np.nan)
        waited_s = np.where(timed.tells_waiting, waiting_s, waited_s)
    step_s = _sum(measured_s if timed is None else timed.host_s, present)
    if whole_s is not None:
        step_s = np.where(np.isfinite(whole_s) & present, whole_s, step_s)
    # Who has more work comes late for it: that is no lateness of the rank.
    more_s = 0.0 if measured_s is seconds else np.nansum((measured_s - seconds)[..., local], axis=2)
    peers_step_s = world.peers.medians(step_s)
    typical_s = peers_step_s[:, world.peers.code]
    out = np.full((*present.shape, len(world.sections) + 2), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        out[..., 0] = centred(_log(local_s), world.peers, min_peers)
        enough = world.peers.size >= min_peers
        presence = ran.sum(axis=(0, 1))
        compared = local & (presence >= MIN_PRESENCE * _size_of(present, timed, world))
        # One section at a time, rank by rank: a table of all would be read across.
        for s in np.flatnonzero(compared).tolist():
            peers_log = _log(peers_s[..., s])[:, world.peers.code]
            out[..., s + 1] = _log(np.ascontiguousarray(seconds[..., s])) - peers_log
        if timed is not None and not timed.local[:, compared].all():
            for s in np.flatnonzero(compared).tolist():
                out[:, ~timed.local[:, s], s + 1] = np.nan
        out[..., -1] = lateness(waited_s + more_s, typical_s, world.peers)
    if not enough.all():
        out[:, ~enough[world.peers.code]] = np.nan
    return Excesses(
        ranks=out,
        local_s=local_s,
        waited_s=waited_s,
        step_s=step_s,
        peers_local_s=world.peers.medians(local_s),
        peers_step_s=peers_step_s,
        min_wait_s=world.peers.minima(waited_s),
        peers_s=peers_s,
        late_s=late_s,
        shared=shared,
        more_s=more_s,
        timed=timed,
    )


def _size_of(present: Bools, timed: ClockedBlock | None, world: World) -> Ints | int:
    """Ranks and steps that may have a section, (S,) where some go by another clock."""
    if timed is None or not timed.other.any():
        return present.size
    left_out = timed.other.sum(axis=0)[world.peers.code].sum(axis=0)
    return np.asarray(np.maximum(present.size - left_out, 1))


def part_outside(excess: Excesses) -> float:
    """Part of the usual step, 0 to 1, that is neither own work nor known waiting; 0 if unknown."""
    covered_s = excess.local_s + np.nan_to_num(excess.waited_s)
    with np.errstate(invalid="ignore", divide="ignore"):
        parts = 1.0 - covered_s / excess.step_s
    part = float(median_of_rows(parts.reshape(-1, 1))[0])
    return max(part, 0.0) if np.isfinite(part) else 0.0


def host_excesses(ranks: Floats, world: World) -> Floats:
    """(T, R, C) to (T, H, C): the median rank of every host."""
    return medians_by_step(ranks, world.hosts)


def medians_by_step(values: Floats, groups: Groups) -> Floats:
    """(T, R, C) to (T, G, C), step by step to stay in the cache; few at once."""
    if values.size <= SMALL:
        return np.ascontiguousarray(groups.medians(values.transpose(0, 2, 1)).transpose(0, 2, 1))
    medians = np.empty((len(values), len(groups), values.shape[2]))
    for step, out in zip(values, medians, strict=True):
        out[:] = groups.medians(np.ascontiguousarray(step.T)).T
    return medians


def _lacks_what_peers_have(ran: Bools, present: Bools, world: World) -> Bools:
    """(T, R) ranks that send part of what most peers do: lost telemetry makes them look fast."""
    steps, n_groups = len(ran), len(world.peers)
    cell = np.arange(steps)[:, None] * n_groups + world.peers.code

    def counts(of: Bools) -> Ints:
        return np.bincount(cell[of], minlength=steps * n_groups).reshape(steps, n_groups)

    n_present = counts(present)
    lacks = np.zeros_like(present)
    for s in np.flatnonzero((ran != present[..., None]).any(axis=(0, 1))).tolist():
        max_have = 2 * counts(ran[..., s]) > n_present
        lacks |= present & ~ran[..., s] & max_have[:, world.peers.code]
    return lacks


def _sum(seconds: Floats, present: npt.ArrayLike) -> Floats:
    total = np.where(np.isnan(seconds), 0.0, seconds).sum(axis=-1)
    return np.where(present, total, np.nan)


def _part(
    seconds: Floats, sections: Bools, timed: ClockedBlock | None, *, is_local: bool
) -> Floats:
    """(T, R, some S), NaN where the section is not local to the row, or where it is."""
    part = seconds[..., sections]
    if timed is None:
        return part
    counts = timed.local[:, sections] == is_local
    return part if counts.all() else np.where(counts, part, np.nan)


def _log(values: Floats) -> Floats:
    return np.log(np.where(values > 0.0, values, np.nan))


MIN_EVEN_BLOCKS, BLOCKS = 4, 8
MIN_RANKS = 4
MAX_APART = 0.003
"""No two devices that do their own work are so alike, ..."""
TIMES_COMMON = 5.0
"""... nor do their times vary together by so many times their differences."""


@dataclass(slots=True)
class EqualizedSections:
    """Detects, over the newest 40 steps, waiting inside the only sections there are. Ranks that
    wait for each other continue together: if one section holds the whole step with its collective,
    all ranks take what the slowest takes and differ little, while steps vary by the luck of all
    ranks."""

    _apart: deque[float] = field(default_factory=lambda: deque(maxlen=BLOCKS))
    _common: deque[Floats] = field(default_factory=lambda: deque(maxlen=BLOCKS))

    def observe(self, excess: Excesses, sections: list[Section], local: Bools) -> str:
        """Name of the longest local section if all ranks take equally long; else empty. For ranks
        without known waiting. Cost: O(T R log R)."""
        apart = np.abs(excess.ranks[..., 0])
        apart = apart[np.isfinite(apart)]
        if len(apart) < MIN_RANKS * len(excess.ranks) or not local.any():
            return ""
        with np.errstate(divide="ignore", invalid="ignore"):
            self._common.append(np.log(excess.peers_local_s))
        self._apart.append(SIGMA_OF_MAD * median_of(apart))
        if len(self._apart) < MIN_EVEN_BLOCKS or not self._is_even():
            return ""
        usual_s = np.where(local, np.nansum(excess.peers_s, axis=(0, 1)), 0.0)
        return sections[int(np.argmax(usual_s))].name

    def _is_even(self) -> bool:
        apart = max(self._apart)
        steps = np.concatenate(list(self._common))
        moved = np.abs(steps - nan_median(steps, axis=0))
        moved = moved[np.isfinite(moved)]
        common = SIGMA_OF_MAD * median_of(moved) if len(moved) else 0.0
        return apart <= MAX_APART and common > 0.0 and common >= TIMES_COMMON * apart
