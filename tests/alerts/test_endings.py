"""Nothing fires for what is over: every alert of a run, every way in which a run ends, from
Prometheus and from the collector alone, at the same moments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from otel_straggler.alerts.catalogue import CATALOGUE
from otel_straggler.alerts.evaluation import AlertEvaluator
from otel_straggler.alerts.prometheus import rules_file
from otel_straggler.alerts.rule import FleetStatus, Scores
from otel_straggler.alerts.settings import AlertSettings

from .conftest import Program
from .endings import ENDINGS, OF_THE_COLLECTOR, STAY, runs_that_end, series_over, slow, verdict

SETTINGS = AlertSettings(
    score_for_seconds=60.0,
    missing_for_seconds=60.0,
    dropped_for_seconds=60.0,
    no_data_seconds=60.0,
    run_slow_for_seconds=60.0,
    silent_seconds=60.0,
)
STEP_S = 15
ENDS_AT_S, LAST_S = 300, 300 + 12 * 60


def test_every_alert_fires_before_the_end() -> None:
    """So that its silence afterwards says something."""
    fires = {name for _, names in _by_collector("finished") for name in names}
    evaluated = {rule.name for rule in CATALOGUE if rule.predicate}
    after = {"StragglerRunForgotten", "StragglerRunFailed"}
    assert fires >= evaluated - OF_THE_COLLECTOR - after


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_collector_tells_nothing_about_what_is_over(ending: str) -> None:
    """From the first evaluation after the end, and with one message for what fired."""
    for now_s, names in _by_collector(ending):
        if now_s >= ENDS_AT_S:
            allowed = STAY.get(ending, set()) if ending != "evicted" else set()
            assert names - OF_THE_COLLECTOR <= allowed, f"{ending}, {now_s - ENDS_AT_S} s after it"


@pytest.mark.parametrize(
    ("ending", "is_relabelled"),
    [*((ending, False) for ending in ENDINGS), *((ending, True) for ending in ENDINGS[:3])],
)
def test_prometheus_tells_nothing_about_what_is_over(
    ending: str, is_relabelled: bool, promtool: Program, tmp_path: Path
) -> None:
    """The same alerts as the collector before the end, and none after it; also of runs that have
    one ``collector`` for several shards, as docs/operate/scale-out.md has it."""
    by_time = dict(_by_collector(ending))
    counted = "count by (alertname) (ALERTS{{{}}})"
    firing = counted.format('alertstate="firing", run_id!=""')
    tests = []
    for now_s in (ENDS_AT_S - STEP_S, ENDS_AT_S, ENDS_AT_S + STEP_S, ENDS_AT_S + 300, LAST_S):
        if now_s < ENDS_AT_S:
            names = by_time[now_s] - OF_THE_COLLECTOR
            chosen = firing
        else:
            allowed = "|".join(sorted(STAY.get(ending, {"none"})))
            names = set()
            chosen = counted.format(f'alertstate="firing", run_id!="", alertname!~"{allowed}"')
        tests.append(
            {
                "expr": f"{chosen} > bool 0",
                "eval_time": f"{now_s}s",
                "exp_samples": [
                    {"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)
                ],
            }
        )
    _promtool(promtool, tmp_path, _fleets(ending), tests, is_relabelled=is_relabelled)


# --- a verdict that pages, pages -----------------------------------------------------------------


def _moving(now_s: int) -> FleetStatus:
    """Confirmed at 30 s; around the limit of paging, now in one section and now in another."""
    moves = now_s // 30 % 2
    moving = replace(
        verdict("rank", 3, pages=bool(moves), cause=("slow_gpu", "slow_host")[moves]),
        subject_id="rank/3",
        section=("forward", "backward")[now_s // 45 % 2],
        state="confirmed" if now_s >= 30 else "suspect",
    )
    run = replace(slow(), verdicts=(moving,), scores=Scores())
    return FleetStatus(now_s=now_s, collector="c1", runs=(run,))


def _expected_severities(now_s: int) -> set[str]:
    """A minute after the verdict, whatever it says of cause, section and cost meanwhile. What fires
    goes on over gaps."""
    if now_s < 90:
        return set()
    return {"critical"} if now_s < 120 else {"critical", "warning"}


def test_the_time_of_an_alert_runs_on_the_verdict_and_not_on_its_value(
    promtool: Program, tmp_path: Path
) -> None:
    """Of the collector and of Prometheus: one alert of a severity, for the whole time."""
    evaluator, tests = AlertEvaluator(SETTINGS), []
    for now_s in range(0, 271, STEP_S):
        alerts = evaluator.evaluate(_moving(now_s))
        severities = [
            one.labels["severity"]
            for one in alerts
            if one.name == "StragglerRankStraggling" and one.ends_at_s is None
        ]
        assert sorted(severities) == sorted(_expected_severities(now_s)), now_s
        chosen = 'ALERTS{alertname="StragglerRankStraggling", alertstate="firing"}'
        expected = [
            {"labels": f'{{severity="{each}"}}', "value": 1}
            for each in sorted(_expected_severities(now_s))
        ]
        expr = f"count by (severity) ({chosen})"
        tests.append({"expr": expr, "eval_time": f"{now_s}s", "exp_samples": expected})
    _promtool(promtool, tmp_path, [_moving(at) for at in range(0, 271, STEP_S)], tests)


# --- runs about which everything can be told -----------------------------------------------------


def _promtool(
    promtool: Program,
    folder: Path,
    fleets: list[FleetStatus],
    tests: list[dict[str, Any]],
    *,
    is_relabelled: bool = False,
) -> None:
    """Prometheus is shown these fleets, one at each evaluation."""
    series = list(series_over(fleets))
    for each in series:
        if is_relabelled and "run_id=" in each["series"]:
            each["series"] = each["series"].replace('collector="c1"', 'collector="fleet"')
    one = {
        "interval": f"{STEP_S}s",
        "input_series": series,
        "promql_expr_test": tests,
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


def _by_collector(ending: str) -> Iterator[tuple[int, set[str]]]:
    """Names of what fires, evaluation by evaluation."""
    evaluator = AlertEvaluator(SETTINGS)
    for fleet in _fleets(ending):
        alerts = evaluator.evaluate(fleet)
        yield int(fleet.now_s), {alert.name for alert in alerts if alert.ends_at_s is None}


def _fleets(ending: str) -> list[FleetStatus]:
    return [_fleet(now_s, ending) for now_s in range(0, LAST_S + 1, STEP_S)]


def _fleet(now_s: int, ending: str) -> FleetStatus:
    return FleetStatus(
        now_s=now_s,
        collector="c1",
        runs=runs_that_end(ending, is_over=now_s >= ENDS_AT_S, lost=now_s // STEP_S),
    )
