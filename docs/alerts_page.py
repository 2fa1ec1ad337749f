"""The page about alerts: the catalogue and its settings, with the text around them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from described import code, table

from otel_straggler import semconv
from otel_straggler.alerts.catalogue import CATALOGUE, INHIBITIONS, NAMES
from otel_straggler.alerts.collector_rules import COLLECTOR_RULES
from otel_straggler.alerts.promql import duration
from otel_straggler.alerts.render import HUNG_WAIT_S, MIN_GROUP_WAIT_S
from otel_straggler.alerts.rule import AlertRule, FleetStatus
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.collector.settings import LivenessSettings
from otel_straggler.config import ClientSettings
from otel_straggler.setting import rows_of

_SCRAPE_S = 15.0
_MEASURED: Final[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "measurements" / "alert_rules.json").read_text(encoding="utf-8")
)
_COST: Final[dict[str, Any]] = _MEASURED["rules"]["now"]


def page() -> str:
    """All of ``docs/operate/alerts.md`` below its first line.

    Raises:
        Undescribed: a setting has no description.
    """
    settings = AlertSettings()
    return _TEXT.format(
        alerts=_alerts(settings),
        troubles=_troubles(),
        settings=_settings(),
        delays=_delays(settings),
        give_up=duration(settings.give_up_seconds),
        keep=duration(settings.keep_firing_seconds),
        hung_wait=duration(HUNG_WAIT_S),
        **_cost(),
    )


_WHILE = {"training": "trains", "working": "works", "alive": "lives", "always": "always"}
_TEXT = """# Alerts

Rules for Prometheus and Mimir, an example for Alertmanager, notification templates and a \
[runbook](../../alerts/RUNBOOK.md) are in `alerts/`. They are rendered from one catalog in the \
package; only the templates are written by hand.

## Load the rules
```
otel-straggler alerts export alerts      # the folder, with the default thresholds and without links
otel-straggler alerts export alerts --set relative_threshold=0.7 --set runbook_url=https://wiki.example/RUNBOOK.md
otel-straggler alerts check alerts/otel-straggler-rules.yaml alerts/alertmanager.yaml
otel-straggler alerts runbook StragglerRunHung
```
In `prometheus.yml` (Prometheus 2.42 or newer):
```
rule_files: [alerts/otel-straggler-rules.yaml]
alerting:
  alertmanagers: [{{static_configs: [{{targets: ["alertmanager:9093"]}}]}}]
scrape_configs:
  - job_name: otel-straggler-collector
    honor_labels: true # its labels describe the runs
    scheme: https
    tls_config: {{ca_file: /etc/prometheus/straggler-ca.pem}} # not where the system trusts it
    authorization: {{credentials_file: /etc/prometheus/straggler.token}}
    static_configs: [{{targets: ["collector.example:9464"]}}]
```
and for the collector, `otel-straggler collector --config FILE`:
```yaml
metrics:
  listen: 0.0.0.0:9464                 # Prometheus is on another machine
  allowed_hosts: [collector.example]   # the name in its targets; any other gets a 403
  collector_id: collector-0            # kept over restarts
auth:
  grant_files: [/etc/otel-straggler/grants]   # a line: read prometheus token:...
tls:
  cert_file: /etc/otel-straggler/tls.pem      # for collector.example; without it, no scheme: https
alerts:
  mode: page                           # the default, observe, sends no notifications
```
[Grants](security.md#grants) are needed as soon as other machines reach the collector. \
IP addresses and the machine's own host name need no `allowed_hosts`. For Mimir: \
`mimirtool rules load otel-straggler-rules.yaml`. The rules use data of runs whose collector is \
gone, so keep at least 4 days of data.

`alerts/alertmanager.yaml` has routes and inhibition; replace its example receivers with yours. \
To test that an alert arrives: `otel-straggler alerts test --alertmanager \
http://alertmanager:9093`.

`check` finds invalid PromQL, and metrics and labels that no component publishes (with the \
package promql-parser), and runs `promtool` and `amtool` if they are installed.

## Modes
Every alert has a label `mode`: the collector's setting `alerts.mode`. With `observe`, the \
default, alerts are evaluated and shown, but the example routes do not deliver them. With `page` \
they are routed by severity. A run with `training.run.page=false`, and a hang whose culprits are \
all on hosts under maintenance, stay in mode `observe`. Rules join `mode` and `team` from one \
recorded series, which keeps what `straggler_run_pages`, `straggler_run_info` and \
`straggler_collector_pages` said last, so you do not have to render them again.

## The alerts
{alerts}
"Cost" is what Prometheus needs for it in each evaluation, in milliseconds, with {active} active \
alerts, one more run of {ranks} ranks, and {days} days of data \
(`python -m benchmarks.alert_rules`, [result](../measurements/alert_rules.json)): {seconds} s in \
all, {shared} ms of it for what all share; most of the rest is looking up two numbers for the text \
of each alert. On a machine with ten times more load than processors an earlier version took \
{loaded} s, against {before} s with \
the rules that looked mode and team up for each alert.

All of this is one table in the package (`otel_straggler/alerts/`); rules, the collector's own \
evaluation, the runbook and this page are made from it. Every text ends with the next thing to do.

Labels: `alertname`, `severity`, `domain`, `mode`, `collector`, and as they apply `cluster`, \
`team`, `run_id`, `job_name`, `group`, `rank`, `node`, `role`, `cause`, `reason`, `subjects`, \
`what`; of `StragglerTargetDown` `job` and `instance`, and always `mode="page"`. They are the \
subject of an alert: with another subject it is another alert. What a verdict or a score says of \
its subject, `cause` and `section` (of a slow run: `cause` and `role`), are annotations: a \
verdict that changes its mind notifies nobody again.

Up to five slow ranks or hosts of a run with one cause have an alert each. More of them are one \
alert, without `rank` and `node` and with `subjects`, which counts them and names the worst five; \
one that is named stays named while it is slow. It goes on as long as any other after they have \
become five again; then these have alerts of their own at once. An alert on a hang names at most \
20 ranks.

`StragglerRankDegraded` compares a rank with its own best in the same work: in earlier attempts of \
the run, and in runs of the same job on the same device whose sections cost about the same (within \
20 %). A run with another configuration starts over. Where more than half of the ranks are slower \
than they were, `StragglerRunDegraded` says so, and a rank has an alert only if it has lost a \
tenth more than most others.

An alert fires only while its run is as the column "while the run" says, and ends with it at once: \
*trains*; *works*: trains, starts, or has no known state, but neither hangs nor has ended; \
*lives*: has not ended, as far as is known. A run that hangs or has ended has no slow ranks \
anymore. A host under maintenance has no alerts, nor have its ranks. \
Within that, an alert goes on for the time in the column "goes on for" after its condition has \
ended, so that a gap between windows or a restart of the collector does not resolve it. A mute and \
maintenance end it at the next evaluation. The time \
"after" of an alert on a verdict counts from the moment the verdict was confirmed, whatever \
section, cause and cost it had since.

## Inhibition
The Alertmanager example inhibits:

- for the same run, while `StragglerRunHung` fires: all alerts on its ranks and hosts, on what it \
does while it trains, on missing ranks and on silence; while `StragglerRunForgotten` fires: \
`StragglerRunHung`;
- for the same run and node, while `StragglerHostSlow` fires: alerts on slow ranks there (a \
warning never inhibits a critical alert);
- for the same run, while `StragglerRankStraggling` or `StragglerHostSlow` fires: \
`StragglerScoreLow`, `StragglerRankDegraded` and `StragglerRunDegraded`, also on other ranks, \
which wait for the slow one inside their sections;
- for the same collector, while `StragglerCollectorDown` fires: silent runs and missing data, \
never a hung run;
- for the same run, `StragglerCoverageLow` while `StragglerRanksUnscored` or \
`StragglerRanksMissing` fires, and both of what is not scored while `StragglerNoData` or \
`StragglerScoringFailing` does.

## Trouble of a collector
What keeps a collector from its work is `straggler_collector_trouble{{what="..."}}`: 0 from the \
start, 1 while there is trouble, with a `sentence` that says what it is. The collector decides, \
and both Prometheus and its own notifications alert on that.

{troubles}
A loss or a refusal by a limit counts for five minutes, one by load for one. The alerts have a \
label `what`. A collector that is gone, and a target that was never scraped, only Prometheus can \
notice.

`StragglerRunHung` has a route and a group of its own with a `group_wait` of {hung_wait}: it is \
sent at once, whatever else was sent about the run before.

## When a collector is gone
The last report counts. A run that hung in the last report stays hung for {give_up}, or until a \
collector has a newer report; alerts on its ranks keep firing. Then `StragglerRunForgotten` \
reports that monitoring gave up; its receiver sends no resolved notification. A run that was \
training when its collector died is silent, not hung. A restarted collector with a \
[history](history.md) knows at once which runs hang; without one it needs one timeout to detect \
it: for its first {keep}, an alert that fired before keeps firing. If two collectors have data of \
a run, the newer report wins, even after that collector has evicted the run.

## How long it takes
Heartbeat + timeout + scrape + evaluation + `for` + `group_wait`:

{delays}
The mean is shorter by half a heartbeat, half a scrape and half an evaluation. `group_wait` must \
not be shorter than an evaluation; otherwise a rank's alert is sent before its run's alert can \
inhibit it. Alerts of an existing group wait for `group_interval` instead.

Measured (`python -m benchmarks.alert_delay`, [result](../measurements/alert_delay.json)): real \
gloo ranks, Prometheus and Alertmanager, all waits 0.5 to 1 s and timeouts of 3 and 4 s, so that \
the sum above is 7.5 s for a lost rank and 8.5 s for a stuck one; eight faults of each kind. From \
the fault to the webhook it took, median and longest, 6.0 and 6.4 s for a stopped process, 5.7 and \
6.3 s for a killed one, 6.9 and 7.6 s for a deadlocked collective, 4.7 and 5.2 s for a slow rank. \
All 32 named the right rank. On a machine with three times more load than processors some took \
10 s longer: the collector needs CPU time.

## Rehearsed
`make rehearsal` plays 22 scenarios in some minutes, with the same short waits: ranks that are \
slow, stopped, killed, deadlocked or that fail, and recover, finish or are restarted; mutes, \
maintenance, a webhook that fails, another team's run; a gateway and shards that are killed. Three \
shards with TLS, tokens and a history stand behind the real OpenTelemetry Collector, and all of it \
goes two ways: by the rules in Prometheus, and by the shards. It prints when each alert came and \
went by either way, and is red for one that is missing, stays, or is false \
([result](../measurements/rehearsal.json)).

## Scores without a collector
`alerts/otel-straggler-recording-rules.yaml` computes scores from the histogram \
`straggler.section.duration`, which ranks send to an endpoint that does not score, with stock \
Prometheus or Mimir alone. Labels follow OpenTelemetry's translation: configure the \
OpenTelemetry Collector to copy resource attributes (`resource_to_telemetry_conversion`), or \
Prometheus to promote them (`promote_resource_attributes`: `service.name`, `host.name`, \
`training.run.id`, `training.group`, `training.rank`, `training.role`). Recorded series have the \
collector's labels.

A relative score is the reference over the rank's own median, for three references: the best \
rank, the 5th percentile of the ranks, their median. With thousands of ranks the best is an \
outlier: healthy ranks with a spread of 5 % score 0.68 against the best of 10,000, and 0.77 \
against the 5th percentile. A median is as exact as its bucket, and ranks send 19 coarse buckets, \
so start with `mean_best`, the same ratio of means. Sections must contain the rank's own work: \
whole steps take equally long on all ranks.

## Settings
For `otel-straggler alerts render --set NAME=VALUE`.

{settings}
## Limits
- `StragglerSpansDropped` fires for losses that go on for longer than a single one counts \
(5 minutes). What a limit of yours leaves out (`span_budget`, `sdk_rate`), and GPU times that are \
missing on a span that arrived, are counted and no alert.
- `StragglerNoData` requires windows shorter than `no_data_seconds`: with steps of more than \
45 s, lower `scoring.window_steps` or raise `no_data_seconds`.
- `StragglerRunSilent` fires for an hour, and only from Prometheus; `StragglerCollectorDown` and \
`StragglerTargetDown` only from Prometheus.
- Prometheus knows a collector that is gone for 30 days, if it is not down for more than an hour \
itself.
- Prometheus has series of 200 slow ranks and hosts of a run: beyond that it counts these, and the \
collector all.
- Thresholds apply to all runs; there are no thresholds per run.
- Tested with Prometheus 2.42 and 3.13; not tested with Mimir, Slack and PagerDuty.
"""


def _alerts(settings: AlertSettings) -> str:
    rows = []
    for name in NAMES:
        rules = [rule for rule in CATALOGUE if rule.name == name and rule.counts is None]
        rule = rules[0]
        waits_s, kept_s = rule.for_s(settings), rule.keep_firing_s(settings)
        rows.append(
            [
                f"[{name}](../../alerts/RUNBOOK.md#{name.lower()})",
                rule.summary.outline(),
                _WHILE[rule.during] if "run_id" in rule.labels else "",
                duration(waits_s) if waits_s else "at once",
                duration(kept_s) if kept_s else "",
                ", ".join(each.severity for each in rules),
                rule.domain,
                ", ".join(dict.fromkeys(_inhibited_by(name))),
                "Prometheus" if rule.predicate is None else "Prometheus, collector",
                _milliseconds(name),
            ]
        )
    heads = ("alert", "fires when", "while the run", "after", "goes on for", "severity", "domain")
    return table([*heads, "inhibits", "evaluated by", "cost"], rows)


def _milliseconds(name: str) -> str:
    """Empty for an alert that is newer than the measurement."""
    measured = _COST["milliseconds_by_alert"].get(name)
    return "" if measured is None else f"{measured:.3g}"


def _cost() -> dict[str, str]:
    loaded, before = (
        f"{_MEASURED['loaded'][name]['seconds']['median']:.2g}" for name in ("now", "before")
    )
    return {
        "loaded": loaded,
        "before": before,
        "active": f"{_COST['active_alerts']:,}",
        "ranks": f"{_MEASURED['ranks_of_one_more']:,}",
        "days": f"{_MEASURED['days']:g}",
        "seconds": f"{_COST['seconds']['median']:.2g}",
        "shared": f"{_COST['milliseconds_by_alert']['shared']:.3g}",
    }


def _inhibited_by(name: str) -> Iterator[str]:
    """Short names."""
    for each in INHIBITIONS:
        if each.source == name:
            yield from (
                "itself as a warning" if target == name else target.removeprefix("Straggler")
                for target in each.targets
            )


def _troubles() -> str:
    """Each with its alert."""
    alert_of = {
        what: rule.name
        for rule in COLLECTOR_RULES
        for what in semconv.TROUBLES
        if _is_of(rule, what)
    }
    rows = [
        [code(what), f"`{alert_of[what]}`", meaning] for what, meaning in semconv.TROUBLES.items()
    ]
    return table(["what", "alert", "1 while"], rows)


def _is_of(rule: AlertRule, what: str) -> bool:
    if rule.predicate is None or "what" not in rule.labels:
        return False
    fleet = FleetStatus(now_s=0.0, collector="", troubles={what: ""})
    return any(rule.predicate(fleet, AlertSettings()))


def _delays(settings: AlertSettings) -> str:
    liveness = LivenessSettings()
    heartbeat_s = next(
        field.default for field in dataclasses.fields(ClientSettings) if field.name == "heartbeat_s"
    )
    after_s = (
        _SCRAPE_S,
        settings.evaluation_seconds,
        settings.hang_for_seconds,
        MIN_GROUP_WAIT_S,
    )
    lost_s, min_s = liveness.lost_after_s, liveness.min_timeout_s
    maximum = duration(liveness.max_timeout_s)
    learnt = f"{duration(min_s)} to {maximum}, [learnt](silent-and-stuck-ranks.md#timeouts)"
    each = [duration(seconds) for seconds in after_s]
    lost = [duration(heartbeat_s), f"{duration(lost_s)} (`liveness.lost_after_seconds`)", *each]
    stuck = [f"2 of {duration(heartbeat_s)}", learnt, *each]
    at_max_s = heartbeat_s + lost_s + sum(after_s)
    stuck_s = 2 * heartbeat_s + min_s + sum(after_s)
    return table(
        ["", "heartbeat", "timeout", "scrape", "evaluation", "`for`", "`group_wait`", "at most"],
        [
            ["a rank is lost", *lost, f"{at_max_s:.0f} s"],
            ["a rank is stuck", *stuck, f"{stuck_s:.0f} s with the shortest timeout"],
        ],
    )


def _settings() -> str:
    rows = [
        [code(name), code(row.default), row.kind.expected if row.kind else "", row.meaning]
        for name, row in rows_of(AlertSettings).items()
        if name != "mode"
    ]
    return table(["name", "default", "accepted", "meaning"], rows)
