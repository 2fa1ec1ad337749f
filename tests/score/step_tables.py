"""Step tables built in a line, for tests of layer 2."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from otel_straggler.model.observation import Floats, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable
from otel_straggler.semconv import SectionKind


def step_table(
    seconds: Floats,
    sections: Mapping[str, SectionKind],
    *,
    runs: Sequence[int] | None = None,
    parallel: Sequence[tuple[tuple[str, int], ...]] | None = None,
    run_cv: float = float("nan"),
    tokens: Floats | None = None,
    wall_s: float | None = None,
    roles: Sequence[str] | None = None,
    nodes: Sequence[str] | None = None,
) -> StepTable:
    """A table of (T, R, S) ``seconds``; each section runs ``runs`` times a step."""
    n_steps, n_ranks, n_sections = seconds.shape
    often = np.array(runs or [1] * n_sections, np.int32)
    wall_ns = int((np.nansum(seconds, axis=2).max() if wall_s is None else wall_s) * 1e9)
    start_ns = np.tile(1 + np.arange(n_steps, dtype=np.int64)[:, None] * 10**12, (1, n_ranks))
    return StepTable(
        steps=np.arange(n_steps, dtype=np.int64),
        sources=tuple(
            Source(
                run_id="run",
                rank=r,
                parallel=parallel[r] if parallel else (),
                role=roles[r] if roles else "default",
                node=nodes[r] if nodes else f"node-{r // 8}",
            )
            for r in range(n_ranks)
        ),
        sections=tuple(Section(name, kind) for name, kind in sections.items()),
        seconds=seconds,
        runs=np.where(np.isfinite(seconds), often, 0).astype(np.int32),
        run_cv=np.full((n_ranks, n_sections), run_cv),
        tokens=np.full((n_steps, n_ranks), np.nan) if tokens is None else tokens,
        start_ns=start_ns,
        end_ns=start_ns + wall_ns,
        world_size=n_ranks,
    )
