"""Generated runs as tests look at them."""

from __future__ import annotations

import numpy as np

from otel_straggler.simulate.runs import Fault, Label, Layout, RunPlan, SimulatedRun, generate

QUIET = {"noise": 0.0, "common_mode": 0.0, "rank_offset": 0.0, "spikes": 0.0}
"""All ranks equal, but for what a test adds."""


def make(layout: str = "dp8", *faults: str, **plan: object) -> SimulatedRun:
    """A run of 60 steps."""
    reported = {"steps": 60, **plan}
    parsed = tuple(map(Fault.parse, faults))
    return generate(RunPlan(layout=Layout.parse(layout), faults=parsed, **reported))


def seconds(run: SimulatedRun, *sections: str) -> np.ndarray:
    """(steps, ranks) sum over sections; without names, over all."""
    tables = list(run.tables(20))
    names = [section.name for section in tables[0].sections]
    codes = [names.index(name) for name in sections or names]
    return np.concatenate([np.nansum(table.seconds[:, :, codes], axis=2) for table in tables])


def label_of(run: SimulatedRun) -> Label:
    """The only label."""
    (label,) = run.labels
    return label
