"""The clock by which a section is compared: the host's, GPU events, its kernels, DDP's own timers,
or the host's less waiting in collectives.

Host time of a section that launches kernels is not the time they took, so GPU times are used where
reported: of kernels the rank's own work, with communication as waiting; of events all the time
between them. Where collectives run inside a section, the host's time of all ranks is that of the
slowest; what is left without the waiting is the rank's own. Peers are never compared by different
clocks: a group goes by another than the host's in a section where nearly all of its ranks report it
in nearly all steps; who does not is unknown then.

A GPU is often timed in two ways, kernels in one step of several and events in all others. A group
goes by the one that most of its steps have, in every section that has it in some part of its steps.
Steps by the other one are apart: they say nothing of what needs that section, and are not missing.
DDP's timers, which end before the waiting, are chosen rather than events. Without times of the GPU
waiting in collectives is taken off; where neither is known well enough, the host's time stays.

Ranks that share a GPU slow one another's kernels down: a time of one's is as much the work of the
others, and three ranks with equal work but 1.25x on one were measured to differ by 4.04x (H200,
time slices). So theirs are compared as if nothing were timed on the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from otel_straggler import semconv
from otel_straggler.detect.scores.medians import Groups
from otel_straggler.detect.verdicts.waits import WaitDetector, first_groups
from otel_straggler.detect.verdicts.world import World
from otel_straggler.model.observation import (
    BASIS_NAMES,
    COLLECTIVE,
    CUPTI,
    DDP,
    EVENTS,
    HOST,
    TELLS_WAITING,
    TIMED_ON_GPU,
    Bases,
    Bools,
    Floats,
    Ints,
)
from otel_straggler.model.step_table import GpuSeconds, StepTable
from otel_straggler.model.verdict import Evidence
from otel_straggler.semconv import LISTED_KINDS

KINDS: Final = ("compute", "wait")
"""Other kinds stay with the host: there the GPU is not what takes time."""
ANY_KINDS: Final = (*LISTED_KINDS, "wait")
"""Collectives may wait in all sections of training."""
REPORTED: Final = (COLLECTIVE, EVENTS, DDP, CUPTI)
"""Codes of ``GpuTimes.basis`` that ranks report."""
FADE = 0.75
ENOUGH, TOO_FEW = 0.8, 0.6
"""A rank reports more than the host's time if it does so in this part of its steps, or no longer
does."""
CLEARLY = 1.5
"""A group changes from kernels to events, or back, where so many times as many steps have these."""
SOME = 0.25
"""A section goes by kernels, as its group does, if it has them in this part of its steps."""
OF_USUAL = 0.5
"""A rank has the clock of its group if it does in this part of the steps in which the group has."""
MAX_LEFT_OUT = 0.05
"""Part of a group that may not report it, and is not compared."""
MIN_GPU_PART = 0.01
"""A section has GPU work if that takes this part of host time; half of it if it had some before."""
MIN_NCCL_PART = 0.001
"""Waiting is read from communication kernels if they take this part of the steps, or half of it."""
MIN_WAITED_PART, MIN_WAITED_PART_ON_GPU = 0.005, 0.02
"""A group goes by collectives if waiting in them takes this part of its time, or half of it. On a
GPU the host waits in few of them; what is left is the cost of the calls."""
MIN_RAN = 0.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClockedBlock:
    """A block by the clocks of its groups.

    Attributes:
        seconds: (T, R, S) compared times; of a waiting section its communication kernels, or all
            of it. NaN where the section did not run, or the rank does not report what its group
            goes by.
        host_s: (T, R, S) by the host's clock.
        local: (R, S) sections with the rank's own work only.
        waited_s: (T, R) communication kernels, or waiting in collectives, of all sections; NaN if
            unknown.
        tells_waiting: (R,) ranks whose waiting is ``waited_s``, not that of their sections.
        basis: (G, S) codes of ``gpu_times``.
        other: (T, G, S) steps in which most of a group has another clock than its own.
        is_hidden: some ranks' work cannot be distinguished from waiting.
    """

    seconds: Floats
    host_s: Floats
    local: Bools
    waited_s: Floats
    tells_waiting: Bools
    basis: Bases
    other: Bools
    is_hidden: bool

    @property
    def apart(self) -> Bools:
        """(T, G) steps that cannot be compared as a whole."""
        return np.asarray(self.other.any(axis=2))

    def evidence_of(self, group: int, section: int) -> Evidence:
        return BASIS_NAMES[int(self.basis[group, section])]

    def evidence_of_waiting(self, group: int) -> Evidence:
        """Basis of the waiting of a group that tells it."""
        for code in (CUPTI, DDP):
            if (self.basis[group] == code).any():
                return BASIS_NAMES[code]
        return BASIS_NAMES[COLLECTIVE]

    def has_gpu(self, group: int) -> bool:
        """Whether any section of the group goes by the GPU."""
        return bool(np.isin(self.basis[group], TIMED_ON_GPU).any())

    def shows(self, evidence: Evidence, group: int) -> bool:
        """Whether the group is still seen as it was for a verdict that rests on ``evidence``."""
        if evidence == semconv.COLLECTIVE_BASIS:
            return bool(np.isin(self.basis[group], TELLS_WAITING).any())
        return self.has_gpu(group)

    def all_by_kernels(self) -> bool:
        """Whether all ranks report in kernels who waits, whatever the host does meanwhile."""
        is_timed = bool((self.basis == CUPTI).any(axis=1).all())
        return is_timed and bool(self.tells_waiting.all())


class ClockSelector:
    """Chooses the clocks of one world; slowly. State: 24 bytes per rank and section."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.basis: Bases = np.zeros((0, 0), np.uint8)
        self.tells_waiting: Bools = np.zeros(0, bool)
        self._ran = np.zeros((0, 0))
        self._known = {code: np.zeros((0, 0)) for code in REPORTED}
        self._host_s = np.zeros((0, 0))
        self._gpu_s = np.zeros((0, 0))
        self._nccl_s = np.zeros(0)
        self._waited_s = np.zeros(0)
        self._by_kernels: Bools = np.zeros(0, bool)
        self._other: Bools = np.zeros((0, 0, 0), bool)
        self._meaning: Ints = np.zeros((0, 0), np.int64)

    @property
    def is_in_use(self) -> bool:
        """Whether any section goes by another clock than the host's."""
        return bool(self.basis.any())

    def sees(self, block: StepTable) -> bool:
        """Whether there are such times, or were until a moment ago."""
        return block.gpu is not None or self.is_in_use

    def learn(self, block: StepTable, world: World) -> list[str]:
        """Learn who reports what. Returns names of sections whose waiting is taken off from now on,
        or no longer is. Cost: O(T R S)."""
        self._make_room(world)
        ran = np.isfinite(block.seconds)
        self._ran = FADE * self._ran + ran.sum(axis=0)
        gpu = block.gpu
        for code in self._known:
            reported = 0 if gpu is None else (gpu.basis == code).sum(axis=0)
            self._known[code] = FADE * self._known[code] + reported
        host_s = _of_groups(block.seconds, world.peers)
        self._host_s = FADE * self._host_s + host_s
        for sums in (self._gpu_s, self._nccl_s, self._waited_s):
            np.multiply(sums, FADE, out=sums)
        if gpu is not None:
            on_gpu = np.isin(gpu.basis, TIMED_ON_GPU)
            own_s, nccl_s, waited_s = (
                _of_groups(np.where(of, part, 0.0), world.peers)
                for of, part in (
                    (on_gpu, gpu.own_s),
                    (gpu.basis == CUPTI, gpu.nccl_s),
                    (gpu.basis == COLLECTIVE, gpu.nccl_s),
                )
            )
            self._gpu_s += own_s + nccl_s
            self._nccl_s += nccl_s.sum(axis=1)
            self._waited_s += waited_s.sum(axis=1)
        before, self.basis = self.basis, self._chosen(world)
        self._other = self._by_other_clock(block, world)
        part = np.where(self.tells_waiting, 0.5, 1.0) * MIN_NCCL_PART
        has_kernels = (self.basis == CUPTI).any(axis=1)
        sees_kernels = has_kernels & (self._nccl_s > part * self._host_s.sum(axis=1))
        by_others = np.isin(self.basis, (DDP, COLLECTIVE)).any(axis=1)
        self.tells_waiting = np.where(has_kernels, sees_kernels, by_others)
        changed = ((before == COLLECTIVE) != (self.basis == COLLECTIVE)).any(axis=0)
        return [world.sections[s].name for s in np.flatnonzero(changed).tolist()]

    def late_on_host(self, block: StepTable, world: World) -> tuple[Floats, Groups]:
        """(T', R', S) times that show waiting, of the first groups (at most 2,048 ranks), without
        steps that are apart; and these groups. By the host's clock, except sections that go by
        events: kernels do not show how waiting evens out lateness. Of those that go by collectives
        or DDP's timers what is left, which holds only waiting that nobody reports."""
        rows, groups = first_groups(world.peers)
        seconds = block.seconds[:, rows]
        by_row = self.basis[world.peers.code[rows]]
        for code in (EVENTS, COLLECTIVE, DDP):
            if block.gpu is not None and (by_row == code).any():
                gpu = block.gpu.of_rows(np.s_[:, rows])
                own_s = np.where(gpu.basis == code, gpu.own_s, np.nan)
                seconds = np.where(by_row == code, own_s, seconds)
        apart = self._other.any(axis=(1, 2))
        return seconds[~apart] if apart.any() else seconds, groups

    def _by_other_clock(self, block: StepTable, world: World) -> Bools:
        """(T, G, S) steps in which at most half of those in a group who ran a section have the
        clock that the group goes by."""
        result = np.zeros((len(block), *self.basis.shape), bool)
        if not self.is_in_use:
            return result
        by_row = self.basis[world.peers.code]
        ran = np.isfinite(block.seconds) & (by_row != HOST)
        has_it = ran & (block.gpu is not None and block.gpu.basis == by_row)
        for t in np.flatnonzero((has_it != ran).any(axis=(1, 2))).tolist():
            n_has, n_ran = (_summed(of[t].astype(float), world.peers) for of in (has_it, ran))
            result[t] = (n_ran > 0) & (2 * n_has <= n_ran)
        return result

    def time(
        self, block: StepTable, world: World, waiting: WaitDetector
    ) -> tuple[ClockedBlock, bool]:
        """The block by the chosen clocks, and whether its numbers have changed meaning."""
        code = world.peers.code
        by_row = self.basis[code]
        behaves = np.array([section.name in waiting.behaves for section in world.sections], bool)
        waits = np.array([waiting.waits(section) for section in world.sections], bool)
        listed = np.array([section.kind in LISTED_KINDS for section in world.sections], bool)
        of_group = listed & ~(behaves & (self.basis != CUPTI)) & ~self._may_wait_for_gpu(world)
        timed = ClockedBlock(
            seconds=chosen_seconds(block, world, by_row),
            host_s=block.seconds,
            local=of_group[code],
            waited_s=_waited_of_step(block, by_row, waits),
            tells_waiting=self.tells_waiting[code],
            basis=self.basis,
            other=self._other,
            is_hidden=bool((of_group < listed).any()) or self._leaves_out(world),
        )
        return timed, self._means_something_else(of_group)

    def _may_wait_for_gpu(self, world: World) -> Bools:
        """(G, S) sections of which only the host's time is known, where DDP times the GPU in
        others: the host may wait in them for what these have launched, which would count twice.
        Not data loading, which is work of the host."""
        by_ddp = (self.basis == DDP).any(axis=1)
        is_work = np.array([section.kind in ("compute", "other") for section in world.sections])
        on_gpu = np.isin(self.basis, TIMED_ON_GPU)
        return np.asarray(by_ddp[:, None] & is_work & ~on_gpu)

    def names(self, world: World) -> list[str]:
        """Section names that keep numbers of different clocks apart over restarts."""
        result = []
        for s, section in enumerate(world.sections):
            codes = np.unique(self.basis[:, s]).tolist()
            is_host = codes == [HOST]
            clocks = "+".join("ddp" if code == DDP else BASIS_NAMES[code] for code in codes)
            result.append(section.name if is_host else f"{section.name} [{clocks}]")
        return result

    # --- choosing ------------------------------------------------------------------------------

    def _chosen(self, world: World) -> Bases:
        kinds = [section.kind for section in world.sections]
        on = np.isin(self.basis, TIMED_ON_GPU)
        part = np.where(on, 0.5, 1.0) * MIN_GPU_PART
        works = np.isin(kinds, KINDS) & (self._gpu_s > 0.0)
        works &= self._gpu_s >= part * self._host_s
        waits = np.isin(kinds, ANY_KINDS) & self._waits_on_host(world)[:, None]
        chosen = np.full(self.basis.shape, HOST, np.uint8)
        if waits.any():
            chosen[waits & self._is_reported(np.full_like(chosen, COLLECTIVE), world)] = COLLECTIVE
        on_gpu = self._clock_of_gpu(world)
        return np.where(works & self._is_reported(on_gpu, world), on_gpu, chosen)

    def _clock_of_gpu(self, world: World) -> Bases:
        """(G, S) kernels or a kind of events, by how many steps of a group have each: its sections
        are compared in the same steps. One that is hardly ever within such steps has events."""
        codes, peers = (EVENTS, DDP, CUPTI), world.peers
        events, ddp, by_kernels = (_summed(self._known[code], peers) for code in codes)
        by_stream = events + ddp
        times = np.where(self._by_kernels, CLEARLY, 1.0 / CLEARLY)
        times[~self.basis.any(axis=1)] = 1.0
        self._by_kernels = times * by_kernels.sum(axis=1) >= by_stream.sum(axis=1)
        is_some = by_kernels >= SOME * (by_kernels + by_stream)
        stream = np.where(ddp >= events, DDP, EVENTS)
        return np.where(self._by_kernels[:, None] & is_some, CUPTI, stream).astype(np.uint8)

    def _waits_on_host(self, world: World) -> Bools:
        """(G,) groups in which the host's waiting in collectives is some of the time."""
        part = MIN_WAITED_PART_ON_GPU if world.on_gpu else MIN_WAITED_PART
        on = (self.basis == COLLECTIVE).any(axis=1)
        enough = np.where(on, 0.5, 1.0) * part * self._host_s.sum(axis=1)
        return np.asarray(self._waited_s > enough)

    def _is_reported(self, wanted: Bases, world: World) -> Bools:
        """(G, S) whether few of the ranks lack this clock."""
        groups = world.peers
        ran = self._ran > MIN_RAN
        lacks = ran & self._lacks(wanted, world)
        n_ran, n_lacks = (_summed(of.astype(np.float64), groups) for of in (ran, lacks))
        return np.asarray((n_ran > 0) & (n_lacks <= np.floor(MAX_LEFT_OUT * n_ran)))

    def _lacks(self, wanted: Bases, world: World) -> Bools:
        """(R, S) ranks without this clock (G, S): with the host's alone in too many steps, or with
        another in most of the steps in which their group has this one. For waiting in collectives,
        steps that the GPU timed are no lack where clearly more steps have that."""
        code, groups = world.peers.code, world.peers
        on_gpu, its = np.zeros(self._ran.shape), np.zeros(self._ran.shape)
        for each, count in self._known.items():
            if each != COLLECTIVE:
                on_gpu += count
            if (chosen := wanted == each).any():
                its += count * chosen[code]
        with_gpu = np.minimum(its + on_gpu, CLEARLY * its)
        known = np.where((wanted == COLLECTIVE)[code], with_gpu, on_gpu)
        usual = _summed(its, groups) / np.maximum(_summed(self._ran, groups), MIN_RAN)
        part = np.where(self.basis[code] != HOST, TOO_FEW, ENOUGH)
        is_rare: Bools = its < OF_USUAL * np.minimum(usual, 1.0)[code] * self._ran
        return (known < part * self._ran) | is_rare | (its <= 0.0)

    def _leaves_out(self, world: World) -> bool:
        is_due = (self.basis != HOST)[world.peers.code] & (self._ran > MIN_RAN)
        return bool((is_due & self._lacks(self.basis, world)).any())

    def _means_something_else(self, local: Bools) -> bool:
        """New sections change nothing for the others."""
        old = self._meaning
        self._meaning = 16 * self.tells_waiting[:, None] + 8 * local + self.basis.astype(np.int64)
        return len(old) > 0 and not np.array_equal(self._meaning[:, : old.shape[1]], old)

    def _make_room(self, world: World) -> None:
        ranks, groups, sections = world.n_ranks, len(world.peers), len(world.sections)
        if self._ran.shape[0] != ranks or self.basis.shape[0] != groups:
            self.reset()
            self.tells_waiting = np.zeros(groups, bool)
            self._nccl_s, self._waited_s = np.zeros(groups), np.zeros(groups)
            self._by_kernels = np.zeros(groups, bool)
        self._ran = _roomy(self._ran, ranks, sections)
        self._known = {code: _roomy(of, ranks, sections) for code, of in self._known.items()}
        self._host_s = _roomy(self._host_s, groups, sections)
        self._gpu_s = _roomy(self._gpu_s, groups, sections)
        self.basis = _roomy(self.basis, groups, sections)


def without_shared_gpus(block: StepTable, shares_gpu: Bools) -> StepTable:
    """The block without the GPU's times of ranks that share it, (R,): what remains is the host's
    time, and waiting in collectives where that was measured."""
    if block.gpu is None or not shares_gpu.any():
        return block
    left_out = np.isin(block.gpu.basis, TIMED_ON_GPU) & shares_gpu[:, None]
    basis = np.where(left_out, np.uint8(HOST), block.gpu.basis)
    times = (np.where(left_out, np.nan, of) for of in (block.gpu.own_s, block.gpu.nccl_s))
    return replace(block, gpu=GpuSeconds(basis, *times) if basis.any() else None)


def chosen_seconds(block: StepTable, world: World, by_row: Bases) -> Floats:
    """(T, R, S) of the block by the clock of each rank and section, (R, S) codes."""
    if not by_row.any():
        return block.seconds
    if block.gpu is None:
        return np.where(by_row == HOST, block.seconds, np.nan)
    gpu_s = np.where(block.gpu.basis == by_row, block.gpu.own_s, np.nan)
    for s, section in enumerate(world.sections):
        if section.kind == "wait":
            for code, part_s in ((CUPTI, block.gpu.nccl_s), (COLLECTIVE, block.seconds)):
                waited_s = np.where(block.gpu.basis[..., s] == code, part_s[..., s], np.nan)
                gpu_s[..., s] = np.where(by_row[:, s] == code, waited_s, gpu_s[..., s])
    return np.where(by_row == HOST, block.seconds, gpu_s)


def _waited_of_step(block: StepTable, by_row: Bases, waits: Bools) -> Floats:
    """(T, R) over the sections that go by kernels or collectives; NaN if one is unknown. Without
    kernels also all of the sections that wait, (S,): the host may wait there for anything."""
    if block.gpu is None:
        return np.full(block.seconds.shape[:2], np.nan)
    ran = np.isfinite(block.seconds)
    has_kernels = (by_row == CUPTI).any(axis=1)[:, None]
    is_whole = waits & ~has_kernels
    is_due = np.isin(by_row, TELLS_WAITING) & ~is_whole
    total: Floats = np.where(ran & is_due, block.gpu.nccl_s, 0.0).sum(axis=2)
    total += np.where(ran & is_whole, block.seconds, 0.0).sum(axis=2)
    return total


def _of_groups(seconds: Floats, groups: Groups) -> Floats:
    of_ranks = np.where(np.isnan(seconds), 0.0, seconds).sum(axis=0)
    return _summed(of_ranks, groups)


def _summed(of_ranks: Floats, groups: Groups) -> Floats:
    sums: Floats = np.zeros((len(groups), of_ranks.shape[1]))
    for column, out in zip(of_ranks.T, sums.T, strict=True):
        out[:] = np.bincount(groups.code, column, len(groups))
    return sums


def _roomy(values: npt.NDArray[Any], rows: int, columns: int) -> npt.NDArray[Any]:
    if values.shape == (rows, columns):
        return values
    roomy = np.zeros((rows, columns), values.dtype)
    roomy[: values.shape[0], : values.shape[1]] = values
    return roomy
