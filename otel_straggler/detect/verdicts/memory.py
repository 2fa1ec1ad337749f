"""Memory of a world: its tracks; and of its devices, groups of peers, and work, over restarts."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from otel_straggler.detect.scores.medians import Groups, median_of, median_of_rows
from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.candidates import StepCost
from otel_straggler.detect.verdicts.equal_work import WorkNormaliser
from otel_straggler.detect.verdicts.excess import Excesses, host_excesses
from otel_straggler.detect.verdicts.history import OwnHistory
from otel_straggler.detect.verdicts.onsets import StepBegins
from otel_straggler.detect.verdicts.resolution import ClockResolution
from otel_straggler.detect.verdicts.stalls import Spikes, StallDetector
from otel_straggler.detect.verdicts.track import Track
from otel_straggler.detect.verdicts.waits import LateArrivals, Meetings, WaitDetector
from otel_straggler.detect.verdicts.world import World, describe_peers
from otel_straggler.model.observation import Bools, Floats, Ints

LOCAL, LATE = "(local work)", "(lateness)"
MAX_SUBJECTS = 300_000
"""Ranks and hosts, over all attempts."""
MUCH_OUTSIDE = 0.1
"""So much of a step that no section covers can be what is slow."""
CHANCE_BLOCKS = 20
RUN_QUANTITIES = ("local", "wait", "step")


class Memory:
    """Histories by names that survive renumbering. State: 32 bytes per device and quantity.

    Attributes:
        shared: names that several ranks had at once, see :func:`.rank_subjects`.
    """

    def __init__(self) -> None:
        self.work = WorkNormaliser()
        self.shared: set[str] = set()
        self._subjects = OwnHistory(max_subjects=MAX_SUBJECTS)
        self._groups = OwnHistory()
        self._steps_before = 0
        self._cusum: dict[str, Any] | None = None
        self._meaning = ""
        self._names: list[str] | None = None

    def set_meaning(self, waiting: WaitDetector) -> None:
        """Which sections wait decides what sums mean: only compare what has the same meaning."""
        self._meaning = "".join(f" -{name}" for name in sorted(waiting.behaves))
        for name in self._names or ():
            self._meaning += f" {name}" if name.endswith("]") else ""

    def set_names(self, names: list[str] | None) -> None:
        """Section names where some go by the GPU's clock; None: as reported."""
        self._names = names

    # --- devices and hosts -----------------------------------------------------------------------

    def seed(self, tracks: Tracks, world: World, now_ns: int) -> None:
        """Seed references of devices and, after a restart of the collector, CUSUM."""
        tracks.ranks.steps_before = self._steps_before
        names = self._quantities(world)
        for track, subjects in _by_track(tracks, world):
            track.seed_reference(self._subjects.reference(subjects, names, now_ns))
            self._seed_cusum(track, subjects, names)
        self._cusum = None

    def learn(self, tracks: Tracks, world: World, held: tuple[Bools, Bools], now_ns: int) -> None:
        """Learn the newest 20 steps of those not in trouble."""
        names = self._quantities(world)
        for (track, subjects), is_held in zip(_by_track(tracks, world), held, strict=True):
            eligible = np.broadcast_to(~is_held[:, None], track.shape)
            self._subjects.update(subjects, names, track.recent(), eligible, now_ns)

    # --- groups of peers ---

    def group_reference(self, world: World, now_ns: int) -> Floats:
        """(G, 3) normal values of the groups of peers; NaN if unknown."""
        return self._groups.reference(_groups(world), self._run_quantities(), now_ns)

    def learn_groups(self, reference: Floats, world: World, now_ns: int) -> None:
        """Remember (G, 3) normal values."""
        self._groups.update(_groups(world), self._run_quantities(), reference, None, now_ns)

    # --- work ---

    def for_equal_work(self, seconds: Floats, tokens: Floats, world: World, local: Bools) -> Floats:
        """Local sections as if every rank had the same tokens; unchanged if none are reported."""
        if not np.isfinite(tokens).any():
            return seconds
        names = self._local_sections(world, local)
        result = self.work.normalise(
            seconds[..., local], tokens, world.peers, _groups(world), names
        )
        equal: Floats = seconds.copy()
        equal[..., local] = result
        return equal

    def more_work(
        self, tokens: Floats, peers_s: Floats, world: World, local: Bools
    ) -> tuple[Floats, Floats]:
        """(G,) log factor of own work from more tokens than in the first block, and what it would
        be if only tokens took time.

        Args:
            tokens: (T, R); peers_s: (T, G, S) usual times for the block's usual tokens.
            local: (S,) sections of own work.
        """
        names, groups = self._local_sections(world, local), _groups(world)
        none = np.zeros(len(groups))
        if not np.isfinite(tokens).any() or not names:
            return none, none
        longer, maximum = self.work.longer_by_work(tokens, world.peers, groups, names)
        usual_s = np.nan_to_num(median_of_rows(peers_s[..., local]))
        now_s, then_s = usual_s.sum(axis=1), (usual_s / longer).sum(axis=1)
        is_known = (now_s > 0.0) & (then_s > 0.0)
        more = np.log(np.where(is_known, now_s, 1.0) / np.where(is_known, then_s, 1.0))
        return more, np.log(np.maximum(maximum, 1.0))

    # --- over restarts of the collector ---

    def state(self, tracks: Tracks | None, world: World) -> dict[str, Any]:
        cusum: dict[str, Any] = self._cusum or {}
        if tracks is not None:
            pairs = _by_track(tracks, world)
            cusum = {
                "subjects": [name for _, subjects in pairs for name in subjects],
                "quantities": self._quantities(world),
                "g": np.concatenate([track.g for track, _ in pairs]),
            }
        return {
            "subjects": self._subjects.state(),
            "groups": self._groups.state(),
            "work": self.work.state(),
            "cusum": cusum,
            "shared": sorted(self.shared),
            "steps": self._steps_before + (tracks.ranks.steps if tracks is not None else 0),
        }

    def restore(self, state: dict[str, Any]) -> None:
        if "subjects" in state:
            self._subjects.restore(state["subjects"])
        if "groups" in state:
            self._groups.restore(state["groups"])
        if "work" in state:
            self.work.restore(state["work"])
        self._cusum = state.get("cusum") or None
        self.shared.update(str(name) for name in state.get("shared", ()))
        self._steps_before = int(state.get("steps", 0))

    def _quantities(self, world: World) -> list[str]:
        return [LOCAL + self._meaning, *self._sections(world), LATE + self._meaning]

    def _local_sections(self, world: World, local: Bools) -> list[str]:
        names = self._sections(world)
        return [name for name, is_local in zip(names, local.tolist(), strict=True) if is_local]

    def _sections(self, world: World) -> list[str]:
        return self._names or [section.name for section in world.sections]

    def _run_quantities(self) -> list[str]:
        return [name + self._meaning for name in RUN_QUANTITIES]

    def _seed_cusum(self, track: Track, subjects: list[str], names: list[str]) -> None:
        if self._cusum is None:
            return
        row_of = {name: row for row, name in enumerate(self._cusum["subjects"])}
        column_of = {name: column for column, name in enumerate(self._cusum["quantities"])}
        rows = [(i, row_of[name]) for i, name in enumerate(subjects) if name in row_of]
        columns = [(i, column_of[name]) for i, name in enumerate(names) if name in column_of]
        if not rows or not columns:
            return
        here, there = np.array(rows).T, np.array(columns).T
        g = np.asarray(self._cusum["g"], np.float64)
        track.g[np.ix_(here[0], there[0])] = g[np.ix_(here[1], there[1])]


def _by_track(tracks: Tracks, world: World) -> list[tuple[Track, list[str]]]:
    return [(tracks.ranks, world.rank_subjects), (tracks.hosts, world.host_subjects)]


def _groups(world: World) -> list[str]:
    return [describe_peers(key) for key in world.peers.keys]  # type: ignore[arg-type]


@dataclass(slots=True)
class Tracks:
    """Tracks of the ranks and hosts of a world."""

    ranks: Track
    hosts: Track
    spikes: StallDetector
    numbers: StepNumbers
    begins: StepBegins
    resolution: ClockResolution
    arrivals: LateArrivals
    meetings: Meetings
    late_s: Floats | None = None
    """(R, S) mean seconds per step beyond the peers, of the newest 20 steps or so."""
    newest_spikes: Spikes | None = None
    newest_costs: tuple[StepCost, StepCost] | None = None

    @classmethod
    def of(cls, world: World, settings: VerdictSettings) -> Tracks:
        columns = len(world.sections) + 2
        return cls(
            Track((world.n_ranks, columns), settings),
            Track((len(world.hosts), columns), settings, _weight(world.hosts)),
            StallDetector((world.n_ranks, columns)),
            StepNumbers(),
            StepBegins(),
            ClockResolution(),
            LateArrivals(world.n_ranks),
            Meetings(),
        )

    def widen(self, sections: int) -> None:
        if self.ranks.shape[1] != sections + 2:
            for track in (self.ranks, self.hosts, self.spikes):
                track.widen(sections + 2)
            if self.late_s is not None:  # a block of which no step counts teaches nothing more
                more = sections - self.late_s.shape[1]
                self.late_s = np.pad(self.late_s, ((0, 0), (0, more)))

    def resolvable(self, min_effect: Floats, outside: float, min_share: float) -> float:
        """The slowdown of the whole step from which on a slow rank would be named; NaN if unknown.
        What is slow where no section covers it shows in lateness alone.

        Args:
            min_effect: (R,) log excess that a rank needs.
            outside: part of the step that no section covers.
            min_share: part of the step that a verdict needs.
        """
        assert self.newest_costs is not None
        costs, _ = self.newest_costs
        with np.errstate(invalid="ignore", divide="ignore"):
            part = float(median_of_rows(costs.columns_s[:, :1] / costs.step_s[:, None])[0])
        if not np.isfinite(part):
            return float("nan")
        excess = (self.ranks.resolvable(min_effect) - 1.0) * part
        if outside > MUCH_OUTSIDE:
            excess = max(excess, float(np.nan_to_num(self.ranks.resolvable(min_effect, -1))) - 1.0)
        return 1.0 + max(excess, min_share)

    def _learn_late(self, late_s: Floats) -> None:
        if len(late_s):
            new = _mean_of_known(late_s)
            old = self.late_s
            fits = old is not None and old.shape == new.shape
            self.late_s = old + 0.25 * (new - old) if fits and old is not None else new

    def observe(self, excess: Excesses, world: World, counts: Bools) -> None:
        """Observe a block; steps that do not count (T,) are unknown."""
        ranks = excess.ranks
        if not counts.all():
            ranks = np.where(counts[:, None, None], ranks, np.nan)
        self.ranks.observe(ranks)
        own_s = excess.local_s + excess.more_s
        own_s = own_s - world.peers.medians(own_s)[:, world.peers.code]
        self.arrivals.observe(excess.waited_s[counts], own_s[counts], world.peers)
        self._learn_late(excess.late_s if counts.all() else excess.late_s[counts])
        self.hosts.observe(_of_real_hosts(host_excesses(ranks, world), world.hosts))
        self.newest_costs = step_costs(excess, world)
        costs, _ = self.newest_costs
        is_data = [section.kind == "data" for section in world.sections]
        is_queued = np.array([any(is_data), *is_data, any(is_data)])
        self.newest_spikes = self.spikes.observe(
            ranks, self.ranks.recent(), costs.columns_s, costs.step_s, is_queued
        )


class ChanceWaits:
    """What ranks that are well wait for the last of them: by chance another in each step."""

    def __init__(self) -> None:
        self._blocks_s: deque[Floats] = deque(maxlen=CHANCE_BLOCKS)

    def observe(self, excess: Excesses, peers: Groups, is_bad: Bools) -> Floats:
        """(G,) seconds per step, the median of the newest blocks; 0 if unknown. Not of ranks that
        are slow or late (R,), nor of the slowest of a block, who may be and is not yet known for
        it. Cost: O(T R)."""
        own_s = excess.step_s - excess.waited_s  # with what no section covers
        own_s = np.where(np.isfinite(own_s), own_s, excess.local_s)
        own_s = np.where(is_bad, np.nan, own_s)
        of_rank_s = peers.gather(np.nan_to_num(median_of_rows(own_s)))
        slowest = peers.members[np.arange(len(peers)), of_rank_s.argmax(axis=1)]
        own_s[:, slowest[slowest < len(peers.code)]] = np.nan
        last_s = np.fmax.reduce(peers.gather(own_s), axis=-1)
        if self._blocks_s and len(self._blocks_s[-1]) != len(peers):
            self._blocks_s.clear()
        self._blocks_s.append(_mean_of_known(last_s - peers.medians(own_s)))
        return median_of_rows(np.array(self._blocks_s))


def _mean_of_known(seconds: Floats) -> Floats:
    known = np.isfinite(seconds)
    return np.asarray(np.where(known, seconds, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1))


def _weight(hosts: Groups) -> Floats:
    """(H,) see :class:`.Track`: by the square root of the ranks."""
    return np.asarray(
        np.sqrt(np.minimum(hosts.size / median_of(hosts.size.astype(np.float64)), 1.0))
    )


def _of_real_hosts(excess: Floats, hosts: Groups) -> Floats:
    """A host with one rank is that rank."""
    return np.where((hosts.size > 1)[None, :, None], excess, np.nan)


def step_costs(excess: Excesses, world: World) -> tuple[StepCost, StepCost]:
    """Cost of the quantities in this block, per rank and per host."""
    groups = world.peers
    local_s = median_of_rows(excess.peers_local_s)
    step_s = median_of_rows(excess.peers_step_s)
    sections_s = median_of_rows(excess.peers_s)
    columns = np.column_stack([local_s, sections_s, step_s])
    ranks = StepCost(columns_s=columns[groups.code], step_s=step_s[groups.code])
    hosts = StepCost(
        columns_s=world.hosts.medians(ranks.columns_s.T).T, step_s=world.hosts.medians(ranks.step_s)
    )
    return ranks, hosts


MAX_STRETCHES = 10_000


class StepNumbers:
    """Observed step numbers in order, as up to 10,000 stretches of consecutive steps."""

    def __init__(self) -> None:
        self._length = 0
        self._begins: list[int] = []  # of each stretch: its place,
        self._first: list[int] = []  # and its step

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        """The step at ``index``, or the nearest known. Raises: IndexError if there is none."""
        index = min(max(index, self._begins[0]), self._length - 1)
        stretch = bisect_right(self._begins, index) - 1
        return self._first[stretch] + index - self._begins[stretch]

    def add(self, steps: Ints) -> None:
        for step in steps.tolist():
            if not self._first or step != self._first[-1] + self._length - self._begins[-1]:
                self._begins.append(self._length)
                self._first.append(step)
            self._length += 1
        if len(self._first) > MAX_STRETCHES:
            del self._begins[: -MAX_STRETCHES // 2], self._first[: -MAX_STRETCHES // 2]
