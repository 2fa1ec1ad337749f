"""Which ranks share a node, and which node keeps copies of whose files. Pure: no clock, no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from otel_straggler.errors import ConfigError


@dataclass(frozen=True)
class LocalTier:
    """Checkpoints on the nodes themselves, for :class:`.Manager`.

    Attributes:
        folder: for checkpoints alone, on a disk or tmpfs of the node. Ranks of one host and folder
            are a node.
        every_steps: save there when the number of the step is a multiple.
        replicas: other nodes that keep a copy of each rank's files.
        keep: complete checkpoints that are kept on each node.
        domain: what fails together, such as a rack; copies go to another one. Default: the node.

    Raises:
        ConfigError: a number is wrong.
    """

    folder: str | Path
    every_steps: int
    replicas: int = 1
    keep: int = 2
    domain: str = ""

    def __post_init__(self) -> None:
        for name, minimum in (("every_steps", 1), ("replicas", 0), ("keep", 1)):
            value = getattr(self, name)
            if value < minimum:
                raise ConfigError.of(
                    f"LocalTier({name}=...)", value, f"at least {minimum}", "Choose another."
                )


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The nodes of a training.

    Attributes:
        nodes: of each rank, the number of its node; nodes count up with their lowest rank.
        domains: of each node, what fails together with it.
        replicas: other nodes that keep a copy.
    """

    nodes: tuple[int, ...]
    domains: tuple[str, ...]
    replicas: int = 0

    @classmethod
    def shared(cls, world_size: int) -> Layout:
        """All ranks write to one folder."""
        return cls(nodes=(0,) * world_size, domains=("",))

    @classmethod
    def of_places(cls, places: Sequence[tuple[str, str, str]], replicas: int) -> Layout:
        """Args:
        places: host, folder, and domain of each rank; without a domain it is the node.
        """
        numbers: dict[tuple[str, str], int] = {}
        nodes = [numbers.setdefault((host, folder), len(numbers)) for host, folder, _ in places]
        domains = {node: domain for node, (_, _, domain) in zip(nodes, places, strict=True)}
        return cls(
            nodes=tuple(nodes),
            domains=tuple(domains[node] or f"node {node}" for node in range(len(numbers))),
            replicas=replicas,
        )

    def node_ranks(self, ranks: Sequence[int]) -> dict[int, list[int]]:
        """Those of ``ranks`` on each node, in order."""
        grouped: dict[int, list[int]] = {}
        for rank in sorted(ranks):
            grouped.setdefault(self.nodes[rank], []).append(rank)
        return grouped

    def leader(self, rank: int, ranks: Sequence[int]) -> int:
        """The lowest of ``ranks`` on the node of ``rank``: it commits there."""
        return self.node_ranks(ranks)[self.nodes[rank]][0]

    def keepers(self, ranks: Sequence[int]) -> Mapping[int, list[int]]:
        """The ranks that fetch a copy of each rank's files, among ``ranks``, who live.

        Nodes of other domains keep them, each as many as the others if domains are of one size;
        fewer than ``replicas`` where there are not as many.
        """
        return _keepers(self, tuple(ranks))

    def possible_replicas(self, ranks: Sequence[int]) -> int:
        """Copies that the files of all ``ranks`` have; fewer than ``replicas`` where there are not
        as many nodes in other domains."""
        return min(len(chosen) for chosen in self.keepers(ranks).values())


@lru_cache(maxsize=4)
def _keepers(layout: Layout, ranks: tuple[int, ...]) -> Mapping[int, list[int]]:
    """Kept from save to save: it grows with the square of the nodes."""
    on_nodes = layout.node_ranks(ranks)
    peers = _peers([layout.domains[node] for node in on_nodes], layout.replicas)
    members = list(on_nodes.values())
    return {
        rank: [members[peer][place % len(members[peer])] for peer in peers[at]]
        for at, own in enumerate(members)
        for place, rank in enumerate(own)
    }


def _peers(domains: Sequence[str], replicas: int) -> list[list[int]]:
    """For each node those that keep its copies: the least used in another domain, then the next."""
    used = [0] * len(domains)
    chosen: list[list[int]] = []
    for node, domain in enumerate(domains):
        others = [peer for peer, its in enumerate(domains) if its != domain]
        others.sort(key=lambda peer: (used[peer], (peer - node) % len(domains)))
        chosen.append(others[:replicas])
        for peer in chosen[-1]:
            used[peer] += 1
    return chosen
