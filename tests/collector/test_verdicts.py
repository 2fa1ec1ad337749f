"""Verdicts in a live collector: report, its parts, series, and what Prometheus makes of them.

What layer 2 says is made by hand; that it says it is shown in tests/end_to_end.
"""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from otel_straggler import semconv
from otel_straggler.collector.metrics.series_choice import QUANTILES
from otel_straggler.detect.scores.scorer import Scorer
from otel_straggler.detect.scores.settings import VerdictSettings

from .prometheus_server import query, running_prometheus

RANKS = 8


@pytest.fixture
def run_verdicts(by_hand: Any) -> Any:
    """Rank 5 is slow, its node was, rank 2 is suspected; a run that loses time."""
    of_node = {"scope": "host", "rank": None, "subject_id": "host:node-5"}
    return by_hand.run_verdicts(
        by_hand.verdict("suspect", node="node-5"),
        by_hand.verdict(node="node-5"),
        by_hand.verdict(**of_node, node="node-5", cause="slow_host"),
        by_hand.verdict("recovered", **of_node, node="node-5", cause="slow_host"),
        by_hand.verdict("suspect", subject_id="2", rank=2, node="node-2", section='a"b\n'),
        worlds=(by_hand.world(),),
    )


@pytest.fixture
def live(start: Any, kit: Any, run_verdicts: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A collector with eight ranks, on a node each, that says ``run_verdicts`` of every run."""
    monkeypatch.setattr(Scorer, "verdicts", lambda *_: run_verdicts)
    result = start(scoring__grace_s=20.0)
    for number in range(RANKS):
        result.post(kit.spans_of(kit.rank(number, RANKS), range(5)))
    kit.eventually(result.windows)
    return result


def subjects(live: Any, query_text: str) -> list[tuple[str, str]]:
    run = live.get(f"/v1/report?{query_text}").json()["runs"]["run"]
    return [(v["subject_id"], v["state"]) for v in run["verdicts"]]


def test_the_report_lists_every_change_and_what_the_run_loses(live: Any) -> None:
    """As ``score --json`` does."""
    assert subjects(live, "run=run") == [
        ("gpu:GPU-5", "suspect"),
        ("gpu:GPU-5", "confirmed"),
        ("host:node-5", "confirmed"),
        ("host:node-5", "recovered"),
        ("2", "suspect"),
    ]
    run = live.report()["runs"]["run"]["run"]
    assert (run["slowdown"], run["cause"], run["coverage"]) == (1.18, "stage_imbalance", 1.0)


def test_a_part_of_the_report_has_the_verdicts_of_that_part(live: Any) -> None:
    """A rank with its node; a group; nothing of others."""
    assert {s for s, _ in subjects(live, "rank=5")} == {"gpu:GPU-5", "host:node-5"}
    assert {s for s, _ in subjects(live, "rank=2")} == {"2"}
    assert subjects(live, "group=critic") == []
    waits = live.get("/v1/report?rank=5").json()["runs"]["run"]["run"]["waits"]
    assert [one["rank"] for one in waits] == [5]


def test_only_the_rank_that_is_confirmed_straggles(live: Any) -> None:
    """All others say 0, and so does the node that has recovered."""
    ranks = live.samples(semconv.RANK_STRAGGLING.prometheus_name)
    assert {dict(labels)["rank"]: v for labels, v in ranks.items()} == {
        str(r): float(r == 5) for r in range(RANKS)
    }
    assert live.value(semconv.HOST_STRAGGLING, node="node-5") == 0
    assert live.value(semconv.VERDICT_INFO, rank="5", cause="slow_gpu", state="confirmed") == 1
    assert live.value(semconv.VERDICT_INFO, rank="2", section='a"b\n', state="suspect") == 1
    assert live.value(semconv.VERDICT_LOSS) == 2.4
    assert live.value(semconv.RUN_GPU_TIME_LOST, job_name="job") == 43_200.0


def test_series_of_verdicts_end_with_their_run(live: Any, kit: Any) -> None:
    """What stood at its end stays in the report, and straggles no more."""
    info = semconv.VERDICT_INFO.prometheus_name
    kit.eventually(lambda: live.samples(info))
    for number in range(RANKS):
        ended = {"finished_at_s": time.time(), "outcome": "failed"}
        live.post(kit.beat_of(kit.rank(number, RANKS), sent_at_s=time.time(), **ended), "metrics")
    kit.eventually(lambda: not live.samples(info))
    for metric in (semconv.VERDICT_PAGES, semconv.VERDICT_LOSS, semconv.VERDICT_SLOWDOWN):
        assert live.samples(metric.prometheus_name) == {}
    for metric in (semconv.RANK_STRAGGLING, semconv.HOST_STRAGGLING):
        assert set(live.samples(metric.prometheus_name).values()) <= {0.0}
    assert ("gpu:GPU-5", "confirmed") in subjects(live, "run=run")


def test_the_last_steps_of_a_run_are_not_compared_with_its_best(start: Any, kit: Any) -> None:
    """Rank 0 has failed, and the others wait for it in a window that is cut short: they are no
    slower than they were. Against each other they are compared."""
    live = start(scoring__window_steps=10, scoring__grace_s=0.1)
    usual, waits = {"forward": 0.1}, {"forward": 4.0}
    for number in range(4):
        live.post(kit.spans_of(kit.rank(number, 4), range(20), usual))
    kit.eventually(lambda: len(live.windows()) == 1)
    individual = semconv.SECTION_INDIVIDUAL.prometheus_name
    kit.eventually(lambda: live.samples(individual))
    for number in range(4):
        rank = kit.rank(number, 4)
        live.post(kit.spans_of(rank, range(20, 23), usual if number == 0 else waits))
        ended = {"finished_at_s": time.time(), "outcome": "failed", "step": 22}
        live.post(kit.beat_of(rank, sent_at_s=time.time(), **ended), "metrics")
    kit.eventually(lambda: live.windows()[-1]["last_step"] == 22)
    kit.eventually(lambda: live.samples(individual) == {})
    relative = live.samples(semconv.SECTION_RELATIVE.prometheus_name)
    assert sorted(value for labels, value in relative.items() if ("rank", "3") in labels) == [0.025]


def test_scores_give_way_to_verdicts_and_leave_workers_a_quarter(
    start: Any, kit: Any, by_hand: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order in which a budget is spent; the rank that is called slow keeps its scores."""
    cells = tuple((0, d, 1.0) for d in range(500))
    run_verdicts = by_hand.run_verdicts(
        by_hand.verdict(rank=42), worlds=(by_hand.world(heat=cells),)
    )
    monkeypatch.setattr(Scorer, "verdicts", lambda *_: run_verdicts)
    small = start(metrics__series_budget=900, scoring__grace_s=60.0)
    ranks = 100
    for number in range(ranks):
        small.post(kit.spans_of(kit.rank(number, ranks), range(5)))
    kit.eventually(small.windows)
    assert small.ranks(semconv.RANK_STRAGGLING) == list(range(ranks))
    assert small.value(semconv.VERDICT_LOSS, rank="42") == 2.4
    assert 42 in small.ranks(semconv.SECTION_RELATIVE)
    name = semconv.WORKER_SLOWDOWN.prometheus_name
    folded = small.value(semconv.COLLECTOR_SERIES_FOLDED, run_id="run", family=name)
    cells = small.samples(name)
    assert folded == 500 - len(cells) > 0
    assert len(cells) >= 900 // 4 - 1 - len(QUANTILES)  # a quarter is kept for them


def test_settings_of_verdicts_reach_layer_2(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the words of the file."""
    given: list[Any] = []
    really = Scorer.__init__

    def noted(self: Scorer, *arguments: Any) -> None:
        given.append(arguments[1])
        really(self, *arguments)

    monkeypatch.setattr(Scorer, "__init__", noted)
    start(verdicts__block_s=3.0, verdicts__min_peers=7)
    assert given == [VerdictSettings(block_s=3.0, min_peers=7)]


def test_a_page_with_verdicts_passes_promtool(live: Any, promtool: str) -> None:
    """Names, types and texts; also of what is called a b with a quote and a line end."""
    page = live.get("/metrics").body
    assert b"straggler_verdict_info" in page
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, check=False, timeout=60
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


@pytest.mark.real_server
def test_the_queries_of_the_page_find_the_slow_rank_in_prometheus(
    live: Any, kit: Any, prometheus: str, tmp_path: Path
) -> None:
    """All of docs/operate/verdicts.md, and who makes others wait."""
    page = Path(__file__).parents[2] / "docs" / "operate" / "verdicts.md"
    queries = re.findall(r"^```promql\n(.*?)\n```$", page.read_text(), re.MULTILINE | re.DOTALL)
    assert len(queries) >= 3
    with running_prometheus(prometheus, live.addresses["metrics"], tmp_path) as address:
        kit.eventually(lambda: query(kit, address, queries[0]) == [("5", "1")], 60)
        for text in queries:
            assert query(kit, address, text), text
        waits = query(kit, address, "topk(1, straggler_caused_wait_seconds_total)")
        assert waits == [("5", "60")]
