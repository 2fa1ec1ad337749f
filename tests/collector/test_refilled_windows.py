"""Windows that come back from the history after a restart: the same as they were before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from otel_straggler.collector.history.history import History
from otel_straggler.collector.history.pages import PageHistory
from otel_straggler.collector.history.writer import start_backfill
from otel_straggler.collector.runs.timeline import MAX_COLUMNS, Timeline
from otel_straggler.collector.views.timeline import Column
from otel_straggler.collector.views.world_view import WorldView
from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.detect.scores.settings import ScoreSettings
from otel_straggler.model.observation import BatchBuilder, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores

SECTIONS = (
    (Section("loader", "data"), 0.02),
    (Section("forward"), 0.1),
    (Section("attention", "compute", "forward"), 0.09),
    (Section("softmax", "compute", "attention"), 0.05),
    (Section("sync", "wait"), 0.01),
)
BEGAN_NS = 1_790_000_000_000_000_000


def scored_windows(ranks: int = 4, steps: int = 24, every: int = 2) -> list[WindowScores]:
    """Rank 2 is slow around sections that do not take longer and must not count again; only every
    second step is told."""
    builder = BatchBuilder()
    for step in range(0, steps, every):
        for rank in range(ranks):
            source = Source(run_id="run", rank=rank, world_size=ranks, role="worker")
            start_ns = BEGAN_NS + step * 10**9
            for section, seconds in SECTIONS:
                slow = 0.03 if rank == 2 and section.name == "forward" else 0.0
                duration_s = seconds + slow + 1e-4 * rank
                builder.add(source, section, step=step, start_ns=start_ns, duration_s=duration_s)
    scorer = Scorer(ScoreSettings(window_steps=8))
    scorer.observe(builder.build(), 0)
    return scorer.close_all()


class Filled:
    """Takes older windows as a worker does."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.is_done = False

    def backfill(self, view: WorldView, columns: Sequence[Column]) -> None:
        assert (view.run_id, view.group) == ("run", "")
        self._timeline.put_before(columns)

    def end_backfill(self) -> None:
        self.is_done = True


def test_live_and_refilled_windows_agree(tmp_path: Path) -> None:
    """Slowdowns to one place of the byte (the history keeps five digits), and all that stands
    beside them; what lies within another section counts once in both."""
    windows = scored_windows()
    live, refilled = Timeline(), Timeline()
    for window in windows:
        live.observe(window)
    history = History(tmp_path / "history.db", wall_s=lambda: BEGAN_NS / 1e9 + 60)
    history.open()
    history.put(windows=windows)
    history.close()
    kept = PageHistory(str(tmp_path / "history.db"))
    start_backfill(kept, Filled(refilled), 3600.0, wall_s=lambda: BEGAN_NS / 1e9 + 90).join()
    now, before = live.columns, refilled.columns
    assert len(now) == len(before) == 2
    assert before[-1].seq == MAX_COLUMNS
    for one, other in zip(now, before, strict=True):
        for name in ("at_s", "first_step", "last_step", "n_steps", "attempt", "sections"):
            assert getattr(one, name) == getattr(other, name), name
        assert one.ranks.tolist() == other.ranks.tolist()
        apart = one.values.astype(int) - other.values.astype(int)
        assert np.abs(apart).max() <= 1
        slowdown = 2.0 ** ((int(one.values[0, 2]) - 128) / 64)
        assert abs(slowdown - 1.25) < 0.02  # 0.15 of 0.12 s; 1.12 if what lies within counted again
    assert now[0].n_steps == 8
