"""Settings of layer 2, with the product's defaults."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictSettings:
    """When somebody is called slow.

    Attributes:
        block_steps: steps that are summed up by one median; everything is evaluated as often.
        block_s: length of a "step" for rows that have none.
        windows_steps: lengths over which a rank is compared with its peers.
        least_slowdown: no smaller one is ever confirmed (1.03 = 3 %).
        floor_of_resolvable: nor one below so many times the resolvable slowdown.
        least_z: nor one that lies fewer robust standard deviations beyond its peers.
        page_slowdown: nobody is called for less.
        page_loss: nor for less than this part of the job's GPU time.
        least_share: a section must lose at least this part of the step.
        least_peers: peer groups under it say nothing; below 5, only slowdowns of 1.25 count.
        quorum: nothing is said while fewer ranks report than this part.
        warm_up_steps: left out after an observed start of an attempt.
        max_changes: changes of state kept in memory.
    """

    block_steps: int = 5
    block_s: float = 10.0
    windows_steps: tuple[int, ...] = (20, 100, 400)
    least_slowdown: float = 1.03
    floor_of_resolvable: float = 1.5
    least_z: float = 3.5
    page_slowdown: float = 1.10
    page_loss: float = 0.01
    least_share: float = 0.01
    least_peers: int = 3
    quorum: float = 0.8
    warm_up_steps: int = 20
    max_changes: int = 10_000
