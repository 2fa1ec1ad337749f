"""Ranks that share a GPU: each is a subject of its own, and GPU times say nothing about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from otel_straggler.detect.scores.window_scores import device_keys
from otel_straggler.detect.verdicts.engine import VerdictEngine
from otel_straggler.model.observation import CUPTI, DDP, EVENTS, Floats
from otel_straggler.model.rank import Source
from otel_straggler.model.step_table import StepTable

from .gpu_worlds import timed, with_gpu
from .test_judge_restarts import changes, restarted
from .worlds import (
    active,
    by_hand,
    newest,
    ranks,
    run_verdicts,
    slower,
    take_ranks,
    usual,
    with_sources,
)


def on_gpus(n: int, per_gpu: int) -> list[Source]:
    """Ranks of one node, so many on each GPU."""
    return [replace(each, device=f"GPU-{each.rank // per_gpu}") for each in ranks(n)]


def faults(n: int, *, first: int, second: int) -> Floats:
    """A rank is slow in steps 40 to 79, another from 120 on."""
    healthy = usual(220, n)
    of_first, of_second = slower(healthy, first, 1.5, 40), slower(healthy, second, 1.5, 120)
    return np.concatenate([of_first[:80], of_second[80:]])


@pytest.mark.parametrize(("n", "per_gpu"), [(4, 2), (4, 4), (8, 2), (3, 3)])
def test_verdicts_go_on_after_the_first_one(n: int, per_gpu: int) -> None:
    """A second fault is named, and the end of the first is said; each under its own name."""
    first, second = n - 1, 0
    tables = by_hand(faults(n, first=first, second=second), sources=on_gpus(n, per_gpu))
    judge = run_verdicts(tables)
    names = [f"rank/node-0/GPU-{rank // per_gpu}#{rank}" for rank in (first, second)]
    assert changes(judge) == [
        (names[0], "confirmed"),
        (names[0], "recovered"),
        (names[1], "confirmed"),
    ]
    assert newest(judge)[names[1]].rank == second


def test_a_restart_of_the_collector_goes_on_with_the_same_names() -> None:
    """Also while the first table after it lacks a rank."""
    tables = by_hand(faults(4, first=3, second=0), sources=on_gpus(4, 2))
    whole = changes(run_verdicts(tables))
    for at in (3, 13, 20):
        assert changes(restarted(tables, at)) == whole
    late = (*tables[:13], *(take_ranks(t, [0, 1, 3]) for t in tables[13:14]), *tables[14:])
    assert [name for name, _ in changes(restarted(late, 13))] == [name for name, _ in whole]


def arriving_late(seconds: Floats, sources: Sequence[Source], at: int) -> tuple[StepTable, ...]:
    """The last rank sends nothing before a table."""
    tables = by_hand(seconds, sources=sources)
    early = list(range(len(sources) - 1))
    return (*(take_ranks(table, early) for table in tables[:at]), *tables[at:])


def test_a_verdict_goes_on_when_a_second_rank_appears_on_the_gpu() -> None:
    """Under the new name, since the same step; of the earlier one is said that it goes on, not that
    it is as fast as before. What was lost so far is not."""
    sources = [*(replace(s, device=f"GPU-{s.rank}") for s in ranks(8)), ranks(9)[8]]
    sources[8] = replace(sources[8], node="node-0", local_rank=8, device="GPU-3")
    healthy = usual(200, 9)
    seconds = np.concatenate([slower(healthy, 3, 1.5, 40)[:140], healthy[140:]])
    tables = arriving_late(seconds, sources, 16)
    judge = run_verdicts(tables[:17], ends=False)
    old, new = "rank/node-0/GPU-3", "rank/node-0/GPU-3#3"
    assert changes(judge) == [(old, "confirmed"), (old, "recovered"), (new, "confirmed")]
    said = {v.subject_id: v.sentence for v in judge.changes}
    assert said[old] == f"rank 3 on node-0 shares its GPU with another rank; this goes on as {new}."
    assert newest(judge)[new].since_step == newest(run_verdicts(tables[:16]))[old].since_step
    [notification] = judge.notifications
    assert notification.ended_ns is None
    assert max(judge.summary().waits, key=lambda each: each.caused_s).rank == 3
    assert changes(run_verdicts(tables))[3:] == [(new, "recovered")]


def test_who_has_a_gpu_alone_goes_by_its_old_name_and_past() -> None:
    """Also where others share theirs."""
    sources = on_gpus(8, 2)
    sources[7] = replace(sources[7], device="GPU-alone")
    judge = run_verdicts(by_hand(slower(usual(120, 8), 7, 1.5, 40), sources=sources))
    assert set(active(judge)) == {"rank/node-0/GPU-alone"}


# --- GPU times -----------------------------------------------------------------------------------


def with_slow_gpu(host_s: Floats, per_gpu: int, basis: int) -> VerdictEngine:
    """Ranks whose GPU times say that rank 1 takes four times as long, whatever the host's do."""
    blocks = by_hand(host_s, sources=on_gpus(4, per_gpu))
    gpu_s = slower(usual(120, 4), 1, 4.0, 40)
    waits = np.arange(3) == 2
    own_s = np.where(waits, 1e-3, gpu_s) if basis == CUPTI else gpu_s
    nccl_s = np.where(waits, gpu_s, 0.0) if basis == CUPTI else np.zeros_like(gpu_s)
    parts = zip(blocks, *(np.split(of, len(blocks)) for of in (own_s, nccl_s)), strict=True)
    return run_verdicts(with_gpu(*part, basis) for part in parts)


@pytest.mark.parametrize("basis", [EVENTS, CUPTI, DDP])
def test_gpu_times_of_ranks_on_one_gpu_are_not_compared(basis: int) -> None:
    """Whatever they say, verdicts are those of the host's times."""
    slow_host = slower(usual(120, 4), 2, 1.5, 40)
    judge = with_slow_gpu(slow_host, 4, basis)
    assert changes(judge) == [("rank/node-0/GPU-0#2", "confirmed")]
    assert judge.changes == run_verdicts(by_hand(slow_host, sources=on_gpus(4, 4))).changes
    assert with_slow_gpu(usual(120, 4), 4, basis).changes == ()


@pytest.mark.parametrize(("basis", "evidence"), [(EVENTS, "events"), (CUPTI, "cupti")])
def test_gpu_times_of_ranks_with_a_gpu_each_are_compared(basis: int, evidence: str) -> None:
    """The same times name the rank whose GPU is slow."""
    [apart] = active(with_slow_gpu(usual(120, 4), 1, basis)).values()
    assert (apart.rank, apart.evidence) == (1, evidence)


def test_a_pair_on_one_gpu_takes_no_gpu_clock_from_many_others() -> None:
    """A slow GPU among them is found by its kernels; the pair is not compared by these."""
    tables = [
        with_sources(t, lambda s: replace(s, device=f"GPU-{max(s.rank, 1)}"))
        for t in timed("dp48", "compute:1.4@rank5:step40")
    ]
    judge = run_verdicts(tables)
    [verdict] = active(judge).values()
    assert (verdict.rank, verdict.evidence) == (5, "cupti")
    assert verdict.n_peers == 45


# --- own history ---------------------------------------------------------------------------------


def test_ranks_on_one_gpu_have_a_best_time_each() -> None:
    """With the local rank, or the rank where that is unknown; alone it is the GPU's as ever."""
    sources = [*on_gpus(2, 2), replace(ranks(3)[2], device="GPU-9")]
    assert [key[-1] for key in device_keys(sources)] == ["GPU-0#0", "GPU-0#1", "GPU-9"]
    unknown = [replace(each, local_rank=-1) for each in sources]
    assert len(set(device_keys(unknown))) == 3
    assert device_keys(unknown)[2] == device_keys(sources)[2]


def test_a_state_without_shared_names_is_read() -> None:
    """Of an older version."""
    state = run_verdicts(by_hand(usual(60, 4), sources=on_gpus(4, 1)), ends=False).state()
    del state["memory"]["shared"]
    judge = VerdictEngine()
    judge.restore(state)
    assert judge.changes == ()
