"""How large the file of ``otel-straggler report --html`` is, and how long it takes to make.

    python -m benchmarks.report_file [RANKS]

1,000 ranks (125 data x 8 pipeline) x 10 sections, 240 windows with 5 % noise that no compression
can take away, read from a history. Alongside, what the history keeps for the view of that run,
and what making it takes of the history's thread every ten seconds.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.history import STEPS, rows_of
from otel_straggler.cli.report import report_data
from otel_straggler.cli.report_source import StoredRunViews, choose_run
from otel_straggler.collector.history.codec import encode_blob
from otel_straggler.collector.history.history import History
from otel_straggler.collector.history.reader import HistoryReader
from otel_straggler.collector.history.store import Summary
from otel_straggler.collector.views.run_summary import summary_value
from otel_straggler.collector.views.world_view import RankHeartbeats, RankTable, WorldView
from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.model.scores import WindowScores
from otel_straggler.model.verdict import RankWaits, RunVerdicts, SectionCost, WorldSummary
from otel_straggler.page.bundle import bundle, json_in_html

WINDOWS, DISTINCT, STAGES = 240, 8, 8


def windows(ranks: int) -> list[WindowScores]:
    """Some windows, over and over: only their noise costs anything to draw."""
    import benchmarks.history

    benchmarks.history.RANKS = ranks
    rng = np.random.default_rng(0)
    scorer = Scorer(ScoreSettings(window_steps=STEPS))
    for number in range(DISTINCT):
        scorer.observe(rows_of(number, rng), 0)
    made = scorer.close_all()
    return [
        replace(
            made[number % len(made)],
            first_step=number * STEPS,
            last_step=(number + 1) * STEPS - 1,
            end_ns=(number + 1) * STEPS * 10**9,
        )
        for number in range(WINDOWS)
    ]


def seen_of(window: WindowScores) -> WorldView:
    """A run of which everything is known."""
    n_ranks = len(window.sources)
    parallels = [(("data", r // STAGES), ("pipeline", r % STAGES)) for r in range(n_ranks)]
    table = replace(RankTable.of_window(window), parallels=parallels)
    sections = [section.name for section in window.sections]
    world = WorldSummary(
        run_id="run",
        slowdown=1.1,
        waste=0.1,
        step_s=1.0,
        heat=tuple((r % STAGES, r // STAGES, 1.0 + r / 1e5) for r in range(n_ranks)),
        ledger=tuple(
            SectionCost(section=name, exposed_s=0.1, typical_s=0.1, leader_rank=0)
            for name in sections
        ),
        waits=tuple(
            RankWaits(rank=r, node="n", role="r", group="", caused_s=1.1 * r, suffered_s=0.7 * r)
            for r in range(min(100, n_ranks))
        ),
    )
    heartbeats = RankHeartbeats(
        ranks=table.ranks,
        nodes=table.nodes,
        roles=table.roles,
        devices=table.devices,
        models=[""] * n_ranks,
        parallels=parallels,
        heartbeat_age_s=np.random.default_rng(1).uniform(0, 5, n_ranks),
        progress_age_s=np.random.default_rng(2).uniform(0, 5, n_ranks),
        step=np.full(n_ranks, WINDOWS * STEPS),
        open_section=["forward"] * n_ranks,
        gpu_tier=["events"] * n_ranks,
        gpu_reason=[""] * n_ranks,
        dropped=[{}] * n_ranks,
        outcomes=[""] * n_ranks,
        ended_age_s=np.full(n_ranks, np.nan),
    )
    return WorldView(
        run_id="run",
        job="job",
        now_s=1e9,
        world_size=n_ranks,
        table=table,
        heartbeats=heartbeats,
        run_verdicts=RunVerdicts(worlds=(world,)),
    )


def page_of(path: Path) -> tuple[str, dict[str, Any], float]:
    """The file, what is in it, and the seconds that it took."""
    began_s = time.perf_counter()
    with HistoryReader(path) as reader:
        run_views = StoredRunViews(reader, str(path))
        chosen = choose_run(run_views, "run")
        data = report_data(run_views, chosen, run_views.run_view("run", None))
        page = bundle(data, title="run")
    return page, data, time.perf_counter() - began_s


def main() -> None:
    """Measure and print."""
    ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    closed = windows(ranks)
    seen = seen_of(closed[-1])
    at_s = time.perf_counter()
    blob = encode_blob(summary_value(seen))
    summary_s = time.perf_counter() - at_s
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "history.db"
        history = History(path, max_waiting_bytes=2**40, max_bytes=2**40)
        history.open()
        summary = Summary(
            run_id=seen.run_id, job=seen.job, group=seen.group, make=lambda: summary_value(seen)
        )
        history.put(windows=closed, summaries=[summary])
        history.close(600)
        page, data, took_s = page_of(path)
    parts = {name: len(json_in_html(data[name])) for name in ("run", "timelines", "ranks")}
    result = {
        "ranks": ranks,
        "sections": len(closed[0].sections),
        "windows": WINDOWS,
        "file_bytes": len(page.encode()),
        "file_gzipped_bytes": len(gzip.compress(page.encode(), 6)),
        "page_without_data_bytes": len(page.encode()) - len(json_in_html(data)),
        **{f"{name}_bytes": size for name, size in parts.items()},
        "timelines": len(data["timelines"]),
        "left_out": data["left_out"],
        "seconds": round(took_s, 2),
        "summary_bytes": len(blob),
        "summary_ms": round(summary_s * 1e3, 1),
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
