"""Layer 1 beside the real NVRx 0.4.1 on the same windows: equal, except where we say so.

The list of differences is in docs/reference/scores.md; every test here that shows one names it.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.model.observation import BatchBuilder, Kernel, Section
from otel_straggler.model.rank import Source
from otel_straggler.model.scores import WindowScores

RANKS = 3
PEER = Path(__file__).with_name("nvrx_peer.py")
Window = dict[str, dict[str, dict[str, list[float]]]]

if importlib.util.find_spec("nvidia_resiliency_ext") is None and not os.environ.get("CI"):
    pytest.skip(
        "nvidia-resiliency-ext 0.4.1 is not installed: it would show that scores equal NVRx's",
        allow_module_level=True,
    )


def nvrx(lists: list[list[Window]], folder: Path) -> list[list[dict[str, Any]]]:
    """Scores of the real package, from one process per rank; each list has a history of its own."""
    path = folder / "windows.json"
    path.write_text(json.dumps(lists))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PEER), str(path)],
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(RANKS),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        outputs = [process.communicate(timeout=120) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert ranks[0].returncode == 0, outputs[0][1]
    return json.loads(outputs[0][0])


def ours(windows: list[Window]) -> list[WindowScores]:
    scorer = Scorer(ScoreSettings(window_steps=1000, reference_half_life_s=1e300))
    scored = []
    for number, window in enumerate(windows):
        builder = BatchBuilder()
        for rank in range(RANKS):
            source = Source(run_id="r", rank=rank, node=f"node-{rank}", local_rank=0)
            mine = window[str(rank)]
            for section, durations in mine["sections"].items():
                for i, duration_s in enumerate(durations):
                    step = 1000 * number + i
                    builder.add(
                        source, Section(section), step=step, start_ns=step, duration_s=duration_s
                    )
            for name, durations in mine["kernels"].items():
                kernel = Kernel(name, "nccl" if "nccl" in name else "compute")
                for i, duration_s in enumerate(durations):
                    builder.add(
                        source,
                        Section("forward"),
                        step=1000 * number + i,
                        start_ns=i,
                        duration_s=duration_s,
                        kernel=kernel,
                    )
        scorer.observe(builder.build(), 0)
        scored += scorer.close_all()
    return scored


def random_window(seed: int) -> Window:
    """Odd numbers of runs (one median definition), at least 5, nothing missing."""
    rng = random.Random(seed)

    def times() -> list[float]:
        return [rng.uniform(0.5, 2.0) for _ in range(rng.choice([5, 7, 9]))]

    return {
        str(rank): {
            "sections": {"data": times(), "forward": times()},
            "kernels": {"gemm": times(), "softmax": times(), "ncclDevKernel_AllReduce": times()},
        }
        for rank in range(RANKS)
    }


def alike() -> list[Window]:
    """In which the definitions are one."""
    return [random_window(seed) for seed in (1, 2, 3)]


def different() -> list[Window]:
    """One per documented difference."""
    missing, even, lucky_a, lucky_b, no_gpu, symmetric = (random_window(s) for s in range(10, 16))
    del missing["2"]["sections"]["data"]
    for rank in range(RANKS):
        even[str(rank)]["sections"]["data"] = [1.0, 1.0, 2.0 + rank, 3.0 + rank]
        lucky_a[str(rank)]["sections"]["data"] = [1e-4]
        lucky_b[str(rank)]["sections"]["data"] = [1.0] * 5
        symmetric[str(rank)]["kernels"] = {
            "gemm": [1.0] * 5,
            "ncclSymkDevKernel_AllReduce_RSxLD_AGxST": [1.0 + rank] * 5,
        }
        symmetric[str(rank)]["sections"] = {"forward": [1.0] * 5}
    no_gpu["1"]["kernels"] = {}
    return [missing, even, no_gpu, symmetric, lucky_a, lucky_b]


@pytest.fixture(scope="module")
def of_nvrx(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """Of both lists, by processes that load torch once."""
    return nvrx([alike(), different()], tmp_path_factory.mktemp("nvrx"))


def test_scores_equal_nvrx_where_the_definitions_are_one(of_nvrx: list[Any]) -> None:
    """All four scores, three windows in a row: equal to float32, which is what NVRx sends."""
    for theirs, scores in zip(of_nvrx[0], ours(alike()), strict=True):
        for s, section in enumerate(scores.sections):
            for r in range(RANKS):
                for kind, table in (
                    ("section_relative", scores.section_relative),
                    ("section_individual", scores.section_individual),
                ):
                    assert theirs[kind][section.name][str(r)] == pytest.approx(
                        table[r, s], rel=1e-5
                    )
        for r in range(RANKS):
            assert theirs["gpu_relative"][str(r)] == pytest.approx(scores.gpu_relative[r], rel=1e-5)
            assert theirs["gpu_individual"][str(r)] == pytest.approx(
                scores.gpu_individual[r], rel=1e-5
            )


def test_scores_differ_from_nvrx_where_the_documentation_says_so(of_nvrx: list[Any]) -> None:
    """One window per documented difference; NVRx's answer is asserted beside ours."""
    theirs, scored = of_nvrx[1], ours(different())

    def of_section(scores: WindowScores, table: Any, name: str, rank: int) -> float:
        names = [s.name for s in scores.sections]
        return float(table[rank, names.index(name)])

    # 1. A section that one rank did not run: NVRx gives NaN to all, we score those that did.
    assert all(math.isnan(v) for v in theirs[0]["section_relative"]["data"].values())
    relative = scored[0].section_relative
    assert max(of_section(scored[0], relative, "data", r) for r in (0, 1)) == 1.0
    assert math.isnan(of_section(scored[0], relative, "data", 2))

    # 2. An even number of runs: NVRx takes the lower middle, we take the true median.
    assert theirs[1]["section_relative"]["data"] == {"0": 1.0, "1": 1.0, "2": 1.0}
    result = [of_section(scored[1], scored[1].section_relative, "data", r) for r in range(RANKS)]
    assert result == pytest.approx([1.0, 1.5 / 2.0, 1.5 / 2.5], abs=1e-12)

    # 3. A rank without kernels: NVRx loses every GPU score, we compare the ranks that have some.
    assert all(math.isnan(v) for v in theirs[2]["gpu_relative"].values())
    assert [math.isnan(v) for v in scored[2].gpu_relative] == [False, True, False]

    # 4. NCCL kernels of every generation wait; NVRx scores those it does not know by name.
    assert theirs[3]["gpu_relative"]["2"] < 0.6
    assert scored[3].gpu_relative.tolist() == [1.0, 1.0, 1.0]

    # 5. One lucky run: NVRx's individual score is ruined for good, ours never uses it.
    assert theirs[5]["section_individual"]["data"]["0"] == pytest.approx(1e-4, rel=1e-3)
    assert of_section(scored[4], scored[4].section_individual, "data", 0) == 1.0
    assert of_section(scored[5], scored[5].section_individual, "data", 0) >= 0.5
