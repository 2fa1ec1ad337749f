"""Small runs for the tests of layer 2: made by the generator or by hand, changed, and judged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from otel_straggler.detect.scores.settings import VerdictSettings
from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.detect.verdicts.log import EvaluationTime
from otel_straggler.detect.verdicts.world import World
from otel_straggler.model.observation import Floats, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable
from otel_straggler.model.verdict import Verdict
from otel_straggler.semconv import SectionKind
from otel_straggler.simulate.runs import Fault, Layout, RunPlan, generate

Sections = tuple[tuple[str, SectionKind], ...]
USUAL: Sections = (("data", "data"), ("forward", "compute"), ("sync", "wait"))
USUAL_S = (0.05, 1.0, 0.1)
S_NS = 10**9
Plan = dict[str, Any]
LOCAL: Plan = {"spikes": 0.0, "rank_offset": 0.005}
"""Ordinary noise without rare events, so that few steps say enough."""


@lru_cache(maxsize=64)
def _generated(layout: str, faults: tuple[str, ...], plan: tuple[tuple[str, Any], ...]) -> Any:
    block_steps = dict(plan).get("block_steps", 5)
    reported = {"steps": 120, **{name: value for name, value in plan if name != "block_steps"}}
    run = generate(
        RunPlan(layout=Layout.parse(layout), faults=tuple(map(Fault.parse, faults)), **reported)
    )
    return tuple(run.tables(block_steps))


def made(layout: str = "dp8", *faults: str, **plan: Any) -> tuple[StepTable, ...]:
    """A generated run of 120 steps, in tables of 5 (``block_steps``)."""
    result: tuple[StepTable, ...] = _generated(
        layout, faults, tuple(sorted({**LOCAL, **plan}.items()))
    )
    return result


def by_hand(
    seconds: Floats,
    sections: Sections = USUAL,
    *,
    sources: Sequence[Source] | None = None,
    first_step: int = 100,
    block_steps: int = 5,
    world_size: int | None = None,
    **fields: Any,
) -> tuple[StepTable, ...]:
    """Tables of (T, R, S) ``seconds``; a step begins when the one before has ended everywhere."""
    n_steps, n_ranks, _ = seconds.shape
    steps = first_step + np.arange(n_steps, dtype=np.int64)
    whole_ns = (np.nan_to_num(seconds).sum(axis=2) * S_NS).astype(np.int64)
    ends_ns = 1000 * S_NS + np.cumsum(np.maximum(whole_ns.max(axis=1, initial=1), 1))
    start_ns = np.repeat(np.append(1000 * S_NS, ends_ns)[:-1, None], n_ranks, axis=1)
    whole = StepTable(
        steps=steps,
        sources=tuple(sources or ranks(n_ranks)),
        sections=tuple(Section(name, kind) for name, kind in sections),
        seconds=seconds,
        runs=np.isfinite(seconds).astype(np.int32),
        run_cv=np.full(seconds.shape[1:], np.nan),
        tokens=np.full((n_steps, n_ranks), np.nan),
        start_ns=start_ns,
        end_ns=start_ns + whole_ns,
        world_size=n_ranks if world_size is None else world_size,
    )
    whole = replace(whole, **fields)
    return tuple(cut(whole, at, at + block_steps) for at in range(0, n_steps, block_steps))


def ranks(n: int, *, per_node: int = 8, **fields: Any) -> list[Source]:
    """Data-parallel ranks on nodes of so many."""
    return [
        replace(
            Source(
                run_id="run",
                rank=rank,
                node=f"node-{rank // per_node}",
                local_rank=rank % per_node,
                session_id=f"s{rank}",
                parallel=(("data", rank),),
            ),
            **fields,
        )
        for rank in range(n)
    ]


def usual(n_steps: int, n_ranks: int, *, noise: float = 0.02, seed: int = 0) -> Floats:
    """(T, R, 3) seconds of healthy ranks that wait for each other in the last section."""
    rng = np.random.default_rng(seed)
    work = np.array(USUAL_S[:2]) * np.exp(rng.normal(0.0, noise, (n_steps, n_ranks, 2)))
    return with_waiting(work)


def with_waiting(work_s: Floats) -> Floats:
    """(T, R, 2) work and then the time until the last rank has come, and a tenth of a second."""
    arrived_s = work_s.sum(axis=2)
    waited_s = arrived_s.max(axis=1, keepdims=True) - arrived_s + USUAL_S[2]
    return np.concatenate([work_s, waited_s[..., None]], axis=2)


def with_log(work_s: Floats) -> Floats:
    """(T, R, 4): data, forward, 0.3 s of logging on rank 0 alone, and the waiting for it."""
    log_s = np.full((*work_s.shape[:2], 1), np.nan)
    log_s[:, 0] = 0.3
    own_s = np.concatenate([work_s, log_s], axis=2)
    waited_s = with_waiting(np.nan_to_num(own_s))[..., -1:]
    return np.concatenate([own_s, waited_s], axis=2)


def slower(seconds: Floats, rank: int, factor: float, onset: int = 0) -> Floats:
    """The same with one rank slower in forward, and the others waiting for it."""
    work_s = seconds[..., :2].copy()
    work_s[onset:, rank, 1] *= factor
    return with_waiting(work_s)


# --- changed ------------------------------------------------------------------------------------


def cut(table: StepTable, start: int, stop: int) -> StepTable:
    """Some of its steps."""
    names = ("steps", "seconds", "runs", "tokens", "start_ns", "end_ns")
    return replace(table, **{name: getattr(table, name)[start:stop] for name in names})


def take_ranks(table: StepTable, rows: Sequence[int]) -> StepTable:
    """Some of its ranks, in this order."""
    by_step = ("seconds", "runs", "tokens", "start_ns", "end_ns")
    return replace(
        table,
        sources=tuple(table.sources[row] for row in rows),
        run_cv=table.run_cv[list(rows)],
        **{name: getattr(table, name)[:, list(rows)] for name in by_step},
    )


def take_sections(table: StepTable, columns: Sequence[int]) -> StepTable:
    """Some of its sections."""
    return replace(
        table,
        sections=tuple(table.sections[column] for column in columns),
        seconds=table.seconds[..., list(columns)],
        runs=table.runs[..., list(columns)],
        run_cv=table.run_cv[:, list(columns)],
    )


def with_sources(table: StepTable, change: Callable[[Source], Source]) -> StepTable:
    return replace(table, sources=tuple(map(change, table.sources)))


def with_seconds(table: StepTable, seconds: Floats) -> StepTable:
    """With other times of sections, which are all that is known of how long steps took."""
    runs = np.where(np.isfinite(seconds), np.maximum(table.runs, 1), 0).astype(np.int32)
    return replace(table, seconds=seconds, runs=runs, step_s=np.full(seconds.shape[:2], np.nan))


def silent(source: Source) -> Source:
    """Without its place in the layout."""
    return replace(source, parallel=(), role="default")


# --- judged -------------------------------------------------------------------------------------


def run_verdicts(
    tables: Iterable[StepTable], settings: VerdictSettings | None = None, *, ends: bool = True
) -> VerdictEngine:
    judge = VerdictEngine(settings)
    for table in tables:
        judge.observe(table)
    if ends:
        judge.finish()
    return judge


def newest(judge: VerdictEngine) -> dict[str, Verdict]:
    return {verdict.subject_id: verdict for verdict in judge.changes}


def active(judge: VerdictEngine) -> dict[str, Verdict]:
    """What is confirmed at the end, by subject."""
    return {
        name: verdict
        for name, verdict in newest(judge).items()
        if verdict.state in ("confirmed", "flapping")
    }


def ever_confirmed(judge: VerdictEngine) -> set[str]:
    return {v.subject_id for v in judge.changes if v.state in ("confirmed", "flapping")}


def story(judge: VerdictEngine) -> list[tuple[Any, ...]]:
    """All changes of state with what a person reads from them, but for rank numbers."""
    return [
        (
            v.subject_id,
            v.state,
            v.section,
            v.cause,
            v.since_step,
            v.confirmed_step,
            v.at_step,
            round(v.slowdown, 6),
            v.n_peers,
            v.pages,
        )
        for v in judge.changes
    ]


def world_of(table: StepTable) -> World:
    world = World()
    world.update(table)
    return world


def now(steps: int = 20, *, at_ns: int = 0) -> EvaluationTime:
    return EvaluationTime(steps=steps, step=steps, at_ns=at_ns)
