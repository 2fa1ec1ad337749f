"""What a collector publishes for alerts, in every state of a run: the text page, the snapshot that
other threads read, and the report say the same."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any, get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from otel_straggler import semconv
from otel_straggler.alerts.evaluation import AlertEvaluator
from otel_straggler.alerts.rule import Culprit, RunStatus
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.client.sender import DROP_REASONS
from otel_straggler.collector.metrics.status_series import alert_families
from otel_straggler.collector.runs.liveness import WorldStatus
from otel_straggler.collector.views.run_view import RunView
from otel_straggler.detect.hangs.states import RANK_STATES, RunState

from .watched_world import WatchedWorld

OF_RUN = {"run_id": "run", "job_name": "job", "group": "", "collector": "c"}
Make = Callable[..., WatchedWorld]


@pytest.fixture
def make(kit: Any) -> Make:
    """A world that has trained for a minute."""

    def made(*args: Any, cluster: str = "", **values: Any) -> WatchedWorld:
        world = WatchedWorld(kit.settings(metrics__cluster=cluster), *args, **values)
        world.live(60.0)
        return world

    return made


# --- states --------------------------------------------------------------------------------------


def trains(world: WatchedWorld) -> None:
    world.live(5.0)


def one_is_late_to_join(world: WatchedWorld) -> None:
    world.live(5.0, still=[1])
    world.stand()


def one_is_gone(world: WatchedWorld) -> None:
    world.live(30.0, silent=[2])


def one_is_gone_and_the_others_wait(world: WatchedWorld) -> None:
    one_is_gone(world)
    world.stand(silent=[2])


def half_are_gone(world: WatchedWorld) -> None:
    world.live(30.0, silent=[1, 2])


def all_are_gone(world: WatchedWorld) -> None:
    world.live(30.0, silent=range(4))


def one_ended_too_early(world: WatchedWorld) -> None:
    world.end("ok", [3])
    world.groups[""] = 3
    world.expected = 4
    world.stand()


def ends(outcome: str) -> Callable[[WatchedWorld], None]:
    def end(world: WatchedWorld) -> None:
        world.end(outcome)

    end.__name__ = outcome
    return end


STATES = [
    # what happens, state, hung, why, culprits, ranks
    (trains, "training", 0, None, [], {"ok": 4}),
    (one_is_late_to_join, "stuck", 1, "never_joined", ["1"], {"stuck": 4}),
    (one_is_gone, "partly_lost", 0, "lost", ["2"], {"ok": 3, "lost": 1}),
    (one_is_gone_and_the_others_wait, "partly_lost", 1, "lost", ["2"], {"stuck": 3, "lost": 1}),
    (half_are_gone, "partly_lost", 1, "lost", ["1", "2"], {"ok": 2, "lost": 2}),
    (all_are_gone, "lost", 1, "lost", ["0", "1", "2", "3"], {"lost": 4}),
    (one_ended_too_early, "stuck", 1, "left_early", ["3"], {"stuck": 3, "finished": 1}),
    (ends("ok"), "finished", 0, None, [], {"finished": 4}),
    (ends("cancelled"), "cancelled", 0, None, [], {"ended": 4}),
    (ends("preempted"), "preempted", 0, None, [], {"ended": 4}),
    (ends("failed"), "failed", 0, None, [], {"failed": 4}),
]
in_every_state = pytest.mark.parametrize(
    ("happens", "state", "hung", "why", "culprits", "ranks"),
    STATES,
    ids=[happens.__name__ for happens, *_ in STATES],
)


@in_every_state
def test_every_state_has_its_series(
    make: Make, happens: Any, state: str, hung: int, why: Any, culprits: Any, ranks: Any
) -> None:
    """One-hot states, hung or not, why, because of whom, and how many ranks are how."""
    world = make()
    happens(world)
    states = world.by("state", semconv.RUN_STATE)
    assert states == {name: float(name == state) for name in get_args(RunState)}
    assert world.samples(semconv.RUN_HUNG) == [(OF_RUN, hung)]
    reported = [labels for labels, _ in world.samples(semconv.RUN_HANG_INFO)]
    assert [each["why"] for each in reported] == ([] if why is None else [why])
    assert [each["sentence"] for each in reported] == (
        [] if why is None else [world.run().hang_text]
    )
    assert sorted(world.by("rank", semconv.RANK_CULPRIT)) == culprits
    counted = world.by("state", semconv.RUN_RANKS)
    none = dict.fromkeys([*RANK_STATES, "missing"], 0.0)
    assert counted == {**none, **ranks}
    assert world.samples(semconv.RUN_PAGES) == [(OF_RUN, 1.0)]
    assert world.samples(semconv.RUN_INFO) == [({**OF_RUN, "team": "", "attempt": "0"}, 1.0)]


@in_every_state
def test_the_snapshot_and_the_report_say_the_same_as_the_series(
    make: Make, happens: Any, state: str, hung: int, why: Any, culprits: Any, ranks: Any
) -> None:
    """Whoever is called by the collector itself hears what Prometheus' rules say."""
    world = make()
    happens(world)
    run = world.run()
    assert (run.state, run.is_hung, run.why) == (state, bool(hung), why)
    assert [str(culprit.rank) for culprit in run.culprits] == culprits
    assert {culprit.why for culprit in run.culprits} <= {why}
    assert {name: count for name, count in run.ranks.items() if count} == ranks
    assert (world.reported()["hung"], world.reported()["pages"]) == (bool(hung), True)
    assert (world.watched.collector, world.watched.now_s) == ("c", pytest.approx(world.now_s))


def test_a_culprit_is_named_with_its_node_and_role(make: Make) -> None:
    """With the labels of every other series of its rank."""
    world = make()
    one_is_gone(world)
    [(labels, value)] = world.samples(semconv.RANK_CULPRIT)
    [(of_rank, _)] = world.samples(semconv.LAST_HEARTBEAT, rank="2")
    assert (labels, value) == ({**of_rank, "why": "lost"}, 1.0)
    assert world.run().culprits == (Culprit(rank=2, node="node-1", role="default", why="lost"),)


def test_the_alert_of_a_hang_names_the_hosts_it_waits_for(make: Make) -> None:
    """Those on the ranks, which have a host each, are inhibited by it."""
    world = make()
    half_are_gone(world)
    evaluator = AlertEvaluator(AlertSettings(hang_for_seconds=0.0))
    (hung,) = (one for one in evaluator.evaluate(world.watched) if one.name == "StragglerRunHung")
    assert hung.annotations["summary"] == (
        "No progress seen in run run (job job): rank 1 on node-0 and rank 2 on node-1"
    )
    (labels,) = (labels for labels, _ in world.samples(semconv.RUN_HANG_INFO))
    assert labels["culprits"] == "rank 1 on node-0 and rank 2 on node-1"


def test_nobody_is_named_where_all_have_joined_and_none_gets_on(make: Make) -> None:
    """The run is hung all the same, and says why."""
    world = make()
    world.stand()
    assert world.value(semconv.RUN_HUNG) == 1
    assert world.samples(semconv.RANK_CULPRIT) == []
    assert world.by("why", semconv.RUN_HANG_INFO) == {"joined_but_stuck": 1.0}


def test_what_has_ended_waits_for_nobody(make: Make) -> None:
    """A rank fails, and the launcher kills the others without a word."""
    world = make()
    world.end("failed", [0])
    world.live(30.0, silent=range(4))
    assert (_now(world), world.value(semconv.RUN_HUNG)) == ("failed", 0)
    assert world.samples(semconv.RUN_HANG_INFO) == []
    assert world.samples(semconv.RANK_CULPRIT) == []


def test_the_states_that_a_run_has_left_fall_to_zero(make: Make) -> None:
    """Training, stuck, training, finished: the last value of each tells that it was left."""
    world = make()
    went = [_now(world)]
    since_s = world.run().since_s
    world.stand()
    went.append(_now(world))
    assert since_s is not None
    assert since_s < (world.run().since_s or 0.0) < world.now_s
    world.live(5.0)
    went.append(_now(world))
    world.end("ok")
    went.append(_now(world))
    assert went == ["training", "stuck", "training", "finished"]
    assert world.by("state", semconv.RUN_STATE)["stuck"] == 0
    assert (world.value(semconv.RUN_HUNG), world.samples(semconv.RUN_HANG_INFO)) == (0, [])


def _now(world: WatchedWorld) -> str:
    """The only state that is 1."""
    (state,) = [s for s, value in world.by("state", semconv.RUN_STATE).items() if value]
    return state


def test_ranks_that_were_never_heard_of_are_missing_and_not_starting(make: Make) -> None:
    """Six are expected, four came."""
    world = make(4, expected=6)
    ranks = world.by("state", semconv.RUN_RANKS)
    assert (ranks["missing"], ranks["starting"], ranks["ok"]) == (2, 0, 4)
    assert sum(ranks.values()) == 6


def test_a_rank_that_never_came_can_be_the_culprit(make: Make) -> None:
    """Nobody knows its node, so it is on none that is under maintenance."""
    world = make(3, expected=4)
    world.stand()
    world.maintain("")
    assert world.run().culprits == (Culprit(rank=3, node="", role="", why="never_joined"),)
    [(labels, _)] = world.samples(semconv.RANK_CULPRIT)
    assert (labels["rank"], labels["node"]) == ("3", "")
    assert world.value(semconv.RUN_PAGES) == 1


def test_a_restart_begins_with_nobody_to_blame(make: Make) -> None:
    """The attempt is told."""
    world = make()
    all_are_gone(world)
    world.attempt = 1
    world.live(10.0)
    assert (_now(world), world.value(semconv.RUN_HUNG)) == ("training", 0)
    assert world.by("attempt", semconv.RUN_INFO) == {"1": 1.0}


# --- many ranks, several groups -------------------------------------------------------------------


def test_of_fifty_lost_ranks_twenty_are_named_and_stay_so(make: Make) -> None:
    """An alert on a rank must not end because a rank with a lower number is lost too; one that
    comes back gives its place away."""
    world = make(60)
    world.live(30.0, silent=range(10, 60))
    first = set(world.by("rank", semconv.RANK_CULPRIT))
    assert first == {str(rank) for rank in range(10, 30)}
    world.live(30.0, silent=range(5, 60))
    assert set(world.by("rank", semconv.RANK_CULPRIT)) == first
    assert world.by("state", semconv.RUN_RANKS)["lost"] == 55
    world.live(10.0, silent=[rank for rank in range(5, 60) if rank != 12])
    now = set(world.by("rank", semconv.RANK_CULPRIT))
    assert now == (first - {"12"}) | {"30"}
    assert world.run().hang_text.startswith("Ranks 5 to 11 and 13 to 59: no heartbeats")


def test_each_group_of_a_run_is_watched_for_itself(make: Make) -> None:
    """The critic's rank 0 is lost; the actor trains."""
    world = make({"actor": 2, "critic": 3})
    world.live(30.0, silent=[("critic", 0), ("critic", 1)])
    assert world.by("group", semconv.RUN_HUNG) == {"actor": 0.0, "critic": 1.0}
    assert world.by("group", semconv.RUN_STATE, state="training") == {"actor": 1.0, "critic": 0.0}
    named = [(labels["group"], labels["rank"]) for labels, _ in world.samples(semconv.RANK_CULPRIT)]
    assert named == [("critic", "0"), ("critic", "1")]
    assert [run.group for run in world.watched.runs] == ["actor", "critic"]
    assert (world.reported("actor")["hung"], world.reported("critic")["hung"]) == (False, True)


def test_ranks_of_another_sdk_are_watched_but_not_judged(make: Make, kit: Any) -> None:
    """They send no signs of life: no state is made up; alerts on scores know whether they page."""
    world = WatchedWorld(kit.settings())
    for rank in range(4):
        world.take(kit.spans_of(world.source("", rank), range(10)))
    world.now_s += 100.0
    world.look()
    for metric in (semconv.RUN_STATE, semconv.RUN_HUNG, semconv.RUN_RANKS, semconv.RANK_CULPRIT):
        assert world.samples(metric) == []
    assert world.value(semconv.RUN_PAGES) == 1
    assert (world.run().state, dict(world.run().ranks)) == ("starting", {})


# --- whether somebody is called -------------------------------------------------------------------


def test_a_collector_that_observes_calls_nobody(make: Make) -> None:
    """All else is as if it did."""
    world = make(mode="observe")
    all_are_gone(world)
    assert (world.value(semconv.RUN_PAGES), world.value(semconv.COLLECTOR_PAGES)) == (0, 0)
    assert world.value(semconv.RUN_HUNG) == 1
    assert (world.run().pages, world.watched.pages) == (False, False)
    assert (world.reported()["hung"], world.reported()["pages"]) == (True, False)


def test_a_run_that_asked_for_it_calls_nobody(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector's other runs do."""
    may_page = property(lambda world: world.ranks[0].source.group != "toy")
    monkeypatch.setattr(WorldStatus, "page", may_page)
    world = make({"toy": 2, "": 2})
    assert world.by("group", semconv.RUN_PAGES) == {"toy": 0.0, "": 1.0}
    assert world.value(semconv.COLLECTOR_PAGES) == 1


def test_the_team_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """For who routes alerts."""
    monkeypatch.setattr(WorldStatus, "team", property(lambda _: "vision"))
    world = make()
    assert world.by("team", semconv.RUN_INFO) == {"vision": 1.0}
    assert world.run().team == "vision"


def test_an_acknowledged_hang_is_no_longer_hung_and_has_no_culprit(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its state stays, and so does the sentence: it is still true."""
    world = make()
    one_is_gone_and_the_others_wait(world)
    monkeypatch.setattr(RunView, "is_acknowledged", lambda *_: True)
    world.look()
    assert (_now(world), world.value(semconv.RUN_HUNG)) == ("partly_lost", 0)
    assert world.samples(semconv.RANK_CULPRIT) == []
    assert world.by("why", semconv.RUN_HANG_INFO) == {"lost": 1.0}


def test_nobody_is_called_if_all_culprits_are_under_maintenance(make: Make) -> None:
    """Ranks 2 and 3 are on node-1; a culprit on another node is somebody to call for."""
    world = make()
    world.maintain("node-1")
    assert world.value(semconv.RUN_PAGES) == 1  # nothing is wrong
    world.live(30.0, silent=[2, 3])
    assert (world.value(semconv.RUN_PAGES), world.value(semconv.RUN_HUNG)) == (0, 1)
    assert world.watched.under_maintenance == {"node-1"}
    world.live(30.0, silent=[1, 2, 3])
    assert world.value(semconv.RUN_PAGES) == 1


def test_maintenance_that_is_over_counts_no_longer(make: Make) -> None:
    """Its series goes with it."""
    world = make()
    world.maintain("node-1", seconds=100.0, reason="a fan")
    [(labels, until_s)] = world.samples(semconv.MAINTENANCE_UNTIL)
    assert labels == {"node": "node-1", "reason": "a fan", "by": "ada", "collector": "c"}
    assert until_s == pytest.approx(world.now_s + 100.0, abs=1.0)
    world.live(30.0, silent=[2])
    assert world.value(semconv.RUN_PAGES) == 0
    world.live(100.0, silent=[2])
    assert (world.value(semconv.RUN_PAGES), world.samples(semconv.MAINTENANCE_UNTIL)) == (1, [])


# --- text ----------------------------------------------------------------------------------------


def test_hostile_texts_reach_prometheus_whole() -> None:
    """Names of nodes, jobs and sections may be anything, and the sentence may have them."""
    awkward = 'a"b\\c\nd} 1\n# HELP größe 前'
    run = RunStatus(
        run_id=awkward,
        job=awkward,
        group=awkward,
        team=awkward,
        state="partly_lost",
        why="lost",
        hang_text=awkward,
        culprits=(Culprit(rank=1, node=awkward, role=awkward, why="lost"),),
        ranks={"lost": 1},
        unscored_text=awkward,
    )
    page = alert_families(run, 'collector="c"').render().decode()
    samples = [s for family in text_string_to_metric_families(page) for s in family.samples]
    assert len(samples) == 19 + len(DROP_REASONS)
    assert {s.labels["run_id"] for s in samples} == {awkward}
    (info,) = [s for s in samples if s.name == semconv.RUN_HANG_INFO.prometheus_name]
    assert (info.labels["sentence"], info.labels["why"]) == (awkward, "lost")
    (culprit,) = [s for s in samples if s.name == semconv.RANK_CULPRIT.prometheus_name]
    assert (culprit.labels["node"], culprit.labels["role"]) == (awkward, awkward)


def test_the_page_of_a_hung_run_passes_promtool(make: Make, promtool: str) -> None:
    """With culprits, a sentence and a node under maintenance on it."""
    world = make(cluster="eu")
    half_are_gone(world)
    world.maintain("node-0", reason='a "fan"\n')
    page = world.worker.snapshot.page
    for metric in (semconv.RANK_CULPRIT, semconv.RUN_HANG_INFO, semconv.MAINTENANCE_UNTIL):
        assert metric.prometheus_name.encode() in page
    checked = subprocess.run(
        [promtool, "check", "metrics"], input=page, capture_output=True, check=False, timeout=60
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_every_series_has_the_cluster_where_one_is_named(start: Any, kit: Any, make: Make) -> None:
    """Those of runs and those of the collector itself; without a name there is no such label."""
    live = start(metrics__cluster='eu"1')
    live.post(kit.spans_of(kit.rank(0, 1), range(8)))
    live.post(kit.beat_of(kit.rank(0, 1), sent_at_s=1.79e9), "metrics")
    kit.eventually(live.windows)
    lines = [x for x in live.get("/metrics").body.decode().splitlines() if not x.startswith("#")]
    assert len(lines) > 40
    assert [line for line in lines if r'cluster="eu\"1"' not in line] == []
    assert make(cluster="eu").watched.cluster == "eu"
    assert b"cluster" not in make().worker.snapshot.page


def test_the_series_of_alerts_are_never_folded(kit: Any) -> None:
    """However small the budget."""
    world = WatchedWorld(kit.settings(metrics__series_budget=100), 60)
    world.live(60.0)
    world.live(30.0, silent=range(30, 60))
    assert len(world.samples(semconv.RANK_CULPRIT)) == 20
    assert len(world.samples(semconv.RUN_STATE)) == len(get_args(RunState))
    assert world.value(semconv.RUN_HUNG) == 1
