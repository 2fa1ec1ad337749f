"""Ranks and hosts against their peers: from excesses to verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from otel_straggler.detect.scores.medians import Groups
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.candidates import (
    NEWEST_STEPS,
    Candidate,
    CostedFindings,
    late,
    spiking,
)
from otel_straggler.detect.verdicts.drafts import SMALL_GROUP, Drafts
from otel_straggler.detect.verdicts.excess import Excesses
from otel_straggler.detect.verdicts.log import EvaluationTime, VerdictLog
from otel_straggler.detect.verdicts.memory import ChanceWaits, Tracks
from otel_straggler.detect.verdicts.significance import min_z
from otel_straggler.detect.verdicts.world import World
from otel_straggler.model.observation import Bools, Floats, Ints
from otel_straggler.model.verdict import CALLED_SLOW, Verdict

SMALL_GROUP_SLOWDOWN = 1.10
HALF_OF_HOST = 0.5
"""A host is slow if more of its ranks are; its ranks wait for it to be if half of the others are.
"""
WHOLE_GROUP = 0.75
"""An inner group is slow as a whole if so many of its ranks are."""
MIN_LASTING = 1.045
"""A device that was always slower is called slow from 4.5 % on: healthy ones differ by 1 %."""
ALONE = 2.0
"""A rank on a slow host is named if it is so many times as slow as its host."""
ALWAYS = 0.5
"""Who is the last in so many steps is compared by its usual step."""
SAME, SHARED_STEPS, SHARED_PART = 10, 60, 1 / 32
"""Ranks that became slow within so many steps did so together, and must stay slow for so many;
fewer than this part of all ranks did so by chance."""
AGREEMENT = 0.3
"""Others must be seen waiting for at least this part of a rank's loss."""


class PeerVerdictEngine:
    """Evaluates the tracks of one world."""

    def __init__(self, settings: VerdictSettings, log: VerdictLog) -> None:
        self._settings = settings
        self._log = log
        self._chance = ChanceWaits()

    def evaluate(
        self,
        tracks: Tracks,
        excess: Excesses,
        world: World,
        now: EvaluationTime,
        tokens: Floats,
        local: Bools,
    ) -> list[Verdict]:
        """Changes of state from the newest block, with (T, R) tokens and (S,) local sections."""
        self._world, self._now, self._local = world, now, local
        self._shared, self._timed = excess.shared, excess.timed
        assert tracks.newest_costs is not None
        rank_costs, host_costs = tracks.newest_costs
        minimum = self._min_effects(world, tracks.resolution.min_effects(rank_costs.columns_s))
        hosts_min = _nan_min(world.hosts.gather(minimum.T)).T
        own_late_s = self._own_late(tracks.late_s)
        ranks, hosts = (
            CostedFindings(
                track,
                minimum,
                costs,
                world.sections,
                self._settings.min_share,
                was_named=self._were_named(rows),
                only_known=self._timed is not None,
                late_s=late_s,
            )
            for track, minimum, costs, rows, late_s in (
                (tracks.ranks, minimum, rank_costs, world.row_of_rank, own_late_s),
                (tracks.hosts, hosts_min, host_costs, world.row_of_host, None),
            )
        )
        self._is_known = tracks.ranks.is_known
        self._arrivals, self._meetings = tracks.arrivals, tracks.meetings
        slow_hosts = {
            one.row: one
            for one in hosts.candidates()
            if self._is_whole_host(one, ranks) and not self._is_hosts_turn(one, hosts, ranks)
        }
        comes_late = self._coming_late(tracks, ranks)
        result = [one for one in ranks.candidates() if self._is_last(one, comes_late, ranks)]
        self._slow = np.isin(world.hosts.code, list(slow_hosts))
        self._slow[[one.row for one in result]] = True
        is_bad = self._slow.copy()
        is_bad[[*comes_late]] = True
        self._drafts = Drafts(
            settings=self._settings,
            world=world,
            excess=excess,
            ranks=ranks,
            arrivals=tracks.arrivals,
            steps=tracks.numbers,
            begins=tracks.begins,
            slow=self._slow,
            chance_s=self._chance.observe(excess, world.peers, is_bad),
            is_paging=self._log.is_paging,
            tokens=tokens,
            local=local,
        )
        self._onsets = {one.row: one.since for one in result if one.since > 0}
        changes = [self._record_host(one, hosts, ranks) for one in slow_hosts.values()]
        taken = {world.host_subjects[row] for row in slow_hosts}
        changes += [self._record_rank(one, ranks, slow_hosts, taken) for one in result]
        stalling = self._spiking(tracks, ranks, taken)
        changes += [self._record_rank(one, ranks, {}, taken) for one in stalling]
        changes += [
            self._record_rank(one, ranks, slow_hosts, taken)
            for row, one in comes_late.items()
            if world.rank_subjects[row] not in taken
        ]
        changes += self._review("host", hosts, taken) + self._review("rank", ranks, taken)
        return [change for change in changes if change is not None]

    def _own_late(self, late_s: Floats | None) -> Floats | None:
        """Of own work; waiting is nobody's loss."""
        return None if late_s is None else np.where(self._local, late_s, 0.0)

    def _were_named(self, rows: Mapping[str, int]) -> Bools:
        """Of ranks or hosts by their rows: whether each was ever confirmed."""
        result = np.zeros(len(rows), bool)
        result[[rows[name] for name in self._log.named_subjects() if name in rows]] = True
        return result

    def held(self, world: World) -> tuple[Bools, Bools]:
        """(R,) ranks and (H,) hosts in trouble, which do not update their references."""
        ranks, hosts = np.zeros(world.n_ranks, bool), np.zeros(len(world.hosts), bool)
        for verdict in self._log.open_subjects("host"):
            if verdict.subject_id in world.row_of_host:
                row = world.row_of_host[verdict.subject_id]
                hosts[row] = True
                ranks[_members(world.hosts, row)] = True
        for verdict in self._log.open_subjects("rank"):
            if verdict.subject_id in world.row_of_rank:
                ranks[world.row_of_rank[verdict.subject_id]] = True
        return ranks, hosts

    def _min_effects(self, world: World, by_clock: Floats) -> Floats:
        """(R, C) ``by_clock``, and at least what a small group needs."""
        return np.maximum(self.min_effects(world)[:, None], by_clock)

    def min_effects(self, world: World) -> Floats:
        """(R,) log excess that a rank of a small group needs, where chance is not the question."""
        size = world.peers.size[world.peers.code]
        return np.where(size < SMALL_GROUP, math.log(SMALL_GROUP_SLOWDOWN), 0.0)

    # --- hosts ---------------------------------------------------------------------------------

    def _is_whole_host(self, one: Candidate, ranks: CostedFindings) -> bool:
        """Whether more than half of its ranks are slow, each by at least half of what counts."""
        members = _members(self._world.hosts, one.row)
        if len(self._world.hosts) < 2:
            return False
        return ranks.slow_part(members, one, 0.5 * min(one.floor, one.effect)) > HALF_OF_HOST

    def _is_hosts_turn(self, one: Candidate, hosts: CostedFindings, ranks: CostedFindings) -> bool:
        """Whether hosts take turns, or ranks do, of which it just has several that are slow."""
        if self._log.state_of(self._world.host_subjects[one.row]).state in CALLED_SLOW:
            return False
        members = _members(self._world.hosts, one.row)
        if one.is_late and not self._arrivals.is_last(members, self._steps_since(one)):
            return True
        turns = sum(ranks.takes_turns(replace(one, row=row)) for row in members.tolist())
        return hosts.takes_turns(one) or turns > HALF_OF_HOST * len(members)

    def _record_host(
        self, one: Candidate, hosts: CostedFindings, ranks: CostedFindings
    ) -> Verdict | None:
        node = str(self._world.hosts.keys[one.row])
        members = _members(self._world.hosts, one.row)
        draft = self._drafts.draft(one, self._world.host_subjects[one.row], members)
        if one.is_late:  # whole steps, which hold the waiting for it
            draft = replace(draft, own_s=math.nan, peers_s=math.nan)
        is_sure_host = one.row != self._world.doubtful_host
        draft = replace(
            draft,
            scope="host",
            node=node,
            cause="slow_host" if is_sure_host else "unknown",
            rank=None,
            is_localised=is_sure_host,
            evidence="synchronised"
            if ranks.only_in(int(members[0]), self._shared)
            else draft.evidence,
        )
        return self._log.record(
            draft,
            flagged=True,
            sure=one.sure and self._is_proven(one),
            floor=one.floor,
            now=self._now,
            confirmable=is_sure_host and self._is_proven(one),
            work=hosts.work_of(one.row),
        )

    # --- ranks ---------------------------------------------------------------------------------

    def _record_rank(
        self,
        one: Candidate,
        ranks: CostedFindings,
        slow_hosts: dict[int, Candidate],
        taken: set[str],
    ) -> Verdict | None:
        """Record and add to ``taken``, unless its host is or may be slow, or it always was."""
        host = int(self._world.hosts.code[one.row])
        if host == self._world.doubtful_host or _is_its_nature(one):
            return None
        if self._is_half_of_a_small_group(one):
            return None
        named = slow_hosts.get(host)
        if named is not None and one.effect < ALONE * named.effect:
            return None
        subject = self._world.rank_subjects[one.row]
        is_active = self._log.state_of(subject).state in CALLED_SLOW
        is_rare = one.stalling is not None or (one.is_late and one.since < 0)
        if not (is_active or is_rare) and ranks.takes_turns(one):
            return None
        if named is None and not is_active and self._may_be_host(one, ranks):
            return None
        draft = self._drafts.draft(one, subject, np.array([one.row]))
        draft = self._drafts.with_extra_work(draft, one)
        agrees = self._others_wait(one, ranks)
        if self._is_one_of_a_group(one, ranks):
            agrees = False
            draft = replace(draft, evidence="synchronised", is_localised=False, pages=False)
        taken.add(subject)
        return self._log.record(
            draft,
            flagged=True,
            sure=one.sure and self._is_proven(one),
            floor=one.floor,
            now=self._now,
            confirmable=agrees and self._is_proven(one),
            work=ranks.work_of(one.row),
        )

    def _is_proven(self, one: Candidate) -> bool:
        """Whether it was seen for long enough to be confirmed. Ranks of several hosts that became
        slow together share something, such as a network, which is busy for a while now and then.
        A few of very many are slow at the same time by chance."""
        if not self._is_known(one.effect):
            return False
        if one.since <= 0 or self._steps_since(one) >= SHARED_STEPS:
            return True
        hosts = self._world.hosts.code
        together = [row for row, since in self._onsets.items() if abs(since - one.since) <= SAME]
        are_few = len(together) < SHARED_PART * self._world.n_ranks
        return are_few or len({int(hosts[row]) for row in together}) < 2

    def _is_half_of_a_small_group(self, one: Candidate) -> bool:
        """Whether two of three or four peers are slow: then nobody knows who is as usual."""
        peers = self._world.peers
        code = peers.code[one.row]
        is_small = peers.size[code] < SMALL_GROUP
        return bool(is_small and (self._slow & (peers.code == code)).sum() > 1)

    def _spiking(self, tracks: Tracks, ranks: CostedFindings, taken: set[str]) -> list[Candidate]:
        """Ranks that stall intermittently and are not slow anyway."""
        spikes = tracks.newest_spikes
        if spikes is None:
            return []
        is_costly = spikes.lost_s >= self._settings.min_share * ranks.costs.step_s[:, None]
        is_costly &= ranks.costs.columns_s > 0.0
        is_costly &= (self._world.peers.size >= SMALL_GROUP)[self._world.peers.code][:, None]
        recent = ranks.findings.recent
        hosts, sections = self._world.hosts, self._world.sections
        found = (
            spiking(row, spikes, ranks.costs, sections, recent[row], tracks.spikes.stalling)
            for row in np.flatnonzero((spikes.beyond & is_costly).any(axis=1)).tolist()
            if self._world.rank_subjects[row] not in taken
            and self._world.host_subjects[hosts.code[row]] not in taken
        )
        return [one for one in found if not ranks.waits_for_loader(one)]

    def _is_last(
        self, one: Candidate, comes_late: dict[int, Candidate], ranks: CostedFindings
    ) -> bool:
        """Whether others wait for it: who merely comes after most of its peers delays nobody. Who
        does so now and then is named with how often."""
        return not one.is_late or (
            one.row not in comes_late
            and not self._is_followed(one.row, ranks)
            and self._arrivals.is_last(np.array([one.row]), self._steps_since(one))
        )

    def _steps_since(self, one: Candidate) -> int:
        return self._now.steps - max(one.since, 0) + 1

    def _coming_late(self, tracks: Tracks, ranks: CostedFindings) -> dict[int, Candidate]:
        """By row: ranks that are the last of their peers more often than by chance."""
        costs, z = ranks.costs, min_z(self._world.n_ranks, 1, self._settings.min_z)
        min_s = self._settings.min_share * costs.step_s
        result = {}
        for row in tracks.arrivals.found(self._world.peers, z, min_s):
            lateness = tracks.arrivals.lateness(row)
            if lateness is None or self._is_followed(row, ranks):
                continue
            if lateness.share < ALWAYS:
                result[row] = late(row, lateness, costs, z)
        return result

    def _is_followed(self, row: int, ranks: CostedFindings) -> bool:
        peers = self._world.peers_of(np.array([row]))
        return self._meetings.is_followed(row, peers, float(ranks.costs.step_s[row]))

    def _is_one_of_a_group(self, one: Candidate, ranks: CostedFindings) -> bool:
        """Whether it is slow only where its inner group meets, and the whole group is."""
        if not self._shared.any() or not ranks.only_in(one.row, self._shared):
            return False
        members = _members(self._world.inner, int(self._world.inner.code[one.row]))
        if len(members) < 2:
            return False
        return ranks.slow_part(members, one, 0.5 * one.effect) >= WHOLE_GROUP

    def _may_be_host(self, one: Candidate, ranks: CostedFindings) -> bool:
        """Whether half of the other ranks of the host are slow: then wait for the host."""
        members = _members(self._world.hosts, int(self._world.hosts.code[one.row]))
        others = members[members != one.row]
        if one.since < 0 or len(others) < 2 or len(self._world.hosts) < 2:
            return False
        return ranks.slow_part(others, one, 0.5 * min(one.floor, one.effect)) >= HALF_OF_HOST

    def _others_wait(self, one: Candidate, ranks: CostedFindings) -> bool:
        """Whether its peers are seen waiting for the rank, or that is unknown."""
        if one.is_late or one.since < 0:
            return True
        steps = ranks.track.steps - one.since + 1 if one.since > 0 else NEWEST_STEPS
        late = float(ranks.track.since(np.array([one.row]), max(steps, 5))[0, -1])
        step_s = float(ranks.costs.step_s[one.row])
        return not late * step_s < AGREEMENT * one.lost_s

    # --- all -----------------------------------------------------------------------------------

    def _review(self, scope: str, view: CostedFindings, taken: set[str]) -> list[Verdict | None]:
        """Subjects in trouble that were not found now: are they clear?"""
        changes: list[Verdict | None] = []
        world = self._world
        rows = world.row_of_host if scope == "host" else world.row_of_rank
        for verdict in self._log.open_subjects(scope):
            if verdict.subject_id in taken:
                continue
            row = rows.get(verdict.subject_id)
            subject = self._log.state_of(verdict.subject_id)
            clear = row is None or (
                self._is_seen_as_before(verdict, scope, row)
                and view.is_clear(row, verdict, subject.floor)
                and not subject.only_peers_moved(view.work_of(row))
            )
            changes.append(self._log.record(verdict, flagged=False, clear=clear, now=self._now))
        return changes

    def _is_seen_as_before(self, verdict: Verdict, scope: str, row: int) -> bool:
        """Whether a subject slow by another clock than the host's is still timed by it, in this
        attempt."""
        rank = row if scope == "rank" else int(self._world.hosts.members[row, 0])
        is_new_attempt = self._world.sources[rank].attempt != verdict.attempt
        if is_new_attempt or verdict.evidence not in ("events", "cupti", "collective"):
            return True
        group = int(self._world.peers.code[rank])
        return self._timed is not None and self._timed.shows(verdict.evidence, group)


def _is_its_nature(one: Candidate) -> bool:
    """Whether it was always like this, over all its steps, by too little to be called slow."""
    if one.began != "born":
        return False
    return one.normal < math.log(MIN_LASTING) and one.effect - one.normal < one.floor


def _members(groups: Groups, code: int) -> Ints:
    members = groups.members[code]
    return np.asarray(members[members < len(groups.code)])


def _nan_min(values: Floats) -> Floats:
    return np.asarray(np.nan_to_num(np.fmin.reduce(values, axis=-1), nan=0.0))
