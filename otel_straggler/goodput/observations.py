"""Activities of a recorded run: from the spans of its ranks."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import numpy as np

from otel_straggler.goodput.activities import (
    ATTEMPT,
    STEP,
    Activities,
    Activity,
    category_of,
    joined,
)
from otel_straggler.model.observation import (
    NO_KERNEL,
    NO_STEP,
    Bools,
    Ints,
    ObservationBatch,
    Section,
)
from otel_straggler.model.rank import Source
from otel_straggler.semconv import (
    ACTIVITY_PREFIX,
    BADPUT,
    CUSTOM_PREFIX,
    EXCLUDED,
    SectionKind,
)

_LOADS: Final = ("load", "restore")
LONGEST_STEP: Final = 3.0
"""A step that takes so many times the usual until the next one is followed by a pause."""
_OF_KIND: Final = {"data": "data", "eval": "eval"}


def is_activity(batch: ObservationBatch) -> Bools:
    """(n,) rows that are activities and no sections, which nothing scores."""
    named = [section.name.startswith(ACTIVITY_PREFIX) for section in batch.sections]
    result: Bools = np.array(named, bool)[batch.section]
    return result


def activities_of(batch: ObservationBatch, run_id: str, group: str) -> Activities:
    """Activities of one group of a run.

    Steps are the spans of steps; of a process that has none, what its sections of one step number
    span. Sections of the kinds data, checkpoint and eval are badput of these categories, phases
    with the name of a category are of that, and a section of kind ``other`` outside of steps is
    badput of its own name. A process lives from its first span to its last.

    Cost: O(n log n).
    """
    sources = [source.run_id == run_id and source.group == group for source in batch.sources]
    chosen = np.array(sources, bool)[batch.source] & (batch.kernel == NO_KERNEL)
    batch = batch.take(chosen)
    if not len(batch):
        return Activities.of([])
    end_ns = batch.start_ns + np.rint(batch.duration_s * 1e9).astype(np.int64)
    return joined(
        [
            _reported(batch, end_ns),
            _lives(batch, end_ns),
            _derived_steps(batch, end_ns),
        ]
    )


def _reported(batch: ObservationBatch, end_ns: Ints) -> Activities:
    """Rows that are activities by themselves."""
    always = [activity_of(section, in_step=True) for section in batch.sections]
    outside = [activity_of(section, in_step=False) for section in batch.sections]
    names = tuple(dict.fromkeys(name for name in (*always, *outside) if name))
    codes = {name: code for code, name in enumerate(names)} | {"": -1}
    code_in = np.array([codes[name] for name in always], np.int32)[batch.section]
    code_out = np.array([codes[name] for name in outside], np.int32)[batch.section]
    what = np.where(batch.step == NO_STEP, code_out, code_in)
    kept = what >= 0
    rank, attempt = _identities(batch.sources)
    return Activities(
        names=names,
        what=what[kept],
        rank=rank[batch.source[kept]],
        attempt=attempt[batch.source[kept]],
        step=batch.step[kept],
        steps=np.ones(int(kept.sum()), np.int64),
        start_ns=batch.start_ns[kept],
        end_ns=end_ns[kept],
    )


def activity_of(section: Section, *, in_step: bool) -> str:
    """The activity that a section is; empty if it is part of a step.

    >>> activity_of(Section("megatron.load_checkpoint", "checkpoint"), in_step=True)
    'checkpoint_load'
    """
    name = section.name
    if name.startswith(ACTIVITY_PREFIX):
        name = name.removeprefix(ACTIVITY_PREFIX)
        return name if name in {STEP, ATTEMPT} else category_of(name)
    if name.startswith(CUSTOM_PREFIX):
        return name
    if section.kind == "checkpoint":
        return "checkpoint_load" if any(word in name for word in _LOADS) else "checkpoint"
    if section.kind in _OF_KIND:
        return _OF_KIND[section.kind]
    if section.kind != "other":
        return ""
    if name in BADPUT or name == EXCLUDED:
        return name
    return "" if in_step else category_of(name)


def _identities(sources: tuple[Source, ...]) -> tuple[Ints, Ints]:
    """(S,) ranks and attempts."""
    rank = np.array([source.rank for source in sources], np.int64)
    return rank, np.array([source.attempt for source in sources], np.int64)


def _lives(batch: ObservationBatch, end_ns: Ints) -> Activities:
    """A row for each process."""
    present, index = np.unique(batch.source, return_inverse=True)
    first = np.full(len(present), np.iinfo(np.int64).max)
    last = np.full(len(present), np.iinfo(np.int64).min)
    np.minimum.at(first, index, batch.start_ns)
    np.maximum.at(last, index, end_ns)
    rank, attempt = _identities(batch.sources)
    n = len(present)
    return Activities(
        names=(ATTEMPT,),
        what=np.zeros(n, np.int32),
        rank=rank[present],
        attempt=attempt[present],
        step=np.full(n, NO_STEP, np.int64),
        steps=np.ones(n, np.int64),
        start_ns=first,
        end_ns=last,
    )


def _derived_steps(batch: ObservationBatch, end_ns: Ints) -> Activities:
    """Steps of processes without spans of steps: all that has the same number."""
    step_names = [section.name == ACTIVITY_PREFIX + STEP for section in batch.sections]
    with_steps = np.unique(batch.source[np.array(step_names, bool)[batch.section]])
    derived = ~np.isin(batch.source, with_steps) & (batch.step != NO_STEP)
    source, step = batch.source[derived].astype(np.int64), batch.step[derived]
    cells, index = np.unique(np.stack([source, step]), axis=1, return_inverse=True)
    index = index.reshape(-1)
    n = cells.shape[1]
    first = np.full(n, np.iinfo(np.int64).max)
    last = np.full(n, np.iinfo(np.int64).min)
    np.minimum.at(first, index, batch.start_ns[derived])
    np.maximum.at(last, index, end_ns[derived])
    last = _until_next(cells, first, last)
    rank, attempt = _identities(batch.sources)
    return Activities(
        names=(STEP,),
        what=np.zeros(n, np.int32),
        rank=rank[cells[0]],
        attempt=attempt[cells[0]],
        step=cells[1],
        steps=np.ones(n, np.int64),
        start_ns=first,
        end_ns=last,
    )


def _until_next(cells: Ints, first_ns: Ints, last_ns: Ints) -> Ints:
    """(n,) ends of steps: a step lasts until the next one begins, with what no section covers; but
    after a pause, of which nothing is known, and at the end, where nothing follows.

    Args:
        cells: (2, n) source and number of each step, ascending.
    """
    is_next = (np.diff(cells[0]) == 0) & (np.diff(cells[1]) == 1)
    lasted_ns = np.diff(first_ns)
    is_next &= (lasted_ns > 0) & (first_ns[1:] > last_ns[:-1])
    if not is_next.any():
        return last_ns
    is_next &= lasted_ns <= LONGEST_STEP * np.median(lasted_ns[is_next])
    result: Ints = last_ns.copy()
    result[:-1][is_next] = first_ns[1:][is_next]
    return result


# --- live ----------------------------------------------------------------------------------------


def activity_rows(batch: ObservationBatch) -> Iterable[tuple[Source, Activity]]:
    """Phases, evaluations and checkpoints in a batch, not data loading, which windows have."""
    names = [_phase_of(section.name, section.kind) for section in batch.sections]
    if not any(names):
        return
    lowest: dict[tuple[str, str, int], int] = {}
    for source in batch.sources:
        world = source.run_id, source.group, source.attempt
        lowest[world] = min(source.rank, lowest.get(world, source.rank))
    is_lowest = [lowest[s.run_id, s.group, s.attempt] == s.rank for s in batch.sources]
    chosen = np.array(names, bool)[batch.section] & np.array(is_lowest, bool)[batch.source]
    for at in np.flatnonzero(chosen).tolist():
        section = batch.sections[batch.section[at]]
        name = activity_of(section, in_step=int(batch.step[at]) != NO_STEP)
        if name:
            start_ns = int(batch.start_ns[at])
            end_ns = start_ns + round(float(batch.duration_s[at]) * 1e9)
            yield batch.sources[batch.source[at]], Activity(name, start_ns, end_ns)


@lru_cache(maxsize=4_096)
def _phase_of(name: str, kind: SectionKind) -> bool:
    return kind != "data" and bool(activity_of(Section(name, kind), in_step=False))
