"""Reports of four ranks whose kernels are timed: the same numbers as in a collector."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from otel_straggler.detect.scores.scorer import Scorer, ScoreSettings
from otel_straggler.model.kernels import KernelTally, TimedKernel
from otel_straggler.model.observation import BatchBuilder, Section
from otel_straggler.model.rank import Source
from otel_straggler.otlp.decode_metrics import MetricDecoder
from otel_straggler.otlp.encode_metrics import encode_kernel_times

from ..kernels_made import cell, taken

RANKS, SLOW = 4, 2
S = 10**9
Times = dict[tuple[str, int], list[int]]


def times_of(rank: int, seed: int) -> Times:
    """By kernel and section number. The slow rank takes 10 % longer in gemm; collectives are
    longest on the others, which wait for it."""
    noise = np.random.default_rng([rank, seed])

    def around(median_ns: float, runs: int = 31) -> list[int]:
        return [int(t) for t in noise.normal(median_ns, median_ns * 0.003, runs)]

    slow = 1.1 if rank == SLOW else 1.0
    return {
        ("gemm", 1): around(200_000 * slow),
        ("gemm", 2): around(200_000 * slow, 40),
        ("softmax", 1): around(60_000),
        ("ncclDevKernel_AllReduce", 2): around(50_000 if rank == SLOW else 9_000_000),
        ("Memcpy HtoD", 1): around(1_000 * (1 + rank)),
        ("<other>", 1): around(9_000 * (1 + rank)),
    }


def counted(times: Times) -> list[TimedKernel]:
    return [taken(name, section, each) for (name, section), each in times.items()]


def exactly(all_times: list[Times]) -> dict[int, float]:
    """GPU scores from every single run."""
    names = ("gemm", "softmax")
    medians, totals = (
        np.array(
            [
                [of([t for (k, _), ts in times.items() if k == name for t in ts]) for name in names]
                for times in all_times
            ]
        )
        for of in (np.median, np.sum)
    )
    ratio = medians.min(axis=0) / medians
    return dict(enumerate((totals * ratio).sum(axis=1) / totals.sum(axis=1)))


def by_collector(all_times: list[Times]) -> dict[int, float]:
    """What the collector's scoring makes of what the ranks send."""
    scorer = Scorer(ScoreSettings(window_steps=None))
    rows = BatchBuilder()
    for rank, times in enumerate(all_times):
        tally = KernelTally()
        tally.add((cell(t[0], f"section {t[2]}"), t) for t in counted(times))
        body = encode_kernel_times(
            tally.take(),
            resource={"training.run.id": "r", "training.rank": rank},
            start_ns=S,
            end_ns=11 * S,
        )
        result = MetricDecoder().decode(body).kernel_times
        assert result is not None
        source = replace(result.sources[0], world_size=RANKS)
        assert isinstance(source, Source)
        scorer.observe_kernels(result)
        rows.add(source, Section("section 1"), start_ns=2 * S, duration_s=1.0, step=1)
    scorer.observe(rows.build(), 0)
    (window,) = scorer.close_all()
    return dict(enumerate(window.gpu_relative.tolist()))


def test_a_report_and_a_collector_say_the_same(ranks: Any) -> None:
    """To half a per cent, and both what every single run would say. A second window has its own
    kernels, and scores them against the first."""
    all_times = [[times_of(rank, seed) for rank in range(RANKS)] for seed in range(2)]
    faster = [{k: [int(t * 0.9) for t in ts] for k, ts in times.items()} for times in all_times[1]]
    windows = [faster, all_times[1]]
    rows = [
        {"rows": [[[*k[:-1], k[-1].hex()] for k in counted(w[rank])] for w in windows]}
        for rank in range(RANKS)
    ]
    first, second = ranks.do("timed", *rows)[0]
    for report, window in zip((first, second), windows, strict=True):
        assert report["gpu_relative"] == pytest.approx(exactly(window), rel=0.005)
        assert report["gpu_relative"] == pytest.approx(by_collector(window), rel=0.005)
        assert report["gpu_relative"][SLOW] < 0.95
        healthy = [report["gpu_relative"][rank] for rank in range(RANKS) if rank != SLOW]
        assert min(healthy) > 0.99
    assert first["gpu_individual"] == pytest.approx(dict.fromkeys(range(RANKS), 1.0))
    assert second["gpu_individual"] == pytest.approx(dict.fromkeys(range(RANKS), 0.9), rel=0.005)
    own = windows[1][0]
    gemm = own["gemm", 1] + own["gemm", 2]
    assert set(second["kernels"]) == {"gemm", "softmax"}
    assert second["kernels"]["gemm"] == {
        "MIN": pytest.approx(min(gemm) / 1e3),
        "MAX": pytest.approx(max(gemm) / 1e3),
        "MED": pytest.approx(np.median(gemm) / 1e3, rel=0.003),
        "AVG": pytest.approx(np.mean(gemm) / 1e3),
        "STD": pytest.approx(np.std(gemm, ddof=1) / 1e3, rel=0.15),
        "NUM": len(gemm),
    }


def test_a_report_without_a_timer_has_no_kernels(ranks: Any) -> None:
    """And no GPU scores, as NVRx without a GPU."""
    (report,) = ranks.do("timed", *[{"rows": [[]]}] * RANKS)[0]
    assert report["kernels"] == {}
    assert all(score != score for score in report["gpu_relative"].values())
    assert report["why_no_gpu_scores"].startswith(
        "no GPU scores of ranks 0 to 3: kernels are not timed, because torch was built without CUDA"
    )


def test_each_rank_reports_why_it_has_no_score(ranks: Any) -> None:
    """The first rank gets the reasons of all: one that has no kernels, one whose kernels no other
    rank ran, and two whose kernels ran too seldom to be their own reference."""
    kernels = [[("gemm", 1)], [("softmax", 1)], [("gemm", 1)], []]
    rows = [
        {
            "rows": [
                [[*row[:-1], row[-1].hex()] for row in counted({key: [9_000] * 3 for key in own})]
            ]
        }
        for own in kernels
    ]
    (report,) = ranks.do("timed", *rows)[0]
    assert all(score != score for score in report["gpu_relative"].values())
    why = report["why_no_gpu_scores"]
    assert why.count("no relative GPU scores of ranks 0 to 2: ") == 1
    assert "(none_in_common)" in why
    assert "no individual GPU scores of ranks 0 to 2: no kernel was recorded often enough" in why
    assert "no GPU scores of rank 3: kernels are not timed" in why
    assert "\n" not in why
