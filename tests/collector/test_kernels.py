"""Kernel histograms in a live collector: which GPU is slow, and where."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from otel_straggler import semconv
from otel_straggler.cli.history import command as history
from otel_straggler.cli.score import command
from otel_straggler.otlp.encode_metrics import encode_kernel_times

from ..kernels_made import tally
from .conftest import DAY_NS, rank, resource_of, spans_of
from .ways import WAYS, Way, as_otlp_json

RANKS, SLOW = 4, 2
SECTIONS = {"forward": 0.02, "backward": 0.04}
S = 10**9
Kernels = dict[tuple[str, str], list[int]]


def kernels_of(number: int, slow: float = 1.1, runs: int = 40) -> Kernels:
    """Times in ns by (kernel, section). The slow rank's GPU is slow in gemm, in backward only; in
    collectives everybody waits for it, so its own are short."""
    noise = np.random.default_rng(number)
    is_slow = number == SLOW

    def times(median_ns: float) -> list[int]:
        return [int(t) for t in noise.normal(median_ns, median_ns * 0.002, runs)]

    return {
        ("gemm", "forward"): times(200_000),
        ("gemm", "backward"): times(400_000 * (slow if is_slow else 1.0)),
        ("softmax", "forward"): times(50_000),
        ("ncclDevKernel_AllReduce", "backward"): times(
            100_000 if is_slow else 900_000 * (1 + number)
        ),
        ("Memcpy HtoD", "forward"): times(10_000 * (1 + number)),
        ("<other>", "forward"): times(10_000 * (1 + number)),
    }


def request_of(
    number: int, kernels: Kernels, start_s: float = 0, end_s: float = 10, **who: Any
) -> bytes:
    made = tally(*((name, section, times) for (name, section), times in kernels.items()))
    return encode_kernel_times(
        made.take(),
        resource=resource_of(rank(number, RANKS, local_rank=0, **who)),
        start_ns=DAY_NS + int(start_s * S),
        end_ns=DAY_NS + int(end_s * S),
    )


def expected() -> dict[str, float]:
    """The GPU score of the slow rank, from the same times."""
    own, peer = kernels_of(SLOW), kernels_of(0)
    names = ("gemm", "softmax")
    ratios, weights = [], []
    for name in names:
        mine = [t for (kernel, _), ts in own.items() if kernel == name for t in ts]
        best = [t for (kernel, _), ts in peer.items() if kernel == name for t in ts]
        ratios.append(np.median(best) / np.median(mine))
        weights.append(sum(mine))
    return {"whole": float(np.average(ratios, weights=weights)), "backward": 1 / 1.1}


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_slow_gpu_has_a_low_score_and_nobody_else(
    start: Callable[..., Any], kit: Any, way: Way
) -> None:
    """10 % in one kernel class: 0.91 in that section. Over every way in; a request that comes
    twice counts once; long collectives are nobody's fault."""
    live = start(scoring__window_steps=4, scoring__grace_s=60.0)
    for number in (*range(RANKS), 0):
        answer = way.send(live, request_of(number, kernels_of(number)), "metrics")
        assert answer.what == "ok"
    kit.eventually(lambda: live.value(semconv.COLLECTOR_KERNEL_TIMES, outcome="repeated"))
    for number in range(RANKS):
        way.send(live, spans_of(rank(number, RANKS, local_rank=0), range(8), SECTIONS))
    window = kit.eventually(live.windows)[0]
    scores = window["gpu_section_relative_scores"]["backward"]
    assert scores[str(SLOW)] == pytest.approx(expected()["backward"], rel=0.005)
    whole = window["gpu_relative_scores"]
    assert whole[str(SLOW)] == pytest.approx(expected()["whole"], rel=0.005)
    others = [str(n) for n in range(RANKS) if n != SLOW]
    for healthy in (scores, whole, window["gpu_section_relative_scores"]["forward"]):
        assert [healthy[n] for n in others] == pytest.approx([1.0] * 3, abs=0.006)
    shown = live.samples("straggler_gpu_relative_score", rank=str(SLOW))
    by_section = {dict(labels).get("section"): value for labels, value in shown.items()}
    assert by_section == {
        None: pytest.approx(whole[str(SLOW)]),
        "backward": pytest.approx(scores[str(SLOW)]),
        "forward": pytest.approx(1.0, abs=0.006),
    }
    assert live.samples("straggler_gpu_individual_score", rank="0")
    assert live.value(semconv.COLLECTOR_POINTS, use="kernel_times") == 6 * (RANKS + 1)
    assert live.value(semconv.COLLECTOR_KERNEL_TIMES, outcome="kept") == 6 * RANKS
    assert live.value(semconv.COLLECTOR_KERNEL_TIMES, outcome="repeated") == 6


def test_a_gpu_at_half_speed_is_listed(start: Callable[..., Any], kit: Any) -> None:
    """In the report's stragglers, as gpu_relative of the whole rank."""
    live = start(scoring__window_steps=4)
    for number in range(RANKS):
        live.post(request_of(number, kernels_of(number, slow=3.0)), "metrics")
        live.post(spans_of(rank(number, RANKS, local_rank=0), range(8), SECTIONS))
    listed = kit.eventually(live.windows)[0]["stragglers"]
    assert [(s["rank"], s["section"], s["kind_of_score"]) for s in listed] == [
        (SLOW, None, "gpu_relative")
    ]


def test_a_lost_interval_leaves_the_one_before(start: Callable[..., Any], kit: Any) -> None:
    """Every rank goes on having a GPU score; the one that lost its interval has its last one."""
    live = start(scoring__window_steps=4)
    for number in range(RANKS):
        live.post(request_of(number, kernels_of(number), -10, 0), "metrics")
        if number != 3:
            live.post(request_of(number, kernels_of(number, slow=2.0), 0, 30), "metrics")
        live.post(spans_of(rank(number, RANKS, local_rank=0), range(8), SECTIONS))
    scores = kit.eventually(live.windows)[0]["gpu_relative_scores"]
    assert all(value is not None for value in scores.values())


def test_without_kernels_there_is_no_gpu_score(start: Callable[..., Any], kit: Any) -> None:
    """And a rank without them does not silence the rest."""
    live = start(scoring__window_steps=4)
    for number in range(RANKS):
        if number != 1:
            live.post(request_of(number, kernels_of(number)), "metrics")
        live.post(spans_of(rank(number, RANKS, local_rank=0), range(8), SECTIONS))
    scores = kit.eventually(live.windows)[0]["gpu_relative_scores"]
    assert scores["1"] is None
    assert scores["0"] == pytest.approx(1.0, abs=0.006)


def test_a_file_is_scored_as_a_live_run(
    start: Callable[..., Any], kit: Any, tmp_path: Path
) -> None:
    """The same numbers from `score --json`."""
    live = start(scoring__window_steps=4)
    lines = []
    for number in range(RANKS):
        for signal, body in (
            ("metrics", request_of(number, kernels_of(number))),
            ("traces", spans_of(rank(number, RANKS, local_rank=0), range(4), SECTIONS)),
        ):
            live.post(body, signal)
            lines.append(as_otlp_json(body, signal).replace(b"\n", b" "))
    live.post(spans_of(rank(0, RANKS), [5]))
    shown = kit.eventually(live.windows)[0]
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"\n".join(lines))
    answer = CliRunner().invoke(command, ["--json", str(path)])
    (window,) = json.loads(answer.stdout)["runs"]["run"]["windows"]
    for name, table in window.items():
        if name.startswith("gpu_"):
            assert table == shown[name], name
    assert window["gpu_relative_scores"][str(SLOW)] == pytest.approx(expected()["whole"], rel=0.005)


def test_own_best_times_and_gpu_scores_are_kept_in_the_history(
    start: Callable[..., Any], kit: Any, tmp_path: Path
) -> None:
    """A collector that starts again compares a GPU with its own past, and yesterday's scores can
    be read."""
    path = str(tmp_path / "history.db")
    for run_id, slow in (("run", 1.0), ("again", 2.0)):
        live = start(history__path=path, scoring__window_steps=4, scoring__grace_s=60.0)
        for number in range(RANKS):
            kernels = kernels_of(number, slow)
            live.post(request_of(number, kernels, run_id=run_id), "metrics")
            who = rank(number, RANKS, run_id=run_id, local_rank=0)
            live.post(spans_of(who, range(8), SECTIONS))
        window = kit.eventually(partial(live.windows, run_id))[0]
        live.stop()
    own = window["gpu_section_individual_scores"]["backward"]
    assert own[str(SLOW)] == pytest.approx(0.5, rel=0.01)
    assert own["0"] == pytest.approx(1.0, abs=0.006)
    runner = CliRunner()
    reported = runner.invoke(history, ["--path", path, "--run", "again", "--json"])
    first = window["first_step"]
    entries = json.loads(reported.stdout)["windows"]
    number = next(entry["id"] for entry in entries if entry["first_step"] == first)
    kept = json.loads(runner.invoke(history, ["--path", path, "--window", str(number)]).stdout)
    assert kept["window"]["gpu_relative_scores"] == pytest.approx(
        window["gpu_relative_scores"], abs=2e-5
    )
