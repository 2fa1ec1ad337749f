"""Episodes, labels and tables made by hand, with known answers."""

from __future__ import annotations

import numpy as np

from benchmarks.detection.episodes import Episode
from otel_straggler.model.observation import Floats, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable
from otel_straggler.simulate.labels import Label

LOCAL = (Section("data_loading", "data"), Section("forward"), Section("gradient_sync", "wait"))


def label(*ranks: int, onset: int = 100, end: int | None = None, **fields) -> Label:
    """A slow rank on the hosts of eight that its ranks live on, unless told otherwise."""
    fields = {"kind": "compute", "scope": "rank", "cause": "slow_gpu", **fields}
    return Label(
        ranks=frozenset(ranks),
        ranks_by_attempt=(frozenset(ranks),),
        nodes=frozenset(f"node-{rank // 8}" for rank in ranks),
        onset_step=onset,
        end_step=end,
        slowdown=1.25,
        step_slowdown=1.25,
        **fields,
    )


def host_label(node: int = 0, **fields) -> Label:
    return label(*range(8 * node, 8 * node + 8), scope="host", **fields)


def rank_episode(rank: int, begin: int, end: int | None = None, **fields) -> Episode:
    return Episode(scope="rank", ranks=frozenset((rank,)), begin_step=begin, end_step=end, **fields)


def host_episode(node: int, begin: int, **fields) -> Episode:
    ranks = frozenset(range(8 * node, 8 * node + 8))
    return Episode(scope="host", ranks=ranks, node=f"node-{node}", begin_step=begin, **fields)


def tables(seconds: Floats, *, stages: int = 1, steps_at_once: int = 5) -> list[StepTable]:
    """Tables of (steps, ranks, 3) seconds of ``LOCAL``; the ranks fill one stage after another."""
    steps, ranks, _ = seconds.shape
    per_stage = ranks // stages
    sources = tuple(
        Source(
            run_id="run",
            rank=rank,
            node=f"node-{rank // 8}",
            world_size=ranks,
            parallel=(("data", rank % per_stage), ("pipeline", rank // per_stage)),
        )
        for rank in range(ranks)
    )
    return [
        StepTable(
            steps=np.arange(begin, min(begin + steps_at_once, steps)),
            sources=sources,
            sections=LOCAL,
            seconds=(part := seconds[begin : begin + steps_at_once]),
            runs=(~np.isnan(part)).astype(np.int32),
            run_cv=np.full(part.shape[1:], np.nan),
            tokens=np.full(part.shape[:2], np.nan),
            start_ns=np.ones(part.shape[:2], np.int64),
            end_ns=np.full(part.shape[:2], 2, np.int64),
            world_size=ranks,
        )
        for begin in range(0, steps, steps_at_once)
    ]


def healthy(steps: int = 60, ranks: int = 16, noise: float = 0.01, seed: int = 0) -> Floats:
    """(steps, ranks, 3) seconds: data loading, forward, waiting."""
    rng = np.random.default_rng(seed)
    return np.array([0.1, 1.0, 0.05]) * np.exp(rng.normal(0, noise, (steps, ranks, 3)))
