"""What pages ask stays small, however many ranks a run has."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.grafana_sizes.__main__ import PAGE_BYTES, QUERY_BYTES, RANKS, SAMPLES, STAGES
from benchmarks.grafana_sizes.large_run import SLOW_RANKS, LargeRun
from benchmarks.grafana_sizes.measuring import POINTS, Answer, measure
from otel_straggler import semconv

IS_FULL = os.environ.get("OTEL_STRAGGLER_TEST_DOSE") == "full"
RUN = (RANKS, STAGES) if IS_FULL else (512, 8)
ROOT = Path(__file__).parents[2]
MAX_SERIES = 50
"""Of a panel that draws ranks, nodes, or sections of them."""
CELLS, FLAGGED = 2_048, 30
SCRAPE_S = 5 if IS_FULL else 2


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[Answer]:
    """Of every query, about a run with more slow ranks than any panel shows."""
    assert SLOW_RANKS > MAX_SERIES
    try:
        result, _, _ = measure(LargeRun(*RUN), tmp_path_factory.mktemp("sizes"), SCRAPE_S)
    except FileNotFoundError as missing:
        sentence = f"{missing}: nobody saw how large the pages' answers are"
        pytest.fail(sentence) if os.environ.get("CI") else pytest.skip(sentence)
    return result


def test_an_answer_is_small(answers: list[Answer]) -> None:
    """Each query, and all of a page together; in bytes that are not compressed."""
    of_page: Counter[str] = Counter()
    for answer in answers:
        assert answer.size <= QUERY_BYTES, str(answer.target)
        of_page[answer.target.page] += answer.size
    assert max(of_page.values()) <= PAGE_BYTES, of_page


def test_no_query_looks_at_all_ranks_all_the_time(answers: list[Answer]) -> None:
    """So a page costs Prometheus little: choosing among 10,000 ranks, at each point of a line, took
    seconds of processor time. Counted in samples that are read, which no load changes."""
    assert POINTS * RUN[0] > SAMPLES
    for answer in answers:
        assert 0 <= answer.samples <= SAMPLES, str(answer.target)
    assert max(answer.samples for answer in answers) > SAMPLES // 10


def test_panels_are_full(answers: list[Answer]) -> None:
    """What is weighed is what a panel shows at most, not a page without data: the worst 20
    sections, 30 flagged ranks, the matrix, ten kernels."""
    series = {str(answer.target): answer.series for answer in answers}
    assert series["run-8-A"] == series["run-9-A"] == 20
    assert series["matrix-5-A"] == FLAGGED
    assert series["rank-20-A"] == 10
    assert series["fleet-7-A"] == 20
    assert series["matrix-1-A"] == min(RUN[0], CELLS)
    assert max(n for name, n in series.items() if name != "matrix-1-A") <= MAX_SERIES


def test_the_largest_matrix_is_small_too(answers: list[Answer]) -> None:
    """As many cells as it shows at most, each as large as those that were seen."""
    [matrix] = [answer for answer in answers if str(answer.target) == "matrix-1-A"]
    assert matrix.size / matrix.series * CELLS <= QUERY_BYTES


def test_a_full_budget_keeps_the_matrix_and_finds_every_rank() -> None:
    """With five series of the budget for each rank, as 10,000 ranks have them: signs of life alone
    would be eight. Who is slow keeps all of them."""
    ranks = 512
    page = LargeRun(ranks, 8, series_budget=5 * ranks).pages[-1].decode()
    lines = Counter(line.partition("{")[0] for line in page.splitlines())
    assert lines[semconv.WORKER_SLOWDOWN.prometheus_name] == ranks
    assert lines[semconv.LAST_HEARTBEAT.prometheus_name] == ranks
    assert SLOW_RANKS < lines[semconv.RANK_TIMEOUT.prometheus_name] < ranks
    flagged = f"\n{semconv.RANK_STRAGGLING.prometheus_name}{{"
    assert sum(part.partition("\n")[0].endswith(" 1") for part in page.split(flagged)[1:]) == (
        SLOW_RANKS
    )


def test_the_sizes_stand_in_the_documentation() -> None:
    """What is promised is what is tested."""
    page = (ROOT / "docs" / "operate" / "dashboards.md").read_text(encoding="utf-8")
    assert f"{QUERY_BYTES // 1024} KiB" in page
    assert f"{PAGE_BYTES // 1024**2} MiB" in page
    assert f"{SAMPLES:,} samples" in page
