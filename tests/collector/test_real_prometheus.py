"""A real Prometheus scrapes a live collector and answers queries about it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_straggler.alerts.prometheus import rules_file
from otel_straggler.alerts.settings import AlertSettings

from .prometheus_server import query, running_prometheus, samples

Start = Callable[..., Any]
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


def test_what_only_prometheus_can_notice(
    start: Start, kit: Any, prometheus: str, tmp_path: Path
) -> None:
    """A target that never answered, and a collector that is gone until it is back."""
    live = start(metrics__collector_id="c1")
    listen = live.addresses["metrics"]
    rules = rules_file(AlertSettings(collector_down_for_seconds=0.0, evaluation_seconds=1.0))

    def firing() -> set[tuple[str, str]]:
        found = samples(kit, address, 'ALERTS{alertstate="firing", alertname!="StragglerWatchdog"}')
        return {
            (its["alertname"], its.get("instance") or its.get("collector", "")) for its, _ in found
        }

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
        with running_prometheus(prometheus, listen, tmp_path, dead, rules=rules) as address:
            never = ("StragglerTargetDown", dead)
            kit.eventually(lambda: firing() == {never})
            live.stop(1.0)
            kit.eventually(lambda: firing() == {never, ("StragglerCollectorDown", "c1")})
            start(metrics__collector_id="c1", metrics__listen=listen)
            kit.eventually(lambda: firing() == {never})
