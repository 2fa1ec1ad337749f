"""GPU scores of real ranks by each way of having a training scored, on the fake GPU: a rank whose
work is 1.25 times that of the other scores 0.8, and every kernel is attributed to its section."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.native import NATIVE

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    NATIVE is None, reason="the extension was not built: it would show GPU scores of each entry"
)

PROGRAM = "tests.end_to_end.gpu_entry_rank"
ROOT = Path(__file__).parents[2]
RANKS = 2
EVERY = [1, 50]
"""Kernels are recorded in one step of so many."""
UNATTRIBUTED = ("lost", "late", "early", "invalid", "dropped", "missing_runs")
MOST = 2.0
"""Kernels that are recorded, times EVERY, of those that are launched: until records are seen to be
good, every other step has them."""
Json = dict[str, Any]


@pytest.fixture
def environment(fake_library: Any, fake_cuda: Any) -> dict[str, str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    kept = {name: each for name, each in os.environ.items() if not name.startswith("OTEL_")}
    return {
        **kept,
        "OTEL_STRAGGLER_CUPTI": fake_library.path,
        "FAKE_CUDA_DRIVER": fake_cuda.path,
        "OTEL_STRAGGLER_KERNEL_INTERVAL_S": "0.5",
        "OTEL_STRAGGLER_RUN_ID": "entries",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(RANKS),
        "NODE_RANK": "0",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes, of which none outlives the test."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def output_of(
    started: list[subprocess.Popen[str]], commands: Sequence[Sequence[str]], *environments: Any
) -> list[str]:
    """Standard output of each of these processes, once all have ended well."""
    for command, env in zip(commands, environments, strict=True):
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", *command],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    texts = [process.communicate(timeout=240)[0] for process in started]
    codes = [process.returncode for process in started]
    assert codes == [0] * len(codes), "\n".join(text[-3000:] for text in texts)
    return texts


def of_ranks(started: Any, way: str, every: int, environment: dict[str, str]) -> list[str]:
    """The output of each rank, started by hand."""
    environments = [{**environment, "RANK": str(n), "LOCAL_RANK": str(n)} for n in range(RANKS)]
    return output_of(started, [[PROGRAM, way, str(every)]] * RANKS, *environments)


def shown(text: str, name: str) -> list[Any]:
    """Values of this name in the lines of JSON, in order."""
    lines = [line[line.index('{"') :] for line in text.splitlines() if f'{{"{name}"' in line]
    return [json.loads(line)[name] for line in lines]


def check_counts(texts: Sequence[str], every: int) -> None:
    """No kernel is without its section, and as many were recorded as the sampling allows."""
    counts = [each for text in texts for each in shown(text, "counts")]
    assert len(counts) == RANKS
    for each in counts:
        assert {name: each[name] for name in UNATTRIBUTED} == dict.fromkeys(UNATTRIBUTED, 0)
        assert 0 < each["attributed"] == each["events"]
        assert each["events"] * every <= each["launches"] * MOST


def about(score: float) -> Any:
    return pytest.approx(score, abs=0.01)


@pytest.mark.parametrize("every", EVERY)
def test_the_example_of_nvrx_scores_both_ranks(
    every: int, environment: dict[str, str], started: Any
) -> None:
    """Sections by hand, no step numbers, two reports: alike at first, then 0.8 against the other
    rank and against its own past."""
    texts = of_ranks(started, "detector", every, environment)
    expected = [{"0": about(1.0), "1": about(1.0)}, {"0": about(1.0), "1": about(0.8)}]
    assert shown(texts[0], "relative") == expected
    assert shown(texts[0], "individual") == expected
    check_counts(texts, every)


@pytest.mark.parametrize("every", EVERY)
def test_the_callback_of_lightning_scores_both_ranks(
    every: int, environment: dict[str, str], started: Any
) -> None:
    """With the arguments of NVRx's guide: numbers in every report from the second on, and in the
    trainer's metrics; the slow rank is named."""
    pytest.importorskip("lightning")
    texts = of_ranks(started, "lightning", every, environment)
    reports = texts[0].split("GPU relative performance:")[1:]
    assert len(reports) >= 3
    assert [line for each in reports[1:] for line in each.splitlines() if "=nan" in line] == []
    (metrics,) = shown(texts[0], "metrics")
    for kind in ("relative", "individual"):
        assert metrics[f"gpu_{kind}_perf/min"] == about(0.8)
        assert metrics[f"gpu_{kind}_perf/max"] == about(1.0)
    assert "Some GPUs have worse relative performance. Affected ranks: {Strag" in reports[-2]
    assert "Some GPUs performance dropped. Affected ranks: {StragglerId(rank=1" in reports[-2]
    check_counts(texts, every)


def is_scored(window: Json) -> bool:
    scores = window["gpu_relative_scores"]
    return len(scores) == RANKS and None not in scores.values()


def check_collected(watched: Any, texts: Sequence[str], every: int) -> None:
    window = watched.wait_for(is_scored)
    assert window["gpu_relative_scores"] == {"0": about(1.0), "1": about(0.8)}
    for section in ("forward", "backward", "optimizer"):
        scores = window["gpu_section_relative_scores"][section]
        assert scores == {"0": about(1.0), "1": about(0.8)}
    check_counts(texts, every)


@pytest.mark.parametrize("every", EVERY)
def test_a_watched_loop_is_scored_by_the_collector(
    every: int, environment: dict[str, str], started: Any, start_collector: Any, watch: Any
) -> None:
    """Forward, backward and the optimizer by hooks alone."""
    collector = start_collector("--window-steps=20")
    texts = of_ranks(
        started, "watch", every, {**environment, "OTEL_STRAGGLER_ENDPOINT": collector.endpoint}
    )
    check_collected(watch(collector, "entries"), texts, every)


@pytest.mark.parametrize("every", EVERY)
def test_a_program_that_does_not_mention_the_package_is_scored(
    every: int, environment: dict[str, str], started: Any, start_collector: Any, watch: Any
) -> None:
    """By ``otel-straggler run``, with one variable."""
    collector = start_collector("--window-steps=20")
    env = {
        **environment,
        "OTEL_STRAGGLER_ENDPOINT": collector.endpoint,
        "OTEL_STRAGGLER_GPU_TIMING": "cupti",
    }
    run = ["otel_straggler.cli", "run", "--nproc-per-node", str(RANKS), "--master-port"]
    run += [env["MASTER_PORT"], "-m", PROGRAM, "zero_code", str(every)]
    texts = output_of(started, [run], env)
    check_collected(watch(collector, "entries"), texts, every)
