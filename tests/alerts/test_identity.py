"""One subject, one alert, and what ends it at once; of the collector alone. The same of Prometheus:
alerts/tests/identity.yaml."""

from __future__ import annotations

from dataclasses import replace

from otel_straggler.alerts.evaluation import AlertEvaluator
from otel_straggler.alerts.rule import RunStatus, Score, Scores
from otel_straggler.model.alert import Alert

from .test_evaluation import RUN, SETTINGS, verdict, watched

SLOW = "StragglerRankStraggling"


def evaluations(*runs: RunStatus, **more: object) -> list[Alert]:
    """Alerts of slow ranks and hosts, and their ends, a minute apart; ``more`` of the last one."""
    evaluator = AlertEvaluator(SETTINGS)
    for n, run in enumerate(runs):
        last = more if n == len(runs) - 1 else {}
        alerts = evaluator.evaluate(watched(n * 60, run, **last))  # type: ignore[arg-type]
    return [one for one in alerts if one.name in (SLOW, "StragglerHostSlow", "StragglerGpuSlow")]


def test_a_verdict_that_changes_its_mind_is_the_same_alert() -> None:
    """Cause, section and cost are what it says, and not what it is."""
    first = replace(RUN, verdicts=(verdict(),))
    second = replace(RUN, verdicts=(verdict(section="forward", cause="slow_gpu"),))
    [alert] = evaluations(first, first, second)
    assert (alert.starts_at_s, alert.ends_at_s) == (60, None)
    assert (alert.annotations["section"], alert.annotations["cause"]) == ("forward", "slow_gpu")


def test_a_mute_ends_an_alert_at_once() -> None:
    """A recovery does not: it may be a gap between windows. A mute of another subject neither."""
    slow = replace(RUN, verdicts=(verdict(),))
    [alert] = evaluations(slow, slow, RUN)
    assert alert.ends_at_s is None
    [alert] = evaluations(slow, slow, replace(RUN, silenced=(verdict(),)))
    assert alert.ends_at_s == 120
    for other in (verdict(rank=4), verdict(scope="host", rank=None, subject_id="host/n0")):
        [alert] = evaluations(slow, slow, replace(RUN, silenced=(other,)))
        assert alert.ends_at_s is None


def test_maintenance_ends_what_fires_for_a_host_at_once() -> None:
    """Scores and verdicts too, of the host and of its ranks."""
    score = Score(rank=3, node="n0", role="default", section="", value=0.4)
    slow = replace(
        RUN,
        verdicts=(verdict(), verdict(scope="host", rank=None, subject_id="host/n0", role="")),
        scores=Scores(gpu_relative=(score,)),
    )
    maintained = {"under_maintenance": frozenset({"n0"})}
    ended = evaluations(slow, slow, slow, **maintained)
    assert [one.ends_at_s for one in ended] == [120] * 3
    elsewhere = {"under_maintenance": frozenset({"n1"})}
    assert [one.ends_at_s for one in evaluations(slow, slow, slow, **elsewhere)] == [None] * 3
    assert [one.ends_at_s for one in evaluations(slow, slow, RUN, **maintained)] == [120] * 3


def test_what_may_no_longer_page_is_over_for_who_was_paged() -> None:
    """Also while it only outlasts its condition."""
    slow = replace(RUN, verdicts=(verdict(),))
    modes = {a.labels["mode"]: a.ends_at_s for a in evaluations(slow, slow, slow, pages=False)}
    assert modes == {"page": 120, "observe": None}
    modes = {a.labels["mode"]: a.ends_at_s for a in evaluations(slow, slow, RUN, pages=False)}
    assert modes == {"page": 120}
