"""A real Prometheus scrapes a live collector and answers queries about it."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.real_server


def test_prometheus_scrapes_and_queries_scores(
    live: Any, kit: Any, prometheus: str, tmp_path: Path
) -> None:
    """The slow rank is found with one query."""
    for number in range(4):
        seconds = 0.2 if number == 2 else 0.1
        live.post(kit.spans_of(kit.rank(number, 4), range(5), {"forward": seconds}))
    kit.eventually(live.windows)
    address = free_address()
    config = tmp_path / "prometheus.yml"
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                "scrape_configs": [
                    {
                        "job_name": "straggler",
                        "static_configs": [{"targets": [live.addresses["metrics"]]}],
                    }
                ],
            }
        )
    )
    server = subprocess.Popen(
        [
            prometheus,
            f"--config.file={config}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address={address}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with server:
        try:
            expected = [("2", "0.5")]
            found = kit.eventually(
                lambda: (
                    query(kit, address, "straggler_section_relative_score < 0.75") == expected
                    and expected
                ),
                60,
            )
            assert found == expected
            assert query(kit, address, "count(straggler_rank_straggling == 0)") == [("", "4")]
            assert query(kit, address, "straggler_run_world_size")[0][1] == "4"
            assert query(kit, address, "count(straggler_rank_step == 4)")[0][1] == "4"
        finally:
            server.terminate()


def query(kit: Any, address: str, text: str) -> list[tuple[str, str]]:
    """(rank, value) of every series that the query gives; nothing while it starts up."""
    path = "/api/v1/query?" + urllib.parse.urlencode({"query": text})
    try:
        answer = kit.ask(address, "GET", path)
    except OSError:
        return []
    if answer.status != 200:
        return []
    result = answer.json()["data"]["result"]
    return [(one["metric"].get("rank", ""), one["value"][1]) for one in result]


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"
