"""A slow GPU under asynchronous launches: from kernels to the verdict, over processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_straggler.native import NATIVE

RANK = Path(__file__).with_name("gpu_rank.py")
RANKS, SLOW, FACTOR = 6, 4, 1.4


def confirmed(watched):
    """What stands, and rests on kernels."""
    last = {verdict["subject_id"]: verdict for verdict in watched.run.get("verdicts", ())}
    return [v for v in last.values() if (v["state"], v["evidence"]) == ("confirmed", "cupti")]


@pytest.mark.demo
def test_the_rank_with_the_slow_gpu_is_confirmed_by_its_kernels(
    start_collector, watch, fake_library
):
    """Host times are alike on all ranks, since launches return at once. The verdict names the rank,
    the cause and what it rests on; its GPU scores say how slow; of no other GPU is anything said.
    (On a busy machine a host may be slow, and is then called so.)"""
    if NATIVE is None:
        pytest.skip("the extension was not built: it would show that a slow GPU is found")
    watched = watch(start_collector("--window-steps=20"), "gpus")
    arguments = [watched.collector.endpoint, fake_library.path]
    environment = {**os.environ, "OTEL_STRAGGLER_CUPTI": fake_library.path}
    environment["OTEL_STRAGGLER_KERNEL_INTERVAL_S"] = "1"
    ranks = [
        subprocess.Popen(
            [sys.executable, RANK, *arguments, *map(str, (rank, RANKS, SLOW, FACTOR))],
            env=environment,
            stdin=subprocess.PIPE,
        )
        for rank in range(RANKS)
    ]
    try:
        scored = watched.wait_for(
            lambda w: (
                [*w["gpu_relative_scores"].values()].count(None) == 0
                and len(w["gpu_relative_scores"]) == RANKS
            )
        )
        watched.wait_for(lambda _: bool(confirmed(watched)))
        for rank in ranks:
            rank.stdin.close()
        assert [rank.wait(120) for rank in ranks] == [0] * RANKS
    finally:
        for rank in ranks:
            rank.terminate()
            rank.wait(30)
    scores = {int(rank): score for rank, score in scored["gpu_relative_scores"].items()}
    share = 4 * FACTOR / (4 * FACTOR + 1)  # of its time that the slow rank spends in slow kernels
    assert scores.pop(SLOW) == pytest.approx(share / FACTOR + 1 - share, rel=0.01)
    assert all(score == pytest.approx(1.0, rel=0.01) for score in scores.values())
    result = confirmed(watched)
    assert [(v["rank"], v["section"], v["cause"], v["evidence"]) for v in result] == [
        (SLOW, "forward", "slow_gpu", "cupti")
    ]
    assert "(cupti)" in result[0]["sentence"]
    assert result[0]["slowdown"] == pytest.approx(FACTOR, rel=0.02)
