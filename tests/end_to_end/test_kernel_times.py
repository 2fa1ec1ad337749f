"""A slow GPU, from the timer of a training process to the collector's report."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.native import NATIVE

PROGRAM = Path(__file__).with_name("kernel_rank.py")
RANKS, SLOW = 4, 2


@pytest.mark.skipif(
    NATIVE is None, reason="the extension was not built: it would show GPU scores of real ranks"
)
def test_a_gpu_that_is_a_tenth_slower_scores_a_tenth_less(
    start_collector: Callable[..., Any], watch: Any
) -> None:
    """Over the whole rank and in each section, and nobody else does, though all wait for it in
    their collectives."""
    collector = start_collector()
    env = {**os.environ, "OTEL_STRAGGLER_KERNEL_INTERVAL_S": "0.5"}
    command = [sys.executable, str(PROGRAM), f"http://{collector.addresses['otlp_http']}"]
    processes = [
        subprocess.Popen([*command, str(rank), str(RANKS), str(SLOW)], env=env)
        for rank in range(RANKS)
    ]
    try:
        window = watch(collector, "gpus").wait_for(
            lambda w: len(w["ranks"]) == RANKS and None not in w["gpu_relative_scores"].values()
        )
        assert [process.wait(60) for process in processes] == [0] * RANKS
    finally:
        for process in processes:
            process.kill()
            process.wait()
    by_section = window["gpu_section_relative_scores"]
    for scores in (window["gpu_relative_scores"], by_section["forward"], by_section["backward"]):
        assert scores[str(SLOW)] == pytest.approx(1 / 1.1, rel=0.005)
        assert [scores[str(n)] for n in range(RANKS) if n != SLOW] == [1.0] * 3
