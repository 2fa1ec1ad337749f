"""Reports on four gloo ranks alongside NVRx's own ReportGenerator, on the same statistics."""

from __future__ import annotations

import importlib.util
import os
import random
from typing import Any

import pytest

if importlib.util.find_spec("nvidia_resiliency_ext") is None and not os.environ.get("CI"):
    pytest.skip(
        "nvidia-resiliency-ext is not installed: it would show that reports equal NVRx's",
        allow_module_level=True,
    )

WINDOWS, SECTIONS, KERNELS = 4, 12, 30


def statistics(rng: random.Random, names: list[str]) -> dict[str, list[float]]:
    """[median, mean, runs] by name; enough runs to be a reference here too."""
    return {
        name: [rng.uniform(0.5, 50.0), rng.uniform(0.5, 50.0), rng.randrange(5, 8000)]
        for name in names
    }


@pytest.mark.parametrize("seed", range(5))
def test_reports_equal_nvrx_where_both_define_a_value(ranks: Any, seed: int) -> None:
    """All four scores of all ranks to 1e-6, over windows in which new names appear and kernels
    are missing on some ranks."""

    def by_rank(rank: int) -> list[Any]:
        rng = random.Random(1000 * seed + rank)
        kernels = [f"kernel {k}" for k in range(KERNELS) if rng.random() < 0.9]
        return [
            {
                "sections": statistics(rng, [f"s{n}" for n in range(SECTIONS + window)]),
                "kernels": statistics(rng, kernels[: 20 + window]),
            }
            for window in range(WINDOWS)
        ]

    given = [{"rows": by_rank(rank)} for rank in range(4)]
    theirs = ranks.do("nvrx_windows", *given)[0]
    ours = ranks.do("summaries", *given)[0]
    compared = 0
    for their, our in zip(theirs, ours, strict=True):
        for kind in ("gpu_relative", "gpu_individual"):
            assert our[kind] == pytest.approx(their[kind], rel=1e-6)
            compared += len(their[kind])
        for kind in ("section_relative", "section_individual"):
            assert set(our[kind]) == set(their[kind])
            for section, scores in their[kind].items():
                assert our[kind][section] == pytest.approx(scores, rel=1e-6)
                compared += len(scores)
    assert compared == WINDOWS * 2 * 4 + 2 * 4 * sum(SECTIONS + w for w in range(WINDOWS))


def test_a_generator_equals_nvrx_also_where_ranks_lack_sections(ranks: Any) -> None:
    """Ours of the same name: whatever some rank lacks, and with any number of executions."""

    def by_rank(rank: int) -> list[Any]:
        rng = random.Random(77 + rank)

        def some(names: list[str]) -> dict[str, list[float]]:
            return {
                name: [rng.uniform(0.5, 50.0), rng.uniform(0.5, 50.0), rng.randrange(1, 9)]
                for name in names
                if rng.random() < 0.8
            }

        return [
            (some([f"s{n}" for n in range(SECTIONS)]), some([f"kernel {k}" for k in range(6)]))
            for _ in range(WINDOWS)
        ]

    rows = [by_rank(rank) for rank in range(4)]
    given = [
        {"rows": [{"sections": sections, "kernels": kernels} for sections, kernels in own]}
        for own in rows
    ]
    theirs = ranks.do("nvrx_windows", *given)[0]
    ours = ranks.do("generated", *[{"rows": own} for own in rows], scores="all", gather=True)[0]
    for their, our in zip(theirs, ours, strict=True):
        for kind in ("gpu_relative", "gpu_individual"):
            assert our[kind] == pytest.approx(their[kind], rel=1e-6, nan_ok=True)
        for kind in ("section_relative", "section_individual"):
            assert set(our[kind]) == set(their[kind])
            for section, scores in their[kind].items():
                assert our[kind][section] == pytest.approx(scores, rel=1e-6, nan_ok=True)
