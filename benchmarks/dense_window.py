"""Scoring one dense window of a very large run: 16,384 ranks x 16 sections x 20 steps.

    python -m benchmarks.dense_window [RANKS SECTIONS STEPS]

Apart: taking the rows in (ingest), summing them up into the tables of layer 2 (grouping), layer 1,
and layer 2. Alongside, in the same run, the median of the same times along one axis of a
ready-made table: NumPy's own work, without windows, duplicates, roles and history.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import numpy as np

from otel_straggler.detect.scores.references import ReferenceSet
from otel_straggler.detect.scores.settings import ScoreSettings, VerdictSettings
from otel_straggler.detect.scores.stream import Stream
from otel_straggler.detect.scores.window_scores import score_window
from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.observation import ObservationBatch, Section
from otel_straggler.model.rank import Source

RANKS, SECTIONS, STEPS, PER_NODE = 16_384, 16, 20, 8
BUDGET_S = 1.0
BUDGET_GIB = 1.0


def node_batch(
    first_rank: int, ranks: int, sections: tuple[Section, ...], times_s: np.ndarray
) -> ObservationBatch:
    """What one node of eight ranks sends of a run of ``ranks``; times (ranks, sections, steps)."""
    n_ranks, n_sections, n_steps = times_s.shape
    step = np.tile(np.arange(n_steps), n_ranks * n_sections)
    section = np.tile(np.repeat(np.arange(n_sections, dtype=np.int32), n_steps), n_ranks)
    return ObservationBatch(
        sources=tuple(
            Source(
                run_id="run",
                rank=rank,
                node=f"node-{first_rank // PER_NODE}",
                local_rank=rank % PER_NODE,
                session_id=f"{rank:016x}",
                world_size=ranks,
            )
            for rank in range(first_rank, first_rank + n_ranks)
        ),
        sections=sections,
        source=np.repeat(np.arange(n_ranks, dtype=np.int32), n_sections * n_steps),
        section=section,
        kernel=np.full(times_s.size, -1, np.int32),
        step=step,
        start_ns=step * 10**9 + section + 1,
        duration_s=times_s.ravel(),
        seq=step,
    )


def main(ranks: int = RANKS, n_sections: int = SECTIONS, steps: int = STEPS) -> None:
    """Measure and print."""
    rng = np.random.default_rng(0)
    times_s = rng.lognormal(-3.0, 0.05, size=(ranks, n_sections, steps))
    sections = tuple(Section(f"section-{i}") for i in range(n_sections))
    settings, verdicts = ScoreSettings(window_steps=steps), VerdictSettings()
    stream, history = Stream(settings, verdicts, 0), ReferenceSet.empty(86_400.0)
    seconds: dict[str, float] = {}
    started_s = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal started_s
        seconds[name] = round(time.perf_counter() - started_s, 2)
        started_s = time.perf_counter()

    for first in range(0, ranks, PER_NODE):
        stream.observe(node_batch(first, ranks, sections, times_s[first : first + PER_NODE]), 0)
    lap("ingest")
    tables = list(stream.close_all_tables())
    lap("grouping")
    judge = VerdictEngine(verdicts)
    for table in tables:
        judge.observe(table)
    judge.finish()
    lap("layer_2")
    (rows,) = stream.close_all()
    window = score_window(
        rows,
        history,
        world_size=ranks,
        threshold=settings.threshold,
        min_reference_samples=settings.min_reference_samples,
        closed_by="end",
    )
    lap("layer_1")
    np.median(times_s, axis=2)
    lap("numpy_median_alone")
    assert int(window.section_count.sum()) == sum(int(t.runs.sum()) for t in tables) == len(rows)
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    slowest_s = max(seconds["layer_1"], seconds["layer_2"])
    result = {
        "rows": len(rows),
        "seconds": seconds,
        "peak_gib": round(peak_gib, 2),
        "budget_s": BUDGET_S,
        "budget_gib": BUDGET_GIB,
        "is_within_budget": slowest_s <= BUDGET_S and peak_gib <= BUDGET_GIB,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
