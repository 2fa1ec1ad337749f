"""Several shards as one fleet: all runs on every page, and a run that moves is nobody's twice."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from otel_straggler.alerts.rule import FleetStatus
from otel_straggler.collector.alerting.firing import Firing
from otel_straggler.collector.alerting.notifying import Notifying
from otel_straggler.collector.api.peers import HANDOVER_S, MOVED_S, Peers
from otel_straggler.collector.settings import AlertsSettings, MetricsSettings
from otel_straggler.model.alert import Alert
from otel_straggler.otlp.clients.client import NO_ANSWER, Response

from ..end_to_end.fleet import Shard, send_run
from ..servers.otelcol import free_address
from ..waiting import eventually

Json = dict[str, Any]
NOW_S = 1_800_000_000.0


class Fleet:
    """Shards that answer from tables, and a clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.runs: dict[str, list[Json]] = {}
        self.alerts: dict[str, list[Json]] = {}
        self.page_urls: dict[str, str | None] = {}
        self.is_away = False

    def ask(self, url: str) -> Response:
        shard = url.split("/")[2]
        if self.is_away:
            return Response(NO_ANSWER, error="refused")
        if "/v1/report" in url:
            run_id = url.partition("run=")[2]
            body: Json = {"runs": {run_id: {"alerts": self.alerts.get(shard, [])}}}
        else:
            assert url.endswith("/v1/runs?local=1")
            now_s = NOW_S + self.now_s
            body = {"collector": shard, "now_s": now_s, "runs": self.runs.get(shard, [])}
            body |= {"page_url": self.page_urls.get(shard)}
        return Response(200, body=json.dumps(body).encode())

    def entry(self, run_id: str, age_s: float, **changes: object) -> Json:
        received_at_s = NOW_S + self.now_s - age_s
        return {"run_id": run_id, "is_live": True, "received_at_s": received_at_s} | changes


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def peers_of(fleet: Fleet, ages: Mapping[str, float], **calls: Callable[..., None]) -> Peers:
    peers = Peers(
        ["http://a", "http://b"],
        ages=lambda: ages,
        ask=fleet.ask,
        monotonic_s=lambda: fleet.now_s,
        **calls,
    )
    peers.own_id = "a"
    return peers


def test_the_list_has_the_runs_of_all_shards_with_their_addresses(fleet: Fleet) -> None:
    """Of a run that two have, the entry of the shard that heard from it last; its own answers
    count once."""
    fleet.runs = {
        "a": [fleet.entry("old", 1.0)],
        "b": [fleet.entry("run-b", 1.0), fleet.entry("moved", 1.0)],
    }
    peers = peers_of(fleet, {})
    peers.tick()
    merged = peers.merged([fleet.entry("run-a", 1.0), fleet.entry("moved", 30.0)])
    assert {run["run_id"]: (run["collector"], run["url"]) for run in merged} == {
        "run-a": ("a", None),
        "moved": ("b", "http://b"),
        "run-b": ("b", "http://b"),
    }


@pytest.mark.parametrize(
    ("own_age_s", "collector"), [(0.0, "a"), (MOVED_S - 0.1, "a"), (MOVED_S + 0.1, "b")]
)
@pytest.mark.parametrize(
    "claim",
    [{}, {"state": "ended", "headline": "nothing to see"}, {"alerts": 9}],
)
def test_a_shard_does_not_take_the_place_of_a_run_that_reports_here(
    fleet: Fleet, own_age_s: float, collector: str, claim: Json
) -> None:
    """Whatever it claims, and however new."""
    fleet.runs = {"b": [fleet.entry("r", -3_600.0, **claim)]}
    peers = peers_of(fleet, {"r": own_age_s})
    peers.tick()
    own = fleet.entry("r", own_age_s)
    assert [run["collector"] for run in peers.merged([own])] == [collector]


@pytest.mark.parametrize(
    ("reported", "page_url"),
    [
        ("https://straggler-1.example.org", "https://straggler-1.example.org"),
        (None, "http://b"),
        ("javascript:alert(1)", "http://b"),
        ('http://b"><script>', "http://b"),
    ],
)
def test_people_are_led_to_the_address_that_a_shard_has_for_them(
    fleet: Fleet, reported: str | None, page_url: str
) -> None:
    """That of its settings for links, else the one by which the shards know it."""
    fleet.runs = {"b": [fleet.entry("run-b", 1.0)]}
    fleet.page_urls = {"b": reported}
    peers = peers_of(fleet, {})
    peers.tick()
    merged = {run["run_id"]: run["page_url"] for run in peers.merged([fleet.entry("run-a", 1.0)])}
    assert merged == {"run-a": None, "run-b": page_url}


def test_a_shard_that_does_not_answer_is_a_problem_with_its_address(fleet: Fleet) -> None:
    fleet.runs = {"b": [fleet.entry("run-b", 1.0)]}
    peers = peers_of(fleet, {})
    peers.tick()
    assert peers.problems() == ()
    fleet.is_away = True
    peers.tick()
    assert "http://b does not answer (refused)" in peers.problems()[-1]
    assert [run["run_id"] for run in peers.merged([fleet.entry("run-a", 1.0)])] == ["run-a"]


@pytest.mark.parametrize(
    ("own_age_s", "age_there_s", "moves"),
    [(MOVED_S + 1, 1.0, True), (2.0, 1.0, False), (MOVED_S + 1, MOVED_S, False)],
)
def test_a_run_is_evicted_once_another_shard_hears_from_it_instead(
    fleet: Fleet, own_age_s: float, age_there_s: float, moves: bool
) -> None:
    """Not while both hear from it, and not while none does: then its ranks are silent. And not
    before the other can have asked for its alerts."""
    evicted: list[str] = []
    peers = peers_of(fleet, {"r": own_age_s}, evict=evicted.extend)
    for _ in range(2):
        assert evicted == []
        fleet.runs = {"b": [fleet.entry("r", age_there_s)]}
        peers.tick()
        fleet.now_s += HANDOVER_S
    assert evicted == ["r"] * moves
    assert peers.has_moved("r") is moves


def test_a_run_that_comes_back_is_no_longer_moved(fleet: Fleet) -> None:
    ages = {"r": MOVED_S + 1}
    peers = peers_of(fleet, ages)
    for _ in range(2):
        fleet.runs = {"b": [fleet.entry("r", 1.0)]}
        peers.tick()
        fleet.now_s += HANDOVER_S
    assert peers.has_moved("r")
    ages["r"] = 0.5
    peers.tick()
    assert not peers.has_moved("r")


def test_what_fires_for_a_run_goes_on_where_it_moves_to(fleet: Fleet) -> None:
    """Asked for once, when the run is new here."""
    labels = {"alertname": "StragglerRankStraggling", "run_id": "r", "collector": "b"}
    shown = {"labels": labels, "annotations": {"summary": "s"}, "since_ns": 5 * 10**9}
    fleet.alerts = {"b": [shown]}
    fleet.runs = {"b": [fleet.entry("r", 4.0, alerts=1)]}
    taken: list[Sequence[Alert]] = []
    peers = peers_of(fleet, {"r": 1.0}, take_over=taken.append)
    peers.tick()
    peers.tick()
    (alerts,) = taken
    assert alerts == [Alert(labels=labels, annotations={"summary": "s"}, starts_at_s=5.0)]


@pytest.fixture
def shards() -> Iterator[list[Shard]]:
    pages = [free_address() for _ in range(2)]
    started = [
        Shard(
            metrics=MetricsSettings(
                listen=page, peers=tuple(f"http://{each}" for each in pages), collector_id=page
            )
        )
        for page in pages
    ]
    yield started
    for shard in started:
        shard.close()


def test_every_page_shows_the_runs_of_all_shards(shards: list[Shard]) -> None:
    """Real ones: the list, a run of the other shard, what nobody has, one shard away."""
    here, there = shards
    send_run(here.otlp, "run-here")
    send_run(there.otlp, "run-there")

    def listed() -> dict[str, str | None]:
        return {run["run_id"]: run["url"] for run in here.get("/v1/runs")["runs"]}

    expected = {"run-here": None, "run-there": there.page}
    assert eventually(lambda: listed() == expected)
    for path in ("/v1/run?run=run-there", "/v1/rank?run=run-there&rank=2"):
        mine, its = here.get(path), there.get(path)
        for answer in (mine, its):
            answer.pop("now_s")
        assert mine.pop("page_url") == there.page
        assert mine.keys() == its.keys()
        assert mine["collector"] == its["collector"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        here.get("/v1/run?run=nobody")
    assert refused.value.code == 404
    local = here.get("/v1/runs?local=1")["runs"]
    assert [run["run_id"] for run in local] == ["run-here"]
    there.close()
    problem = eventually(lambda: here.get("/v1/runs")["problems"])
    assert there.page in problem[0]


class Stage:
    """The alerts of one shard, without an address: what it would send to Alertmanager."""

    def __init__(self, collector: str) -> None:
        self.sent: list[Alert] = []
        self.fires = False
        self.watched = FleetStatus(now_s=NOW_S, collector=collector)
        self.snapshot = self
        self.notifying = Notifying(
            AlertsSettings(),
            self,  # type: ignore[arg-type]
            evaluate=self.evaluate,
            firing=Firing(600.0, give_up_s=3_600.0),
            wall_s=lambda: NOW_S,
        )
        self.notifying._alertmanagers = self  # type: ignore[assignment]

    def evaluate(self, watched: FleetStatus) -> tuple[Alert, ...]:
        labels = {
            "alertname": "StragglerRankSlow",
            "run_id": "r",
            "rank": "3",
            "collector": watched.collector,
        }
        ends_at_s = None if self.fires else watched.now_s
        alert = Alert(labels=labels, annotations={}, starts_at_s=NOW_S, ends_at_s=ends_at_s)
        return (alert,)

    def show_alerts(self, _: object) -> None: ...

    def known(self, _: object) -> tuple[Alert, ...]:
        return ()

    def update(self, alerts: Iterable[Alert], _: float) -> None:
        self.sent = list(alerts)


def test_an_alert_of_a_run_that_moves_is_one_alert_and_is_not_resolved_in_between() -> None:
    """The old shard falls silent about it, the new one sends it under the same labels, before and
    after it has found the slow rank itself."""
    old, new = Stage("old"), Stage("new")
    old.fires = True
    old.notifying.tick()
    (before,) = old.sent
    old.notifying.has_moved = lambda run_id: run_id == "r"
    for fires in (True, False):
        old.fires = fires
        old.notifying.tick()
        assert old.sent == []
    new.notifying.take_over([before])
    new.evaluate = lambda _: ()  # type: ignore[method-assign]
    new.notifying._evaluate = new.evaluate
    new.notifying.tick()
    assert [(each.labels, each.ends_at_s) for each in new.sent] == [(before.labels, None)]
    found = Stage("new")
    found.fires = True
    new.notifying._evaluate = found.evaluate
    new.notifying.tick()
    assert [(each.labels, each.ends_at_s) for each in new.sent] == [(before.labels, None)]
    found.fires = False
    new.notifying.tick()
    (ended,) = new.sent
    assert ended.labels == before.labels
    assert ended.ends_at_s is not None
