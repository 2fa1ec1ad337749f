"""Scoring one dense window of a very large run: 16,384 ranks x 16 sections x 20 steps.

    python -m benchmarks.dense_window

Beside it, in the same run, the median of the same times along one axis of a ready-made table:
NumPy's own work, without windows, duplicates, roles and history.
"""

from __future__ import annotations

import json
import resource
import time

import numpy as np

from otel_straggler.model.observation import ObservationBatch, Section
from otel_straggler.model.rank import Source
from otel_straggler.score.scorer import Scorer, ScoreSettings

RANKS, SECTIONS, STEPS, PER_NODE = 16_384, 16, 20, 8
BUDGET_S = 1.0
BUDGET_GIB = 1.0


def node_batch(first_rank: int, sections: tuple[Section, ...], times_s: np.ndarray):
    """What one node of eight ranks sends."""
    n = PER_NODE * SECTIONS * STEPS
    steps = np.tile(np.arange(STEPS), PER_NODE * SECTIONS)
    section = np.tile(np.repeat(np.arange(SECTIONS, dtype=np.int32), STEPS), PER_NODE)
    return ObservationBatch(
        sources=tuple(
            Source(
                run_id="run",
                rank=rank,
                node=f"node-{first_rank // PER_NODE}",
                local_rank=rank % PER_NODE,
                session_id=f"{rank:016x}",
                world_size=RANKS,
            )
            for rank in range(first_rank, first_rank + PER_NODE)
        ),
        sections=sections,
        source=np.repeat(np.arange(PER_NODE, dtype=np.int32), SECTIONS * STEPS),
        section=section,
        kernel=np.full(n, -1, np.int32),
        step=steps,
        start_ns=steps * 10**9 + section + 1,
        duration_s=times_s.ravel(),
        seq=steps,
    )


def main() -> None:
    """Measure and print."""
    rng = np.random.default_rng(0)
    times_s = rng.lognormal(-3.0, 0.05, size=(RANKS, SECTIONS, STEPS))
    sections = tuple(Section(f"section-{i}") for i in range(SECTIONS))
    scorer = Scorer(ScoreSettings(window_steps=STEPS))
    started_s = time.perf_counter()
    for first_rank in range(0, RANKS, PER_NODE):
        node = times_s[first_rank : first_rank + PER_NODE]
        scorer.observe(node_batch(first_rank, sections, node), 0)
    taken_s = time.perf_counter() - started_s
    started_s = time.perf_counter()
    (window,) = scorer.close_all()
    scored_s = time.perf_counter() - started_s
    assert int(window.section_count.sum()) == RANKS * SECTIONS * STEPS
    started_s = time.perf_counter()
    np.median(times_s, axis=2)
    median_s = time.perf_counter() - started_s
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    result = {
        "rows": RANKS * SECTIONS * STEPS,
        "take_s": round(taken_s, 2),
        "score_s": round(scored_s, 2),
        "numpy_median_alone_s": round(median_s, 2),
        "ratio_to_numpy_median": round(scored_s / median_s, 1),
        "peak_gib": round(peak_gib, 2),
        "budget_s": BUDGET_S,
        "budget_gib": BUDGET_GIB,
        "is_within_budget": scored_s <= BUDGET_S and peak_gib <= BUDGET_GIB,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
