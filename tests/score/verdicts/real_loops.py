"""Step times of training loops as they are run by people: noise with memory, loaders, chores.

Small generators of their own: none of this is drawn by `otel_straggler.simulate`, which knows
other noise. Times are (T, R) seconds of T steps and R ranks.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.observation import Bools, Floats
from otel_straggler.model.rank import Source
from otel_straggler.model.verdict import CALLED_SLOW, Verdict

from .worlds import Sections, by_hand, ranks, run_verdicts

TRAINING: Sections = (("data", "data"), ("forward", "compute"), ("sync", "wait"))
STAGES: Sections = (
    ("forward", "compute"),
    ("backward", "compute"),
    ("recv", "wait"),
    ("sync", "wait"),
)
PASSES: Sections = (
    ("data", "data"),
    ("forward", "compute"),
    ("backward", "compute"),
    ("sync", "wait"),
)
OWN_WORK: Sections = (("step", "compute"),)
BUCKETS = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) / np.sqrt(2.0)
"""Sequence lengths of five buckets: mean 0, standard deviation 1."""
TRANSFER_S = 0.02
"""Of a collective when all ranks have come."""


# --- times --------------------------------------------------------------------------------------


def noise(rng: np.random.Generator, steps: int, n_ranks: int, cv: float, memory: float) -> Floats:
    """(T, R) factors around 1 whose logarithms have this lag-1 correlation on each rank."""
    fresh = rng.normal(0.0, cv, (steps, n_ranks))
    result = fresh.copy()
    for step in range(1, steps):
        result[step] = memory * result[step - 1] + np.sqrt(1.0 - memory**2) * fresh[step]
    return np.exp(result)


def stretches(
    rng: np.random.Generator, steps: int, n_ranks: int, cv: float, memory: float
) -> Floats:
    """(T, R) factors around 1: a rank stays in a bucket, and draws another with 1 - memory."""
    drawn = rng.choice(BUCKETS, (steps, n_ranks))
    stays = rng.random((steps, n_ranks)) < memory
    result = drawn.copy()
    for step in range(1, steps):
        result[step] = np.where(stays[step], result[step - 1], drawn[step])
    return 1.0 + cv * result


def meeting(*sections_s: Floats) -> Floats:
    """(T, R, S + 1): own sections, then the wait for the last rank and the transfer."""
    work_s = np.stack(sections_s, axis=2)
    arrived_s = work_s.sum(axis=2)
    waited_s = arrived_s.max(axis=1, keepdims=True) - arrived_s + TRANSFER_S
    return np.concatenate([work_s, waited_s[..., None]], axis=2)


def loaded(
    rng: np.random.Generator, compute_s: Floats, *, produce_s: float, spread: float
) -> Floats:
    """(T, R, 3) data, forward, sync: each rank has one loader process and a queue of two.

    Production times are lognormal, of one distribution for all. The loader begins a batch once the
    one before is ready and the one two before was fetched, like ``DataLoader(num_workers=1)``.
    """
    steps, n_ranks = compute_s.shape
    produced_s = produce_s * np.exp(rng.normal(0.0, spread, (steps, n_ranks)))
    data_s = np.zeros_like(compute_s)
    ready = np.zeros(n_ranks)
    fetched = np.zeros((steps + 2, n_ranks))  # two batches are requested at the start
    begun = np.zeros(n_ranks)
    for step in range(steps):
        ready = np.maximum(ready, fetched[step]) + produced_s[step]
        fetched[step + 2] = np.maximum(ready, begun)
        data_s[step] = fetched[step + 2] - begun
        begun = np.full(n_ranks, (fetched[step + 2] + compute_s[step]).max() + TRANSFER_S)
    return meeting(data_s, compute_s)


def pipelined(forward_s: Floats, backward_s: Floats, stages: int, microbatches: int) -> Floats:
    """(T, R, 4) forward, backward, recv, sync: all microbatches forward, then all of them back.

    A stage waits in recv for the one before it (back: after it), and all meet in sync.
    """
    steps, n_ranks = forward_s.shape
    clock, recv_s = np.zeros((2, stages, steps, n_ranks // stages))
    for each_s, order in ((forward_s, range(stages)), (backward_s, reversed(range(stages)))):
        of_stage = each_s.reshape(steps, stages, -1).swapaxes(0, 1) / microbatches
        way = list(order)
        for _ in range(microbatches):
            come = clock[way[0]]
            for stage in way:
                recv_s[stage] += np.maximum(0.0, come - clock[stage])
                clock[stage] = np.maximum(clock[stage], come) + of_stage[stage]
                come = clock[stage].copy()
    sync_s = clock.max(axis=(0, 2))[:, None] - clock + TRANSFER_S
    waits = [each.swapaxes(0, 1).reshape(steps, n_ranks) for each in (recv_s, sync_s)]
    return np.stack([forward_s, backward_s, *waits], axis=2)


def collectives(
    rng: np.random.Generator, caused_s: Sequence[float], times_last: Sequence[int]
) -> Floats:
    """(T, R, 2) compute and sync: in each step one rank is last, outside of all sections.

    Args:
        caused_s: by rank, what its peers wait for it in all; times_last: in how many steps.
    """
    last = rng.permutation(np.repeat(np.arange(len(caused_s)), times_last))
    steps, n_ranks = len(last), len(caused_s)
    late_s = np.abs(rng.normal(0.0, 5e-5, (steps, n_ranks)))
    each_s = np.array(caused_s) / np.array(times_last)
    late_s[np.arange(steps), last] = each_s[last] * rng.uniform(0.8, 1.2, steps)
    waited_s = late_s.max(axis=1, keepdims=True) - late_s + 2e-3
    compute_s = 4e-3 * noise(rng, steps, n_ranks, 0.01, 0.0)
    return np.stack([compute_s, waited_s], axis=2)


# --- layouts ------------------------------------------------------------------------------------


def placed(n: int, *, per_node: int = 8, **dimensions: int) -> list[Source]:
    """Ranks of a layout, its first dimension the fastest; without dimensions none is reported."""
    result = ranks(n, per_node=per_node, parallel=())
    if not dimensions:
        return result
    sizes = list(dimensions.values())
    return [
        ranks(
            n,
            per_node=per_node,
            parallel=tuple(
                (name, source.rank // int(np.prod(sizes[:at])) % sizes[at])
                for at, name in enumerate(dimensions)
            ),
        )[source.rank]
        for source in result
    ]


# --- answers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """All verdicts of a run over its steps; subjects with their last sentence."""

    engine: VerdictEngine

    @property
    def changes(self) -> tuple[Verdict, ...]:
        return self.engine.changes

    def of(self, subject_id: str) -> list[Verdict]:
        return [verdict for verdict in self.changes if verdict.subject_id == subject_id]

    @property
    def confirmed(self) -> dict[str, str]:
        """Whoever was called slow at any time, of any scope."""
        return {v.subject_id: v.sentence for v in self.changes if v.state in CALLED_SLOW}

    @property
    def blamed(self) -> dict[str, str]:
        """Ranks, hosts and stages that were called slow at any time; a run is no culprit."""
        return {
            v.subject_id: v.sentence
            for v in self.changes
            if v.state in CALLED_SLOW and v.scope != "run"
        }

    @property
    def named(self) -> dict[str, str]:
        """Ranks and hosts that were suspected or called slow at any time."""
        return {
            v.subject_id: v.sentence
            for v in self.changes
            if v.state not in ("ok", "recovered") and v.scope in ("rank", "host")
        }

    @property
    def paged(self) -> dict[str, str]:
        return {one.verdict.subject_id: one.verdict.sentence for one in self.engine.notifications}

    @property
    def active(self) -> dict[str, Verdict]:
        """Called slow at the end."""
        newest = {v.subject_id: v for v in self.changes}
        return {name: v for name, v in newest.items() if v.state in CALLED_SLOW}

    @property
    def recovered(self) -> list[tuple[str, int | None]]:
        """Subjects reported to be as fast as before, and when."""
        return [(v.subject_id, v.at_step) for v in self.changes if v.state == "recovered"]


def answer(
    seconds: Floats, sections: Sections = TRAINING, sources: Sequence[Source] | None = None
) -> Answer:
    """Of a run that begins at step 0 where it was first seen: there is no warm-up to leave out."""
    return Answer(run_verdicts(by_hand(seconds, sections, sources=sources, first_step=0)))


# --- traces of operations -----------------------------------------------------------------------


Operation = tuple[str, str, Floats, Floats]
"""Section, kind, (T, R) begin and duration in seconds from the begin of the step."""
HEADER = (
    "run_id", "rank", "node", "role", "section", "kind", "step", "start_ns", "duration_s",
    "dp", "pp",
)  # fmt: skip


def write_trace(path: Path, operations: Sequence[Operation], n_data: int, period_s: float) -> Path:
    """A CSV file with a row per operation; rank = stage x data ranks + data rank."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for step, rank in np.ndindex(operations[0][2].shape):
            for section, kind, begun_s, duration_s in operations:
                start_ns = int((1 + step * period_s + begun_s[step, rank]) * 1e9)
                row = (path.stem, rank, "", "", section, kind, step, start_ns)
                seconds = round(float(duration_s[step, rank]), 9)
                writer.writerow((*row, seconds, rank % n_data, rank // n_data))
    return path


def in_pairs(rng: np.random.Generator, steps: int, n_data: int) -> list[Operation]:
    """Two stages whose ranks meet in pairs, then the data ranks of a stage: nobody is late.

    The second stage is the longer one, except on data rank 0. So the first pair has met long before
    the others, and idles, outside of all sections, until shortly before the others come. Rank 0
    waits less for its partner than its peers for theirs, although it was there first.
    """
    n_ranks = 2 * n_data
    is_second: Bools = np.arange(n_ranks) >= n_data
    is_short = ~is_second | (np.arange(n_ranks) == n_data)
    work_s = np.where(is_short, 1.0, 1.2) * noise(rng, steps, n_ranks, 0.004, 0.0)
    work_s[:, n_data] += 0.01  # the partner of rank 0 comes after it
    met_s = np.tile(np.maximum(work_s[:, :n_data], work_s[:, n_data:]), (1, 2))
    idle_s = np.zeros_like(work_s)
    others_s = np.delete(met_s, [0, n_data], axis=1).min(axis=1)
    for rank in (0, n_data):
        idle_s[:, rank] = np.maximum(0.0, others_s - met_s[:, rank] - 0.005)
    begun_s = met_s + TRANSFER_S + idle_s
    done_s = np.empty_like(begun_s)
    for stage in (slice(0, n_data), slice(n_data, n_ranks)):
        done_s[:, stage] = begun_s[:, stage].max(axis=1, keepdims=True) + TRANSFER_S
    return [
        ("forward-compute", "compute", np.zeros_like(work_s), work_s),
        ("embedding-grads-all-reduce", "wait", work_s, met_s + TRANSFER_S - work_s),
        ("grads-reduce-scatter", "wait", begun_s, done_s - begun_s),
    ]
