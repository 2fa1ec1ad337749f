"""What ``benchmarks.alert_rules`` puts into Prometheus, and what it makes of its answers."""

from __future__ import annotations

from benchmarks import alert_rules
from otel_straggler.alerts.catalogue import CATALOGUE
from otel_straggler.alerts.promql import HUNG_WHEN_LAST_SEEN, recorded_name


def test_what_is_recorded_for_an_alert_counts_to_it() -> None:
    """Both severities; what all share is a row of its own. Medians over evaluations."""

    def group(seconds: float) -> alert_rules.Json:
        rules = [
            {"name": "run:straggler_run_hung:max", "type": "recording"},
            {"name": "condition:straggler_host_slow:critical", "type": "recording"},
            {"name": "alert:straggler_host_slow:warning", "type": "recording"},
            {"name": "StragglerHostSlow", "type": "alerting"},
            {"name": "StragglerWatchdog", "type": "alerting"},
        ]
        return {"rules": [{**rule, "evaluationTime": seconds} for rule in rules]}

    measured = alert_rules._by_alert([group(0.001), group(0.002), group(0.009)])
    assert measured == {"StragglerHostSlow": 6.0, "StragglerWatchdog": 2.0, "shared": 2.0}


def test_every_recorded_state_finds_its_alert() -> None:
    """By the name that it is recorded under."""
    for rule in CATALOGUE:
        assert recorded_name(rule.name, rule.severity).split(":")[1] == alert_rules._snake(
            rule.name
        )


def test_the_past_is_openmetrics_with_all_that_is_looked_up_over_days() -> None:
    """A sample every 15 s, a series at a time, each with its time."""
    lines = "".join(alert_rules._past(2, range(0, 60, 15))).splitlines()
    hung, lines = lines[:4], lines[4:]
    assert {line.partition("{")[0] for line in hung} == {HUNG_WHEN_LAST_SEEN.name}
    assert len(lines) == 6 * 2 * 4
    first = lines[:4]
    assert first == [
        f'straggler_run_pages{{run_id="run-0",job_name="llm",collector="c1",cluster="prod"}} 1 {at}'
        for at in (0, 15, 30, 45)
    ]
    assert any(line.startswith("run:straggler_run_heard:timestamp_seconds{") for line in lines)


def test_five_ranks_of_each_run_are_slow_and_none_of_the_large_one() -> None:
    """As many alerts as are promised: four a rank."""
    lines = "".join(alert_rules._present(3, 100)).splitlines()
    verdicts = [line for line in lines if line.startswith("straggler_verdict_info")]
    low = [line for line in lines if line.startswith("straggler_gpu_relative") and " 0.5" in line]
    assert (len(verdicts), len(low)) == (15, 15)
    heard = [line for line in lines if line.startswith("straggler_last_heartbeat")]
    assert len(heard) == 15 + 100
