"""Prometheus with the rules and the collector alone say the same: labels, links, messages."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from otel_straggler import semconv
from otel_straggler.alerts.catalogue import CATALOGUE
from otel_straggler.alerts.evaluation import AlertEvaluator
from otel_straggler.alerts.naming import Naming
from otel_straggler.alerts.prometheus import rules_file
from otel_straggler.alerts.rule import (
    Culprit,
    FleetStatus,
    RunStatus,
    Score,
    Scores,
    SectionSpeed,
    TimedOut,
)
from otel_straggler.alerts.settings import AlertSettings
from otel_straggler.collector.metrics.families import labels as labels_text
from otel_straggler.collector.metrics.status_series import alert_families
from otel_straggler.collector.metrics.verdict_series import RunLabels, verdict_families
from otel_straggler.detect.hangs.states import RunState
from otel_straggler.model.causes import Cause
from otel_straggler.model.verdict import RunVerdicts, Verdict
from otel_straggler.semconv import Metric

from .conftest import Program

SETTINGS = AlertSettings(
    score_for_seconds=60.0,
    missing_for_seconds=120.0,
    no_data_seconds=120.0,
    failed_for_seconds=120.0,
    dropped_for_seconds=60.0,
    run_slow_for_seconds=120.0,
    keep_firing_seconds=30.0,
    dashboard_url="https://g.example/d/run",
    page_url="https://c.example",
    runbook_url="https://r.example/page",
    alertmanager_url="https://a.example",
)
END_S, STEP_S, LOST_AT_S = 420, 15, 360
KINDS = {"forward": "compute", "load": "data", "allreduce": "wait"}


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 6))]
)
def test_both_say_the_same(seed: int, promtool: Program, tmp_path: Path) -> None:
    """For random runs: hung, slow, silent, under maintenance, with and without a team."""
    random_ = random.Random(seed)
    watched = _watched(random_)
    dropped = {run.run_id: random_.choice([{}, {"ring_full": 4}]) for run in watched.runs}
    reported = _reported_by_the_collector(watched, dropped)
    assert {alert["exp_labels"]["alertname"] for alert in reported} >= {"StragglerWatchdog"}
    tests = [
        {"eval_time": f"{END_S}s", "alertname": name, **_expected(reported, name)}
        for name in dict.fromkeys(rule.name for rule in CATALOGUE if rule.predicate)
    ]
    document = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{STEP_S}s",
        "tests": [
            {
                "interval": f"{STEP_S}s",
                "input_series": list(_series(watched, dropped)),
                "alert_rule_test": tests,
            }
        ],
    }
    (tmp_path / "rules.yaml").write_text(rules_file(SETTINGS))
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(document))
    ran = promtool("test", "rules", tmp_path / "tests.yaml")
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[:6_000]


def _expected(reported: list[dict[str, Any]], name: str) -> dict[str, Any]:
    alerts = [alert for alert in reported if alert["exp_labels"]["alertname"] == name]
    return {"exp_alerts": [_without_name(alert) for alert in alerts]} if alerts else {}


def _without_name(alert: dict[str, Any]) -> dict[str, Any]:
    labels = {k: v for k, v in alert["exp_labels"].items() if k != "alertname"}
    return {**alert, "exp_labels": labels}


def _reported_by_the_collector(
    watched: FleetStatus, dropped: dict[str, dict[str, int]]
) -> list[dict[str, Any]]:
    evaluator = AlertEvaluator(SETTINGS)
    for now_s in range(0, END_S + 1, STEP_S):
        lost = dropped if now_s >= LOST_AT_S else {}
        runs = tuple(replace(r, dropped=lost.get(r.run_id, {})) for r in watched.runs)
        alerts = evaluator.evaluate(replace(watched, now_s=now_s, runs=runs))
    return [
        {"exp_labels": dict(a.labels), "exp_annotations": dict(a.annotations)}
        for a in alerts
        if a.ends_at_s is None
    ]


# --- a world -------------------------------------------------------------------------------------


def _watched(random_: random.Random) -> FleetStatus:
    runs = tuple(_run(random_, f"r{n}") for n in range(4))
    maintained = frozenset(n for n in ("n0", "n1", "n2") if random_.random() < 0.3)
    of_collector = random.Random(repr(runs))
    runs = tuple(_with_unscored(run, of_collector) for run in runs)
    return FleetStatus(
        now_s=0,
        collector="c1",
        cluster=random_.choice(["", "prod"]),
        pages=True,
        runs=runs,
        under_maintenance=maintained,
        troubles={
            what: of_collector.choice(["", f"there is {what}, and more"])
            for what in semconv.TROUBLES
            if of_collector.random() < 0.5
        },
    )


def _with_unscored(run: RunStatus, random_: random.Random) -> RunStatus:
    unscored = random_.choice([0, 2, 2])
    return replace(
        run,
        unscored=unscored,
        unscored_text="ranks 1 and 2" if unscored else "",
        coverage=random_.choice([float("nan"), 0.25, 0.25, 1.0]),
    )


def _run(random_: random.Random, run_id: str) -> RunStatus:
    state = random_.choice([*get_args(RunState), *["training"] * 6])
    is_hung = state in ("stuck", "lost", "partly_lost") and random_.random() < 0.7
    cause = random_.choice([None, "slow_gpu", "slow_host"])
    count = random_.choice([0, 0, 3, 24])
    verdicts = [_verdict(random_, run_id, n, cause) for n in range(count)]
    run = RunStatus(
        run_id=run_id,
        job=random_.choice(["", "llm"]),
        group=random_.choice(["", "actor"]),
        team=random_.choice(["", "vision"]),
        pages=random_.random() < 0.7,
        state=state,
        since_s=0.0,
        is_hung=is_hung,
        hang_text=random_.choice(["", "rank 3: no sign of life."]) if is_hung else "",
        culprits_text=random_.choice(["", "ranks 1 and 2 on n0"]) if is_hung else "",
        culprits=_culprits(random_) if is_hung else (),
        timed_out=tuple(
            TimedOut(
                rank=rank,
                node=random_.choice(["", "n0", "n1"]),
                role="default",
                reason=random_.choice(["heartbeat", "section"]),
                seconds=random_.choice([0.0, 12.5]),
            )
            for rank in range(random_.choice([0, 0, 2]))
        ),
        ranks={"ok": 3, "missing": random_.choice([0, 0, 2])},
        last_scored_at_s=random_.choice([None, 100.0, float(END_S - 5)]),
        scores=_scores(random_),
        verdicts=tuple(verdicts),
        slowdown=random_.choice([float("nan"), 1.1, 1.3]),
        clashes=random_.choice([0, 0, 2]),
        hourly_goodput=random_.choice([float("nan"), 0.5, 0.93]),
        is_failing=random_.choice([False, False, True]),
        failed_at_s=END_S - random_.choice([30.0, 200.0]) if state == "failed" else None,
        failure_text="Rank 3 failed first: SIGKILL." if state == "failed" else "",
    )
    return Naming().named(run, SETTINGS)


def _culprits(random_: random.Random) -> tuple[Culprit, ...]:
    return tuple(
        Culprit(
            rank=rank,
            node=random_.choice(["", "n0", "n1"]),
            role="default",
            why=random_.choice(["lost", "never_joined", "left_early"]),  # type: ignore[arg-type]
        )
        for rank in range(random_.randint(0, 3))
    )


def _scores(random_: random.Random) -> Scores:
    """Of every rank the lowest; where most ranks have become slower, those that are far behind."""

    def some(sections: tuple[str, ...], ranks: int, highest: float = 1.0) -> tuple[Score, ...]:
        result = [
            Score(
                rank=r,
                node=f"n{r % 3}",
                role="default",
                section=random_.choice(sections),
                value=random_.random() * highest,
                best_s=random_.choice([float("nan"), 0.0702]),
                best_at_s=1_790_000_000.0,
            )
            for r in range(ranks)
        ]
        return tuple(sorted(result, key=lambda score: score.value))

    median = random_.choice([1.0, 0.6])
    individual = some(("forward",), random_.choice([0, 2, 30]), 0.9 * median)
    below = sum(score.value < SETTINGS.individual_threshold for score in individual)
    slower = SectionSpeed(section="forward", median=median, ranks=99, below=99)
    as_before = SectionSpeed(section="forward", median=median, ranks=99, below=below)
    return Scores(
        section_relative=some(("forward", "load"), random_.choice([0, 2, 30])),
        section_individual=individual,
        gpu_relative=some(("",), random_.choice([0, 2, 8])),
        speeds=(slower if median < 1.0 else as_before,),
    )


def _verdict(random_: random.Random, run_id: str, n: int, cause: Any) -> Verdict:
    scope = random_.choice(["rank", "host", "run", "role"])
    return Verdict(
        run_id=run_id,
        subject_id=f"{scope}/{n}",
        scope=scope,  # type: ignore[arg-type]
        rank=n if scope == "rank" else None,
        node=f"n{n}" if scope in ("rank", "host") else "",
        role={"rank": "default", "role": f"stage{n}"}.get(scope, ""),
        section=random_.choice(["", "forward", "load"]),
        since_ns=random_.choice([0, 1_790_000_000_123_456_789]),
        cause=cause or random_.choice(get_args(Cause)),
        state=random_.choice(["suspect", "confirmed", "flapping", "recovered"]),  # type: ignore[arg-type]
        slowdown=random_.choice([float("nan"), 1.25]),
        gpu_seconds_lost_per_hour=random_.choice([0.0, 360.0, 9_000.0]) + n,
        pages=random_.random() < 0.5,
    )


# --- the same as series --------------------------------------------------------------------------


def series_at(watched: FleetStatus) -> dict[str, str]:
    """Values by series at this moment; losses as totals."""
    result = {
        each["series"]: each["values"].partition("+")[0]
        for each in _series(watched, {run.run_id: {} for run in watched.runs}, 0)
    }
    for name in result:
        if name.startswith(semconv.LAST_HEARTBEAT.prometheus_name):
            result[name] = f"{watched.now_s:g}"
        if name.startswith(semconv.COLLECTOR_START.prometheus_name):
            result[name] = "-100000"  # long before
    for run in watched.runs:
        for reason, lost in run.dropped.items():
            of_run = labels_text(run_id=run.run_id, collector=watched.collector, reason=reason)
            result[f"{semconv.RUN_RECORDS_DROPPED.prometheus_name}{{{of_run}}}"] = str(lost)
    return result


def _series(
    watched: FleetStatus, dropped: dict[str, dict[str, int]], count: int = END_S // STEP_S
) -> Any:
    constant = {"collector": watched.collector, "cluster": watched.cluster}

    def one(metric: Metric, value: float | str, **labels: object) -> dict[str, str]:
        known = {k: v for k, v in {**labels, **constant, "instance": "a:1"}.items() if v != ""}
        values = value if isinstance(value, str) else f"{value!r}+0x{count}"
        return {"series": f"{metric.prometheus_name}{{{labels_text(**known)}}}", "values": values}

    yield one(semconv.COLLECTOR_START, 0.0)
    yield one(semconv.COLLECTOR_PAGES, float(watched.pages))
    for what in semconv.TROUBLES:
        about = {"what": what, "sentence": watched.troubles.get(what, "")}
        yield one(semconv.COLLECTOR_TROUBLE, float(what in watched.troubles), **about)
    for node in watched.under_maintenance:
        yield one(semconv.MAINTENANCE_UNTIL, 1e9, node=node, reason="fans", by="ops")
    for run in watched.runs:
        of_run = {"run_id": run.run_id, "job_name": run.job, "group": run.group}
        of_rank = {**of_run, "rank": 0, "node": "n0", "role": "default"}
        for state in get_args(RunState):
            yield one(semconv.RUN_STATE, float(state == run.state), **of_run, state=state)
        yield one(semconv.RUN_HUNG, float(run.is_hung), **of_run)
        yield one(semconv.RUN_PAGES, float(run.pages), **of_run)
        yield one(semconv.RUN_SCORING_FAILING, float(run.is_failing), **of_run)
        yield one(
            semconv.RUN_RANKS_UNSCORED, float(run.unscored), **of_run, ranks=run.unscored_text
        )
        if run.coverage == run.coverage:
            yield one(semconv.RUN_COVERAGE, run.coverage, **of_run)
        yield one(semconv.RUN_INFO, 1.0, **of_run, team=run.team, attempt=0)
        yield one(semconv.RUN_IDENTITY_CLASHES, float(run.clashes), run_id=run.run_id)
        yield one(semconv.LAST_HEARTBEAT, f"0+{STEP_S}x{count}", **of_rank)
        if run.slowdown == run.slowdown:
            yield one(semconv.RUN_SLOWDOWN, run.slowdown, **of_run)
        if run.hourly_goodput == run.hourly_goodput:
            hourly = {**of_run, "window": 3600}
            yield one(semconv.RUN_ROLLING_GOODPUT, run.hourly_goodput, **hourly)
        if run.is_hung:
            texts = {"sentence": run.hang_text, "culprits": run.culprits_text}
            yield one(semconv.RUN_HANG_INFO, 1.0, **of_run, why="lost", **texts)
        if run.failed_at_s is not None:
            failed_at_s, sentence = run.failed_at_s, run.failure_text
            yield one(semconv.RUN_FAILED, failed_at_s, **of_run, sentence=sentence)
        if run.last_scored_at_s is not None:
            yield one(semconv.RANK_LAST_SCORED, run.last_scored_at_s, **of_rank)
        for state, ranks in run.ranks.items():
            yield one(semconv.RUN_RANKS, float(ranks), **of_run, state=state)
        for section, kind in KINDS.items():
            yield one(semconv.SECTION_INFO, 1.0, **of_run, section=section, kind=kind)
        for reason, lost in dropped[run.run_id].items():
            before = LOST_AT_S // STEP_S
            values = f"_x{before} {lost}+0x{count - before}"
            yield one(semconv.RUN_RECORDS_DROPPED, values, **of_run, reason=reason)
        for culprit in run.culprits:
            about = {"rank": culprit.rank, "node": culprit.node, "role": culprit.role}
            yield one(semconv.RANK_CULPRIT, 1.0, **of_run, **about, why=culprit.why)
        for timed_out in run.timed_out:
            about = {"rank": timed_out.rank, "node": timed_out.node, "role": timed_out.role}
            seconds, reason = timed_out.seconds, timed_out.reason
            yield one(semconv.RANK_TIMED_OUT, seconds, **of_run, **about, reason=reason)
        for metric, scores in (
            (semconv.SECTION_RELATIVE, run.scores.section_relative),
            (semconv.SECTION_INDIVIDUAL, run.scores.section_individual),
            (semconv.GPU_RELATIVE, run.scores.gpu_relative),
        ):
            for score in scores:
                about = {"rank": score.rank, "node": score.node, "role": score.role}
                yield one(metric, score.value, **of_run, **about, section=score.section)
        for speed in run.scores.speeds or (AS_BEFORE,):
            about = {**of_run, "section": speed.section}
            yield one(OVER, speed.median, **about, ranks_below=0.5)
            n_named = len(run.scores.section_individual)
            for other in range(n_named, speed.ranks):  # none is slow by itself
                of_other = {**about, "rank": 10_000 + other, "node": "n0", "role": "default"}
                yield one(semconv.SECTION_INDIVIDUAL, speed.median, **of_other)
        constant_text = labels_text(**{k: v for k, v in constant.items() if v})
        yield from _of_verdicts(run, constant_text, count)
        yield from _of_names(run, constant_text, count)


OVER = semconv.OVER_RANKS[semconv.SECTION_INDIVIDUAL.name]
AS_BEFORE = SectionSpeed(section="forward", median=1.0, ranks=9, below=0)


def _of_names(run: RunStatus, constant: str, count: int) -> Any:
    """As the collector really writes them."""
    page = alert_families(run, constant).render().decode()
    for line in page.splitlines():
        if line.startswith((semconv.RUN_SLOW.prometheus_name, semconv.RANK_BEST.prometheus_name)):
            series, _, value = line.rpartition(" ")
            yield {"series": re.sub(r'\w+="",?', "", series), "values": f"{value}+0x{count}"}


def _of_verdicts(run: RunStatus, constant: str, count: int) -> Any:
    """As the collector really writes them."""
    verdicts = tuple(replace(v, group=run.group) for v in run.verdicts)
    labels = RunLabels(run_id=run.run_id, jobs={run.group: run.job}, constant=constant)
    page = verdict_families(RunVerdicts(changes=verdicts), (), labels).render().decode()
    for line in page.splitlines():
        if line.startswith("straggler_verdict"):
            series, _, value = line.rpartition(" ")
            yield {"series": re.sub(r'\w+="",?', "", series), "values": f"{value}+0x{count}"}
