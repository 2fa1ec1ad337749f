"""Memory of the ranks and hosts of a world: their tracks, and what the newest block cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from otel_straggler.model.observation import Floats
from otel_straggler.score.verdicts.candidates import Prices
from otel_straggler.score.verdicts.excess import Excesses, host_excesses
from otel_straggler.score.verdicts.findings import Flags
from otel_straggler.score.verdicts.grouping import Groups, median_of_rows
from otel_straggler.score.verdicts.intermittent import Intermittent, Spikes
from otel_straggler.score.verdicts.resolution import Resolution
from otel_straggler.score.verdicts.settings import VerdictSettings
from otel_straggler.score.verdicts.step_numbers import StepNumbers
from otel_straggler.score.verdicts.track import Track
from otel_straggler.score.verdicts.world import World


@dataclass(slots=True)
class Tracks:
    """Memory of the ranks and of the hosts."""

    ranks: Track
    hosts: Track
    spikes: Intermittent
    numbers: StepNumbers
    resolution: Resolution
    newest_spikes: Spikes | None = None
    newest_prices: tuple[Prices, Prices] | None = None

    @classmethod
    def of(cls, world: World, settings: VerdictSettings) -> Tracks:
        columns = len(world.sections) + 2
        return cls(
            Track((world.n_ranks, columns), settings),
            Track((len(world.hosts), columns), settings),
            Intermittent((world.n_ranks, columns)),
            StepNumbers(),
            Resolution(),
        )

    def widen(self, sections: int) -> None:
        """Sections have appeared."""
        if self.ranks.shape[1] != sections + 2:
            for track in (self.ranks, self.hosts, self.spikes):
                track.widen(sections + 2)

    def take(self, excess: Excesses, world: World, counts: Flags) -> None:
        """The next block; steps that do not count (T,) are unknown to all."""
        ranks = excess.ranks
        if not counts.all():
            ranks = np.where(counts[:, None, None], ranks, np.nan)
        self.ranks.take(ranks)
        self.hosts.take(_of_real_hosts(host_excesses(ranks, world), world.hosts))
        self.newest_prices = prices(excess, world)
        told, _ = self.newest_prices
        self.newest_spikes = self.spikes.take(
            ranks, self.ranks.recent(), told.columns_s, told.step_s
        )


def _of_real_hosts(excess: Floats, hosts: Groups) -> Floats:
    """Hosts of one rank are that rank, and say nothing of their own."""
    return np.where((hosts.size > 1)[None, :, None], excess, np.nan)


def prices(excess: Excesses, world: World) -> tuple[Prices, Prices]:
    """What the quantities cost, per rank and per host, in this block."""
    groups = world.peers
    local_s = median_of_rows(excess.peers_local_s)
    step_s = median_of_rows(excess.peers_step_s)
    sections_s = median_of_rows(excess.peers_s)
    columns = np.column_stack([local_s, sections_s, step_s])
    ranks = Prices(columns_s=columns[groups.code], step_s=step_s[groups.code])
    hosts = Prices(
        columns_s=world.hosts.medians(ranks.columns_s.T).T,
        step_s=world.hosts.medians(ranks.step_s),
    )
    return ranks, hosts
