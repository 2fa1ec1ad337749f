"""What pages ask stays small, however many ranks a run has."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.grafana_sizes.__main__ import PAGE_BYTES, QUERY_BYTES, RANKS, STAGES
from benchmarks.grafana_sizes.large_run import SLOW_RANKS, LargeRun
from benchmarks.grafana_sizes.measuring import Answer, measure

IS_FULL = os.environ.get("OTEL_STRAGGLER_TEST_DOSE") == "full"
RUN = (RANKS, STAGES) if IS_FULL else (512, 8)
ROOT = Path(__file__).parents[2]
MOST_SERIES = 50
"""Of a panel that draws ranks, nodes, or sections of them."""
CELLS = 2_048


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    """Of every query, about a run with more slow ranks than any panel shows."""
    assert SLOW_RANKS > MOST_SERIES
    try:
        found, _ = measure(LargeRun(*RUN), tmp_path_factory.mktemp("sizes"))
    except FileNotFoundError as missing:
        sentence = f"{missing}: nobody saw how large the pages' answers are"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    return found


def test_an_answer_is_small(answers: list[Answer]) -> None:
    """Each query, and all of a page together; in bytes that are not compressed."""
    of_page: Counter[str] = Counter()
    for answer in answers:
        assert answer.size <= QUERY_BYTES, str(answer.target)
        of_page[answer.target.page] += answer.size
    assert max(of_page.values()) <= PAGE_BYTES, of_page


def test_panels_are_full(answers: list[Answer]) -> None:
    """What is weighed is what a panel shows at most, not a page without data: the worst 20
    sections, 50 flagged ranks, the matrix, ten kernels."""
    series = {str(answer.target): answer.series for answer in answers}
    assert series["run-8-A"] == series["run-9-A"] == 20
    assert series["matrix-5-A"] == MOST_SERIES
    assert series["rank-20-A"] == 10
    assert series["fleet-7-A"] == 20
    assert series["matrix-1-A"] == min(RUN[0], CELLS)
    assert max(n for name, n in series.items() if name != "matrix-1-A") <= MOST_SERIES


def test_the_largest_matrix_is_small_too(answers: list[Answer]) -> None:
    """As many cells as it shows at most, each as large as those that were seen."""
    [matrix] = [answer for answer in answers if str(answer.target) == "matrix-1-A"]
    assert matrix.size / matrix.series * CELLS <= QUERY_BYTES


def test_the_sizes_stand_in_the_documentation() -> None:
    """What is promised is what is tested."""
    page = (ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")
    assert f"{QUERY_BYTES // 1024} KiB" in page
    assert f"{PAGE_BYTES // 1024**2} MiB" in page
