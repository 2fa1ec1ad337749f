"""One slow rank or a thousand alert at the same time, with few messages; from Prometheus and from
the collector alone."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from otel_straggler.alerts.evaluation import AlertEvaluator
from otel_straggler.alerts.naming import Naming
from otel_straggler.alerts.prometheus import rules_file
from otel_straggler.alerts.rule import FleetStatus, RunStatus, Score, Scores, SectionSpeed
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.model.alert import Alert

from .conftest import Program
from .endings import series_over, verdict

SETTINGS = AlertSettings()
STEP_S, LAST_S = 15, 30 * 60
DEGRADED, STRAGGLING, WHOLE = (
    "StragglerRankDegraded",
    "StragglerRankStraggling",
    "StragglerRunDegraded",
)
MAX_MESSAGES = 6
SIZES = (1, 5, 6, 20, 100, pytest.param(1_000, marks=pytest.mark.nightly))
RUN = RunStatus(run_id="r", job="llm", state="training", since_s=0.0, last_scored_at_s=1e9)


def scores(slow: int, ranks: int, random_: random.Random) -> Scores:
    """Of ``ranks``, so many at 0.60 of their best with 2 % noise, the others at their best."""
    values = np.array([random_.gauss(0.6, 0.02) for _ in range(slow)] + [1.0] * (ranks - slow))
    median = float(np.quantile(values, 0.5))
    low = [
        Score(rank=rank, node=f"n{rank // 8}", role="default", section="forward", value=value)
        for rank, value in enumerate(values.tolist())
        if value < 0.9 * median
    ]
    return Scores(
        section_individual=tuple(sorted(low, key=lambda score: (score.value, score.rank))),
        speeds=(SectionSpeed(section="forward", median=median, ranks=ranks, below=slow),),
    )


def of_scores(slow: int, ranks: int) -> list[FleetStatus]:
    """A new window every 30 s."""
    random_, naming, fleets = random.Random(slow), Naming(), []
    for now_s in range(0, LAST_S + 1, STEP_S):
        if now_s % 30 == 0:
            run = replace(RUN, scores=scores(slow, ranks, random_))
        fleets.append(_fleet(now_s, naming.named(run, SETTINGS)))
    return fleets


def of_verdicts(slow: int) -> list[FleetStatus]:
    """Confirmed ones; what they cost changes all the time."""
    random_, naming, fleets = random.Random(slow), Naming(), []
    confirmed = [verdict("rank", rank, pages=True) for rank in range(slow)]
    for now_s in range(0, LAST_S + 1, STEP_S):
        costs = [random_.gauss(3_600.0, 300.0) for _ in confirmed]
        now = tuple(
            replace(each, gpu_seconds_lost_per_hour=cost)
            for each, cost in zip(confirmed, costs, strict=True)
        )
        fleets.append(_fleet(now_s, naming.named(replace(RUN, verdicts=now), SETTINGS)))
    return fleets


def _fleet(now_s: float, run: RunStatus) -> FleetStatus:
    return FleetStatus(now_s=now_s, collector="c1", runs=(run,))


# --- the collector -------------------------------------------------------------------------------


def told(fleets: Sequence[FleetStatus], name: str) -> Iterator[tuple[float, tuple[Alert, ...]]]:
    """What fires, evaluation by evaluation."""
    evaluator = AlertEvaluator(SETTINGS)
    for fleet in fleets:
        alerts = evaluator.evaluate(fleet)
        yield fleet.now_s, tuple(a for a in alerts if a.name == name and a.ends_at_s is None)


def messages(firing: Sequence[tuple[float, tuple[Alert, ...]]]) -> int:
    """How often what fires for the run changes: a notification of its group each."""
    known = [{frozenset(alert.labels.items()) for alert in alerts} for _, alerts in firing]
    return sum(before != after for before, after in zip([set(), *known], known, strict=False))


@pytest.mark.parametrize("slow", SIZES)
@pytest.mark.parametrize("name", [DEGRADED, STRAGGLING])
def test_one_slow_rank_or_a_thousand_alert_at_the_same_time_with_few_messages(
    name: str, slow: int
) -> None:
    """Up to five have an alert each; more of them are one, with their number and the worst."""
    fleets = of_scores(slow, 2 * slow + 3) if name == DEGRADED else of_verdicts(slow)
    firing = list(told(fleets, name))
    due_s = SETTINGS.score_for_seconds if name == DEGRADED else SETTINGS.straggling_for_seconds
    assert next(now_s for now_s, alerts in firing if alerts) == due_s
    assert all(alerts for now_s, alerts in firing if now_s >= due_s)
    assert messages(firing) <= MAX_MESSAGES
    last = firing[-1][1]
    assert len(last) == (slow if slow <= 5 else 1)
    if slow > 5:
        assert last[0].labels["subjects"] == "ranks"
        assert "rank" not in last[0].labels
        assert f"{slow} ranks of run r" in last[0].annotations["description"]
        assert len({a.annotations["description"] for _, alerts in firing for a in alerts}) == 1


def test_a_run_that_has_become_slower_as_a_whole_alerts_once_and_names_no_rank() -> None:
    """It is none of them."""
    fleets = of_scores(100, 100)
    firing = list(told(fleets, WHOLE))
    assert next(now_s for now_s, alerts in firing if alerts) == SETTINGS.score_for_seconds
    assert messages(firing) == 1
    assert (
        "in section forward: it is none of them alone"
        in (firing[-1][1][0].annotations["description"])
    )
    assert not any(alerts for _, alerts in told(fleets, DEGRADED))


def test_one_more_or_less_than_five_does_not_change_what_fires_all_the_time() -> None:
    """While one of six comes and goes the six are one alert, and the five that stay are named once
    it has been gone for long."""
    six, five = of_scores(6, 20), of_scores(5, 20)
    comes_and_goes = [(six, five)[at // 8 % 2][at] for at in range(len(six))]
    assert messages(list(told(comes_and_goes[: 8 * 10], DEGRADED))) <= MAX_MESSAGES
    ends = [*six[: len(six) // 2], *five[len(six) // 2 :]]
    firing = list(told(ends, DEGRADED))
    assert {alert.labels.get("rank") for alert in firing[-1][1]} == set("01234")
    assert all(alerts for now_s, alerts in firing if now_s >= SETTINGS.score_for_seconds)
    assert messages(firing) == 2


# --- Prometheus ----------------------------------------------------------------------------------


@pytest.mark.parametrize("slow", SIZES)
@pytest.mark.parametrize("name", [DEGRADED, STRAGGLING])
def test_prometheus_tells_the_same(name: str, slow: int, promtool: Program, tmp_path: Path) -> None:
    """At every minute."""
    fleets = of_scores(slow, 2 * slow + 3) if name == DEGRADED else of_verdicts(slow)
    _promtool(promtool, tmp_path, fleets, name)


def test_prometheus_tells_of_a_run_that_has_become_slower_as_a_whole(
    promtool: Program, tmp_path: Path
) -> None:
    """And of none of its ranks."""
    fleets = of_scores(100, 100)
    for name in (WHOLE, DEGRADED):
        _promtool(promtool, tmp_path, fleets, name)


def _promtool(promtool: Program, folder: Path, fleets: list[FleetStatus], name: str) -> None:
    tests: list[dict[str, Any]] = []
    for now_s, alerts in told(fleets, name):
        if now_s % 60 in (0, 45):
            expected = [
                {"exp_labels": _without_name(a), "exp_annotations": _as_counted(a)} for a in alerts
            ]
            tests.append({"eval_time": f"{now_s}s", "alertname": name, "exp_alerts": expected})
    one = {
        "interval": f"{STEP_S}s",
        "input_series": list(series_over(fleets)),
        "alert_rule_test": tests,
    }
    document = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{STEP_S}s",
        "tests": [one],
    }
    (folder / "rules.yaml").write_text(rules_file(SETTINGS))
    (folder / "tests.yaml").write_text(yaml.safe_dump(document))
    ran = promtool("test", "rules", folder / "tests.yaml")
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[:6_000]


def _as_counted(alert: Alert) -> dict[str, str]:
    """There are series of 200 verdicts of a run."""
    annotations = dict(alert.annotations)
    if alert.name == STRAGGLING:
        annotations["description"] = re.sub("^1000 ", "200 ", annotations["description"])
    return annotations


def _without_name(alert: Alert) -> dict[str, str]:
    return {key: value for key, value in alert.labels.items() if key != "alertname"}
