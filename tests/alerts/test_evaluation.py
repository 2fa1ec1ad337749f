"""What the collector tells by itself: when it begins, how long it goes on, that it ends once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_straggler.alerts.evaluation import AlertEvaluator
from otel_straggler.alerts.rule import Culprit, FleetStatus, RunStatus, Score, Scores
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.detect.hangs.states import RunState
from otel_straggler.model.alert import Alert
from otel_straggler.model.verdict import Verdict

SETTINGS = AlertSettings(hang_for_seconds=15.0, score_for_seconds=30.0, keep_firing_seconds=60.0)
RUN = RunStatus(run_id="r1", job="llm", group="actor", team="vision")
HUNG = replace(RUN, state="partly_lost", is_hung=True, hang_text="rank 3: no sign of life.")
HANG = "StragglerRunHung"
LOW = "StragglerScoreLow"


def watched(now_s: float, *runs: RunStatus, pages: bool = True, **more: object) -> FleetStatus:
    return FleetStatus(now_s=now_s, collector="c1", runs=runs, pages=pages, **more)  # type: ignore[arg-type]


def named(alerts: tuple[Alert, ...], name: str) -> list[Alert]:
    return [alert for alert in alerts if alert.name == name]


def low(value: float, rank: int = 3) -> RunStatus:
    score = Score(rank=rank, node="n0", role="default", section="forward", value=value)
    return replace(RUN, scores=Scores(section_relative=(score,)))


# --- beginning -----------------------------------------------------------------------------------


def test_a_hang_is_told_after_its_time_with_all_its_labels_and_words() -> None:
    """The same as the rule in alerts/tests/hangs.yaml."""
    evaluator = AlertEvaluator(SETTINGS)
    assert named(evaluator.evaluate(watched(1_000, HUNG, cluster="prod")), HANG) == []
    assert named(evaluator.evaluate(watched(1_014, HUNG, cluster="prod")), HANG) == []
    [alert] = named(evaluator.evaluate(watched(1_015, HUNG, cluster="prod")), HANG)
    assert alert.labels == {
        "alertname": HANG,
        "severity": "critical",
        "domain": "platform",
        "mode": "page",
        "cluster": "prod",
        "collector": "c1",
        "team": "vision",
        "run_id": "r1",
        "job_name": "llm",
        "group": "actor",
    }
    assert alert.annotations == {
        "summary": "No progress seen in run r1 (job llm)",
        "description": "Run r1, group actor, shows no progress. rank 3: no sign of life. "
        "This alert fires until the run makes progress, reports how it ended, or is "
        "acknowledged; silence is not recovery. Next: look at the host and the process of the "
        "ranks that the others wait for; restart the run from its last checkpoint, without a host "
        "that is at fault.",
        "resolved": "No progress was seen in run r1 (job llm)",
    }
    assert (alert.starts_at_s, alert.ends_at_s) == (1_015, None)


def test_what_stops_before_its_time_is_never_told() -> None:
    """Nor does it count for the next time."""
    evaluator = AlertEvaluator(SETTINGS)
    for now_s, run in ((0, HUNG), (10, RUN), (20, HUNG), (30, HUNG)):
        assert named(evaluator.evaluate(watched(now_s, run)), HANG) == []
    assert named(evaluator.evaluate(watched(35, HUNG)), HANG)


def test_the_watchdog_always_fires() -> None:
    """Without any run."""
    [alert] = AlertEvaluator(SETTINGS).evaluate(watched(0))
    assert (alert.name, alert.labels["mode"]) == ("StragglerWatchdog", "page")


@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), max_size=40))
def test_an_alert_fires_exactly_when_its_condition_has_held_for_its_time(
    looks: list[tuple[int, bool]],
) -> None:
    """For any spacing of looks."""
    evaluator, now_s, since_s = AlertEvaluator(SETTINGS), 0.0, None
    for step_s, hangs in looks:
        now_s += step_s
        since_s = (now_s if since_s is None else since_s) if hangs else None
        alerts = named(evaluator.evaluate(watched(now_s, HUNG if hangs else RUN)), HANG)
        fires = any(alert.ends_at_s is None for alert in alerts)
        assert fires == (since_s is not None and now_s - since_s >= SETTINGS.hang_for_seconds)


# --- going on, ending ----------------------------------------------------------------------------


def test_another_value_is_the_same_alert() -> None:
    """Labels tell alerts apart; the newest sentence is told."""
    evaluator = AlertEvaluator(SETTINGS)
    evaluator.evaluate(watched(0, low(0.5)))
    [first] = named(evaluator.evaluate(watched(30, low(0.5))), LOW)
    [second] = named(evaluator.evaluate(watched(40, low(0.25))), LOW)
    assert (first.labels, first.starts_at_s) == (second.labels, second.starts_at_s)
    assert "runs at 50% of" in first.annotations["description"]
    assert "runs at 25% of" in second.annotations["description"]


def test_a_hang_that_ends_is_told_once() -> None:
    """At once, with its end."""
    evaluator = AlertEvaluator(SETTINGS)
    for now_s in (0, 15):
        evaluator.evaluate(watched(now_s, HUNG))
    [ended] = named(evaluator.evaluate(watched(20, RUN)), HANG)
    assert (ended.starts_at_s, ended.ends_at_s) == (15, 20)
    assert named(evaluator.evaluate(watched(25, RUN)), HANG) == []


def test_a_low_score_is_kept_over_a_gap() -> None:
    """It does not end and begin anew where a window is missing."""
    evaluator = AlertEvaluator(SETTINGS)
    for now_s in (0, 30):
        evaluator.evaluate(watched(now_s, low(0.5)))
    for now_s, run in ((40, RUN), (99, RUN), (100, low(0.5)), (110, RUN), (169, RUN)):
        [alert] = named(evaluator.evaluate(watched(now_s, run)), LOW)
        assert (alert.starts_at_s, alert.ends_at_s) == (30, None)
    [ended] = named(evaluator.evaluate(watched(170, RUN)), LOW)
    assert ended.ends_at_s == 170


def test_what_is_kept_holds_no_other_end_up() -> None:
    """An older alert that is still told of, and a younger one that ends at once."""
    evaluator = AlertEvaluator(SETTINGS)
    both = replace(low(0.5), is_hung=True)
    for now_s, run in ((0, low(0.5)), (30, both), (45, both)):
        evaluator.evaluate(watched(now_s, run))
    alerts = evaluator.evaluate(watched(50, RUN))
    assert [alert.ends_at_s for alert in named(alerts, LOW)] == [None]
    assert [alert.ends_at_s for alert in named(alerts, HANG)] == [50]


def test_a_run_that_is_no_longer_known_ends_its_alerts() -> None:
    """Once."""
    evaluator = AlertEvaluator(SETTINGS)
    for now_s in (0, 15):
        evaluator.evaluate(watched(now_s, HUNG))
    assert [a.ends_at_s for a in named(evaluator.evaluate(watched(30)), HANG)] == [30]
    assert named(evaluator.evaluate(watched(45)), HANG) == []


def test_a_clock_that_is_set_back_ends_nothing_and_holds_nothing_up() -> None:
    """Only progress of the clock counts, and no alert ends before it began."""
    evaluator = AlertEvaluator(SETTINGS)
    evaluator.evaluate(watched(10_000, HUNG))
    evaluator.evaluate(watched(10_010, HUNG))
    assert named(evaluator.evaluate(watched(50, HUNG)), HANG) == []
    [alert] = named(evaluator.evaluate(watched(55, HUNG)), HANG)
    assert alert.starts_at_s == 55
    [kept] = named(evaluator.evaluate(watched(20, HUNG)), HANG)
    assert kept.ends_at_s is None
    [ended] = named(evaluator.evaluate(watched(20, RUN)), HANG)
    assert (ended.starts_at_s, ended.ends_at_s) == (55, 55)


# --- who is named, and whom it may call ----------------------------------------------------------


@pytest.mark.parametrize("count", [5, 6, 30])
def test_more_than_five_ranks_of_a_run_are_one_alert(count: int) -> None:
    """With their number."""
    scores = tuple(
        Score(rank=rank, node="", role="", section="forward", value=0.7 - rank / 100)
        for rank in range(count)
    )
    run = replace(RUN, scores=Scores(section_relative=scores))
    evaluator = AlertEvaluator(SETTINGS)
    evaluator.evaluate(watched(0, run))
    alerts = named(evaluator.evaluate(watched(30, run)), LOW)
    if count == 5:
        assert {alert.labels["rank"] for alert in alerts} == set("01234")
        return
    [alert] = alerts
    assert alert.labels["subjects"] == "ranks"
    assert "rank" not in alert.labels
    assert alert.annotations["description"].startswith(f"{count} ranks of run r1, group actor, ")


def culprits(*, node: str = "n0") -> RunStatus:
    result = (
        Culprit(rank=3, node=node, role="default", why="lost"),
        Culprit(rank=4, node="n1", role="default", why="never_joined"),
    )
    return replace(RUN, state="partly_lost", culprits=result)


def firing(run: RunStatus, **more: object) -> dict[str, Alert]:
    evaluator = AlertEvaluator(SETTINGS)
    for now_s in (0, 1_000):
        alerts = evaluator.evaluate(watched(now_s, run, **more))  # type: ignore[arg-type]
    return {alert.name: alert for alert in alerts}


def test_culprits_are_lost_or_stuck() -> None:
    """By why the others wait for them."""
    alerts = firing(culprits())
    assert alerts["StragglerRankLost"].labels["rank"] == "3"
    assert alerts["StragglerRankStuck"].labels["rank"] == "4"


def test_nobody_is_told_of_a_culprit_on_a_node_under_maintenance() -> None:
    """The others are told of."""
    alerts = firing(culprits(), under_maintenance=frozenset({"n0"}))
    assert "StragglerRankLost" not in alerts
    assert "StragglerRankStuck" in alerts


@pytest.mark.parametrize(
    ("run_pages", "pages", "mode"),
    [(True, True, "page"), (False, True, "observe"), (True, False, "observe")],
)
def test_what_may_not_page_is_observed(run_pages: bool, pages: bool, mode: str) -> None:
    """Everything is computed all the same."""
    alerts = firing(replace(HUNG, pages=run_pages), pages=pages)
    assert alerts[HANG].labels["mode"] == mode
    assert alerts["StragglerWatchdog"].labels["mode"] == ("page" if pages else "observe")


def verdict(**changes: object) -> Verdict:
    known = {"rank": 3, "node": "n0", "role": "default", "section": "load", "cause": "slow_host"}
    known |= {"slowdown": 1.5, "gpu_seconds_lost_per_hour": 7_200.0, "pages": True}
    fixed = {"run_id": "r1", "subject_id": "rank/n0/3", "scope": "rank", "state": "confirmed"}
    return Verdict(**{**fixed, **known, **changes})  # type: ignore[arg-type]


def test_a_verdict_is_critical_if_it_pages_and_else_a_warning() -> None:
    """What the verdict says besides is in annotations: it may change."""
    name = "StragglerRankStraggling"
    result = firing(replace(RUN, verdicts=(verdict(),)))[name]
    assert (result.labels["severity"], result.labels["domain"]) == ("critical", "hardware")
    assert "takes 1.50 times as long" in result.annotations["description"]
    assert "loses the time of 2.00 ranks" in result.annotations["description"]
    assert (result.labels["rank"], result.labels["node"]) == (str(verdict().rank), verdict().node)
    its = result.annotations
    assert (its["section"], its["cause"]) == ("load", "slow_host")
    assert not {"section", "cause"} & set(result.labels)
    result = firing(replace(RUN, verdicts=(verdict(pages=False, section=""),)))[name]
    assert result.labels["severity"] == "warning"
    assert result.annotations["section"] == "none"
    assert name not in firing(replace(RUN, verdicts=(verdict(state="suspect"),)))


def test_a_slow_run_has_an_alert_only_if_nobody_is_to_blame() -> None:
    """And only while it trains."""
    slow = replace(RUN, slowdown=1.2)
    alert = firing(slow)["StragglerRunSlow"]
    assert (alert.annotations["cause"], alert.annotations["role"]) == ("none", "none")
    assert "StragglerRunSlow" not in firing(replace(slow, verdicts=(verdict(),)))
    assert "StragglerRunSlow" not in firing(replace(slow, state="finished"))


def test_a_slow_run_names_the_costliest_verdict_on_its_stages_or_itself() -> None:
    """One that is only suspected is none."""
    of_run = {"rank": None, "node": "", "section": ""}
    stage = verdict(
        scope="role", subject_id="role/s1", role="s1", cause="stage_imbalance", **of_run
    )
    run = verdict(
        scope="run",
        subject_id="run",
        role="",
        cause="sequence_imbalance",
        **{**of_run, "gpu_seconds_lost_per_hour": 900.0},
    )
    alert = firing(replace(RUN, slowdown=1.2, verdicts=(run, stage)))["StragglerRunSlow"]
    assert alert.annotations["description"].endswith(
        "no rank or host has a slow verdict. Cause: stage imbalance of s1. Next: if it was always "
        "so, move layers to the other stages; none of its ranks is slower than its peers."
    )
    assert not {"cause", "role"} & set(alert.labels)
    alert = firing(replace(RUN, slowdown=1.2, verdicts=(run, replace(stage, state="suspect"))))[
        "StragglerRunSlow"
    ]
    assert alert.annotations["cause"] == "sequence_imbalance"


# --- the platform --------------------------------------------------------------------------------


def test_ranks_are_missing_only_of_a_run_that_is_under_way() -> None:
    """A failed start is no news."""
    missing = replace(RUN, state="starting", ranks={"ok": 6, "missing": 2})
    result = firing(missing)["StragglerRanksMissing"]
    assert result.annotations["description"].startswith("2 expected ranks of run r1, group actor,")
    assert "StragglerRanksMissing" not in firing(replace(missing, state="failed"))
    assert "StragglerRanksMissing" in firing(replace(missing, ranks={"missing": 1}))
    for ranks in ({}, {"ok": 8}, {"ok": 8, "missing": 0}):
        assert "StragglerRanksMissing" not in firing(replace(missing, ranks=ranks))


@pytest.mark.parametrize("state", ["training", "lost", "finished", "forgotten"])
def test_only_a_run_that_was_given_up_is_told_as_that(state: RunState) -> None:
    """One that has ended is none."""
    fires = "StragglerRunForgotten" in firing(replace(RUN, state=state))
    assert fires == (state == "forgotten")


@pytest.mark.parametrize(
    ("since_s", "scored_s", "fires"),
    [
        (0.0, None, True),
        (0.0, 50.0, True),
        (0.0, 500.0, False),
        (500.0, None, False),
        (None, None, False),
    ],
)
def test_a_run_that_trains_without_scores_is_told_of(
    since_s: float | None, scored_s: float | None, fires: bool
) -> None:
    """No sooner than a quarter of an hour after it began, or was scored last."""
    run = replace(RUN, since_s=since_s, last_scored_at_s=scored_s)
    evaluator = AlertEvaluator(SETTINGS)
    for now_s in (1_000, 1_060):
        alerts = evaluator.evaluate(watched(now_s, run))
    assert bool(named(alerts, "StragglerNoData")) == fires


def test_losses_are_told_if_they_go_on() -> None:
    """For longer than one loss counts; and for a while after the last one."""
    name, evaluator = "StragglerSpansDropped", AlertEvaluator(SETTINGS)
    once = {"ring_full": 8, "gpu_late": 1}
    told: dict[str, list[int]] = {}
    for now_s in range(0, 1_201, 60):
        more = min(now_s, 600)
        lost = {**once, "rejected": more, "span_budget": more, "gpu_late": more} if now_s else {}
        for alert in named(evaluator.evaluate(watched(now_s, replace(RUN, dropped=lost))), name):
            if alert.ends_at_s is None:
                told.setdefault(alert.labels["reason"], []).append(now_s)
    # The last loss is at 600 s and counts for 300 s; then it is kept for 60 s.
    assert told == {"rejected": list(range(60 + 360, 600 + 300 + 60, 60))}


def test_losses_of_the_next_attempt_begin_anew() -> None:
    """A smaller total is a new one."""
    at_once = replace(SETTINGS, dropped_for_seconds=0.0, keep_firing_seconds=0.0)
    evaluator = AlertEvaluator(at_once)
    for now_s, total, fires in ((0, 0, False), (10, 8, True), (400, 8, False), (410, 2, True)):
        run = replace(RUN, dropped={"ring_full": total})
        alerts = named(evaluator.evaluate(watched(now_s, run)), "StragglerSpansDropped")
        assert any(alert.ends_at_s is None for alert in alerts) == fires


def test_a_clash_is_told_once_for_all_groups_of_a_run() -> None:
    """It has no group."""
    evaluator = AlertEvaluator(SETTINGS)
    runs = (replace(RUN, clashes=2), replace(RUN, group="critic", clashes=2))
    for now_s in (0, 60):
        alerts = evaluator.evaluate(watched(now_s, *runs))
    [result] = named(alerts, "StragglerIdentityCollision")
    assert "group" not in result.labels
    assert "StragglerIdentityCollision" not in firing(RUN)


def test_links_are_there_where_settings_name_them() -> None:
    """Escaped, and without empty labels; of several clusters in one Prometheus, the one."""
    settings = replace(
        SETTINGS,
        dashboard_url="https://g.example/d/x",
        runbook_url="https://r.example/p",
        alertmanager_url="https://a.example",
    )
    evaluator = AlertEvaluator(settings)
    run = replace(HUNG, run_id='a "b"', group="")
    for now_s in (0, 15):
        alerts = evaluator.evaluate(watched(now_s, run, cluster="eu 1"))
    [alert] = named(alerts, HANG)
    links = {name: text for name, text in alert.annotations.items() if name.endswith("_url")}
    assert links == {
        "dashboard_url": "https://g.example/d/x?from=now-1h&to=now&var-cluster=eu%201"
        "&var-run_id=a%20%22b%22",
        "runbook_url": "https://r.example/p#stragglerrunhung",
        "silence_url": "https://a.example/#/silences/new?filter=%7Balertname%3D%22StragglerRunHung"
        "%22%2Ccluster%3D%22eu%201%22%2Crun_id%3D%22a%20%5C%22b%5C%22%22%7D",
    }
