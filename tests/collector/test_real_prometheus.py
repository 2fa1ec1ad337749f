"""A real Prometheus scrapes a live collector and answers queries about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .prometheus_server import query, running_prometheus

pytestmark = pytest.mark.real_server


def test_prometheus_scrapes_and_queries_scores(
    live: Any, kit: Any, prometheus: str, tmp_path: Path
) -> None:
    """The slow rank is found with one query."""
    for number in range(4):
        seconds = 0.2 if number == 2 else 0.1
        live.post(kit.spans_of(kit.rank(number, 4), range(5), {"forward": seconds}))
    kit.eventually(live.windows)
    with running_prometheus(prometheus, live.addresses["metrics"], tmp_path) as address:
        expected = [("2", "0.5")]
        result = kit.eventually(
            lambda: (
                query(kit, address, "straggler_section_relative_score < 0.75") == expected
                and expected
            ),
            60,
        )
        assert result == expected
        assert query(kit, address, "count(straggler_rank_straggling == 0)") == [("", "4")]
        assert query(kit, address, "straggler_run_world_size")[0][1] == "4"
        assert query(kit, address, "count(straggler_rank_step == 4)")[0][1] == "4"
