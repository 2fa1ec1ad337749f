"""Pictures and timelines of made-up runs, as `/v1/run` and `/v1/timeline` answer them.

    python tests/page/charts_fixtures.py STORY RANKS [WINDOWS]    # prints {"picture", "timelines"}

The stories are those that the matrix tells apart: even, hot_cell, hot_row, hot_column,
spread, silent. Half of
the windows are like all others; then it begins.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from otel_straggler.collector.views.numbers import as_bytes

STORIES = ("even", "hot_cell", "hot_row", "hot_column", "spread", "silent")
SECTIONS = (
    ("data_loading", "data"),
    ("forward", "compute"),
    ("backward", "compute"),
    ("gradient_sync", "communication"),
    ("optimizer", "compute"),
)
PER_NODE, WINDOW_STEPS, WINDOW_S, BEGAN_S = 8, 20, 24.0, 1_790_000_000.0
NOISE = 0.012
TEXTS = {
    "even": "All workers are alike.",
    "hot_cell": "One worker is hot: its GPU, its host or its data.",
    "hot_row": "The last stage is hot: the pipeline is uneven.",
    "hot_column": "One data rank is hot in all stages: its host or its data.",
    "spread": "Heat all over: the work moves, as with uneven sequences.",
    "silent": "One worker is silent: it is lost or stuck.",
}
Json = dict[str, Any]
Floats = npt.NDArray[np.float64]


class Story:
    """One run: `ranks` in pipeline stages of a fourth each (at 8 ranks: of two stages)."""

    def __init__(self, name: str, ranks: int, windows: int = 120, *, sections: int = 5) -> None:
        self.name, self.ranks, self.windows = name, ranks, windows
        self.stages = 2 if ranks < 32 else 4 if ranks <= 1_000 else 8
        self.data_ranks = ranks // self.stages
        self.culprit = min(5, ranks - 1) if ranks < 64 else ranks // 3
        self.sections = [*SECTIONS, *((f"layer_{i}", "compute") for i in range(sections - 5))]
        self.random = np.random.default_rng(7)

    def slowdowns(self, window: int, section: str = "") -> Floats:
        """One number per rank; NaN = no data. `section` empty = all together."""
        values = np.exp(self.random.normal(0, NOISE, self.ranks))
        strength = 1.0 if section in ("forward", "backward", "") else 0.15
        if window >= self.windows // 2 and self.name != "even":
            values *= 1 + (self._heat() - 1) * strength
        if self.name == "silent" and window >= self.windows - 3:
            values[self.culprit] = np.nan
        return values

    def _heat(self) -> Floats:
        heat = np.ones(self.ranks)
        if self.name == "hot_cell":
            heat[self.culprit] = 1.49
        if self.name == "hot_row":
            heat[-self.data_ranks :] = 1.27
        if self.name == "hot_column":
            heat[self.culprit % self.data_ranks :: self.data_ranks] = 1.35
        if self.name == "spread":
            hit = self.random.random(self.ranks) < 0.35
            heat[hit] = self.random.uniform(1.1, 1.7, int(hit.sum()))
        return heat

    def timeline(self, section: str = "", first: int = 0, end: int | None = None) -> Json:
        """Columns `first` to `end` (half open), in the run's count of windows."""
        self.random = np.random.default_rng(7)
        columns = [self.slowdowns(i, section) for i in range(end or self.windows)][first:]
        return {
            "schema_version": 1,
            "run_id": "demo",
            "group": "",
            "section": section,
            "first": 1 + first,
            "last": len(columns) + first,
            "ranks": list(range(self.ranks)),
            "columns": [self._column(i + first) for i in range(len(columns))],
            "encoding": "uint8-log2",
            "values": base64.b64encode(as_bytes(np.array(columns)).tobytes()).decode(),
        }

    def _column(self, window: int) -> Json:
        first = window * WINDOW_STEPS
        return {
            "seq": window + 1,
            "at_s": BEGAN_S + window * WINDOW_S,
            "first_step": first,
            "last_step": first + WINDOW_STEPS - 1,
            "n_steps": WINDOW_STEPS,
        }

    def run_view(self) -> Json:
        """What the charts read of `/v1/run`."""
        self.random = np.random.default_rng(11)
        last = self.windows - 1
        by_section = [_numbers(self.slowdowns(last, name)) for name, _ in self.sections]
        overall = _numbers(self.slowdowns(last))
        ranks = range(self.ranks)
        stuck = self.name == "silent"
        return {
            "schema_version": 1,
            "run": {"run_id": "demo", "group": "", "world_size": self.ranks},
            "verdicts": self._verdicts(),
            "hangs": [{"culprits": [self.culprit], "state": "hung"}] if stuck else [],
            "ranks": {
                "rank": list(ranks),
                "node": [rank // PER_NODE for rank in ranks],
                "nodes": [f"node-{i}" for i in range(-(-self.ranks // PER_NODE))],
                "dp": [rank % self.data_ranks for rank in ranks],
                "pp": [rank // self.data_ranks for rank in ranks],
                "state": [int(stuck and rank == self.culprit) for rank in ranks],
                "states": ["ok", "lost"],
            },
            "sections": [{"name": name, "kind": kind} for name, kind in self.sections],
            "slowdowns": {"overall": overall, "by_section": by_section},
            "heat": self._heat_json(overall),
        }

    def _heat_json(self, overall: list[float | None]) -> Json:
        index = [self.culprit // self.data_ranks, self.culprit % self.data_ranks]
        return {
            "stages": list(range(self.stages)),
            "data_ranks": list(range(self.data_ranks)),
            "cells": [
                [rank // self.data_ranks, rank % self.data_ranks, value]
                for rank, value in enumerate(overall)
                if value is not None
            ],
            "silent": [index] if self.name == "silent" else [],
            "pattern": self.name,
            "pattern_text": TEXTS[self.name],
        }

    def _verdicts(self) -> list[Json]:
        if self.name != "hot_cell":
            return []
        node = f"node-{self.culprit // PER_NODE}"
        return [{"scope": "rank", "rank": self.culprit, "node": node, "stands": True}]


def without_layout(run_view: Json) -> Json:
    """The same of a run that says nothing of its parallel dimensions: all ranks in one row."""
    ranks = {**run_view["ranks"], "dp": None, "pp": None}
    overall = run_view["slowdowns"]["overall"]
    silent = [hang["culprits"][0] for hang in run_view["hangs"]]
    heat = {
        **run_view["heat"],
        "stages": [0],
        "data_ranks": ranks["rank"],
        "cells": [[0, rank, slowdown] for rank, slowdown in enumerate(overall)],
        "silent": [[0, rank] for rank in silent],
    }
    return {**run_view, "ranks": ranks, "heat": heat}


def _numbers(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else float(f"{value:.4g}") for value in values]


if __name__ == "__main__":
    story = Story(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 120)
    print(json.dumps({"picture": story.run_view(), "timelines": {"": story.timeline()}}))
